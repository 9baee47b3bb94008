"""Rank compared runs: labels, deciding measure, best run, and trade-off front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ipusim.api import analysis
from ipusim.app.compare.compare import Row
from ipusim.app.study.best import best_first


class UpdateWork(NamedTuple):
    """Samples of a weight update or execution, and training or inference."""

    samples: int
    training: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """Rows of a comparison, ranked within a sync mode; at least one row ran.

    Attributes:
        rows: runs and refusals, in the order of the request.
        enclosing: comparison over several sync modes, if these rows have a single mode; otherwise None.
    """

    rows: tuple[Row, ...]
    enclosing: Comparison | None = None

    @cached_property
    def groups(self) -> tuple[Comparison, ...]:
        """Comparisons by sync mode; a single mode forms a group by itself."""
        modes = dict.fromkeys(row.sync for row in self.completed)
        if len(modes) == 1:
            return (self,)
        return tuple(Comparison(tuple(row for row in self.rows if row.sync is mode), self) for mode in modes)

    def group(self, row: Row) -> Comparison:
        """Return the comparison of a row's sync mode; the row must have run."""
        return next(group for group in self.groups if row in group.rows)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels by the options that differ: ``1f1b in point-to-point``, or a scenario's name."""
        return tuple(self._words_of(row, sync=self._differ("sync"), names_schedule=False) for row in self.rows)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Labels without sync modes, if still distinct."""
        short = tuple(self._words_of(row, sync=False, names_schedule=False) for row in self.rows)
        return short if len(set(short)) == len(short) else self.labels

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """Labels with the schedule always, and the sync mode unless grouped by mode."""
        return tuple(self._words_of(row, sync=self.enclosing is None, names_schedule=True) for row in self.rows)

    @cached_property
    def title(self) -> str:
        """Title of the comparison: shared name, or number of runs and scenarios."""
        sources = list(dict.fromkeys(row.source for row in self.rows))
        return sources[0] if len(sources) == 1 else f"{len(sources)} runs and scenarios"

    @cached_property
    def common(self) -> str:
        """Shared sync mode: ``in lock-step``; empty if modes differ."""
        return "" if self._differ("sync") else f"in {self.rows[0].sync.words}"

    @cached_property
    def completed(self) -> tuple[Row, ...]:
        """Rows that ran."""
        return tuple(row for row in self.rows if row.times is not None)

    @property
    def first_completed(self) -> Row:
        """Reference row of the sync mode: the first that ran."""
        return self.completed[0]

    @cached_property
    def is_by_time(self) -> bool:
        """Whether time per weight update decides: work per update is equal."""
        if self.enclosing is not None:
            return self.enclosing.is_by_time
        return len(self.work) == 1 and not self.models_differ

    @cached_property
    def work(self) -> tuple[UpdateWork, ...]:
        """Distinct work of weight updates, rising."""
        times_of_rows = [_times(row) for row in self.completed]
        work = {UpdateWork(times.throughput.effective_batch_size, times.training) for times in times_of_rows}
        return tuple(sorted(work))

    @cached_property
    def models_differ(self) -> bool:
        """Whether requests ask for different models, as far as known."""
        models = (row.result.job.request.options.model for row in self.completed if row.result is not None)
        stated_models = [model for model in models if model is not None]
        return any(model != stated_models[0] for model in stated_models)

    @cached_property
    def best(self) -> Row | None:
        """Fastest fitting row; ties go to less memory, then to order. None with several sync modes."""
        rows = [row for row in self.completed if self.is_ranked(row)] if len(self.groups) == 1 else ()
        return next(iter(best_first(rows, self.cost, lambda row: row.fits, self.memory_need)), None)

    def memory_need(self, row: Row) -> int | None:
        """Return bytes of the fullest IPU, or micro-batches kept, to order equally fast rows; None if unknown."""
        return row.micro_batches_kept if self.counts_micro_batches else row.figures.get("peak")

    @cached_property
    def counts_micro_batches(self) -> bool:
        """Whether micro-batches kept order the rows: one scenario, equal stages, and no row with bytes."""
        has_bytes = any("peak" in row.figures for row in self.completed)
        return not has_bytes and not self._differ("source") and not self.kept_differ

    @cached_property
    def kept_differ(self) -> tuple[str, ...]:
        """Reasons why numbers of kept micro-batches are no measure of memory; empty if they are."""
        stages = len({row.stages_and_holders for row in self.completed}) > 1
        return (
            *["the stages of the runs differ in length or have copies"] * stages,
            *["tensors of late weight gradients are not counted"] * any(row.has_halves for row in self.completed),
        )

    @cached_property
    def equally_fast(self) -> tuple[Row, ...]:
        """Other fitting rows as fast as the best."""
        best = self.best
        fitting = [row for row in self.completed if row.can_be_best and row is not best]
        return tuple(row for row in fitting if best is not None and self.cost(row) == self.cost(best))

    @cached_property
    def best_rows(self) -> tuple[Row, ...]:
        """Best row of every sync mode, with equally fast rows that need no more memory."""
        if len(self.groups) > 1:
            return tuple(row for group in self.groups for row in group.best_rows)
        return tuple(
            row
            for row in self.rows
            if row is self.best or (row in self.equally_fast and not self.needs_more_memory(row))
        )

    def needs_more_memory(self, row: Row) -> bool:
        """Return whether a row certainly needs more memory than the best."""
        least = None if self.best is None else self.memory_need(self.best)
        return least is not None and (self.memory_need(row) or 0) > least

    @cached_property
    def front(self) -> tuple[Row, ...]:
        """Fitting rows on the trade-off front of time and peak memory, by sync mode."""
        if len(self.groups) > 1:
            return tuple(row for group in self.groups for row in group.front)
        rows = [row for row in self.completed if row.can_be_best and self.is_ranked(row) and "peak" in row.figures]
        costs = [(self.cost(row), row.figures["peak"]) for row in rows]
        return tuple(rows[position] for position in front(costs))

    def cost(self, row: Row) -> float:
        """Return seconds per weight update, or per sample if throughput decides; infinite without throughput."""
        rates = _times(row).throughput
        if self.is_by_time:
            return rates.weight_update_period_s
        return 1 / rates.samples_per_s if rates.samples_per_s else math.inf

    def is_ranked(self, row: Row) -> bool:
        """Return whether a row has a finite cost: runs without time have no throughput."""
        return math.isfinite(self.cost(row))

    def difference(self, row: Row, reference: Row) -> float | None:
        """Return a row's relative difference to ``reference``, in time or deciding throughput; None if undefined."""
        mine, theirs = self.cost(row), self.cost(reference)
        if mine == theirs and self.is_ranked(row):
            return 0.0
        if not self.is_by_time:
            mine, theirs = theirs, mine
        return mine / theirs - 1 if theirs and math.isfinite(mine + theirs) else None

    def to_first(self, row: Row) -> float | None:
        """Return a row's difference to the first row of its sync mode; None if undefined."""
        return None if row.times is None else self.difference(row, self.group(row).first_completed)

    def in_order(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows sorted by cost, fastest first."""
        return sorted(rows, key=self.cost)

    def label(self, row: Row) -> str:
        """Return a row's label."""
        return self.labels[self.rows.index(row)]

    def _differ(self, name: str) -> bool:
        """Return whether any rows differ in an attribute."""
        return len({getattr(row, name) for row in self.rows}) > 1

    def _varies(self, name: str) -> bool:
        """Return whether neighbouring rows of the same source differ in an attribute."""
        return any(
            getattr(row, name) != getattr(successor, name)
            for row, successor in pairwise(self.rows)
            if row.source == successor.source
        )

    def _words_of(self, row: Row, *, sync: bool, names_schedule: bool) -> str:
        """Return a row's name from the varied options, optionally with schedule and sync mode."""
        words = [row.source] if self._differ("source") else []
        if self._varies("order"):
            words.append(_order(row))
        names_schedule = names_schedule or self._varies("schedule") or not (words or sync)
        if names_schedule and row.schedule not in words:  # a scenario may have the name of its schedule
            words.append(row.schedule)
        name = ", ".join(words)
        return f"{name}{' in' if name else ''} {row.sync.words}".lstrip() if sync else name


def front(costs: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Return the positions of ``costs`` on the trade-off front (Pareto front), in rising order.

    A choice is off the front if another choice is no worse in either cost and better in at least one. Equal choices
    share their place on the front.
    """
    least = math.inf  # least second cost among choices with lower first cost
    front_rows: list[int] = []
    order = sorted(range(len(costs)), key=lambda position: costs[position])
    for position in order:
        first, second = costs[position]
        if second < least or (front_rows and costs[front_rows[-1]] == (first, second)):
            front_rows.append(position)
            least = second
    return tuple(sorted(front_rows))


def _order(row: Row) -> str:
    """Return a row's selection order, with the choice of AUTO: ``AUTO (SNAKE)``."""
    selection_order = row.times.selection_order if row.times else row.order
    return row.order if row.order == selection_order else f"{row.order} ({selection_order})"


def _times(row: Row) -> analysis.RunTimes:
    assert row.times is not None, "only rows that ran have times"
    return row.times
