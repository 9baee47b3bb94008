"""Draw an execution trace: work of IPUs over time, optionally with the critical path."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch

from ipusim.api import Timeline, analysis
from ipusim.app.render.arrays import Integers
from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.fold import first_replica, replicas_alike
from ipusim.app.render.layout import Headed, stack
from ipusim.app.render.panel import BOX_HEIGHT, rectangles
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.shortened import drawn_of, shortened, with_omissions, without_gaps
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window
from ipusim.app.render.window import window as window_of

#: Width of the path's frames and lines in points.
_LINE: Final = 1.3
#: Width of the white line behind each line between rows, in points.
_EDGE: Final = 3.2
#: Colour of the path.
_COLOUR: Final = "#000000"


def execution_trace(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    *,
    title: str | None = None,
    picture: Picture = DEFAULT,
) -> Chart:
    """Return the execution trace of a run from cycle ``start`` to cycle ``end``.

    By default, the whole run is drawn. The figure has a row for every IPU of the device, or of a single replica if all
    replicas do the same. The default ``title`` holds description, schedule, size, and cycles of a partial window; an
    empty title is left out. Raises OutputError for a window outside the run, and OptionError for an unreadably small
    size.
    """
    window = window_of(timeline, start, end)
    title = default_title(timeline, window, headline=picture.title) if title is None else title
    short, window = shortened(timeline, window)
    return finish(_chart_of(short, window, title, picture), picture)


def _chart_of(timeline: Timeline, window: Window, title: str, picture: Picture) -> Chart:
    """Return the execution trace of a window, from a Timeline that holds every drawn span."""
    title = with_omissions(title, window) if title else title
    if replicas_alike(timeline, window):
        timeline = first_replica(timeline)
    return stack([Headed("", timeline)], window, title, picture=picture)


def trace_with_path(timeline: Timeline, path: Integers, part: Window, picture: Picture = DEFAULT) -> Chart:
    """Return the execution trace of a window with frames around the spans of ``path``.

    Adjacent spans of a row share a frame. Lines join frames in different rows. A span of every IPU has
    its frame in the row of the span before. A transfer or host time has its frame in the row it leaves. If replicas do
    the same, the figure shows one, with the path folded into its rows. Raises OutputError for a window outside the run.
    """
    window = window_of(timeline, part.start, part.end)
    title = f"{default_title(timeline, part, headline=picture.title)}; frames are the critical path"
    if timeline.repeats:
        timeline = drawn_of(timeline, window)
        path = analysis.critical_path_of(timeline).rows
    timeline, window = without_gaps(timeline, window)
    chart = _chart_of(timeline, window, title, picture)
    with default_style_settings():
        rows = timeline.info.shards if replicas_alike(timeline, window) else len(timeline.info.ipus)
        _draw(chart.axes[-1], timeline, path, window, rows)
    return finish(chart, picture)


def _draw(axes: Axes, timeline: Timeline, path: Integers, window: Window, rows: int) -> None:
    ipu = np.where(timeline.ipu[path] >= 0, timeline.ipu[path] % rows, timeline.ipu[path])
    on_row = ipu >= 0
    # A span of every IPU stays in the row of the span before.
    last = np.maximum.accumulate(np.where(on_row, np.arange(len(path)), 0))
    row = np.maximum(ipu[last], 0)
    start, end = (cycles[path].clip(window.start, window.end) for cycles in (timeline.start, timeline.end))
    inside = np.flatnonzero(start < end)
    middle, half = row[inside] + 0.5, BOX_HEIGHT / 2
    # Adjacent spans of a row share a frame: frames of short spans would cover the row with lines.
    begins = np.ones(len(inside), dtype=np.bool_)
    begins[1:] = (np.diff(middle) != 0) | (start[inside][1:] != end[inside][:-1])
    ends = np.append(begins[1:], True)[: len(inside)]
    height = middle[begins]
    frames = rectangles(start[inside][begins], end[inside][ends], height + half, height - half)
    row_changes = np.flatnonzero(np.diff(middle))  # steps between different rows
    upper, lower = np.sort(np.stack([middle[row_changes], middle[row_changes + 1]]), axis=0)
    corners = start[inside][row_changes + 1].astype(np.float64)
    axes.add_artist(PathPatch(frames, facecolor="none", edgecolor=_COLOUR, linewidth=_LINE, snap=True, zorder=5))
    axes.vlines(corners, upper + half, lower - half, color="#ffffff", linewidth=_EDGE, zorder=4.9)
    axes.vlines(corners, upper + half, lower - half, color=_COLOUR, linewidth=_LINE, zorder=5)
