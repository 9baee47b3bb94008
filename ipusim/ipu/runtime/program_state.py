"""Hold the configuration that a program sets for the rest of a context."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: Marks contexts without a value.
_UNSET: Final = object()


class ContextValue(Generic[T]):
    """A named value, owned by the context that sets the value.

    Two programs in separate contexts have separate values. A new thread starts with an empty context and sees the
    value set last anywhere, like TensorFlow's per-process value.
    """

    def __init__(self, name: str, default: T) -> None:
        """Begin with ``default``."""
        self._variable: ContextVar[T | object] = ContextVar(name)
        self._default = self._last = default

    def __call__(self) -> T:
        """Return the active value."""
        result = self._variable.get(_UNSET)
        if result is not _UNSET:
            return result  # type: ignore[return-value]  # every object but the mark is a value
        return self._default if threading.current_thread() is threading.main_thread() else self._last

    def set(self, value: T) -> None:
        """Set the value for this context, and for new threads."""
        self._variable.set(value)
        self._last = value


#: Active IPUConfig; None selects the smallest sufficient machine.
configured: Final[ContextValue[Any]] = ContextValue("configured", None)
#: Sets the configuration for programs that run from now on; None removes the configuration.
configure: Final = configured.set
