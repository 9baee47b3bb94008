"""Report a sweep as files and tables: rows, best points, and a chart of a measure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import Sync, analysis, pipelines, runs
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.sweep import Panel, sweep_chart
from ipusim.app.render.sweep_panel import ChartAxis, Limit
from ipusim.app.render.tables import Table, text_of
from ipusim.app.study.best import best_first
from ipusim.app.study.figures import MEASURES, figure_columns
from ipusim.app.study.full_pipeline import COUNT
from ipusim.app.study.result import Result
from ipusim.app.sweep.ceiling import SweepCeiling
from ipusim.app.sweep.measures import BUBBLE, LEARNT, MEMORY, THROUGHPUT, on_chart
from ipusim.app.sweep.outcome import Outcome
from ipusim.app.sweep.sweep import Sweep
from ipusim.base.units import counted, format_bytes, format_figure

#: Option of the sync mode.
_SYNC: Final = "pipeline.sync"
#: Maximum number of rows on a terminal.
_MOST_ROWS: Final = 40
#: Number of rows of best points shown on a terminal in place of more rows than the maximum.
_BEST_ROWS: Final = 20
#: Maximum number of ties named in a sentence.
_MOST_TIES: Final = 4
#: Maximum number of reasons shown on a terminal.
_MOST_REASONS: Final = 5


@dataclass(frozen=True, eq=False)
class SweepResult(Result):
    """Result of a sweep for command, notebook and files.

    Attributes:
        swept: points of the sweep.
        limits: ceilings of the throughput.
        measure: figure that ranks and draws the points.
        picture: title, size and theme of the chart.
    """

    swept: Sweep
    limits: Sequence[SweepCeiling] = ()
    measure: analysis.Figure = THROUGHPUT
    picture: Picture = DEFAULT

    names = ("sweep.csv", "sweep.png", "sweep.svg")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict, the table of points and, if there are several ceilings, their table."""
        yield from verdict(self.swept, self.limits, self.measure)
        yield sweep_table(self.swept, self.measure)
        if len(self.limits) > 1:
            yield ceiling_table(self.limits, self.swept)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every finished point: options by path, figures, and message."""
        swept, paths = self.swept, [axis.path for axis in self.swept.axes]
        outcomes = [outcome for _, outcome in swept.finished_points]
        learnt = [figure for figure in LEARNT if any(outcome.value(figure) is not None for outcome in outcomes)]
        with_mode = len(modes_of(swept)) > 1 and _SYNC not in paths
        return [
            {
                **swept.changes(point),
                **({"sync": outcome.sync} if with_mode else {}),
                "makespan_cycles": outcome.makespan_cycles,
                **figure_columns(outcome.figures),
                "fits": None if outcome.fits is None else outcome.fits.value,
                **{figure.column: outcome.value(figure) for figure in learnt},
                "message": outcome.message,
            }
            for point, outcome in swept.finished_points
        ]

    def data(self) -> dict[str, Any]:
        """Return the best point of every sync mode, and the rows."""
        best = {mode: best_of(self.swept, self.measure, mode) for mode in modes_of(self.swept)}
        return {
            "name": self.swept.request.name,
            "measure": self.measure.measure,
            "best": {mode: self.swept.changes(points[0][0]) for mode, points in best.items() if points},
            "ceilings": [{**limit.options, "samples_per_s": limit.samples_per_s} for limit in self.limits],
            "points": self.rows(),
        }

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the chart of the measure, if any point has a value."""
        if any(
            outcome.has_run and outcome.value(self.measure) is not None for _, outcome in self.swept.finished_points
        ):
            return {"sweep": lambda: chart_of(self.swept, self.limits, self.measure, self.picture)}
        return {}


def chart_of(
    swept: Sweep, limits: Sequence[SweepCeiling], measure: analysis.Figure, picture: Picture = DEFAULT
) -> Chart:
    """Return the chart of a measure, with further panels.

    Throughput over counts adds a panel of the bubble, and ceilings. Points with different memory add a panel of the
    fullest IPU's memory.
    """
    axes = [ChartAxis(name, axis.values, axis.is_numeric) for name, axis in zip(swept.names, swept.axes, strict=True)]
    figures = [measure]
    if measure is THROUGHPUT and any(axis.path == COUNT for axis in swept.axes) and limits:
        figures.append(BUBBLE)
    if measure is not MEMORY and len(peaks_of(swept)) > 1:
        figures.append(MEMORY)
    panels = []
    for figure in figures:
        most = _memory_of_an_ipu(swept) if figure is MEMORY else None
        # A refused program has only its fullest IPU's memory.
        values = [outcome.value(figure) for _, outcome in swept.finished_points]
        scale, words = on_chart(figure, max((value for value in values if value is not None), default=0.0))
        panels.append(Panel(words, [None if value is None else value * scale for value in values], most))
    levels = []
    for limit in limits if measure is THROUGHPUT else ():
        near_point = None if limit.near_samples_per_s is None else (limit.near_count, limit.near_samples_per_s)
        levels.append(Limit(tuple(limit.options.values()), limit.samples_per_s, near_point))
    unfit = {
        outcome.fits
        for _, outcome in swept.finished_points
        if outcome.fits and not analysis.fits_or_unknown(outcome.fits)
    }
    return sweep_chart(
        axes,
        [point for point, _ in swept.finished_points],
        panels,
        fits=[analysis.fits_or_unknown(outcome.fits) for _, outcome in swept.finished_points],
        has_run=[outcome.has_run for _, outcome in swept.finished_points],
        limits=levels,
        vary_together=swept.is_zipped,
        title=_title(swept, measure, picture),
        picture=picture,
        unfit=" or ".join(answer for answer in analysis.Fits if answer in unfit) or analysis.Fits.NO,
    )


def _title(swept: Sweep, measure: analysis.Figure, picture: Picture) -> str:
    """Return the chart's title: the scenario's title or name, and below it the measure and the number of points."""
    request, name = swept.request, measure.chart.partition(",")[0]
    title = picture.title or runs.title_of(request.description)
    remark = ", each sync mode by itself" if len(modes_of(swept)) > 1 else ""
    words = f"{name} of {counted(len(swept.finished_points), 'point')}{remark}"
    return f"{title}\n{words}" if title else f"{request.name}: {words}"


def peaks_of(swept: Sweep) -> list[int]:
    """Return the distinct memory peaks of the fullest IPU, over all points, even those that do not fit."""
    return sorted({outcome.peak_bytes for _, outcome in swept.finished_points if outcome.peak_bytes is not None})


def _memory_of_an_ipu(swept: Sweep) -> tuple[float, str] | None:
    """Return an IPU's memory in the chart's unit and in words; None for different sizes."""
    sizes = {outcome.sram_bytes for _, outcome in swept.finished_points if outcome.peak_bytes is not None}
    size = sizes.pop() if len(sizes) == 1 else None
    return None if size is None else (size * on_chart(MEMORY, size)[0], f"an IPU has {format_bytes(size)}")


def modes_of(swept: Sweep) -> list[Sync]:
    """Return the sync modes of points that ran; points of different modes are not compared."""
    return [*dict.fromkeys(Sync(outcome.sync) for _, outcome in swept.finished_points if outcome.has_run)]


def best_of(swept: Sweep, measure: analysis.Figure, mode: Sync | None) -> list[tuple[tuple[Any, ...], Outcome]]:
    """Return the fitting points of a sync mode by rank; points of equal rank are ordered by memory, then by position.

    Args:
        swept: the points.
        measure: figure that ranks the points.
        mode: sync mode of the points; None for a sweep without successful points.

    Returns:
        The points with their outcomes, the best first.
    """
    rows = [row for row in swept.finished_points if row[1].sync == mode and row[1].value(measure) is not None]
    sign = 1 if measure.less_is_better else -1
    return best_first(
        rows,
        lambda row: (row[1].value(measure) or 0.0) * sign,
        lambda row: row[1].fits,
        lambda row: row[1].peak_bytes,
    )


def _ties(best: Sequence[tuple[tuple[Any, ...], Outcome]], swept: Sweep, measure: analysis.Figure) -> str:
    """Return a sentence on points as good as the best; empty without ties."""
    ties = [point for point, outcome in best[1:] if outcome.value(measure) == best[0][1].value(measure)]
    return f" Equal in {measure.measure}: {_listed(ties, swept)}." if ties else ""


def _listed(points: Sequence[tuple[Any, ...]], swept: Sweep) -> str:
    """Return the first points in words, and the number of further points."""
    rest_text = f"; and {len(points) - _MOST_TIES} more" if len(points) > _MOST_TIES else ""
    return f"{'; '.join(map(swept.words, points[:_MOST_TIES]))}{rest_text}"


def verdict(swept: Sweep, limits: Sequence[SweepCeiling], measure: analysis.Figure) -> list[str]:
    """Return the verdict: best point, ceiling, and points that did not run."""
    number, modes = len(swept.finished_points), modes_of(swept)
    lines: list[str] = []
    by_mode: list[Sync | None] = [*modes] or [None]
    for mode in by_mode:
        lines += _best_words(swept, limits, measure, mode)
    if note := pipelines.idealised(modes):
        lines.append(f"{note} So each point is compared only with points of its sync mode.")
    timeless = [point for point, outcome in swept.finished_points if outcome.has_run and not outcome.run_cycles]
    if timeless and measure is THROUGHPUT:
        lines.append(f"Without a throughput, because the run takes no time: {_listed(timeless, swept)}.")
    lines += _memory_words(swept)
    failures = Counter(_same_reason(outcome.message) for _, outcome in swept.finished_points if not outcome.has_run)
    for reason, times in failures.most_common(_MOST_REASONS):
        first, outcome = next(row for row in swept.finished_points if _same_reason(row[1].message) == reason)
        lines.append(f"{times} of {number} did not run, for example {swept.words(first)}: {outcome.message}")
    if len(failures) > _MOST_REASONS:
        lines.append(f"And {counted(len(failures) - _MOST_REASONS, 'more reason')}: see the column message.")
    if swept.reused_count:
        verb = "is" if swept.reused_count == 1 else "are"
        lines.append(f"{swept.reused_count} of {counted(number, 'point')} {verb} taken from an earlier sweep.")
    return lines


def _best_words(swept: Sweep, limits: Sequence[SweepCeiling], measure: analysis.Figure, mode: Sync | None) -> list[str]:
    """Return sentences on the best point of a sync mode, and its ceiling."""
    lines, several = [], len(modes_of(swept)) > 1
    of_mode = [row for row in swept.finished_points if row[1].sync == mode] if several else swept.finished_points
    number, in_mode = len(of_mode), f" in {mode.words}" if several and mode else ""
    if best := best_of(swept, measure, mode):
        point, outcome = best[0]
        best_words = measure.text(outcome.value(measure) or 0.0)
        qualities = [best_words if measure is THROUGHPUT else f"a {measure.measure} of {best_words}"]
        if measure is THROUGHPUT:
            qualities.append(f"a bubble of {outcome.bubble or 0.0:.1%}")
            if outcome.peak_bytes is not None:
                qualities.append(f"{format_bytes(outcome.peak_bytes)} on the fullest IPU")
        sizes = _samples_per_update(of_mode)
        has_unequal_work = measure.unit == "seconds" and len(sizes) > 1
        text = (
            f"{'Least' if has_unequal_work else 'Best'} of {counted(number, 'point')}{in_mode} by {measure.measure}: "
            f"{swept.words(point)}, with {', '.join(qualities)}."
        )
        lines.append(text + _ties(best, swept, measure))
        for per_sample, fastest in best_of(swept, THROUGHPUT, mode)[:1] if has_unequal_work else ():
            lines.append(
                f"But work differs, from {sizes[0]:,} to {sizes[-1]:,} samples per weight update. For each sample "
                f"{swept.words(per_sample)} takes least time: {THROUGHPUT.text(fastest.value(THROUGHPUT))}."
            )
    else:
        fits = any(analysis.fits_or_unknown(outcome.fits) for _, outcome in of_mode)
        if number == 1:
            lines.append(f"The only point{in_mode} {f'has no value of {measure.measure}' if fits else 'does not fit'}.")
        else:
            lines.append(
                f"None of {number} points{in_mode} {f'that fit has a value of {measure.measure}' if fits else 'fits'}."
            )
    if limit := _limit_of(best, limits, swept):
        lines.append(limit)
    return lines


def _samples_per_update(points: Sequence[tuple[tuple[Any, ...], Outcome]]) -> list[int]:
    """Return the distinct numbers of samples per weight update of points that ran, rising."""
    ran = [outcome for _, outcome in points if outcome.samples_per_s is not None]
    return sorted({round(outcome.samples_per_s * outcome.weight_update_period_s) for outcome in ran})


def _memory_words(swept: Sweep) -> list[str]:
    """Return a sentence on the memory range of the fullest IPU, and on points that exceed memory."""
    holding = [row for row in swept.finished_points if row[1].peak_bytes is not None]
    peaks = peaks_of(swept)
    if len(peaks) < 2:
        return []
    words = f"The fullest IPU holds from {format_bytes(peaks[0])} to {format_bytes(peaks[-1])}"
    unfit = [
        point
        for point, outcome in holding
        if not analysis.fits_or_unknown(outcome.fits)
        and outcome.sram_bytes is not None
        and outcome.peak_bytes > outcome.sram_bytes
    ]
    if not unfit:
        return [f"{words}."]
    where = f"at {len(unfit)} of {len(holding)} points"
    if len(swept.axes) == 1 and swept.axes[0].is_numeric:
        name, first, last = swept.names[0], min(unfit)[0], max(unfit)[0]
        if len(unfit) == sum(point[0] >= first for point, _ in holding):
            where = f"from {name} {text_of(first)} on"
        elif len(unfit) == sum(point[0] <= last for point, _ in holding):
            where = f"up to {name} {text_of(last)}"
    return [f"{words}, too much {where}."]


def _same_reason(message: str) -> str:
    """Return the common text of messages that differ only in numbers, or in how many numbers they list (``4 or 8``)."""
    return re.sub(r"\d+( or \d+)*", "#", message)


def _limit_of(best: Sequence[tuple[tuple[Any, ...], Outcome]], limits: Sequence[SweepCeiling], swept: Sweep) -> str:
    """Return the ceiling of the best point in words; if there is no best point, the first ceiling."""
    for point, _ in best[:1]:
        changes = swept.changes(point)
        for limit in limits:
            if all(changes[path] == value for path, value in limit.options.items()):
                return limit.words(_limit_options(limit, swept))
    return limits[0].words(_limit_options(limits[0], swept)) if limits else ""


def _limit_options(limit: SweepCeiling, swept: Sweep) -> str:
    names = {axis.path: name for axis, name in zip(swept.axes, swept.names, strict=True)}
    return ", ".join(f"{names[path]} {text_of(value)}" for path, value in limit.options.items())


def ceiling_table(limits: Sequence[SweepCeiling], swept: Sweep) -> Table:
    """Return a row for every ceiling."""
    rows = (
        {
            "with": _limit_options(limit, swept),
            "ceiling, samples/s": format_figure(limit.samples_per_s),
            "90% from count": str(limit.enough_count),
            "95% from count": str(limit.near_count),
            "share of ideal": f"{limit.share_of_ideal:.1%}",
            "factor: unequal stages": f"{limit.balance:.1%}",
            "factor: other losses": f"{limit.other_share:.1%}",
        }
        for limit in limits
    )
    return Table.of("Ceilings of throughput for any accumulation count", rows)


def sweep_table(swept: Sweep, measure: analysis.Figure) -> Table:
    """Return a row for every point, or for the best of many."""
    rows, title, modes = list(swept.finished_points), "Points", modes_of(swept)
    if len(rows) > _MOST_ROWS:
        most = _BEST_ROWS // max(len(modes), 1)
        rows = [row for mode in modes for row in best_of(swept, measure, mode)[:most]]
        remark = ", each sync mode by itself" if len(modes) > 1 else ""
        title = f"The {len(rows)} best of {len(swept.finished_points)} points by {measure.measure}{remark}"
    figures = [
        figure
        for figure in MEASURES
        if (figure is measure or figure.in_tables) and any(outcome.value(figure) is not None for _, outcome in rows)
    ]
    header = (", ".join(swept.names), *(figure.head for figure in figures), "fits")
    with_mode = len(modes) > 1 and all(axis.path != _SYNC for axis in swept.axes)
    return Table(title, header, tuple(_row(point, outcome, figures, with_mode=with_mode) for point, outcome in rows))


def _row(
    point: Sequence[Any], outcome: Outcome, figures: Sequence[analysis.Figure], *, with_mode: bool
) -> tuple[str, ...]:
    cells = [figure.cell(outcome.value(figure)) for figure in figures]
    mode = f" in {Sync(outcome.sync).words}" if with_mode and outcome.has_run else ""
    return (", ".join(map(text_of, point)) + mode, *cells, outcome.fits or "refused")
