"""What apply_gradients does on the host: variables are updated there, and programs take them from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import numpy as np

from ipusim.ipu.distribution import averages, replicas_in_sync
from ipusim.ipu.host import Fetch, Operation, Running
from ipusim.ipu.host_values import reduced
from ipusim.ipu.loop_body import Asked
from ipusim.ipu.optimizers.variable import AskedVariable, Variable
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import store
from ipusim.model.learning.optimizers import Optimizer as Rule
from ipusim.model.learning.optimizers import State
from ipusim.runs.checkpoint import slot_names, slots_of

#: A gradient, which may be a tensor of a session, or None; and the variable of the host.
HostPair: TypeAlias = tuple[Any, NamedVariable]

#: The body whose gradients the host has, which knows what stood for its variables.
_BODY: Final[ContextVar[Asked | None]] = ContextVar("body_of_host", default=None)


@contextmanager
def behind(asked: Asked | None) -> Iterator[None]:
    """Let apply_gradients in the block take what a body had for its variables."""
    token = _BODY.set(asked)
    try:
        yield
    finally:
        _BODY.reset(token)


def host_pairs(pairs: Any) -> list[HostPair] | None:
    """Return pairs whose variables are those of the host; None for pairs of another update, and what are no pairs."""
    try:
        found = [(gradient, _of_host(variable)) for gradient, variable in pairs]
    except (TypeError, ValueError):
        return None
    if not found or any(variable is None for _, variable in found):
        return None
    return [(gradient, variable) for gradient, variable in found if variable is not None]


def apply_on_host(
    rule: Rule, apply: Callable[..., Any], pairs: Sequence[HostPair], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Operation | None:
    """Let ``apply`` of an optimizer with a ``rule`` update variables of the host, whose slots are there as well.

    It does so at once, or where gradients have values in a session. In the scope of a strategy of several hosts they
    are summed up over these, or averaged. Raises as the optimizer does.
    """
    if replicas_in_sync() > 1:
        operation = "average" if averages() else "sum"
        pairs = [
            (None if gradient is None else reduced("apply_gradients", gradient, operation), variable)
            for gradient, variable in pairs
        ]

    def update(running: Running) -> None:
        variables = [variable for _, variable in pairs]
        state = _state(rule, variables)
        held = [Variable(variable.name, variable.value_now(), state) for variable in variables]
        given = (running.value(gradient) for gradient, _ in pairs)
        apply([(_gradient(each), variable) for each, variable in zip(given, held, strict=True)], *args, **kwargs)
        for variable, now in zip(variables, held, strict=True):
            variable.set(now.array)
        _keep(state, variables)

    if any(isinstance(gradient, Fetch) for gradient, _ in pairs):
        return _Update(update, any(gradient.late for gradient, _ in pairs if isinstance(gradient, Fetch)))
    update(Running())
    return None


def _state(rule: Rule, variables: Sequence[NamedVariable]) -> State:
    """Return the optimizer's arrays for these variables: those that they have on the host, others as they begin."""
    kept = {name: array for variable in variables for name, array in variable.slots.items()}
    names = [variable.name for variable in variables]
    first = rule.initial_state({variable.name: variable.value_now() for variable in variables})
    return {key: kept.get(slot_names(names, key)[0], array) for key, array in first.items()}


def _keep(state: State, variables: Sequence[NamedVariable]) -> None:
    """Keep the optimizer's arrays beside the variables that they belong to."""
    names = [variable.name for variable in variables]
    kept = {name: array for key, array in state.items() for name in slot_names(names, key)}
    for variable in variables:
        variable.slots = slots_of(variable.name, kept)


class _Update(Operation):
    """A weight update on the host, in each run of a session."""

    def __init__(self, update: Callable[[Running], None], late: bool) -> None:
        super().__init__("apply_gradients")
        self._update, self._late = update, late

    @property
    def late(self) -> bool:
        return self._late

    def evaluate(self, running: Running) -> None:
        self._update(running)


def _gradient(value: Any) -> Any:
    """Return a gradient as an array: one that the host has dequeued outside of sessions is a tensor around one."""
    return None if value is None else np.asarray(value)


def _of_host(variable: Any) -> NamedVariable | None:
    """Return a variable of the host, or that which a body had in its place; None for anything else."""
    if isinstance(variable, NamedVariable):
        return variable
    body = _BODY.get()
    if isinstance(variable, AskedVariable):
        name: str | None = variable.name
    else:
        name = None if body is None else body.name_of(variable)
    found: NamedVariable | None = None if name is None else store().by_name.get(name)
    return found
