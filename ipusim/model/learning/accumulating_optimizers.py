"""Define optimizers with steps scaled by accumulated gradients: Adagrad, Adadelta and FTRL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from annotated_doc import Doc
from annotated_types import Ge, Gt, Le, Lt

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning.optimizers import GradientMapping, InSlots, LearningRate, State, check_not_negative
from ipusim.model.work import VectorWork, Work

#: Compute sets of an Adagrad update: the accumulator, and the weight (assumed).
_ADAGRAD_SETS: Final = 2
#: Compute sets of an Adadelta update: both means, and the weight (assumed).
_ADADELTA_SETS: Final = 3
#: Compute sets of an FTRL update: the accumulator, the linear term, and the weight (assumed).
_FTRL_SETS: Final = 3

_InitialAccumulator = Annotated[float, Ge(0), Le(1e6), Doc("initial value of the sum of squares")]
_Penalty = Annotated[float, Ge(0), Le(1e6)]


@dataclass(frozen=True)
class Adagrad(InSlots):
    """Adagrad: steps along the gradient over the root of the summed squared gradients.

    Duchi, Hazan and Singer, Journal of Machine Learning Research 12 (2011), in the form of TensorFlow's
    ResourceApplyAdagrad: accumulator += grad^2; var -= learning_rate * grad / (sqrt(accumulator) + epsilon). TensorFlow
    1 has no epsilon, Keras has one (ResourceApplyAdagradV2).
    """

    kind: ClassVar[str] = "adagrad"
    graphcore: ClassVar[str] = "AdagradOptimizer"
    slots: ClassVar[tuple[str, ...]] = ("accumulator",)

    learning_rate: LearningRate
    initial_accumulator: _InitialAccumulator = 0.1
    epsilon: Annotated[float, Ge(0), Le(1), Doc("added to the root")] = 0.0
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value, and for zero initial accumulator and epsilon."""
        check_not_negative(
            learning_rate=self.learning_rate, initial_accumulator=self.initial_accumulator, epsilon=self.epsilon
        )
        if not self.initial_accumulator + self.epsilon:
            raise ModelError("expected an initial accumulator or an epsilon above 0, got 0 for both")

    def initial_state(self, parameters: Parameters) -> State:
        """Return the initial sums of squares of the parameters."""
        return _fill_slots(parameters, self.slots, self.initial_accumulator)

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Add to the sums, then step against the gradient."""
        for name, variable in parameters.items():
            gradient, accumulator = gradients[name], state[f"{name}/{self.slots[0]}"]
            accumulator += np.square(gradient)
            step = self.learning_rate * gradient / (np.sqrt(accumulator) + self.epsilon)
            np.subtract(variable, step, out=variable, casting="same_kind")

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: per element a square, sum, root, quotient, product and difference, and a sum for epsilon."""
        per_element = VectorWork(5 if self.epsilon else 4, quotients=1, transcendentals=1)
        return self.update_work(per_element, parameter_count, itemsize, _ADAGRAD_SETS)


@dataclass(frozen=True)
class Adadelta(InSlots):
    """Adadelta: gradients scaled by the RMS of steps over the RMS of gradients.

    Zeiler, arXiv 1212.5701, with a learning rate, like TensorFlow's ResourceApplyAdadelta:
    accum = rho * accum + (1 - rho) * grad^2; update = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad;
    var -= learning_rate * update; accum_update = rho * accum_update + (1 - rho) * update^2.
    """

    kind: ClassVar[str] = "adadelta"
    graphcore: ClassVar[str] = "AdadeltaOptimizer"
    slots: ClassVar[tuple[str, ...]] = ("accum", "accum_update")

    learning_rate: LearningRate
    rho: Annotated[float, Ge(0), Lt(1), Doc("decay of the mean squares")] = 0.95
    epsilon: Annotated[float, Gt(0), Le(1), Doc("added under the roots")] = 1e-8
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value, a decay of 1 or more, or a zero epsilon."""
        check_not_negative(learning_rate=self.learning_rate)
        self.check_means(self.epsilon, rho=self.rho)

    def initial_state(self, parameters: Parameters) -> State:
        """Return zeros for both means of the parameters."""
        return _fill_slots(parameters, self.slots, 0)

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the mean of gradients, step, then update the mean of steps."""
        for name, variable in parameters.items():
            squares, steps = (state[f"{name}/{slot}"] for slot in self.slots)
            self._update_mean(squares, gradients[name])
            update = np.sqrt(steps + self.epsilon) / np.sqrt(squares + self.epsilon) * gradients[name]
            np.subtract(variable, self.learning_rate * update, out=variable, casting="same_kind")
            self._update_mean(steps, update)

    def _update_mean(self, mean: Array, value: Array) -> None:
        mean *= self.rho
        mean += (1 - self.rho) * np.square(value)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of an update.

        Per element: four operations per mean, a sum and a root for each of both roots, the quotient, two products and
        the difference.
        """
        per_element = VectorWork(13, quotients=1, transcendentals=2)
        return self.update_work(per_element, parameter_count, itemsize, _ADADELTA_SETS)


@dataclass(frozen=True)
class Ftrl(InSlots):
    """FTRL: follow the regularized leader, separately per weight; l1 sets weights with small gradients to zero.

    McMahan et al., Ad Click Prediction (KDD 2013), in the form of TensorFlow's ResourceApplyFtrlV2:
    new = accum + grad^2; linear += grad + 2 * l2_shrinkage * var - (new^-power - accum^-power) / learning_rate * var;
    var = (clip(linear, -l1, l1) - linear) / (new^-power / learning_rate + 2 * l2 + beta / learning_rate); accum = new.
    """

    kind: ClassVar[str] = "ftrl"
    graphcore: ClassVar[str] = "FtrlOptimizer"
    slots: ClassVar[tuple[str, ...]] = ("accum", "linear")

    learning_rate: Annotated[float, Gt(0), Le(1e6), Doc("step size")]
    learning_rate_power: Annotated[float, Ge(-10), Le(0), Doc("power of the sum of squares in the step size")] = -0.5
    initial_accumulator: _InitialAccumulator = 0.1
    l1: Annotated[_Penalty, Doc("weight of the sum of absolute weights")] = 0.0
    l2: Annotated[_Penalty, Doc("weight of the sum of squared weights")] = 0.0
    l2_shrinkage: Annotated[_Penalty, Doc("weight of the squared weights, only in the gradient")] = 0.0
    beta: Annotated[_Penalty, Doc("added to the root of the sum of squares")] = 0.0
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value, a zero step size, and a power above 0."""
        check_not_negative(
            initial_accumulator=self.initial_accumulator,
            l1=self.l1,
            l2=self.l2,
            l2_shrinkage=self.l2_shrinkage,
            beta=self.beta,
        )
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ModelError(f"expected a learning rate above 0, got {self.learning_rate}")
        if not (math.isfinite(self.learning_rate_power) and self.learning_rate_power <= 0):
            raise ModelError(f"expected a learning rate power of 0 or less, got {self.learning_rate_power}")

    def initial_state(self, parameters: Parameters) -> State:
        """Return the initial sums of squares of the parameters, and zeros for the linear terms."""
        sums, linear = self.slots
        return _fill_slots(parameters, (sums,), self.initial_accumulator) | _fill_slots(parameters, (linear,), 0)

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the sums and the linear terms, then set the weights."""
        for name, variable in parameters.items():
            gradient = gradients[name]
            accumulator, linear = (state[f"{name}/{slot}"] for slot in self.slots)
            old_power = self._power(accumulator)
            accumulator += np.square(gradient)
            new_power = self._power(accumulator)
            linear += (
                gradient + 2 * self.l2_shrinkage * variable - (new_power - old_power) / self.learning_rate * variable
            )
            curvature = new_power / self.learning_rate + (2 * self.l2 + self.beta / self.learning_rate)
            variable[...] = (np.clip(linear, -self.l1, self.l1) - linear) / curvature

    def _power(self, accumulator: Array) -> Array:
        if self.learning_rate_power == -0.5:
            return np.asarray(np.sqrt(accumulator))
        return np.asarray(np.power(accumulator, -self.learning_rate_power))

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of an update.

        Per element: two operations for the sum, two powers, five for the linear term, four for l1, a product, a sum and
        a quotient for the weight, and two more with a shrinkage.
        """
        per_element = VectorWork(15 if self.l2_shrinkage else 13, quotients=1, transcendentals=2)
        return self.update_work(per_element, parameter_count, itemsize, _FTRL_SETS)


def _fill_slots(parameters: Parameters, slots: tuple[str, ...], value: float) -> State:
    """Return slots of the parameters, filled with a value."""
    return {f"{name}/{slot}": np.full_like(array, value) for name, array in parameters.items() for slot in slots}
