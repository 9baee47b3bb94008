"""The rule of an optimizer of the program's own: its ``_resource_apply_dense`` updates one variable after another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ipusim.api import VectorWork, Work, layers, learning
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.gradients import Variable
from ipusim.ipu.runtime.initializers import initial_value

#: Methods that update one variable, in the order in which TensorFlow prefers them.
_METHODS: Final = ("_resource_apply_dense", "_apply_dense")


class OwnUpdates:
    """The slots of a program's own optimizer, in TensorFlow's names."""

    def _create_slots(self, var_list: list[Any]) -> None:
        """Make slots; one without any has nothing to do."""

    def _prepare(self, *_: Any) -> Any:
        """Prepare an update; one without a need has nothing to do."""

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Variable:
        """Return a slot of a variable, made where there is none; raises as initializers do."""
        key = f"{var.name}/{checks.text('slot_name', slot_name)}"
        if key not in var.state:
            axes = var.shape if shape is None else shape
            var.state[key] = initial_value(key, axes, var.dtype, initializer).copy()
        return Variable(key, var.state[key], var.state)

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Variable:
        """Return a slot of zeros."""
        return self.add_slot(var, slot_name)


@dataclass(frozen=True)
class OwnRule:
    """The rule of an optimizer of the program's own, which costs what gradient descent does, and as much for each slot.

    Attributes:
        optimizer: the optimizer.
    """

    optimizer: Any
    gradient_map: learning.GradientMap | None = None

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots that it makes."""
        tried = Variable("variable", np.zeros(1, np.float32), {})
        self.optimizer._create_slots([tried])
        return tuple(key.removeprefix("variable/") for key in tried.state)

    def initial_state(self, parameters: layers.Parameters) -> learning.State:
        """Return the slots before the first update."""
        state: learning.State = {}
        self.optimizer._create_slots([Variable(name, array, state) for name, array in parameters.items()])
        return state

    def apply(self, parameters: layers.Parameters, gradients: layers.Parameters, state: learning.State) -> None:
        """Update each variable by the optimizer's rule."""
        update = updates(self.optimizer)
        assert update is not None
        variables = [Variable(name, array, state) for name, array in parameters.items()]
        self.optimizer._prepare(*_taken(self.optimizer._prepare, [variables]))
        for variable in variables:
            update(gradients[variable.name], variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return a product and a difference for each element, and as many for each slot (assumed)."""
        count = 1 + len(self.slots)
        return Work(
            vector=VectorWork(2 * count * parameter_count),
            sram_bytes=(1 + 2 * count) * parameter_count * itemsize,
            itemsize=itemsize,
            compute_sets=count,
        )

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the slots."""
        return len(self.slots) * parameter_count * itemsize


def updates(optimizer: Any) -> Callable[[Any, Any], Any] | None:
    """Return the method of an optimizer's own that updates one variable; None where it has none."""
    return next((getattr(optimizer, name) for name in _METHODS if hasattr(optimizer, name)), None)


def own_rule(optimizer: Any) -> OwnRule:
    """Return the rule of an optimizer of the program's own; raises UnsupportedProgramError where it says none."""
    if updates(optimizer) is None:
        raise UnsupportedProgramError(
            f"{type(optimizer).__name__}: expected an optimizer of the program's own to define _resource_apply_dense"
            "(grad, var), which updates one variable"
        )
    return OwnRule(optimizer)


def _taken(method: Callable[..., Any], args: Iterable[Any]) -> list[Any]:
    """Return as many arguments as a method takes."""
    taken = len(inspect.signature(method).parameters)
    return list(args)[:taken]
