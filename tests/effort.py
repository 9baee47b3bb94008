"""How much is drawn: one in twenty of a property's examples by default, one in ten with ``--all``, or ``--every``.

Of those that are drawn in hundreds it is one in sixty, and one in twenty with ``--all``. Of tests of many cases that
are alike, one in two to four cases runs by default, and every other one with ``--all``; of more than a dozen, one in
three at most.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest

#: Marks a test that takes too long for every run: only ``--all`` runs it.
slowest = pytest.mark.slowest
#: Marks a test that is run by name, when what it looks at is changed: only ``--every`` runs it among others.
rarest = pytest.mark.rarest
#: Marks a test of many cases: by default it runs one in so many of them, more with ``--all``, all with ``--every``.
sampled = pytest.mark.sampled
#: A property draws one in so many of its examples, by default and with ``--all``, and no fewer than so many.
ONE_IN, ONE_IN_WITH_ALL, FEWEST = 20, 10, 5
#: The same of examples that are drawn in hundreds.
ONE_IN_OF_HUNDREDS, ONE_IN_OF_HUNDREDS_WITH_ALL = 60, 20

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


def draw_the_same_everywhere() -> None:
    """Keep Hypothesis from drawing numbers and texts of the modules of this folder that happen to be imported.

    What it draws would depend on which tests ran before, and on each changed constant of the code.
    """
    from hypothesis.internal.conjecture import providers  # noqa: PLC0415

    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing


def runs_slowest() -> bool:
    """Return whether the slowest tests run, as ``--all`` and ``--every`` ask for."""
    return _whole[-1][0]


def draws_everything() -> bool:
    """Return whether everything is drawn, as ``--every`` asks for."""
    return _whole[-1][1]


def beside_samples(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the cases of sampled tests that do not run: of each test those whose names come last by their sums.

    Not each second or third in order, as that may have one value of a second parameter alone.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in () if draws_everything() else items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for of in cases.values():
        mark = of[0].get_closest_marker("sampled")
        assert mark is not None
        of.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        with_all = 3 if len(of) > 12 else 2
        left_out.update(of[-(-len(of) // (with_all if runs_slowest() else max(mark.args[0], with_all))) :])
    return left_out


def outside_share(items: Sequence[pytest.Item], share: str) -> set[pytest.Item]:
    """Return the tests that are not of a share such as ``1/2``, by sums of their names: all shares are all tests."""
    number, shares = map(int, share.split("/"))
    return {item for item in items if zlib.crc32(item.nodeid.encode()) % shares != number - 1}


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
    """Return one half of the values, the one or the other by what the key is; all of them with ``--every``."""
    return values if draws_everything() else values[zlib.crc32(key.encode()) % 2 :: 2]


def seeds(examples: int) -> range:
    """Return the seeds of a share of so many examples."""
    return range(share(examples))
