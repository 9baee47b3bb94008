"""Optimizers: how accumulated gradients change the parameters, in place, once for each execution of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ipusim.errors import ModelError
from ipusim.model.layer import Array, Parameters
from ipusim.model.profile import Work

#: An optimizer's own arrays, by parameter name (its slots, in TensorFlow's word).
State = dict[str, Array]


class Optimizer(Protocol):
    """A rule for the weight update; its memory lives in the State that it makes."""

    def initial_state(self, parameters: Parameters) -> State:
        """Return the state before the first update."""
        ...

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Change the arrays of ``parameters`` and ``state`` in place, keeping their dtypes."""
        ...

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of one update. Slots lie beside their weights, so nothing is exchanged (assumed)."""
        ...


def _check_learning_rate(learning_rate: float) -> None:
    if not (np.isfinite(learning_rate) and learning_rate >= 0):
        raise ModelError(f"expected a learning rate of 0 or more, got {learning_rate}")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: var -= learning_rate * grad (TensorFlow's GradientDescentOptimizer)."""

    learning_rate: float

    def __post_init__(self) -> None:
        """Raise ModelError for a learning rate below 0 or not finite."""
        _check_learning_rate(self.learning_rate)

    def initial_state(self, parameters: Parameters) -> State:
        """Return an empty state."""
        return {}

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Take one step against ``gradients``."""
        for name, variable in parameters.items():
            step = variable.dtype.type(self.learning_rate) * gradients[name]
            np.subtract(variable, step, out=variable, casting="same_kind")

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return a product and a difference for each element; reads gradient and weight, writes weight."""
        return Work(flops=2 * parameter_count, sram_bytes=3 * parameter_count * itemsize, itemsize=itemsize)


@dataclass(frozen=True)
class Momentum:
    """Momentum as TensorFlow 1's MomentumOptimizer has it, without Nesterov.

    accum = momentum * accum + grad; var -= learning_rate * accum. The learning
    rate is outside the accumulator.
    """

    learning_rate: float
    momentum: float

    def __post_init__(self) -> None:
        """Raise ModelError for a learning rate or momentum below 0 or not finite."""
        _check_learning_rate(self.learning_rate)
        if not (np.isfinite(self.momentum) and self.momentum >= 0):
            raise ModelError(f"expected a momentum of 0 or more, got {self.momentum}")

    def initial_state(self, parameters: Parameters) -> State:
        """Return one zero accumulator for each parameter."""
        return {name: np.zeros_like(variable) for name, variable in parameters.items()}

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Decay and add to the accumulators, then step against them."""
        for name, variable in parameters.items():
            accumulator = state[name]
            accumulator *= accumulator.dtype.type(self.momentum)
            accumulator += gradients[name]
            np.subtract(variable, variable.dtype.type(self.learning_rate) * accumulator, out=variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return two products, a sum and a difference each; reads gradient, slot, weight, writes slot, weight."""
        return Work(flops=4 * parameter_count, sram_bytes=5 * parameter_count * itemsize, itemsize=itemsize)
