"""What apply_gradients does on the host: variables are updated there, and programs take them from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import numpy as np

from ipusim.ipu.distribution import replicas_in_sync
from ipusim.ipu.host import Fetch, Operation, Running
from ipusim.ipu.host_values import reduced
from ipusim.ipu.loop_body import Asked
from ipusim.ipu.optimizers.variable import AskedVariable, Variable
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import store
from ipusim.model.learning.optimizers import State

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
    apply: Callable[..., Any],
    pairs: Sequence[HostPair],
    states: dict[tuple[str, ...], State],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Operation | None:
    """Let an optimizer's ``apply`` update variables of the host: at once, or where gradients have values in a session.

    In the scope of a strategy of several hosts they are summed up over these. ``states`` are the optimizer's own
    arrays, by the names of the variables. Raises as the optimizer does.
    """
    if replicas_in_sync() > 1:
        pairs = [
            (None if gradient is None else reduced("apply_gradients", gradient, "sum"), variable)
            for gradient, variable in pairs
        ]

    def update(running: Running) -> None:
        state = states.setdefault(tuple(variable.name for _, variable in pairs), {})
        held = [Variable(variable.name, variable.value_now(), state) for _, variable in pairs]
        given = (running.value(gradient) for gradient, _ in pairs)
        apply([(_gradient(each), variable) for each, variable in zip(given, held, strict=True)], *args, **kwargs)
        for (_, variable), now in zip(pairs, held, strict=True):
            variable.set(now.array)

    if any(isinstance(gradient, Fetch) for gradient, _ in pairs):
        return _Update(update, any(gradient.late for gradient, _ in pairs if isinstance(gradient, Fetch)))
    update(Running())
    return None


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
