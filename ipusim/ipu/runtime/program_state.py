"""The configuration that a program sets for all that follows in its context."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

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
