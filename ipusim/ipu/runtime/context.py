"""Variables of the context, set for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def setting(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Set a variable of the context in the block, which gets the value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
