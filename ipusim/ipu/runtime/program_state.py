"""What a program sets, or asks for by name, for all that follows in its context: configuration, seed and variables."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import Scoped

T = TypeVar("T")

_NOTHING: Final = object()


class Remembered(Generic[T]):
    """A value by a name, which belongs to the context that sets it.

    So two programs beside each other, each in a context of its own, have their own. A new thread begins with an empty
    context: there it is the value that any has set last, as TensorFlow has one for the process.
    """

    def __init__(self, name: str, default: T) -> None:
        """Begin with ``default``."""
        self._here: ContextVar[T | object] = ContextVar(name)
        self._default = self._last = default

    def __call__(self) -> T:
        """Return the value in effect."""
        result = self._here.get(_NOTHING)
        if result is not _NOTHING:
            return result  # type: ignore[return-value]  # what is not nothing is a value
        return self._default if threading.current_thread() is threading.main_thread() else self._last

    def set(self, value: T) -> None:
        """Set it for this context, and for threads that begin."""
        self._here.set(value)
        self._last = value


#: The IPUConfig in effect, None where the machine is the smallest that does.
configured: Final[Remembered[Any]] = Remembered("configured", None)
#: Sets the configuration for programs that run from now on; None for none.
configure: Final = configured.set
_SEED: Final[Remembered[int]] = Remembered("seed", 0)
_DRAWS: Final[Remembered[int]] = Remembered("draws", 0)


def set_random_seed(seed: int) -> None:
    """Set the seed for programs that are built from now on."""
    _SEED.set(checks.whole("seed", seed))
    _DRAWS.set(0)


def draws_so_far() -> int:
    """Return how many draws there have been since the seed was set, of which this is one more."""
    count = _DRAWS()
    _DRAWS.set(count + 1)
    return count


def seed_of(own: int | None) -> int:
    """Return the seed of an initializer: its ``own`` or that of all draws."""
    return _SEED() if own is None else own


#: A variable, which is on this room's floor and knows it (:class:`ipusim.ipu.runtime.variable.NamedVariable`).
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
#: Restores the variables that :func:`store` has returned, without those made since.
restore: Final = _STORE.set
#: Whether operations on variables wait for a session, as after ``disable_eager_execution``.
_GRAPH_MODE: Final = Remembered("graph_mode", False)
#: The session in whose block the caller is, whose graph is the default one there; None outside of any.
session_here: Final[Scoped[Any]] = Scoped("session", None)
#: Sets the session for which operations on variables wait in the block.
in_session: Final = session_here.set_to
#: Whether operations have their effect at once all the same, as in functions of a dataset's elements.
is_at_once: Final = Scoped("at_once", False)
#: The variables that the program which is being tried has asked for, by name; None where none is being tried.
used: Final[Scoped[dict[str, Variable] | None]] = Scoped("used_variables", None)


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


def wait_for_sessions(now: bool = True) -> None:
    """Make operations on variables wait for a session from now on, or take effect at once."""
    _GRAPH_MODE.set(now)


def graph_mode() -> bool:
    """Whether operations on variables wait for a session, also where no program is being compiled."""
    return session_here() is not None or _GRAPH_MODE()


def at_once() -> AbstractContextManager[Any]:
    """Make operations in the block take effect at once, inside of a session's block too."""
    return is_at_once.set_to(True)


def using() -> AbstractContextManager[dict[str, Variable]]:
    """Note the variables that a program asks for while it is tried in the block, or in the one around, by name."""
    before = used()
    result: dict[str, Variable] = {} if before is None else before
    return used.set_to(result)
