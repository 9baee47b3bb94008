"""How much is drawn: a share of each property's examples by default, all of them with ``--all``.

Of those that are drawn in hundreds a tenth is drawn with ``--all``, and all of them with ``--every``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Marks a test that takes too long for every run: only ``--all`` runs it.
slowest = pytest.mark.slowest
#: By default a property draws one in so many of its examples, and no fewer than so many.
ONE_IN, FEWEST = 10, 5

_whole = [(False, False)]


@contextmanager
def chosen(whole: bool, every: bool = False) -> Iterator[None]:
    """Draw everything, or a share, while the block runs; ``every`` draws the hundreds too."""
    _whole.append((whole or every, every))
    try:
        yield
    finally:
        _whole.pop()


def draws_everything() -> bool:
    """Return whether everything is drawn, as ``--all`` asks for."""
    return _whole[-1][0]


def share(examples: int) -> int:
    """Return how many of so many examples are drawn: with ``--all`` that many, else one in ten."""
    return examples if draws_everything() else min(examples, max(FEWEST, -(-examples // ONE_IN)))


def hundreds(examples: int) -> range:
    """Return the seeds of so many hundred examples: all with ``--every``, a tenth with ``--all``, else a few."""
    return range(examples if _whole[-1][1] else share(examples // ONE_IN))


def seeds(examples: int) -> range:
    """Return the seeds of a share of so many examples."""
    return range(share(examples))
