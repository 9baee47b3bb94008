"""Weight updates of TensorFlow 2's Keras (keras/optimizer_v2) where they are not TensorFlow 1's.

Graphcore's Keras is that one: its own optimizers inherit from ``keras.optimizer_v2`` (graphcore/keras,
keras/ipu/optimizers/rmsprop.py and gradient_descent.py), and none but those of automatic loss scaling change the rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ipusim.api import Array, VectorWork, Work, layers, learning


class KerasMomentum(learning.Momentum):
    """Momentum: accumulator = momentum * accumulator - learning_rate * gradient; W += accumulator.

    Nesterov's is W += momentum * accumulator - learning_rate * gradient (ResourceApplyKerasMomentum). With a step size
    that changes it is another rule than TensorFlow 1's, where steps are of the size of the moment.
    """

    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    def apply(self, parameters: layers.Parameters, gradients: layers.Parameters, state: learning.State) -> None:
        """Decay the accumulators and add the steps to them, then add them to the weights."""
        for name, variable in parameters.items():
            accumulator = state[name]
            accumulator *= accumulator.dtype.type(self.momentum)
            step = variable.dtype.type(self.learning_rate) * gradients[name]
            accumulator -= step
            ahead = accumulator * self.momentum - step if self.nesterov else accumulator
            np.add(variable, ahead, out=variable, casting="same_kind")


class KerasRMSProp(learning.RMSProp):
    """RMSProp whose mean of squares begins at zero.

    Without momentum there is no slot for it, and epsilon is added to the root instead of under it.
    """

    first_square: ClassVar[float] = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the optimizer's arrays of each parameter, as in Keras."""
        return tuple(slot for slot in super().slots if slot != "momentum" or self.momentum > 0)

    def _root(self, square: Array, mean: Array | None) -> Array:
        if self.momentum > 0:
            return super()._root(square, mean)
        root = np.asarray(np.sqrt(square if mean is None else square - np.square(mean)))
        root += self.epsilon
        return root

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: as TensorFlow 1's; without momentum neither its product and sum nor its compute set."""
        result = super().work(parameter_count, itemsize)
        if self.momentum > 0:
            return result
        vector = result.vector - VectorWork(2 * parameter_count)
        return replace(result, vector=vector, compute_sets=result.compute_sets - 1)


class KerasAdadelta(learning.Adadelta):
    """Adadelta under Keras' names of its slots."""

    slots: ClassVar[tuple[str, ...]] = ("accum_grad", "accum_var")


class KerasFtrl(learning.Ftrl):
    """FTRL under Keras' names of its slots."""

    slots: ClassVar[tuple[str, ...]] = ("accumulator", "linear")
