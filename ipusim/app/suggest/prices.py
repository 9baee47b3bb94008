"""Lower bounds by Lagrange multipliers: a sum of maxima is at least any convex combination of the maxima's rows.

Under fixed multipliers, named prices here, the cost of a cut is a sum over its stages, and dynamic programming finds
the cheapest cut exactly. A subgradient method raises the prices of that cut's largest rows step by step and keeps the
best bound. Sums with a ceiling, such as bytes of an IPU, get fines. Fines raise the cost of cuts above the ceiling, and
reduce other costs. Steps use only sums and products, and costs are rounded down to whole numbers, so that results are
equal on all computers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.tables import Numbers, Table, least_sum

#: First step size of the weights.
_STEP: Final = 0.3
#: Number of steps before step sizes shrink.
_SLOWER: Final = 50
#: First fines, as share of the cost for rows exactly at their ceiling.
_FIRST_FINE: Final = 0.1
#: Step size of the fines, as a multiple of the step size of the weights.
_FINE: Final = 15
#: Number of returned cuts: the cheapest of the last steps.
_RETURNED_CUTS: Final = 8


@dataclass(frozen=True, eq=False)
class Ceiling:
    """Limit of linear functions of the stages' numbers.

    Attributes:
        tables: as in :class:`Maxima`.
        rows: coefficients of the numbers, shape (rows, kinds, stages).
        most: largest allowed value of a row.
    """

    tables: tuple[Numbers, ...]
    rows: Numbers
    most: float


@dataclass(frozen=True, eq=False)
class Maxima:
    """Sum of maxima; a maximum is the largest of its rows, and a row is a linear function of the stages' numbers.

    Attributes:
        tables: value of a stage between any two units, for each kind of number; a table shared by all stages or one
            table per stage.
        rows: coefficients of the numbers, shape (maxima, rows, kinds, stages).
        times: coefficient of each maximum in the sum.
        least: lower bound on each maximum under any cut.
        possible: mask of legal stages between any two units.
        ceiling: limit of other sums; unlimited if None.
    """

    tables: tuple[Numbers, ...]
    rows: Numbers
    times: Numbers
    least: Numbers
    possible: npt.NDArray[np.bool_]
    ceiling: Ceiling | None = None

    def takes(self, weights: Numbers, fines: Numbers) -> Numbers:
        """Return the cost of each stage under given weights.

        Args:
            weights: weights of shape (maxima, rows + 1); the last column weighs ``least``.
            fines: prices of the rows of ``ceiling``.
        """
        stages, size = self.possible.shape[:2]
        count = self.rows.shape[0] * self.rows.shape[1]
        prices = (weights[:, :-1] * self.times[:, None]).reshape(count) @ self.rows.reshape(count, -1)
        priced = [*zip(prices.reshape(len(self.tables), stages), self.tables, strict=True)]
        if self.ceiling is not None:
            rows, tables = self.ceiling.rows, self.ceiling.tables
            priced += zip((fines @ rows.reshape(len(rows), -1)).reshape(rows.shape[1:]), tables, strict=True)
        cycles = np.zeros((stages, size, size))
        for price, table in priced:
            if price.any():
                cycles += price[:, None, None] * table
        return np.where(self.possible, np.floor(cycles), np.inf)

    def fixed_cycles(self, weights: Numbers, fines: Numbers) -> float:
        """Return the cost under these weights and fines that does not depend on the cut."""
        most = 0 if self.ceiling is None else self.ceiling.most
        return float(np.floor((weights[:, -1] * self.times * self.least).sum() - fines.sum() * most))

    def rows_of(self, cut: Sequence[int]) -> Numbers:
        """Return the row values of a cut, shape (maxima, rows + 1)."""
        values = self._values(self.tables, cut)
        count, rows = self.rows.shape[:2]
        rows_of_cut = (self.rows.reshape(count * rows, -1) @ values.ravel()).reshape(count, rows)
        return np.concatenate([rows_of_cut, self.least[:, None]], axis=1)

    def excess(self, cut: Sequence[int]) -> Numbers:
        """Return how far each row of ``ceiling`` is above its limit, as a share of the limit."""
        if self.ceiling is None:
            return np.zeros(0)
        rows, most = self.ceiling.rows, self.ceiling.most
        return np.asarray(rows.reshape(len(rows), -1) @ self._values(self.ceiling.tables, cut).ravel() / most - 1)

    def _values(self, tables: Sequence[Numbers], cut: Sequence[int]) -> Numbers:
        """Return the numbers of a cut's stages, shape (kinds, stages)."""
        stages, starts, ends = np.arange(len(cut) - 1), np.array(cut[:-1]), np.array(cut[1:])
        return np.array([np.broadcast_to(table, self.possible.shape)[stages, starts, ends] for table in tables])


@dataclass(frozen=True, eq=False)
class Prices:
    """Costs of stages under the best prices.

    Attributes:
        bound: lower bound on the cost of all cuts.
        takes: cost of each stage between any two units.
        remainders: least cost of all stages from a stage and a unit on.
        fixed_cycles: cost that does not depend on the cut.
        cuts: cheapest cuts under the last prices.
        weights, fines, steps: last weights and fines, and number of steps, for further steps.
    """

    bound: float
    takes: Numbers
    remainders: Numbers
    fixed_cycles: float
    cuts: tuple[tuple[int, ...], ...]
    weights: Numbers
    fines: Numbers
    steps: int = 0

    def cycles(self, cuts: Table) -> Numbers:
        """Return lower bounds on the costs of partial or complete ``cuts``."""
        stages = cuts.shape[1] - 1
        least = self.fixed_cycles + self.remainders[stages, cuts[:, -1]]
        for stage in range(stages):
            least = least + self.takes[stage, cuts[:, stage], cuts[:, stage + 1]]
        return np.asarray(least)

    def cycles_through(self) -> Numbers:
        """Return lower bounds on the costs of all cuts with a stage, for each stage between any two units."""
        stages, size = self.takes.shape[:2]
        least_before = np.full((stages, size), np.inf)
        least_before[0, 0] = 0
        stage_costs = np.where(np.tri(size, dtype=bool), np.inf, self.takes)
        for stage in range(1, stages):
            least_before[stage] = (least_before[stage - 1][:, None] + stage_costs[stage - 1]).min(axis=0)
        return np.asarray(self.fixed_cycles + least_before[:, :, None] + stage_costs + self.remainders[1:, None])


def raise_prices(
    maxima: Maxima,
    steps: int,
    enough: float,
    spend: Callable[[], None],
    earlier: Prices | None = None,
    *,
    until_possible: bool = False,
) -> Prices:
    """Return the best prices found in ``steps`` subgradient steps.

    Args:
        maxima: sum of maxima to bound.
        steps: maximum number of steps; the method also stops if no cut is possible.
        enough: bound at which to stop.
        spend: called before each step.
        earlier: prices from which to continue; None starts with equal prices.
        until_possible: whether to stop at a cut below ``enough``, since no bound exceeds the cost of a cut.
    """
    best, last_cuts = earlier, dict[tuple[int, ...], None]()
    if earlier is None:
        is_used = np.concatenate([maxima.rows.any(axis=(2, 3)), maxima.least[:, None] > 0], axis=1)
        weights = is_used / np.maximum(is_used.sum(axis=1, keepdims=True), 1)
        fines = np.zeros(0)
        if (ceiling := maxima.ceiling) is not None:
            share = float(maxima.times @ maxima.least) / (ceiling.most + 1) / len(ceiling.rows)
            fines = np.full(len(ceiling.rows), _FIRST_FINE * share)
    else:
        weights, fines = earlier.weights, earlier.fines
    first = 0 if earlier is None else earlier.steps
    for step in range(first, first + steps):
        spend()
        takes = maxima.takes(weights, fines)
        remainders, fixed_cycles = least_sum(takes), maxima.fixed_cycles(weights, fines)
        bound = float(remainders[0, 0]) + fixed_cycles
        if best is None or bound > best.bound:
            best = Prices(bound, takes, remainders, fixed_cycles, (), weights, fines)
        if bound >= enough or not np.isfinite(bound):
            break
        cut = _cheapest(takes, remainders)
        last_cuts.pop(cut, None)
        last_cuts[cut] = None
        rows, size = maxima.rows_of(cut), _STEP / np.sqrt(1 + step / _SLOWER)
        largest = np.maximum(rows.max(axis=1, keepdims=True), 1)
        if until_possible and float(maxima.times @ largest[:, 0]) < enough:
            break
        weights = weights * (1 + size * (rows - largest) / largest)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
        fines = fines * (1 + np.clip(_FINE * size * maxima.excess(cut), -0.5, 1))
    assert best is not None
    return replace(best, cuts=tuple(last_cuts)[-_RETURNED_CUTS:], weights=weights, fines=fines, steps=first + steps)


def _cheapest(takes: Numbers, remainders: Numbers) -> tuple[int, ...]:
    """Return the cheapest cut; ties go to the earliest cuts."""
    cut = [0]
    for stage in range(len(takes)):
        cycles = takes[stage, cut[-1]] + remainders[stage + 1]
        cycles[: cut[-1] + 1] = np.inf
        cut.append(int(np.argmin(cycles)))
    return tuple(cut)
