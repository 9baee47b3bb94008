"""Define optimizers with step sizes per element or parameter: Adam, LAMB, LARS and RMSProp."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, Self

import numpy as np
from annotated_doc import Doc
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from ipusim.model.layers.keys import OneOf
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning.optimizers import GradientMapping, InSlots, LearningRate, Momentum, State, check_not_negative
from ipusim.model.work import VectorWork, Work

#: Key of the number of updates in the state; parameter names contain a slash.
_STEP: Final = "step"
#: Compute sets of an RMSProp update: the mean square, the momentum, and the weight (assumed).
_RMSPROP_SETS: Final = 3
#: Compute sets of an update by moments, as in PopART's Adam: for the first moment, the second moment, the update and
#: the weight.
_MOMENT_SETS: Final = 4

_Beta = Annotated[float, Ge(0), Lt(1)]
_Epsilon = Annotated[float, Gt(0), Le(1), Doc("added to the root")]
#: The type of a moment.
_Type = Annotated[str, OneOf(("float16", "float32", "float64"))]
#: Part of a parameter's name; an empty part would be in every name.
_Part = Annotated[str, MinLen(1), MaxLen(256)]


@dataclass(frozen=True)
class Moments(InSlots):
    """Common parts of Adam and LAMB: decaying means of the gradient (m) and of its square (v), called moments."""

    slots: ClassVar[tuple[str, ...]] = ("m", "v")

    learning_rate: LearningRate
    beta_1: Annotated[_Beta, Doc("decay of the mean of gradients")] = 0.9
    beta_2: Annotated[_Beta, Doc("decay of the mean of squared gradients")] = 0.999
    epsilon: _Epsilon = 1e-8
    weight_decay: Annotated[float, Ge(0), Le(1), Doc("share of a weight added to its update")] = 0.0
    exclude_from_weight_decay: Annotated[
        tuple[_Part, ...], MaxLen(64), Doc("parts of the names (layer/W) of parameters without weight decay")
    ] = ()
    first_moment: Annotated[
        _Type | None, Doc("type of the means of gradients; default: the weights' type, on PopART float32 at least")
    ] = None
    second_moment: Annotated[
        _Type | None, Doc("type of the means of squared gradients; default: as for first_moment")
    ] = None
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value, a decay of 1 or more, or a zero epsilon."""
        check_not_negative(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        self.check_means(self.epsilon, beta_1=self.beta_1, beta_2=self.beta_2)

    def on_popart(self, precision: str) -> Self:
        """Return the optimizer with PopART's types for moments without a type.

        PopART keeps moments in single precision (graphcore/popart d2f20d7, python/popart/popart_core/popart.cpp, Adam's
        accl1_type and accl2_type), and so does PopTorch (graphcore/poptorch, python/optim.py). For fine-tuning,
        Graphcore's programs request the first moment in half precision (graphcore/examples 3cc8f81, nlp/bert/pytorch,
        enable_half_first_order_momentum); the programs for MLPerf 2.0 request both (lamb_accl_dtype).
        """
        if precision != "float16":
            return self
        return replace(self, first_moment=self.first_moment or "float32", second_moment=self.second_moment or "float32")

    def slot_itemsize(self, slot: str, itemsize: int) -> int:
        """Return the bytes of an element of a moment."""
        dtype = self._types[slot]
        return itemsize if dtype is None else np.dtype(dtype).itemsize

    @property
    def _types(self) -> dict[str, str | None]:
        return dict(zip(self.slots, (self.first_moment, self.second_moment), strict=True))

    def initial_state(self, parameters: Parameters) -> State:
        """Return zeros for m and v of each parameter, and no update yet."""
        slots = {
            f"{name}/{slot}": np.zeros_like(array, dtype=dtype)
            for name, array in parameters.items()
            for slot, dtype in self._types.items()
        }
        return slots | {_STEP: np.zeros((), np.int64)}

    def _update_moments(self, name: str, gradient: Array, state: State) -> tuple[Array, Array]:
        """Update m and v of ``name`` in place and return both."""
        m, v = state[f"{name}/m"], state[f"{name}/v"]
        m *= self.beta_1
        m += (1 - self.beta_1) * gradient.astype(m.dtype, copy=False)
        v *= self.beta_2
        v += (1 - self.beta_2) * np.square(gradient, dtype=v.dtype)
        return m, v

    def _corrections(self, state: State) -> tuple[float, float]:
        """Count an update; return 1 - beta^t of both moments, which corrects the start at zero."""
        state[_STEP] += 1
        step = int(state[_STEP])
        return 1 - self.beta_1**step, 1 - self.beta_2**step

    def _has_weight_decay(self, name: str) -> bool:
        return self.weight_decay > 0 and not any(part in name for part in self.exclude_from_weight_decay)


@dataclass(frozen=True)
class Adam(Moments):
    """Adam: steps along the mean of gradients over the root of the mean of their squares.

    Kingma and Ba, arXiv 1412.6980, in TensorFlow's form:
    m = beta_1 * m + (1 - beta_1) * grad; v = beta_2 * v + (1 - beta_2) * grad^2;
    var -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon).
    Epsilon is the paper's "epsilon hat". Weight decay is decoupled from the moments:
    var -= learning_rate * weight_decay * var (Loshchilov and Hutter, arXiv 1711.05101).
    """

    kind: ClassVar[str] = "adam"
    graphcore: ClassVar[str] = "AdamOptimizer"

    epsilon: _Epsilon = 1e-8

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the moments, then step against the mean of gradients."""
        first, second = self._corrections(state)
        rate = self.learning_rate * math.sqrt(second) / first
        for name, variable in parameters.items():
            m, v = self._update_moments(name, gradients[name], state)
            update = np.sqrt(v, out=np.empty_like(v))  # np.sqrt of a scalar would return no array
            update += self.epsilon
            np.divide(m, update, out=update)
            update *= rate
            if self._has_weight_decay(name):
                update += self.learning_rate * self.weight_decay * variable
            np.subtract(variable, update, out=variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of an update.

        Per element: three operations for m and four for v, then square root, sum, quotient, product and difference, and
        two for the decay. Reads gradient, slots and weight; writes slots and weight.
        """
        per_element = VectorWork(12 if self.weight_decay else 10, quotients=1, transcendentals=1)
        return self.update_work(per_element, parameter_count, itemsize, _MOMENT_SETS)


@dataclass(frozen=True)
class LAMB(Moments):
    """LAMB: steps in Adam's direction, of a length in proportion to the parameter's norm.

    You et al., arXiv 1904.00962, like Graphcore's ipu_tensorflow_addons, lamb_optimizer.py. With m and v from
    :class:`Adam`, mh = m / (1 - beta_1^t) and vh = v / (1 - beta_2^t):
    r = mh / (sqrt(vh) + epsilon) + weight_decay * var; var -= learning_rate * |var| / |r| * r,
    with norms over a parameter, and ratio 1 if either norm is 0. The default epsilon is Graphcore's.
    """

    kind: ClassVar[str] = "lamb"
    graphcore: ClassVar[str] = "LAMBOptimizer"

    epsilon: _Epsilon = 1e-6

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the moments, then step against the mean of gradients, in proportion to the weights' norm."""
        first, second = self._corrections(state)
        for name, variable in parameters.items():
            m, v = self._update_moments(name, gradients[name], state)
            update = np.asarray(np.sqrt(v / second))
            update += self.epsilon
            np.divide(m / first, update, out=update)
            if self._has_weight_decay(name):
                update += self.weight_decay * variable
            norms = [math.sqrt(np.square(array, dtype=np.float64).sum()) for array in (variable, update)]
            ratio = norms[0] / norms[1] if all(norms) else 1.0
            update *= self.learning_rate * ratio
            np.subtract(variable, update, out=variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: Adam's, plus a product for each correction, and squares and sums for norms.

        The norms share two compute sets; the exchange of a single number per tile is neglected.
        """
        per_element = VectorWork(16 if self.weight_decay else 14, reductions=2, quotients=1, transcendentals=1)
        return self.update_work(per_element, parameter_count, itemsize, _MOMENT_SETS + 2, more=2)


@dataclass(frozen=True)
class LARS(Momentum):
    """LARS: momentum with steps scaled by the ratio of a parameter's norm and its gradient's norm.

    You et al., arXiv 1708.03888, like the optimizer of Graphcore's ResNet-50 for MLPerf (vision/cnns/tensorflow1):
    trust = eeta * |W| / (|gradient| + weight_decay * |W| + epsilon), or 1 if either norm is 0; accumulator = momentum *
    accumulator + gradient + weight_decay * W; W -= learning_rate * trust * accumulator. Parameters in ``skip_list`` use
    momentum alone.
    """

    kind: ClassVar[str] = "lars"
    graphcore: ClassVar[str] = ""

    eeta: Annotated[float, Ge(0), Le(1), Doc("length of a step, as a share of a parameter's norm")] = 0.001
    epsilon: Annotated[float, Ge(0), Le(1), Doc("added to the norm in the denominator")] = 0.0
    weight_decay: Annotated[float, Ge(0), Le(1), Doc("share of a weight that is added to its gradient")] = 0.0
    skip_list: Annotated[
        tuple[_Part, ...], MaxLen(64), Doc("parts of the names (layer/W) of parameters updated by momentum only")
    ] = ()

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value."""
        super().__post_init__()
        check_not_negative(eeta=self.eeta, epsilon=self.epsilon, weight_decay=self.weight_decay)

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the accumulators, then step against them, in proportion to the weights' norm."""
        for name, variable in parameters.items():
            gradient, rate = gradients[name], float(self.learning_rate)
            if not any(part in name for part in self.skip_list):
                weight_norm, gradient_norm = (
                    math.sqrt(np.square(array, dtype=np.float64).sum()) for array in (variable, gradient)
                )
                denominator = gradient_norm + self.weight_decay * weight_norm + self.epsilon
                rate *= self.eeta * weight_norm / denominator if weight_norm and gradient_norm else 1.0
                gradient = gradient + variable.dtype.type(self.weight_decay) * variable
            accumulator = state[name]
            accumulator *= accumulator.dtype.type(self.momentum)
            accumulator += gradient
            step = gradient + accumulator * self.momentum if self.nesterov else accumulator
            np.subtract(variable, variable.dtype.type(rate) * step, out=variable, casting="same_kind")

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: momentum's, plus operations for decay and norms.

        Per element, the decay takes two operations, a norm a square and a sum. The norms share two compute sets, and
        the decay takes one.
        """
        momentum_work = super().work(parameter_count, itemsize)
        return replace(
            momentum_work,
            vector=momentum_work.vector + VectorWork(4, reductions=2) * parameter_count,
            sram_bytes=momentum_work.sram_bytes + 4 * parameter_count * itemsize,
            compute_sets=momentum_work.compute_sets + 3,
        )


@dataclass(frozen=True)
class RMSProp(InSlots):
    """RMSProp: steps along the gradient over the root of the mean squared gradient.

    Tieleman and Hinton, lecture 6.5 of Neural Networks for Machine Learning, in TensorFlow 1's form with an initial
    mean of one: ms = decay * ms + (1 - decay) * grad^2;
    mom = momentum * mom + learning_rate * grad / sqrt(ms + epsilon); var -= mom. The centered form subtracts the
    squared mean gradient, mg = decay * mg + (1 - decay) * grad, from ms under the root.
    """

    kind: ClassVar[str] = "rmsprop"
    graphcore: ClassVar[str] = "RMSPropOptimizer"

    learning_rate: LearningRate
    decay: Annotated[float, Ge(0), Lt(1), Doc("decay of the mean of squares")] = 0.9
    momentum: Annotated[float, Ge(0), Le(1), Doc("decay of the accumulated steps")] = 0.0
    epsilon: Annotated[float, Gt(0), Le(1), Doc("added under the root")] = 1e-10
    centered: Annotated[bool, Doc("whether squares are of differences from the mean gradient")] = False
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite value, a decay of 1 or more, or a zero epsilon."""
        check_not_negative(learning_rate=self.learning_rate, momentum=self.momentum)
        self.check_means(self.epsilon, decay=self.decay)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots, like TensorFlow's."""
        return ("rms", *(("mg",) if self.centered else ()), "momentum")

    #: Initial mean of squares.
    first_square: ClassVar[float] = 1.0

    def initial_state(self, parameters: Parameters) -> State:
        """Return the initial mean squares of the parameters, and zeros for the other slots."""
        return {
            f"{name}/{slot}": np.full_like(array, self.first_square if slot == "rms" else 0)
            for name, array in parameters.items()
            for slot in self.slots
        }

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the means, then step against the gradient."""
        for name, variable in parameters.items():
            gradient, square = gradients[name], state[f"{name}/rms"]
            square *= self.decay
            square += (1 - self.decay) * np.square(gradient)
            mean = state[f"{name}/mg"] if self.centered else None
            if mean is not None:
                mean *= self.decay
                mean += (1 - self.decay) * gradient
            step = self.learning_rate * gradient / self._root(square, mean)
            if "momentum" in self.slots:
                steps = state[f"{name}/momentum"]
                steps *= self.momentum
                steps += step
                step = steps
            np.subtract(variable, step, out=variable)

    def _root(self, square: Array, mean: Array | None) -> Array:
        """Return the divisor of the gradient, a new array."""
        root = np.asarray(square + self.epsilon)
        if mean is not None:
            root -= np.square(mean)
        return np.sqrt(root, out=root)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of an update.

        Per element: four operations for the mean square, the sum with epsilon, root, quotient, two products and a sum
        for the step, and the difference. Centered: three for the mean gradient, its square and a difference. Reads
        gradient, slots and weight; writes slots and weight.
        """
        per_element = VectorWork(14 if self.centered else 9, quotients=1, transcendentals=1)
        return self.update_work(per_element, parameter_count, itemsize, _RMSPROP_SETS + self.centered)
