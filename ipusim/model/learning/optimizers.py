"""Define optimizers, which change a stage's parameters in place once per execution of the pipeline.

An update uses the accumulated gradients and the optimizer's own arrays, called slots as in TensorFlow. This module
contains the common parts of all optimizers, with SGD and Momentum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import ScenarioName
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.work import VectorWork, Work

#: Arrays of an optimizer by parameter name (TensorFlow's slots).
State = dict[str, Array]


class Optimizer(Protocol):
    """Rule of the weight update; ``State`` contains what the rule remembers from update to update."""

    @property
    def gradient_map(self) -> GradientMap | None:
        """Operations on micro-batch gradients before accumulation."""

    def initial_state(self, parameters: Parameters) -> State:
        """Return the state before the first update."""

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Change the arrays of ``parameters`` and ``state`` in place, keeping dtypes."""

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work of an update; slots and weights share tiles, without exchange (assumed)."""

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the slots of ``parameter_count`` elements of ``itemsize`` bytes.

        The count of updates, a single number per stage, is left out.
        """


class StageUpdate(NamedTuple):
    """Arrays read and changed by a stage's weight update, by parameter."""

    parameters: Parameters
    gradients: Parameters
    state: State


#: Earlier name, kept for one release.
Updated = StageUpdate


@runtime_checkable
class JointOptimizer(Optimizer, Protocol):
    """Optimizer that receives every stage's variables at once, to clip by global norm."""

    def begin(self, stages: Sequence[StageUpdate], replicated: bool) -> Callable[[], object]:
        """Scale the gradients in place for averaging over replicas; return the function that applies the update."""


@runtime_checkable
class SlottedOptimizer(Optimizer, Protocol):
    """An optimizer that states the bytes of each slot; a slot of another optimizer is as large as its parameter."""

    def slot_bytes(self, parameter_count: int, itemsize: int) -> list[int]:
        """Return the bytes of each slot of a parameter."""


def check_not_negative(**values: float) -> None:
    """Raise ModelError, with the value's name, for a negative or non-finite value."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ModelError(f"expected a {name.replace('_', ' ')} of 0 or more, got {value}")


class InSlots:
    """Mixin of an optimizer whose state consists of slots."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of a parameter's slots: arrays with as many elements as the parameter."""
        raise NotImplementedError

    def slot_itemsize(self, slot: str, itemsize: int) -> int:
        """Return the bytes per element of a slot; by default ``itemsize``, the parameter's."""
        return itemsize

    def slot_bytes(self, parameter_count: int, itemsize: int) -> list[int]:
        """Return the bytes of each slot of a parameter."""
        return [parameter_count * self.slot_itemsize(slot, itemsize) for slot in self.slots]

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the slots."""
        return sum(self.slot_bytes(parameter_count, itemsize))

    @staticmethod
    def check_means(epsilon: float, **decays: float) -> None:
        """Raise ModelError unless the decays are from 0 and below 1, and ``epsilon`` is above 0."""
        for name, decay in decays.items():
            if not 0 <= decay < 1:
                raise ModelError(f"expected a {name} from 0 and below 1, got {decay}")
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise ModelError(f"expected an epsilon above 0, got {epsilon}")

    def update_work(
        self, per_element: VectorWork, parameter_count: int, itemsize: int, compute_sets: int, more: int = 0
    ) -> Work:
        """Return the work of an update that reads gradient, slots and weight, and writes slots and weight.

        ``more`` counts additional reads and writes of each element. The arithmetic has the widest type among parameter
        and slots.
        """
        return Work(
            vector=per_element * parameter_count,
            sram_bytes=(3 + more) * parameter_count * itemsize + 2 * self.state_bytes(parameter_count, itemsize),
            itemsize=max([itemsize, *(self.slot_itemsize(slot, itemsize) for slot in self.slots)]),
            compute_sets=compute_sets,
        )


#: Step size of an optimizer.
LearningRate = Annotated[float, Ge(0), Le(1e6), Doc("step size")]
#: Gradient map of an optimizer.
GradientMapping = Annotated[
    GradientMap | None,
    ScenarioName("map_gradient"),
    Doc("mapping of each micro-batch's gradients before accumulation"),
]


@dataclass(frozen=True)
class SGD(InSlots):
    """Stochastic gradient descent: W -= learning_rate * gradient."""

    kind: ClassVar[str] = "sgd"
    graphcore: ClassVar[str] = "GradientDescentOptimizer"
    slots: ClassVar[tuple[str, ...]] = ()

    learning_rate: LearningRate
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite learning rate."""
        check_not_negative(learning_rate=self.learning_rate)

    def initial_state(self, parameters: Parameters) -> State:
        """Return an empty state."""
        return {}

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Take a step against ``gradients``."""
        for name, variable in parameters.items():
            step = variable.dtype.type(self.learning_rate) * gradients[name]
            np.subtract(variable, step, out=variable, casting="same_kind")

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: a product and a difference per element; reads gradient and weight, writes weight."""
        return self.update_work(VectorWork(2), parameter_count, itemsize, compute_sets=1)


@dataclass(frozen=True)
class Momentum(InSlots):
    """Momentum: accumulator = momentum * accumulator + gradient; W -= learning_rate * accumulator.

    The form is TensorFlow 1's (ResourceApplyMomentum), with the learning rate outside the accumulator. Nesterov's form
    anticipates the next decay: W -= learning_rate * (gradient + momentum * accumulator) (Sutskever et al., ICML 2013).
    """

    kind: ClassVar[str] = "momentum"
    graphcore: ClassVar[str] = "MomentumOptimizer"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    learning_rate: LearningRate
    momentum: Annotated[float, Ge(0), Le(1), Doc("decay of the accumulator")]
    nesterov: Annotated[bool, Doc("whether a step uses Nesterov momentum")] = False
    gradient_map: GradientMapping = None

    def __post_init__(self) -> None:
        """Raise ModelError for a negative or non-finite learning rate or momentum."""
        check_not_negative(learning_rate=self.learning_rate, momentum=self.momentum)

    def initial_state(self, parameters: Parameters) -> State:
        """Return a zero accumulator per parameter."""
        return {name: np.zeros_like(variable) for name, variable in parameters.items()}

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Update the accumulators, then step against them."""
        for name, variable in parameters.items():
            accumulator = state[name]
            accumulator *= accumulator.dtype.type(self.momentum)
            accumulator += gradients[name]
            step = gradients[name] + accumulator * self.momentum if self.nesterov else accumulator
            np.subtract(variable, variable.dtype.type(self.learning_rate) * step, out=variable, casting="same_kind")

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: two products, a sum and a difference per element.

        Reads gradient, slot and weight; writes slot and weight, a compute set each. Nesterov's form has another product
        and sum, and reads the gradient twice.
        """
        per_element = VectorWork(6 if self.nesterov else 4)
        return self.update_work(per_element, parameter_count, itemsize, compute_sets=2, more=int(self.nesterov))
