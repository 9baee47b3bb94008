"""How much is drawn: one in ten of each property's examples by default, one in three with ``--all``, or ``--every``.

Of those that are drawn in hundreds a tenth is drawn with ``--all``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Marks a test that takes too long for every run: only ``--all`` runs it.
slowest = pytest.mark.slowest
#: A property draws one in so many of its examples, by default and with ``--all``, and no fewer than so many.
ONE_IN, ONE_IN_WITH_ALL, FEWEST = 10, 3, 5

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


def one_in() -> int:
    """Return of how many examples one is drawn."""
    return 1 if draws_everything() else ONE_IN_WITH_ALL if runs_slowest() else ONE_IN


def share(examples: int) -> int:
    """Return how many of so many examples are drawn."""
    return min(examples, max(FEWEST, -(-examples // one_in())))


def hundreds(examples: int) -> range:
    """Return the seeds of so many hundred examples: all with ``--every``, a tenth with ``--all``, else a few."""
    if draws_everything():
        return range(examples)
    return range(examples // ONE_IN if runs_slowest() else share(examples // ONE_IN))


def seeds(examples: int) -> range:
    """Return the seeds of a share of so many examples."""
    return range(share(examples))
