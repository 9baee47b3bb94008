"""The critical path drawn on the execution trace."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from ipusim.api import Timeline, analysis
from ipusim.app.render.execution_trace import chart_of
from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.fold import replicas_alike
from ipusim.app.render.shortened import drawn_of, without_gaps
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window
from ipusim.app.render.window import window as shown_window

#: Points: the path, and the light edge that sets it off from any box below it.
_LINE, _EDGE = 1.6, 3.2
_COLOUR: Final = "#000000"
#: Where in its row the path runs, from the top.
_HEIGHT: Final = 0.86


def trace_with_path(timeline: Timeline, path: npt.NDArray[np.int64], start: int, end: int) -> Chart:
    """Return the execution trace from ``start`` to ``end`` with the spans ``path`` as a line along and between rows.

    A span of all IPUs is drawn in the row of the path's span before it; a span on no IPU's row, such as a transfer or
    host time, in the row that it leaves. Of equal replicas one is drawn, with the path in its rows, whichever replica
    the path passes. Raises OutputError for a window outside the run.
    """
    window = shown_window(timeline, start, end)
    title = f"{default_title(timeline, Window(start, end))}; the line is the critical path"
    if timeline.repeats:
        timeline = drawn_of(timeline, window)
        path = analysis.critical_path_of(timeline).rows
    timeline, window = without_gaps(timeline, window)
    chart = chart_of(timeline, window, title)
    with own_settings():
        rows = timeline.info.shards if replicas_alike(timeline, window) else len(timeline.info.ipus)
        _draw(chart.axes[-1], timeline, path, window, rows)
    return chart


def _draw(axes: Axes, timeline: Timeline, path: npt.NDArray[np.int64], shown: Window, rows: int) -> None:
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
