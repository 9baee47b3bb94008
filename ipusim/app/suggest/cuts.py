"""Enumerate all model cuts below a bound, stage by stage, and find a good cut by local search.

A partial cut is dropped as soon as its bound or its memory rules it out. The local search starts from even stages and
takes the best of many small moves until no move improves the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import comb
from typing import Final

import numpy as np

from ipusim.app.suggest.bounds import Bounds
from ipusim.app.suggest.memory import MemoryBound
from ipusim.app.suggest.units import Table, Units

#: Maximum number of partial cuts in a batch.
_TOGETHER: Final = 4096
#: Excess bytes charged to a cut that separates units with shared weights.
_APART: Final = 1 << 50
#: Precision of the least time of a choice, as a power of two of its share, and maximum doublings of the bracket.
_CLOSE: Final = 9
_DOUBLINGS: Final = 6
#: Shifts of a single stage's first unit, and shifts of the first units of several stages together.
_ALONE: Final = (-3, -2, -1, 1, 2, 3)
_MOVED_TOGETHER: Final = (-2, -1, 1, 2)
#: Approximate number of moves of two stages.
_MOVES: Final = 2000


@dataclass(frozen=True, eq=False)
class BoundedCuts:
    """Cuts with a bound below a limit.

    Attributes:
        cuts: first unit of each stage, then the number of units; shape (cuts, stages + 1), by rising bounds.
        bounds: bound of each cut, in cycles.
        left: least bound of the cuts dropped for their number; None if no cut was dropped.
        looked_at: number of bounded cuts, partial and complete.
    """

    cuts: Table
    bounds: Table
    left: int | None
    looked_at: int


@dataclass(frozen=True, eq=False)
class Cutter:
    """Cutter of a model under one choice.

    Attributes:
        units: units of the model.
        bounds: lower bounds on the time of each cut.
        memory: lower bounds on the memory of each stage.
    """

    units: Units
    bounds: Bounds
    memory: MemoryBound

    @property
    def count(self) -> int:
        """Number of possible cuts."""
        return comb(len(self.units) - 1, len(self.memory.mapping) - 1) if self.units.movable else 1

    @cached_property
    def least(self) -> int:
        """Lower bound on the time of all cuts, tighter than :attr:`Bounds.least`."""
        low = self.bounds.least
        high = 2 * low
        while self.bounds.within(high).least >= high and high < low << _DOUBLINGS:
            low, high = high, 2 * high
        while high - low > low >> _CLOSE:
            middle = (low + high) // 2
            if self.bounds.within(middle).least >= middle:
                low = middle
            else:
                high = middle
        return low

    def good(self, spare: int, spend: Callable[[int], None]) -> tuple[int, ...] | None:
        """Return a good cut found by local search.

        Args:
            spare: bytes to leave free on each IPU.
            spend: called with the number of cuts looked at.

        Returns:
            First unit of each stage, then the number of units; None if the search finds no cut within memory.
        """
        units, memory = self.units, self.memory
        work = np.diff(units.passes[0, 0] + (units.passes[1, 0] if units.training else 0))
        starts = np.unique(np.array([_even(work, len(self.memory.mapping)), *self.bounds.cheapest]), axis=0)

        def excess(cuts: Table) -> Table:
            apart = np.where(self._together(cuts), 0, _APART)
            if memory.sram_bytes is None:
                return apart
            over = np.maximum(memory.of_ipus(cuts) + spare - memory.sram_bytes, 0)
            return np.asarray(apart + over.sum(axis=0))

        best = np.lexsort((self.bounds.of(starts), excess(starts)))[0]
        cut, over = _descended(tuple(starts[best].tolist()), excess, self.bounds.of, spend)
        return None if over else cut

    def below(self, below: int, most: int, spend: Callable[[int], None] = lambda _: None) -> BoundedCuts:
        """Return the cuts with a bound below ``below`` that may fit in memory.

        Each stage keeps only the best ``most`` partial cuts.
        """
        stages, size = len(self.memory.mapping), len(self.units)
        begun, within = np.zeros((1, 1), dtype=np.int64), self.bounds.within(below)
        bounds = np.zeros(1, dtype=np.int64)
        left: int | None = None
        looked_at = 0
        for stage in range(stages):
            if self.units.movable:
                ends = (size,) if stage == stages - 1 else range(stage + 1, size - (stages - 1 - stage) + 1)
            else:
                ends = (stage + 1,)
            parts = []
            for part in _parts(begun):
                parts.append(self._longer(part, np.array(ends), below, within))
                looked_at += parts[-1][2]
                spend(parts[-1][2])
            begun = np.concatenate([cuts for cuts, _, _ in parts])
            bounds = np.concatenate([own for _, own, _ in parts])
            if len(begun) > most:
                best = np.argsort(bounds, kind="stable")
                dropped = int(bounds[best[most]])
                left = dropped if left is None else min(left, dropped)
                begun, bounds = begun[best[:most]], bounds[best[:most]]
        order = np.lexsort((*begun.T[::-1], bounds))
        return BoundedCuts(begun[order], bounds[order], left, looked_at)

    def _longer(self, begun: Table, ends: Table, below: int, within: Bounds) -> tuple[Table, Table, int]:
        """Extend partial cuts by a stage within bound and memory; count the candidates."""
        row, end = np.nonzero(begun[:, -1:] < ends[None, :])
        cuts = np.concatenate([begun[row], ends[end][:, None]], axis=1)
        looked_at = len(cuts)
        cuts = cuts[self._together(cuts)]
        cuts = cuts[self.memory.fits(cuts)]
        return *within.lower(cuts, below), looked_at

    def _together(self, cuts: Table) -> Table:
        """Return a mask of cuts that can join units with shared weights.

        Units with shared weights must be on one IPU.
        """
        done = cuts.shape[1] - 1
        mapping = np.array(self.memory.mapping)
        good = np.ones(len(cuts), dtype=bool)
        for first, second in self.units.shared:
            stage = np.sum(cuts[:, 1:] <= first, axis=1), np.sum(cuts[:, 1:] <= second, axis=1)
            known = stage[0] < done
            home = mapping[np.minimum(stage[0], len(mapping) - 1)]
            later = np.array([np.isin(ipu, mapping[done:]) for ipu in range(mapping.max() + 1)])[home]
            there = mapping[np.minimum(stage[1], len(mapping) - 1)] == home
            good &= ~known | np.where(stage[1] < done, there, later)
        return good


def _parts(begun: Table) -> Iterator[Table]:
    """Yield partial cuts in batches of limited size; a single empty batch for no cuts."""
    for start in range(0, max(len(begun), 1), _TOGETHER):
        yield begun[start : start + _TOGETHER]


def _even(work: Table, stages: int) -> tuple[int, ...]:
    """Return the cut into ``stages`` closest to even shares of ``work``, given per unit."""
    ends, size = np.concatenate([[0], np.cumsum(work)]), len(work)
    cut = [0]
    for stage in range(1, stages):
        nearest = int(np.argmin(np.abs(ends * stages - ends[-1] * stage)))
        cut.append(min(max(nearest, cut[-1] + 1), size - (stages - stage)))
    return (*cut, size)


def _descended(
    start: tuple[int, ...],
    excess: Callable[[Table], Table],
    cycles: Callable[[Table], Table],
    spend: Callable[[int], None],
) -> tuple[tuple[int, ...], int]:
    """Return the cut reached from ``start`` by steepest descent, and its excess bytes.

    Moves reduce the excess first, then the cycles.
    """
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
    """Return the cuts one move away from ``cut``, in a fixed order."""
    inner = len(cut) - 2
    moves: list[Table] = []
    for stage, by in product(range(1, inner + 1), _ALONE):
        moves.append(_moved(cut, {stage: by}))
    reach = max(_MOVES // (8 * max(inner, 1)), 1)
    for first in range(1, inner + 1):
        for second in range(first + 1, min(first + reach, inner) + 1):
            moves += [_moved(cut, {first: one, second: other}) for one, other in product((-1, 1), repeat=2)]
            moves += [_moved(cut, dict.fromkeys(range(first, second + 1), by)) for by in _MOVED_TOGETHER]
    moved = np.array(moves, dtype=np.int64).reshape(-1, len(cut))
    return np.unique(moved[(np.diff(moved, axis=1) > 0).all(axis=1)], axis=0)


def _moved(cut: Table, by: dict[int, int]) -> Table:
    moved = cut.copy()
    for stage, units in by.items():
        moved[stage] += units
    return moved
