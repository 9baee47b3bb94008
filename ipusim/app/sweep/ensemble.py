"""Compute the distribution of a scenario's time under jitter, from runs with different seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from ipusim.api import Request, analysis, runs
from ipusim.app.render.figures import Chart
from ipusim.app.render.histogram import Mark, histogram
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result, Rows
from ipusim.app.sweep.outcome import Outcome
from ipusim.app.sweep.report import SweepResult
from ipusim.app.sweep.sweep import Sweep
from ipusim.app.sweep.vary import MOST_POINTS, Axis
from ipusim.base.errors import OptionError
from ipusim.base.units import format_seconds

#: Percentiles in the table.
_PERCENTILES: Final = (0, 5, 25, 50, 75, 95, 100)
#: Percentiles in the chart: nine of ten runs lie between the outer two.
_MARKED: Final = (5, 50, 95)


def seed_axes(request: Request, number: int) -> tuple[Axis, ...]:
    """Return an axis of seeds for every jitter, which begins with the jitter's own seed.

    Raises OptionError for a request without jitter, and for an invalid number of runs.
    """
    if not 1 <= number <= MOST_POINTS:
        raise OptionError("seeds", f"expected from 1 to {MOST_POINTS:,} runs, got {number:,}")
    jitters = [
        (index, item.seed) for index, item in enumerate(request.options.disturbances or ()) if hasattr(item, "seed")
    ]
    if not jitters:
        example = "such as {jitter: 5 %}"
        raise OptionError("seeds", f"expected a scenario with jitter among its disturbances, {example}, got none")
    seed_count = 2**32
    return tuple(
        Axis(f"disturbances.{index}.seed", tuple((first + run) % seed_count for run in range(number)))
        for index, first in jitters
    )


@dataclass(frozen=True)
class Ensemble(Result):
    """Runs that differ only in random draws.

    Attributes:
        sweep: the runs.
        undisturbed: outcome without disturbances.
        picture: title, size and theme of the chart.
    """

    sweep: Sweep
    undisturbed: Outcome
    picture: Picture = DEFAULT

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Outcomes of the successful runs."""
        return [outcome for _, outcome in self.sweep.finished_points if outcome.has_run]

    @cached_property
    def times_s(self) -> list[float]:
        """Seconds per weight update of the successful runs."""
        return [outcome.weight_update_period_s or 0.0 for outcome in self.outcomes]

    @cached_property
    def slowdowns(self) -> list[float]:
        """Slow-down S of the successful runs: time over undisturbed time."""
        return [analysis.slowdown(outcome.run_cycles, self.undisturbed.run_cycles) for outcome in self.outcomes]

    @cached_property
    def percentiles(self) -> dict[int, list[float]]:
        """Seconds of a weight update, seconds of the makespan, and S, by percentile."""
        makespans = [outcome.makespan_s or 0.0 for outcome in self.outcomes]
        table = np.percentile([self.times_s, makespans, self.slowdowns], _PERCENTILES, axis=1).tolist()
        return dict(zip(_PERCENTILES, table, strict=True))

    @property
    def _title(self) -> str:
        number = len(self.outcomes)
        return f"{number} runs with different seeds" if number > 1 else "One run"

    names = ("sweep.csv", "ensemble.json", "ensemble.png", "ensemble.svg")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict and the table."""
        yield from self.words()
        yield self.table()

    def rows(self) -> Rows:
        """Return the rows of the points."""
        return SweepResult(self.sweep).rows()

    def words(self) -> Iterator[str]:
        """Yield the distribution of the time, and the cost of the jitter."""
        (low, *_), (middle, _, slow), (high, *_) = (self.percentiles[share] for share in _MARKED)
        undisturbed = format_seconds(self.undisturbed.weight_update_period_s or 0.0)
        if len(self.outcomes) == 1:
            yield f"One run: {format_seconds(middle)} for a weight update."
            yield f"Without disturbances it takes {undisturbed}: S = {slow:.4f}."
        else:
            yield (
                f"{len(self.outcomes)} runs: {format_seconds(middle)} for a weight update in the middle one, nine of "
                f"ten from {format_seconds(low)} to {format_seconds(high)}."
            )
            yield (
                f"Without disturbances it takes {undisturbed}: S = {slow:.4f} in the middle run, "
                f"{max(self.slowdowns):.4f} in the slowest."
            )
        refusals = [outcome.message for _, outcome in self.sweep.finished_points if not outcome.has_run]
        if refusals:
            yield f"{len(refusals)} did not run, for example: {refusals[0]}"
        if self.sweep.reused_count:
            count, points = self.sweep.reused_count, len(self.sweep.points)
            yield f"{count} of {points} runs are taken from an earlier, equal ensemble."

    def table(self) -> Table:
        """Return the percentiles of the weight update's time, makespan and slow-down."""
        names = {0: "fastest", 50: "middle", 100: "slowest"}
        rows = tuple(
            (names.get(share, f"{share} %"), format_seconds(time), format_seconds(makespan), f"{slowdown:.4f}")
            for share, (time, makespan, slowdown) in self.percentiles.items()
        )
        return Table(self._title, ("percentile", "time per weight update", "makespan", "S"), rows)

    def data(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "name": self.sweep.request.name,
            "runs": len(self.outcomes),
            "weight_update_period_s": {str(share): time for share, (time, *_) in self.percentiles.items()},
            "mean_weight_update_period_s": float(np.mean(self.times_s)),
            "without_disturbances_s": self.undisturbed.weight_update_period_s,
            "slowdown": {str(share): slowdown for share, (*_, slowdown) in self.percentiles.items()},
            "slowdowns": self.slowdowns,
        }

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the histogram of times."""
        return {"ensemble": self._chart}

    def _chart(self) -> Chart:
        request = self.sweep.request
        name = self.picture.title or runs.title_of(request.description) or request.name
        title = f"{name}\n{self._title}"
        low, middle, high = (self.percentiles[share][0] for share in _MARKED)
        marks = [
            Mark(self.undisturbed.weight_update_period_s or 0.0, "without disturbances"),
            Mark(middle, "middle run"),
            Mark(low, "5th percentile"),
            Mark(high, "95th percentile"),
        ]
        return histogram(self.times_s, marks, "time per weight update", title, self.picture)
