"""The execution trace: what every IPU does over time, as a figure, and the critical path on it."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes

from ipusim.api import Timeline, analysis
from ipusim.app.render.arrays import Integers
from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.fold import first_replica, replicas_alike
from ipusim.app.render.layout import Headed, stack
from ipusim.app.render.shortened import drawn_of, shortened, with_omissions, without_gaps
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window
from ipusim.app.render.window import window as window_of

#: Points: the path, and the light edge that sets it off from any box below it.
_LINE, _EDGE = 1.6, 3.2
_COLOUR: Final = "#000000"
#: Where in its row the path runs, from the top.
_HEIGHT: Final = 0.86


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
    shown = window_of(timeline, start, end)
    title = default_title(timeline, shown) if title is None else title
    drawn, shown = shortened(timeline, shown)
    return _chart_of(drawn, shown, title)


def _chart_of(timeline: Timeline, shown: Window, title: str) -> Chart:
    """Return the execution trace of a Timeline without blocks in a window, which may have breaks."""
    title = with_omissions(title, shown) if title else title
    if replicas_alike(timeline, shown):
        timeline = first_replica(timeline)
    return stack([Headed("", timeline)], shown, title)


def trace_with_path(timeline: Timeline, path: Integers, shown: Window) -> Chart:
    """Return the execution trace of a window with the spans ``path`` as a line along and between rows.

    A span of all IPUs is drawn in the row of the path's span before it; a span on no IPU's row, such as a transfer or
    host time, in the row that it leaves. Of equal replicas one is drawn, with the path in its rows, whichever replica
    the path passes. Raises OutputError for a window outside the run.
    """
    window = window_of(timeline, shown.start, shown.end)
    title = f"{default_title(timeline, shown)}; the line is the critical path"
    if timeline.repeats:
        timeline = drawn_of(timeline, window)
        path = analysis.critical_path_of(timeline).rows
    timeline, window = without_gaps(timeline, window)
    chart = _chart_of(timeline, window, title)
    with own_settings():
        rows = timeline.info.shards if replicas_alike(timeline, window) else len(timeline.info.ipus)
        _draw(chart.axes[-1], timeline, path, window, rows)
    return chart


def _draw(axes: Axes, timeline: Timeline, path: Integers, shown: Window, rows: int) -> None:
    ipu = np.where(timeline.ipu[path] >= 0, timeline.ipu[path] % rows, timeline.ipu[path])
    on_row = ipu >= 0
    # Of each span the row of the last one that had one of its own.
    last = np.maximum.accumulate(np.where(on_row, np.arange(len(path)), 0))
    row = np.maximum(ipu[last], 0) + _HEIGHT
    x = np.stack([timeline.start[path], timeline.end[path]], axis=1).ravel().clip(shown.start, shown.end)
    inside = np.repeat((timeline.end[path] >= shown.start) & (timeline.start[path] <= shown.end), 2)
    y = np.repeat(row, 2)
    for colour, width in (("#ffffff", _EDGE), (_COLOUR, _LINE)):
        axes.plot(x[inside], y[inside], color=colour, linewidth=width, solid_joinstyle="round", zorder=5)
