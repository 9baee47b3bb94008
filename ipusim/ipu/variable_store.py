"""The variables of a context by name, as TensorFlow 1's default graph has them, and who uses them.

A program has its variables on its IPUs. Where several programs use one, the one that has changed it last holds its
value, and another takes it from there when it begins to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.ipu.remembered import Remembered

#: A variable, which is on this room's floor and knows it (:class:`ipusim.ipu.variable.NamedVariable`).
Variable = Any


@dataclass(frozen=True)
class VariableStore:
    """The variables of one context.

    Attributes:
        variables: all, in the order in which they were made.
        by_name: of each name the latest.
    """

    variables: tuple[Variable, ...] = ()
    by_name: Mapping[str, Variable] = field(default_factory=dict)


#: As TensorFlow 1's default graph, a property of the thread.
_STORE: Final[ContextVar[VariableStore]] = ContextVar("variable_store")
#: Whether operations on variables wait for a session, as after ``disable_eager_execution``.
_GRAPH_MODE: Final = Remembered("graph_mode", False)
#: The session in whose block the caller is, whose graph is the default one there; None outside of any.
_SESSION: Final[ContextVar[Any]] = ContextVar("session", default=None)
#: Whether operations have their effect at once all the same, as in functions of a dataset's elements.
_AT_ONCE: Final[ContextVar[bool]] = ContextVar("at_once", default=False)
_USED: Final[ContextVar[dict[str, Variable] | None]] = ContextVar("used_variables", default=None)


def store() -> VariableStore:
    """Return the store of the caller's context."""
    return _STORE.get(VariableStore())


def add(variable: Variable) -> None:
    """Add a variable to the store of the caller's context, where others find it by its name from now on."""
    now = store()
    if now.by_name.get(variable.name) is not variable:
        by_name = {**now.by_name, variable.name: variable}
        _STORE.set(VariableStore((*now.variables, variable), by_name))


def forget() -> None:
    """Begin with an empty store; programs that there are keep their variables."""
    _STORE.set(VariableStore())


def restore(before: VariableStore) -> None:
    """Have the variables again that :func:`store` has returned, without those made since."""
    _STORE.set(before)


def wait_for_sessions(now: bool = True) -> None:
    """Let operations on variables wait for a session from now on, or not."""
    _GRAPH_MODE.set(now)


def graph_mode() -> bool:
    """Whether operations on variables wait for a session, also where no program is being compiled."""
    return session_here() is not None or _GRAPH_MODE.get()


def session_here() -> Any:
    """Return the session in whose block the caller is, None for none."""
    return _SESSION.get()


@contextmanager
def in_session(session: Any) -> Iterator[None]:
    """Let operations on variables in the block, that of a session, wait for it."""
    token = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(token)


@contextmanager
def at_once() -> Iterator[None]:
    """Let operations in the block have their effect at once, wherever it stands."""
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def is_at_once() -> bool:
    """Whether operations have their effect at once, although a program may wait for sessions elsewhere."""
    return _AT_ONCE.get()


@contextmanager
def using() -> Iterator[dict[str, Variable]]:
    """Note the variables that a program asks for while it is tried in the block, or in the one around, by name."""
    before = _USED.get()
    found: dict[str, Variable] = {} if before is None else before
    token = _USED.set(found)
    try:
        yield found
    finally:
        _USED.reset(token)


def used() -> dict[str, Variable] | None:
    """Return the variables that the program which is being tried has asked for; None where none is being tried."""
    return _USED.get()
