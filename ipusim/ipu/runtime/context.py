"""Set context variables, and attributes of objects, for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Scoped(Generic[T]):
    """A context variable set by blocks; a call returns the innermost block's value."""

    def __init__(self, name: str, default: T) -> None:
        """Take the name and the value outside blocks."""
        self._variable: ContextVar[Any] = ContextVar(name, default=default)

    def __call__(self) -> T:
        """Return the current value."""
        value: T = self._variable.get()
        return value

    @contextmanager
    def set_to(self, value: U) -> Iterator[U]:
        """Set the variable during a block, and yield the value."""
        token = self._variable.set(value)
        try:
            yield value
        finally:
            self._variable.reset(token)


@contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of an object during a block."""
    originals = {name: getattr(owner, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in originals.items():
            setattr(owner, name, value)
