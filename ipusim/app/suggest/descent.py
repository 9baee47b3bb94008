"""A good cut at once: from even stages on, the best of many small moves, as long as one is better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import numpy as np

from ipusim.app.suggest.programmes import Numbers
from ipusim.app.suggest.units import Table

#: How far a single stage's first unit is moved, and those of several stages together.
_ALONE: Final = (-3, -2, -1, 1, 2, 3)
_TOGETHER: Final = (-2, -1, 1, 2)
#: Moves of two stages that are looked at, about.
_MOVES: Final = 2000


def even(work: Table, stages: int) -> tuple[int, ...]:
    """Return the cut into ``stages`` whose ends are nearest to even shares of ``work``, which is of each unit."""
    ends, size = np.concatenate([[0], np.cumsum(work)]), len(work)
    cut = [0]
    for stage in range(1, stages):
        nearest = int(np.argmin(np.abs(ends * stages - ends[-1] * stage)))
        cut.append(min(max(nearest, cut[-1] + 1), size - (stages - stage)))
    return (*cut, size)


def descended(
    start: tuple[int, ...],
    excess: Callable[[Table], Table],
    cycles: Callable[[Table], Table],
    spend: Callable[[int], None],
) -> tuple[tuple[int, ...], int]:
    """Return the cut that moves from ``start`` lead to, and its excess: that is what they make less first."""
    cut = np.array([start])
    over, takes = int(excess(cut)[0]), int(cycles(cut)[0])
    while True:
        moves = _moves(cut[0])
        spend(len(moves))
        excesses = excess(moves)
        good = excesses <= over
        if not good.any():
            break
        moves, excesses = moves[good], excesses[good]
        least = excesses.min()
        moves = moves[excesses == least]
        times = cycles(moves)
        best = int(np.argmin(times))
        if (int(least), int(times[best])) >= (over, takes):
            break
        cut, over, takes = moves[best : best + 1], int(least), int(times[best])
    return tuple(cut[0].tolist()), over


def _moves(cut: Table) -> Table:
    """Return the cuts that are a move away from ``cut``, in a fixed order."""
    inner = len(cut) - 2
    moves: list[Numbers | Table] = []
    for stage, by in product(range(1, inner + 1), _ALONE):
        moves.append(_moved(cut, {stage: by}))
    reach = max(_MOVES // (8 * max(inner, 1)), 1)
    for first in range(1, inner + 1):
        for second in range(first + 1, min(first + reach, inner) + 1):
            moves += [_moved(cut, {first: one, second: other}) for one, other in product((-1, 1), repeat=2)]
            moves += [_moved(cut, dict.fromkeys(range(first, second + 1), by)) for by in _TOGETHER]
    moved = np.array(moves, dtype=np.int64).reshape(-1, len(cut))
    return np.unique(moved[(np.diff(moved, axis=1) > 0).all(axis=1)], axis=0)


def _moved(cut: Table, by: dict[int, int]) -> Table:
    moved = cut.copy()
    for stage, units in by.items():
        moved[stage] += units
    return moved
