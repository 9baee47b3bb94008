"""Several runs of the same work under each other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from ipusim.analysis.executions import find_execution
from ipusim.errors import OutputError
from ipusim.render.layout import Headed, stack
from ipusim.render.window import Window
from ipusim.timeline.timeline import Timeline
from ipusim.units import format_seconds


def comparison(
    timelines: Sequence[Timeline],
    start: int = 0,
    end: int | None = None,
    *,
    title: str = "",
    remarks: Sequence[str] = (),
    width_in: float = 10.0,
    height_in: float | None = None,
) -> Figure:
    """Return the traces of ``timelines`` under each other, by default over the longest first execution.

    The line above each names its schedule, the makespan of its first execution
    without the weight update, and its remark out of ``remarks``, of which there are
    none or one for each. Raises OutputError for no Timelines, for different
    clocks (which have no common axis), and as :func:`execution_trace` does.
    """
    if not timelines:
        raise OutputError("expected at least one Timeline to compare, got none")
    clocks = sorted({timeline.info.clock_hz for timeline in timelines})
    if len(clocks) > 1:
        raise OutputError(f"expected Timelines of one tile clock, got {', '.join(f'{hz} Hz' for hz in clocks)}")
    firsts = [find_execution(timeline, 0) for timeline in timelines]
    last = end if end is not None else max(1, *(first.end for first in firsts))
    if not 0 <= start < last:
        raise OutputError(f"expected a window of cycles that begins before it ends, got {start} to {last}")
    panels = [
        Headed(_heading(timeline, first.makespan_cycles, remark), timeline)
        for timeline, first, remark in zip(timelines, firsts, remarks or [""] * len(timelines), strict=True)
    ]
    return stack(panels, Window(start, last), title, width_in, height_in)


def _heading(timeline: Timeline, makespan_cycles: int, remark: str) -> str:
    seconds = format_seconds(makespan_cycles / timeline.info.clock_hz).replace("us", "µs")
    return f"{timeline.info.schedule}: {makespan_cycles:,} cycles, {seconds}{f'; {remark}' if remark else ''}"
