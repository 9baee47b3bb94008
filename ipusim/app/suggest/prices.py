"""Lower bounds by Lagrange multipliers: a sum of maxima is at least any convex combination of the maxima's rows.

Under fixed multipliers, named prices here, the cost of a cut is a sum over its stages, and dynamic programming finds
the cheapest cut exactly. A subgradient method raises the prices of that cut's largest rows step by step and keeps the
best bound. Steps use only sums and products, and costs are rounded down to whole numbers, so that results are equal on
all computers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.tables import Numbers, Table, least_sum

#: First step size of the weights, and number of steps before step sizes shrink.
_STEP: Final = 0.3
_SLOWER: Final = 50
#: Number of returned cuts: the cheapest of the last steps.
_LAST: Final = 8


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
    """

    tables: tuple[Numbers, ...]
    rows: Numbers
    times: Numbers
    least: Numbers
    possible: npt.NDArray[np.bool_]

    def takes(self, weights: Numbers) -> Numbers:
        """Return the cost of each stage under given weights.

        Args:
            weights: weights of shape (maxima, rows + 1); the last column weighs ``least``.
        """
        stages, size = self.possible.shape[:2]
        count = self.rows.shape[0] * self.rows.shape[1]
        prices = (weights[:, :-1] * self.times[:, None]).reshape(count) @ self.rows.reshape(count, -1)
        cycles = np.zeros((stages, size, size))
        for price, table in zip(prices.reshape(len(self.tables), stages), self.tables, strict=True):
            if price.any():
                cycles += price[:, None, None] * table
        return np.where(self.possible, np.floor(cycles), np.inf)

    def fixed_cycles(self, weights: Numbers) -> float:
        """Return the cost under these weights that does not depend on the cut."""
        return float(np.floor((weights[:, -1] * self.times * self.least).sum()))

    def rows_of(self, cut: Sequence[int]) -> Numbers:
        """Return the row values of a cut, shape (maxima, rows + 1)."""
        stages, starts, ends = np.arange(len(cut) - 1), np.array(cut[:-1]), np.array(cut[1:])
        shape = self.possible.shape
        values = np.array([np.broadcast_to(table, shape)[stages, starts, ends] for table in self.tables])
        count, rows = self.rows.shape[:2]
        rows_of_cut = (self.rows.reshape(count * rows, -1) @ values.ravel()).reshape(count, rows)
        return np.concatenate([rows_of_cut, self.least[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class Prices:
    """Costs of stages under the best prices.

    Attributes:
        bound: lower bound on the cost of all cuts.
        takes: cost of each stage between any two units.
        remainders: least cost of all stages from a stage and a unit on.
        fixed_cycles: cost that does not depend on the cut.
        cuts: cheapest cuts under the last prices.
    """

    bound: float
    takes: Numbers
    remainders: Numbers
    fixed_cycles: float
    cuts: tuple[tuple[int, ...], ...]

    def cycles(self, cuts: Table) -> Numbers:
        """Return lower bounds on the costs of partial or complete ``cuts``."""
        stages = cuts.shape[1] - 1
        least = self.fixed_cycles + self.remainders[stages, cuts[:, -1]]
        for stage in range(stages):
            least = least + self.takes[stage, cuts[:, stage], cuts[:, stage + 1]]
        return np.asarray(least)


def raise_prices(maxima: Maxima, steps: int, enough: float, spend: Callable[[], None]) -> Prices:
    """Return the best prices found in ``steps`` subgradient steps.

    Args:
        maxima: sum of maxima to bound.
        steps: maximum number of steps; the method also stops if no cut is possible.
        enough: bound at which to stop.
        spend: called before each step.
    """
    is_used = np.concatenate([maxima.rows.any(axis=(2, 3)), maxima.least[:, None] > 0], axis=1)
    weights = is_used / np.maximum(is_used.sum(axis=1, keepdims=True), 1)
    best: Prices | None = None
    last: dict[tuple[int, ...], None] = {}
    for step in range(steps):
        spend()
        takes = maxima.takes(weights)
        remainders, fixed_cycles = least_sum(takes), maxima.fixed_cycles(weights)
        bound = float(remainders[0, 0]) + fixed_cycles
        if best is None or bound > best.bound:
            best = Prices(bound, takes, remainders, fixed_cycles, ())
        if bound >= enough or not np.isfinite(bound):
            break
        cut = _cheapest(takes, remainders)
        last.pop(cut, None)
        last[cut] = None
        rows = maxima.rows_of(cut)
        largest = np.maximum(rows.max(axis=1, keepdims=True), 1)
        weights = weights * (1 + _STEP / np.sqrt(1 + step / _SLOWER) * (rows - largest) / largest)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
    assert best is not None
    return Prices(best.bound, best.takes, best.remainders, best.fixed_cycles, tuple(last)[-_LAST:])


def _cheapest(takes: Numbers, remainders: Numbers) -> tuple[int, ...]:
    """Return the cheapest cut; ties go to the earliest cuts."""
    cut = [0]
    for stage in range(len(takes)):
        cycles = takes[stage, cut[-1]] + remainders[stage + 1]
        cycles[: cut[-1] + 1] = np.inf
        cut.append(int(np.argmin(cycles)))
    return tuple(cut)
