"""The execution trace: what every IPU does over time, as a figure, and the critical path on it."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch

from ipusim.api import Timeline, analysis
from ipusim.app.render.arrays import Integers
from ipusim.app.render.figures import Chart, finished, own_settings
from ipusim.app.render.fold import first_replica, replicas_alike
from ipusim.app.render.layout import Headed, stack
from ipusim.app.render.panel import FILLED, rectangles
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.shortened import drawn_of, shortened, with_omissions, without_gaps
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window
from ipusim.app.render.window import window as window_of

#: Points: the frames of the path and the lines between them, and the light edge of these lines across other rows.
_LINE, _EDGE = 1.3, 3.2
_COLOUR: Final = "#000000"


def execution_trace(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    *,
    title: str | None = None,
    picture: Picture = DEFAULT,
) -> Chart:
    """Return the execution trace of a run from cycle ``start`` to cycle ``end``, by default the whole.

    One row for each IPU of the device, or of one replica where all do the same. ``title`` is by default what the run
    is of, schedule and size, and the cycles if not all are shown; an empty one leaves it out. Raises
    OutputError for a window outside the run, and OptionError for a size in which the picture cannot be read.
    """
    shown = window_of(timeline, start, end)
    title = default_title(timeline, shown, headline=picture.title) if title is None else title
    drawn, shown = shortened(timeline, shown)
    return finished(_chart_of(drawn, shown, title, picture), picture)


def _chart_of(timeline: Timeline, shown: Window, title: str, picture: Picture) -> Chart:
    """Return the execution trace of a Timeline without blocks in a window, which may have breaks."""
    title = with_omissions(title, shown) if title else title
    if replicas_alike(timeline, shown):
        timeline = first_replica(timeline)
    return stack([Headed("", timeline)], shown, title, picture=picture)


def trace_with_path(timeline: Timeline, path: Integers, shown: Window, picture: Picture = DEFAULT) -> Chart:
    """Return the execution trace of a window with a frame around each span of ``path``, and lines between rows.

    A span of all IPUs has its frame in the row of the path's span before it; a span on no IPU's row, such as a transfer
    or host time, in the row that it leaves. Of equal replicas one is drawn, with the path in its rows, whichever
    replica the path passes. Raises OutputError for a window outside the run.
    """
    window = window_of(timeline, shown.start, shown.end)
    title = f"{default_title(timeline, shown, headline=picture.title)}; frames are the critical path"
    if timeline.repeats:
        timeline = drawn_of(timeline, window)
        path = analysis.critical_path_of(timeline).rows
    timeline, window = without_gaps(timeline, window)
    chart = _chart_of(timeline, window, title, picture)
    with own_settings():
        rows = timeline.info.shards if replicas_alike(timeline, window) else len(timeline.info.ipus)
        _draw(chart.axes[-1], timeline, path, window, rows)
    return finished(chart, picture)


def _draw(axes: Axes, timeline: Timeline, path: Integers, shown: Window, rows: int) -> None:
    ipu = np.where(timeline.ipu[path] >= 0, timeline.ipu[path] % rows, timeline.ipu[path])
    on_row = ipu >= 0
    # A span of all IPUs stays on the row of the IPU before it.
    last = np.maximum.accumulate(np.where(on_row, np.arange(len(path)), 0))
    row = np.maximum(ipu[last], 0)
    start, end = (cycles[path].clip(shown.start, shown.end) for cycles in (timeline.start, timeline.end))
    inside = np.flatnonzero(start < end)
    middle, half = row[inside] + 0.5, FILLED / 2
    frames = rectangles(start[inside], end[inside], middle + half, middle - half)
    passes = np.flatnonzero(np.diff(middle))  # from one row to another
    upper, lower = np.sort(np.stack([middle[passes], middle[passes + 1]]), axis=0)
    at = start[inside][passes + 1].astype(np.float64)
    axes.add_artist(PathPatch(frames, facecolor="none", edgecolor=_COLOUR, linewidth=_LINE, snap=True, zorder=5))
    axes.vlines(at, upper + half, lower - half, color="#ffffff", linewidth=_EDGE, zorder=4.9)
    axes.vlines(at, upper + half, lower - half, color=_COLOUR, linewidth=_LINE, zorder=5)
