"""How much is drawn: one in ten of each property's examples by default, one in five with ``--all``, or ``--every``.

Of those that are drawn in hundreds it is one in thirty, and one in ten with ``--all``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest

#: Marks a test that takes too long for every run: only ``--all`` runs it.
slowest = pytest.mark.slowest
#: Marks a test that is run by name, when what it looks at is changed: only ``--every`` runs it among others.
rarest = pytest.mark.rarest
#: A property draws one in so many of its examples, by default and with ``--all``, and no fewer than so many.
ONE_IN, ONE_IN_WITH_ALL, FEWEST = 10, 5, 5
#: The same of examples that are drawn in hundreds.
ONE_IN_OF_HUNDREDS, ONE_IN_OF_HUNDREDS_WITH_ALL = 30, 10

T = TypeVar("T")

_whole = [(False, False)]


@contextmanager
def chosen(whole: bool, every: bool = False) -> Iterator[None]:
    """Draw more, or a share, while the block runs; ``every`` draws everything."""
    _whole.append((whole or every, every))
    try:
        yield
    finally:
        _whole.pop()


def runs_slowest() -> bool:
    """Return whether the slowest tests run, as ``--all`` and ``--every`` ask for."""
    return _whole[-1][0]


def draws_everything() -> bool:
    """Return whether everything is drawn, as ``--every`` asks for."""
    return _whole[-1][1]


def one_in(examples: int = 1) -> int:
    """Return of how many of so many examples one is drawn."""
    if draws_everything():
        return 1
    if examples >= 100:
        return ONE_IN_OF_HUNDREDS_WITH_ALL if runs_slowest() else ONE_IN_OF_HUNDREDS
    return ONE_IN_WITH_ALL if runs_slowest() else ONE_IN


def share(examples: int) -> int:
    """Return how many of so many examples are drawn."""
    return min(examples, max(FEWEST, -(-examples // one_in(examples))))


def in_turn(values: Sequence[T], key: str) -> Sequence[T]:
    """Return one half of the values, the one or the other by what the key is; all of them with ``--all``."""
    return values if runs_slowest() else values[zlib.crc32(key.encode()) % 2 :: 2]


def seeds(examples: int) -> range:
    """Return the seeds of a share of so many examples."""
    return range(share(examples))
