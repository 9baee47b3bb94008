"""Lower bounds by prices: a sum of maxima is at least any weighted sum of what the maxima are taken over.

Under fixed weights, the prices, a cut costs the sum of its stages, and the cheapest cut is found exactly. Prices are
raised where that cut is largest, step by step; the best bound is kept. Steps use sums and products alone, and costs
are rounded down to whole numbers, so that each machine goes the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.programmes import Numbers, least_sum
from ipusim.app.suggest.units import Table

#: The first step of the weights, and after how many steps they become smaller.
_STEP: Final = 0.3
_SLOWER: Final = 50
#: The cheapest cuts of the last steps that are returned.
_LAST: Final = 8


@dataclass(frozen=True, eq=False)
class Maxima:
    """A sum of maxima, each over rows that are linear in numbers of the stages.

    Attributes:
        tables: of each kind of number, its value of a stage between any two units; one for all stages, or for each.
        rows: how often each number counts, shape (maxima, rows, kinds, stages).
        times: how often each maximum counts.
        least: what each maximum is at least, whatever the cut.
        possible: which stages may be between which units.
    """

    tables: tuple[Numbers, ...]
    rows: Numbers
    times: Numbers
    least: Numbers
    possible: npt.NDArray[np.bool_]

    def takes(self, weights: Numbers) -> Numbers:
        """Return the cost of each stage under weights of shape (maxima, rows + 1), the last for the least."""
        stages, size = self.possible.shape[:2]
        count = self.rows.shape[0] * self.rows.shape[1]
        prices = (weights[:, :-1] * self.times[:, None]).reshape(count) @ self.rows.reshape(count, -1)
        cycles = np.zeros((stages, size, size))
        for price, table in zip(prices.reshape(len(self.tables), stages), self.tables, strict=True):
            if price.any():
                cycles += price[:, None, None] * table
        return np.where(self.possible, np.floor(cycles), np.inf)

    def fixed(self, weights: Numbers) -> float:
        """Return the cost that all cuts share under these weights, beside their stages."""
        return float(np.floor((weights[:, -1] * self.times * self.least).sum()))

    def of(self, cut: Sequence[int]) -> Numbers:
        """Return the rows of one cut, shape (maxima, rows + 1)."""
        stages, starts, ends = np.arange(len(cut) - 1), np.array(cut[:-1]), np.array(cut[1:])
        shape = self.possible.shape
        values = np.array([np.broadcast_to(table, shape)[stages, starts, ends] for table in self.tables])
        count, rows = self.rows.shape[:2]
        rows_of_cut = (self.rows.reshape(count * rows, -1) @ values.ravel()).reshape(count, rows)
        return np.concatenate([rows_of_cut, self.least[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class Prices:
    """The costs of stages under the best prices found.

    Attributes:
        bound: what every cut costs at least.
        takes: each stage, between any two units.
        rests: all stages from each on, at least.
        fixed: every cut beside its stages.
        cuts: the cheapest under the last prices.
    """

    bound: float
    takes: Numbers
    rests: Numbers
    fixed: float
    cuts: tuple[tuple[int, ...], ...]

    def of(self, cuts: Table) -> Numbers:
        """Return the least that each of ``cuts`` costs, whole or begun."""
        stages = cuts.shape[1] - 1
        least = self.fixed + self.rests[stages, cuts[:, -1]]
        for stage in range(stages):
            least = least + self.takes[stage, cuts[:, stage], cuts[:, stage + 1]]
        return np.asarray(least)


def raised(maxima: Maxima, steps: int, enough: float, spend: Callable[[], None]) -> Prices:
    """Return the best prices of so many ``steps``, fewer where the bound is ``enough`` or no cut is possible."""
    is_used = np.concatenate([maxima.rows.any(axis=(2, 3)), maxima.least[:, None] > 0], axis=1)
    weights = is_used / np.maximum(is_used.sum(axis=1, keepdims=True), 1)
    best: Prices | None = None
    last: dict[tuple[int, ...], None] = {}
    for step in range(steps):
        spend()
        takes = maxima.takes(weights)
        rests, fixed = least_sum(takes), maxima.fixed(weights)
        bound = float(rests[0, 0]) + fixed
        if best is None or bound > best.bound:
            best = Prices(bound, takes, rests, fixed, ())
        if bound >= enough or not np.isfinite(bound):
            break
        cut = _cheapest(takes, rests)
        last.pop(cut, None)
        last[cut] = None
        rows = maxima.of(cut)
        largest = np.maximum(rows.max(axis=1, keepdims=True), 1)
        weights = weights * (1 + _STEP / np.sqrt(1 + step / _SLOWER) * (rows - largest) / largest)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
    assert best is not None
    return Prices(best.bound, best.takes, best.rests, best.fixed, tuple(last)[-_LAST:])


def _cheapest(takes: Numbers, rests: Numbers) -> tuple[int, ...]:
    """Return the cut that costs least, of several the one with the earliest cuts."""
    cut = [0]
    for stage in range(len(takes)):
        cycles = takes[stage, cut[-1]] + rests[stage + 1]
        cycles[: cut[-1] + 1] = np.inf
        cut.append(int(np.argmin(cycles)))
    return tuple(cut)
