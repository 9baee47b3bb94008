"""Enumerate all model cuts below a bound, stage by stage, and find a good cut by local search.

A partial cut is dropped as soon as its bound or its memory rules it out. The local search starts from even stages and
takes the best of many small moves until no move improves the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import comb
from typing import Final

import numpy as np

from ipusim.app.suggest.bounds import Bounds
from ipusim.app.suggest.memory import MemoryBound
from ipusim.app.suggest.tables import Table
from ipusim.app.suggest.units import Units

#: Maximum number of cuts whose bounds are computed between two checks of the budget.
_PART_SIZE: Final = 1 << 15
#: Excess bytes charged to illegal cuts, which separate units with shared weights.
_SPLIT_COST: Final = 1 << 50
#: Precision of a choice's least time: one part in 2 ** _PRECISION_BITS.
_PRECISION_BITS: Final = 9
#: The search for a choice's least time ends at 2 ** _DOUBLINGS times the first lower bound.
_DOUBLINGS: Final = 6
#: Shifts of a single stage's first unit.
_STEPS: Final = (-3, -2, -1, 1, 2, 3)
#: Shifts of the first units of several stages together.
_MOVED_TOGETHER: Final = (-2, -1, 1, 2)
#: Approximate number of moves of two stages.
_MOVES: Final = 2000


@dataclass(frozen=True, eq=False)
class BoundedCuts:
    """Cuts with a bound below a limit.

    Attributes:
        cuts: first unit of each stage, then the number of units; shape (cuts, stages + 1), by rising bounds.
        bounds: bound of each cut, in cycles.
        skipped_bound: least bound of the cuts dropped because there were too many; None if no cut was dropped.
    """

    cuts: Table
    bounds: Table
    skipped_bound: int | None


@dataclass(frozen=True, eq=False)
class Cutter:
    """Finds cuts of a model under one choice, a layout without cuts.

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
        finest, highest = low >> _PRECISION_BITS, low << _DOUBLINGS
        step = max(finest, 1)
        while low < highest and self._none_below(low + step):
            low, step = low + step, 2 * step
        while (step := step // 2) >= max(finest, 1) and low < highest:
            low += step * self._none_below(low + step)
        return low

    def _none_below(self, limit: int) -> bool:
        return self.bounds.tighten(limit).least >= limit

    def good(self, spare: int, spend: Callable[[int], None]) -> tuple[int, ...] | None:
        """Return a good cut found by local search.

        Args:
            spare: bytes to leave free on each IPU.
            spend: called with the number of examined cuts.

        Returns:
            First unit of each stage, then the number of units; None if the search finds no cut within memory.
        """
        units, memory = self.units, self.memory
        work = np.diff(units.pass_cycles[0, 0] + (units.pass_cycles[1, 0] if units.training else 0))
        starts = np.unique(np.array([_even_cut(work, len(self.memory.mapping)), *self.bounds.cheapest]), axis=0)

        def excess(cuts: Table) -> Table:
            split_cost = np.where(self._share_ipus(cuts), 0, _SPLIT_COST)
            if memory.sram_bytes is None:
                return split_cost
            excess_bytes = np.maximum(memory.of_ipus(cuts) + spare - memory.sram_bytes, 0)
            return np.asarray(split_cost + excess_bytes.sum(axis=0))

        best = np.lexsort((self.bounds.cycles(starts), excess(starts)))[0]
        cut, surplus = _descend(tuple(starts[best].tolist()), excess, self.bounds.cycles, spend)
        return None if surplus else cut

    def cuts_below(self, limit: int, most: int, spend: Callable[[int], None] = lambda _: None) -> BoundedCuts:
        """Return the cuts with a bound below ``limit`` that may fit in memory.

        Each stage keeps only the best ``most`` partial cuts.
        """
        stages, size = len(self.memory.mapping), len(self.units)
        starts_of_cuts, tighter_bounds = np.zeros((1, 1), dtype=np.int64), self.bounds.tighten(limit)
        bounds = np.zeros(1, dtype=np.int64)
        ipu_bytes = np.zeros((len(set(self.memory.mapping)), 1), dtype=np.int64)
        least_dropped: int | None = None
        for stage in range(stages):
            if self.units.movable:
                ends = (size,) if stage == stages - 1 else range(stage + 1, size - (stages - 1 - stage) + 1)
            else:
                ends = (stage + 1,)
            parts = []
            for first in range(0, max(len(starts_of_cuts), 1), part_size := max(_PART_SIZE // len(ends), 1)):
                part = slice(first, first + part_size)
                parts.append(
                    self._extended(starts_of_cuts[part], ipu_bytes[:, part], np.array(ends), limit, tighter_bounds)
                )
                spend(parts[-1][3])
            starts_of_cuts = np.concatenate([cuts for cuts, _, _, _ in parts])
            bounds = np.concatenate([part_bounds for _, part_bounds, _, _ in parts])
            ipu_bytes = np.concatenate([part_bytes for _, _, part_bytes, _ in parts], axis=1)
            if len(starts_of_cuts) > most:
                best = np.argsort(bounds, kind="stable")
                left_bound = int(bounds[best[most]])
                least_dropped = left_bound if least_dropped is None else min(least_dropped, left_bound)
                best_rows = best[:most]
                starts_of_cuts, bounds, ipu_bytes = (
                    starts_of_cuts[best_rows],
                    bounds[best_rows],
                    ipu_bytes[:, best_rows],
                )
        order = np.lexsort((*starts_of_cuts.T[::-1], bounds))
        return BoundedCuts(starts_of_cuts[order], bounds[order], least_dropped)

    def _extended(
        self, cuts_so_far: Table, ipu_bytes: Table, ends: Table, limit: int, tighter_bounds: Bounds
    ) -> tuple[Table, Table, Table, int]:
        """Extend partial cuts by a stage, within bound and memory.

        Returns:
            Cuts, bounds, bytes per IPU, and number of candidates.
        """
        starts, allowed = cuts_so_far[:, -1:], tighter_bounds.allowed[cuts_so_far.shape[1] - 1]
        row, end = np.nonzero((starts < ends) & allowed[starts, ends])
        cuts = np.concatenate([cuts_so_far[row], ends[end][:, None]], axis=1)
        examined = len(cuts)
        low = tighter_bounds.may_be_lower(cuts, limit) & self._share_ipus(cuts)
        cuts, row = cuts[low], row[low]
        fits, ipu_bytes = self.memory.fits(cuts, tighter_bounds.allowed, ipu_bytes[:, row])
        cuts, ipu_bytes = cuts[fits], ipu_bytes[:, fits]
        low, bounds = tighter_bounds.lower(cuts, limit)
        return cuts[low], bounds, ipu_bytes[:, low], examined

    def _share_ipus(self, cuts: Table) -> Table:
        """Return a mask of the cuts that can still place units with shared weights on one IPU."""
        last_stage = cuts.shape[1] - 1
        mapping = np.array(self.memory.mapping)
        is_good = np.ones(len(cuts), dtype=bool)
        for first, second in self.units.shared_pairs:
            stage = np.sum(cuts[:, 1:] <= first, axis=1), np.sum(cuts[:, 1:] <= second, axis=1)
            is_known = stage[0] < last_stage
            home_ipu = mapping[np.minimum(stage[0], len(mapping) - 1)]
            can_follow = np.array([np.isin(ipu, mapping[last_stage:]) for ipu in range(mapping.max() + 1)])[home_ipu]
            is_home = mapping[np.minimum(stage[1], len(mapping) - 1)] == home_ipu
            is_good &= ~is_known | np.where(stage[1] < last_stage, is_home, can_follow)
        return is_good


def _even_cut(work: Table, stages: int) -> tuple[int, ...]:
    """Return the cut into ``stages`` closest to even shares of ``work``, given per unit."""
    ends, size = np.concatenate([[0], np.cumsum(work)]), len(work)
    starts = [0]
    for stage in range(1, stages):
        nearest = int(np.argmin(np.abs(ends * stages - ends[-1] * stage)))
        starts.append(min(max(nearest, starts[-1] + 1), size - (stages - stage)))
    return (*starts, size)


def _descend(
    start: tuple[int, ...],
    excess: Callable[[Table], Table],
    cycles: Callable[[Table], Table],
    spend: Callable[[int], None],
) -> tuple[tuple[int, ...], int]:
    """Return the cut reached from ``start`` by steepest descent, and its excess bytes.

    Moves reduce the excess first, then the cycles.
    """
    cut = np.array([start])
    surplus, cut_cycles = int(excess(cut)[0]), int(cycles(cut)[0])
    while True:
        moves = _moves(cut[0])
        spend(len(moves))
        excesses = excess(moves)
        is_good = excesses <= surplus
        if not is_good.any():
            break
        moves, excesses = moves[is_good], excesses[is_good]
        least = excesses.min()
        moves = moves[excesses == least]
        times = cycles(moves)
        best = int(np.argmin(times))
        if (int(least), int(times[best])) >= (surplus, cut_cycles):
            break
        cut, surplus, cut_cycles = moves[best : best + 1], int(least), int(times[best])
    return tuple(cut[0].tolist()), surplus


def _moves(cut: Table) -> Table:
    """Return the cuts one move away from ``cut``, in a fixed order."""
    inner = len(cut) - 2
    moves: list[Table] = []
    for stage, units in product(range(1, inner + 1), _STEPS):
        moves.append(_move_cut(cut, {stage: units}))
    reach = max(_MOVES // (8 * max(inner, 1)), 1)
    for first in range(1, inner + 1):
        for second in range(first + 1, min(first + reach, inner) + 1):
            moves += [
                _move_cut(cut, {first: first_step, second: second_step})
                for first_step, second_step in product((-1, 1), repeat=2)
            ]
            moves += [_move_cut(cut, dict.fromkeys(range(first, second + 1), units)) for units in _MOVED_TOGETHER]
    candidates = np.array(moves, dtype=np.int64).reshape(-1, len(cut))
    return np.unique(candidates[(np.diff(candidates, axis=1) > 0).all(axis=1)], axis=0)


def _move_cut(cut: Table, units_of: dict[int, int]) -> Table:
    result = cut.copy()
    for stage, units in units_of.items():
        result[stage] += units
    return result
