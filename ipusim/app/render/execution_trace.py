"""The execution trace: what every IPU does over time, as a figure."""

from __future__ import annotations

from ipusim.api import Timeline
from ipusim.app.render.figures import Chart
from ipusim.app.render.fold import first_replica, replicas_alike
from ipusim.app.render.layout import Headed, stack
from ipusim.app.render.shortened import shortened, with_omissions
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window, window


def execution_trace(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    *,
    title: str | None = None,
) -> Chart:
    """Return the execution trace of a run from cycle ``start`` to cycle ``end``, by default the whole.

    One row for each IPU of the device, or of one replica where all do the same. ``title`` is by default what the run
    is of, schedule and size, and the cycles if not all are shown; an empty one leaves it out. Raises
    OutputError for a window outside the run.
    """
    shown = window(timeline, start, end)
    title = default_title(timeline, shown) if title is None else title
    drawn, shown = shortened(timeline, shown)
    return chart_of(drawn, shown, title)


def chart_of(timeline: Timeline, shown: Window, title: str) -> Chart:
    """Return the execution trace of a Timeline without blocks in a window, which may have breaks."""
    title = with_omissions(title, shown) if title else title
    if replicas_alike(timeline, shown):
        timeline = first_replica(timeline)
    return stack([Headed("", timeline)], shown, title)
