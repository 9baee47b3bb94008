"""Several runs under each other on one time axis, each with its memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ipusim.analysis.executions import find_execution
from ipusim.errors import OutputError
from ipusim.render.figures import Chart
from ipusim.render.fold import folded
from ipusim.render.layout import Headed, stack
from ipusim.render.memory_strip import MemoryStrip, scale_top
from ipusim.render.window import Window
from ipusim.timeline.timeline import Timeline
from ipusim.units import format_seconds

#: Runs of similar length share the axis: of those that are up to this many times as long as the shortest of them, the
#: most that there are. Longer ones are cut.
_LONGEST: Final = 4.0
#: Shorter runs that would take less than this part of the axis have one of their own.
_NARROWEST: Final = 1 / 8
#: Memory that would reach less than this part of the common scale has one of its own.
_LOWEST: Final = 1 / 8
#: Runs that one figure shows, and rows of all of them: with more, rows would be too low to read.
_MOST_RUNS: Final = 8
_MOST_ROWS: Final = 96
#: The least of them that a run has, where it has so many IPUs.
_LEAST_ROWS: Final = 4


@dataclass(frozen=True)
class Compared:
    """One run of a comparison.

    Attributes:
        timeline: what happened.
        name: what it is called above its trace; empty for its schedule and sync mode.
        remark: what else is said there.
        strip: its memory over time; None where that is not known.
    """

    timeline: Timeline
    name: str = ""
    remark: str = ""
    strip: MemoryStrip | None = None


def comparison(
    runs: Sequence[Compared],
    *,
    title: str = "",
    width_in: float = 10.0,
    height_in: float | None = None,
) -> Chart:
    """Return the traces of ``runs`` under each other, from cycle 0 over their first executions.

    The axis is that of the runs of similar length: one that takes more than four times as
    long is cut, as it would leave the others too narrow to read, and one that is far shorter has an axis of its own.
    Of more than eight runs the first eight are shown, which the title says. Where all
    have more IPUs than there is room for, a run is shown by its first replica, or by several IPUs to a row.

    The line above each names it, the makespan of its first execution without the weight update, its remark, and
    what of it is shown where that is not all. Runs of different clocks share the axis in seconds. Raises OutputError
    for no runs, and as :func:`execution_trace` does.
    """
    if not runs:
        raise OutputError("expected at least one run to compare, got none")
    if len(runs) > _MOST_RUNS:
        title = f"{title} (the first {_MOST_RUNS} of {len(runs)} runs)".lstrip()
        runs = runs[:_MOST_RUNS]
    last_s = _axis([_seconds(run.timeline) for run in runs])
    most_rows = max(_MOST_ROWS // len(runs), _LEAST_ROWS)
    top_bytes = scale_top([run.strip for run in runs if run.strip is not None])
    panels = [_panel(run, last_s, most_rows, top_bytes) for run in runs]
    window = next(panel.window for panel in panels if panel.window is not None)
    return stack(panels, window, title, width_in, height_in)


def _axis(lengths_s: Sequence[float]) -> float:
    """Return the seconds that the common axis shows: those of the longest of the most that are of similar length."""
    groups = [[each for each in lengths_s if shortest <= each <= _LONGEST * shortest] for shortest in sorted(lengths_s)]
    most = max(len(group) for group in groups)
    return max(next(group for group in groups if len(group) == most))


def _panel(run: Compared, last_s: float, most_rows: int, top_bytes: float) -> Headed:
    timeline = run.timeline
    clock_hz, whole_s = timeline.info.clock_hz, _seconds(timeline)
    own_axis = whole_s < _NARROWEST * last_s
    cut = whole_s > last_s
    end = max(round((whole_s if own_axis else last_s) * clock_hz), 1)
    shown = folded(timeline, most_rows)
    words = [_makespan(run), run.remark, shown.words]
    words.append(f"cut: {last_s / whole_s:.1%} of it is shown" if cut else "")
    words.append(f"on an axis of its own, {last_s / whole_s:,.0f} times as wide" if own_axis else "")
    strip = run.strip
    if strip is not None and strip.top_bytes < _LOWEST * top_bytes:
        words.append("memory on a scale of its own")
    elif strip is not None:
        strip = replace(strip, top_bytes=top_bytes)
    return Headed(
        "; ".join(filter(None, words)),
        shown.timeline,
        torn=cut,
        window=Window(0, end),
        own_axis=own_axis,
        ipus_to_a_row=shown.ipus_to_a_row,
        strip=strip,
    )


def _seconds(timeline: Timeline) -> float:
    """Return how long the first execution of a run takes, with its weight update."""
    return max(find_execution(timeline, 0).end, 1) / timeline.info.clock_hz


def _makespan(run: Compared) -> str:
    info, cycles = run.timeline.info, find_execution(run.timeline, 0).makespan_cycles
    seconds = format_seconds(cycles / info.clock_hz).replace("us", "µs")
    return f"{run.name or info.order_and_sync}: {cycles:,} cycles, {seconds}"
