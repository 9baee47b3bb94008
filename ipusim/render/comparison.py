"""Several runs of the same work under each other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipusim.analysis.executions import find_execution
from ipusim.errors import OutputError
from ipusim.render.figures import Chart
from ipusim.render.layout import Headed, stack
from ipusim.render.window import Window
from ipusim.timeline.timeline import Timeline
from ipusim.units import format_seconds

#: The axis ends with the slowest run that takes at most this many times as long as the fastest; slower ones are cut.
_LONGEST: Final = 4.0
#: Runs that one figure shows.
_MOST_RUNS: Final = 8


def comparison(
    timelines: Sequence[Timeline],
    start: int = 0,
    end: int | None = None,
    *,
    title: str = "",
    remarks: Sequence[str] = (),
    width_in: float = 10.0,
    height_in: float | None = None,
) -> Chart:
    """Return the traces of ``timelines`` under each other, by default from cycle 0 over their first executions.

    The axis is that of the runs of similar length: one that takes more than four times as
    long as the fastest is cut, as it would leave the others too narrow to read. Of more
    than eight runs the first eight are shown, which the title says.

    The line above each names its schedule, the makespan of its first execution
    without the weight update, its remark out of ``remarks``, of which there are
    none or one for each, and where it is cut how much is shown. Raises OutputError for no
    Timelines, for different clocks (which have no common axis), and as
    :func:`execution_trace` does.
    """
    if not timelines:
        raise OutputError("expected at least one Timeline to compare, got none")
    clocks = sorted({timeline.info.clock_hz for timeline in timelines})
    if len(clocks) > 1:
        raise OutputError(f"expected Timelines of one tile clock, got {', '.join(f'{hz} Hz' for hz in clocks)}")
    if len(timelines) > _MOST_RUNS:
        title = f"{title} (the first {_MOST_RUNS} of {len(timelines)} runs)".lstrip()
        timelines, remarks = timelines[:_MOST_RUNS], remarks[:_MOST_RUNS]
    firsts = [find_execution(timeline, 0) for timeline in timelines]
    ends = [max(first.end, 1) for first in firsts]
    last = end if end is not None else max(each for each in ends if each <= _LONGEST * min(ends))
    if not 0 <= start < last:
        raise OutputError(f"expected a window of cycles that begins before it ends, got {start} to {last}")
    panels = []
    for timeline, first, whole, remark in zip(timelines, firsts, ends, remarks or [""] * len(timelines), strict=True):
        cut = f"cut: {(last - start) / whole:.1%} of it is shown" if whole > last else ""
        words = "; ".join(filter(None, (_makespan(timeline, first.makespan_cycles), remark, cut)))
        panels.append(Headed(words, timeline, torn=bool(cut)))
    return stack(panels, Window(start, last), title, width_in, height_in)


def _makespan(timeline: Timeline, cycles: int) -> str:
    seconds = format_seconds(cycles / timeline.info.clock_hz).replace("us", "µs")
    return f"{timeline.info.order_and_sync}: {cycles:,} cycles, {seconds}"
