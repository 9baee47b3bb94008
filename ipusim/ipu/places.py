"""Where a program computes: on its host or on an IPU, and on which shard of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

#: Whether tensors are to be computed on an IPU.
ON_IPU: Final[ContextVar[bool]] = ContextVar("on_ipu", default=False)
#: The shard of the innermost scope; None outside of any.
SHARD: Final[ContextVar[int | None]] = ContextVar("shard", default=None)


@contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set one of these in the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
