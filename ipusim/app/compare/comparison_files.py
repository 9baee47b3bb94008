"""Make the files of a comparison: figures, and a slide with bars above traces and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, Final

from ipusim.api import Timeline, analysis, runs, timelines
from ipusim.app.compare.alternatives import alternatives
from ipusim.app.compare.compare import Row
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_words import comparison_table, reasons, row_words, time_words, verdict
from ipusim.app.compare.link_loads import link_chart, runs_by_order
from ipusim.app.render.comparison import TracedRun, common_title, slide
from ipusim.app.render.figures import Chart
from ipusim.app.render.layout import SLIDE_IN
from ipusim.app.render.memory_strip import MemoryStrip, memory_strip
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table
from ipusim.app.render.time_bars import TimeBar, TimeBars
from ipusim.app.study.figures import figure_columns
from ipusim.app.study.result import Result
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_bytes

#: Inches of a slide around bars: margins and title.
_AROUND_BARS: Final = 0.8
#: Longest bar as multiple of the median; longer bars are cut, to keep the parts of others legible.
_MOST_BAR_LENGTH: Final = 6


def comparison_chart(
    result: Comparison, title: str = "", traces: Sequence[str] = (), picture: Picture = DEFAULT
) -> Chart:
    """Return a slide with bars of time parts above traces.

    If runs exceed the room, :func:`shown_rows` chooses. The default ``title`` is the runs' shared title. ``traces`` are
    names of runs as in tables; by default as many as fit, in this order: best, first, then by time. Raises OptionError
    for an unknown run, an unprintable title and an unreadably small size, and OutputError for too many traces.
    """
    title = title or picture.title
    if not title.replace("\n", "").isprintable():
        raise OptionError("title", f"expected letters and signs, got {title!r:.60}")
    rows = shown_rows(result, picture)
    completed = [row for row in rows if row.timeline is not None]
    title = (
        title or common_title([row.timeline for row in result.completed if row.timeline is not None]) or result.title
    )
    if len(rows) < len(result.rows):
        title += f" (the first and the {len(rows) - 1} best others of {len(result.rows)})"
    requested_rows = list(dict.fromkeys(_row_called(result, completed, name) for name in traces))
    best = [group.best or group.first_completed for group in result.groups]
    first = [group.first_completed for group in result.groups]
    wanted_rows = requested_rows or [
        row for row in dict.fromkeys([*best, *first, *result.in_order(completed)]) if row in completed
    ]
    has_memory = any(row.memory is not None for row in wanted_rows)
    runs = [_traced_run(result, row, has_memory) for row in completed]
    return slide(
        _bars(result, rows),
        runs,
        title,
        [completed.index(row) for row in wanted_rows],
        picture,
        all_traces=bool(requested_rows),
    )


def shown_rows(comparison: Comparison, picture: Picture = DEFAULT) -> tuple[Row, ...]:
    """Return the rows that fit a slide. Order of preference: first run, best run, fitting runs, then time."""
    most_rows = TimeBars.most((picture.height_in or SLIDE_IN) - _AROUND_BARS)
    if len(comparison.rows) <= most_rows:
        return comparison.rows
    in_order = sorted(comparison.completed, key=lambda row: (not row.can_be_best, comparison.cost(row)))
    best = [group.best for group in comparison.groups if group.best is not None]
    first = [group.first_completed for group in comparison.groups]
    selection = [*dict.fromkeys([*first, *best, *in_order, *comparison.rows])][:most_rows]
    return tuple(row for row in comparison.rows if row in selection)


def _row_called(comparison: Comparison, rows: Sequence[Row], name: str) -> Row:
    """Return the row of a name; raises OptionError for an unknown name."""
    for names in (comparison.labels, comparison.keys, comparison.titles):
        if name in names and (row := comparison.rows[names.index(name)]) in rows:
            return row
    labels = [comparison.label(row) for row in rows]
    hint = did_you_mean(name, labels, quoted=True)
    raise OptionError("trace", f"expected a trace of {runs.one_of(map(repr, labels))}, got {name!r}{hint}")


def _bars(comparison: Comparison, rows: Sequence[Row]) -> TimeBars:
    """Return bars of the rows' times; outliers are cut at the axis's end."""
    costs = [comparison.cost(row) for row in rows if row.times is not None and comparison.is_ranked(row)]
    positive_costs = [cost for cost in costs if cost] or [0.0]
    axis_end = max(cost for cost in positive_costs if cost <= _MOST_BAR_LENGTH * median_low(positive_costs))
    bars = []
    for row in rows:
        cost = comparison.cost(row) if row.times is not None and comparison.is_ranked(row) else None
        words = [row_words(comparison, row), "cut" if cost and cost > axis_end else ""]
        parts = row.waterfall.cycles if row.waterfall else None
        bars.append(TimeBar(comparison.label(row), ", ".join(filter(None, words)), cost, parts))
    return TimeBars(f"Parts of the {time_words(comparison)}", bars, axis_end)


@dataclass(frozen=True, eq=False)
class ComparisonResult(Result):
    """Result of a comparison for command, notebook and files.

    Attributes:
        comparison: the compared rows.
        title: title of the picture; empty for the runs' shared title.
        traces: names of runs with a trace in the picture; by default as many as fit.
        picture: size and theme of the picture, and its title if ``title`` is empty.
    """

    comparison: Comparison
    title: str = ""
    traces: Sequence[str] = ()
    picture: Picture = DEFAULT

    names = ("comparison.json", "comparison.png", "comparison.svg", "links.png", "links.svg")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict, the table, and reasons why rows are refused or do not fit."""
        yield from verdict(self.comparison)
        yield comparison_table(self.comparison)
        yield from reasons(self.comparison)
        yield from alternatives(self.comparison)

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the slide, and the map of links if selection orders are compared."""
        runs = runs_by_order(self.comparison)
        picture = replace(self.picture, title=self.title or self.picture.title)
        slide = {"comparison": lambda: comparison_chart(self.comparison, self.title, self.traces, self.picture)}
        return {**slide, "links": lambda: link_chart(runs, picture)} if runs else slide

    def data(self) -> list[dict[str, Any]]:
        """Return a mapping for every row, refused rows included."""
        result, names = self.comparison, ("name", "source", "schedule", "sync", "selection_order", "refusal", "fits")
        return [
            {
                **{name: cells[name] for name in (*names, "best", "on_front")},
                "decides": "time" if result.is_by_time else "throughput",
                "difference": cells["difference"],
                "figures": row.figures,
                "mean_loss": cells["mean_loss"],
                "waterfall": row.waterfall.to_dict() if row.waterfall else None,
                "summary": row.times.times_dict() if row.times else None,
                "memory": analysis.as_plain(row.memory),
            }
            for row, cells in zip(result.rows, self.rows(), strict=True)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every run; refused runs have no figures."""
        result = self.comparison
        return [
            {
                "name": label,
                "source": row.source,
                "schedule": row.schedule,
                "sync": row.sync.value,
                "selection_order": row.order,
                "makespan_cycles": row.times and row.times.makespan_cycles,
                "execution_cycles": row.times and row.times.execution_cycles,
                **figure_columns(row.figures),
                "difference": result.to_first(row),
                "fits": None if row.fits is None else row.fits.value,
                "best": row in result.best_rows,
                "on_front": row in result.front,
                "mean_loss": row.figures.get("mean_loss"),
                "refusal": row.refusal or None,
            }
            for row, label in zip(result.rows, result.labels, strict=True)
        ]


def _traced_run(comparison: Comparison, row: Row, has_memory: bool) -> TracedRun:
    assert row.timeline is not None, "only rows that ran have a trace"
    excess = row.memory.excess_bytes if row.memory else 0
    remarks = [f"out of memory by {format_bytes(excess)}"] if excess else []
    strip = _strip(row)
    if has_memory and strip is None:
        is_drawable = row.timeline.spans_in_all <= timelines.MOST_SPANS
        remark = "memory over time is not in its folder" if is_drawable else "memory over time is not drawn"
        remarks.append(remark if row.memory else "memory is not known")
    return TracedRun(row.timeline, comparison.titles[comparison.rows.index(row)], "; ".join(remarks), strip)


def _strip(row: Row) -> MemoryStrip | None:
    """Return the strip of memory over time of a row that ran; None for unknown memory."""
    if row.timeline is None or row.memory is None:
        return None
    if row.result is not None:
        fit, moment = row.result.memory, analysis.moment(row.timeline, row.result.memory.fullest)
        return _strip_of(row.timeline, analysis.memory_curves(row.timeline, fit.footprint), row.memory, moment)
    shards = row.timeline.info.shards
    curves = [curve for curve in row.folder_run.curves if curve.ipu < shards] if row.folder_run else []
    return _strip_of(row.timeline, curves, row.memory, row.folder_run.peak_cycle) if row.folder_run and curves else None


def _strip_of(
    timeline: Timeline, curves: Sequence[analysis.MemoryCurve], fullest: analysis.FullestMemory, cycle: int
) -> MemoryStrip | None:
    """Return the memory strip of a run; None for a run with too many spans."""
    if max(timeline.spans_in_all, *(curve.entries_in_all // 2 for curve in curves)) > timelines.MOST_SPANS:
        return None
    return memory_strip(timeline, [curve.expanded() for curve in curves], fullest, cycle)
