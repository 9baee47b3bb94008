"""The programs for the device that a computation makes while it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final

#: Programs of the computation that is being compiled; None where none is.
_COMPILING: Final[ContextVar[list[Any] | None]] = ContextVar("compiling", default=None)


def compiling() -> list[Any] | None:
    """Return the list that a program for the device adds itself to, to run in a session; None where it runs at once."""
    return _COMPILING.get()


def collect(computation: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return what ``computation`` returned, and the programs for the device that it has made."""
    programs: list[Any] = []
    token = _COMPILING.set(programs)
    try:
        return computation(*inputs), programs
    finally:
        _COMPILING.reset(token)
