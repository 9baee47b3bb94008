"""Variables of the context, set for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def setting(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Set a variable of the context in the block, which gets the value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


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
