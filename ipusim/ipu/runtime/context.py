"""Variables of the context, set for a block."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class setting(AbstractContextManager[T]):  # noqa: N801 - it stands where a function would
    """Set a variable of the context in the block, which gets the value; not in itself.

    A class, as every call of a stage enters several, which contextlib's generators are too slow for.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: T) -> None:
        """Take both."""
        self._variable, self._value = variable, value

    def __enter__(self) -> T:
        """Set it."""
        self._token: Token[Any] = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_: object) -> None:
        """Set it to what it was."""
        self._variable.reset(self._token)


class Scoped(Generic[T]):
    """A variable of the context that blocks set; called, it returns the value of the innermost block."""

    def __init__(self, name: str, default: T) -> None:
        """Take the name, and the value outside of blocks."""
        self._variable: ContextVar[T] = ContextVar(name, default=default)

    def __call__(self) -> T:
        """Return the value."""
        return self._variable.get()

    def set_to(self, value: U) -> AbstractContextManager[U]:
        """Set it in the block, which gets the value."""
        return setting(self._variable, value)
