"""The work that layers and operations do inside of a function, told to whoever counts it while the function runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ipusim.model.layers.layer import Array
from ipusim.model.work import Work

#: Takes the work of one pass, and the arrays that came in and went out.
Noting = Callable[[Work, Sequence[Array], Sequence[Array]], None]

_NOTING: Final[ContextVar[Noting | None]] = ContextVar("noting", default=None)


@contextmanager
def noting(take: Noting) -> Iterator[None]:
    """Tell ``take`` of all that is done in the block."""
    token = _NOTING.set(take)
    try:
        yield
    finally:
        _NOTING.reset(token)


def note(work: Callable[[], Work], read: Sequence[Any], written: Sequence[Any]) -> None:
    """Tell of one pass, if anyone counts, and of what it asks, also where nothing that it takes is traced."""
    take = _NOTING.get()
    if take is not None:
        take(work(), read, written)
