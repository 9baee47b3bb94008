"""Draw each IPU's time as a bar: arithmetic, and idle time by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from ipusim.api import Timeline
from ipusim.app.render.arrays import Integers
from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.growth_strip import STRIP_WORDS, draw_strip, strip_width
from ipusim.app.render.legend import LEGEND_LINE, Entry, draw_legend, legend_lines
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.style import EDGE_IN, FAINT_TEXT, LINE, TEXT_SIZE
from ipusim.app.render.time_bars import write_share
from ipusim.app.render.titles import title_lines, titles_height, with_headline, write_titles
from ipusim.base.looks import Look
from ipusim.base.units import format_seconds

#: Maximum distance from bar to bar in inches.
_HIGHEST: Final = 0.36
#: Minimum distance from bar to bar in inches.
_LOWEST: Final = 0.10
#: Target height of all bars together in inches.
_ALL: Final = 6.0
#: Inches left of the bars, for names.
_LEFT: Final = 0.85
#: Inches right of the bars.
_RIGHT: Final = 0.3
#: Inches below the bars, for the axis's numbers and name.
_AXIS: Final = 0.5
#: Minimum width of bars in inches, in a picture of a chosen size.
_LEAST_BARS_WIDTH: Final = 1.0
#: Minimum width of bars beside the strip that shows growth as colours, in inches.
_LEAST_BARS_WIDTH_WITH_GROWTH: Final = 3.0
#: Height of a bar, as share of the distance from bar to bar.
_BAR_SHARE: Final = 0.8
#: Minimum inches of a part in which its share is written.
_WRITTEN_IN: Final = 0.34


@default_style_settings()
def idle_chart(
    timeline: Timeline,
    ipu_time: Sequence[tuple[Look, Integers]],
    picture: Picture = DEFAULT,
    growth: Mapping[str, Sequence[int | None]] | None = None,
) -> Chart:
    """Return a figure with a bar of time parts for every IPU.

    Args:
        timeline: Timeline of the run.
        ipu_time: parts of the time of every IPU.
        picture: title, size and theme; a narrow picture has no colours for growth.
        growth: by kind of pass, growth of the run if each such pass of an IPU takes a cycle longer; None if unknown.

    Raises OptionError for an unreadably small size.
    """
    info = timeline.info
    ipus, figure_in = len(info.ipus), picture.width_in
    bar = max(min(_ALL / ipus, _HIGHEST), _LOWEST)
    parts = [(look, cycles) for look, cycles in ipu_time if cycles.any()]
    window_cycles = sum(int(cycles[0]) for _, cycles in ipu_time)
    legend = legend_lines([Entry(look.name, look) for look, _ in parts], figure_in - 2 * EDGE_IN)
    length = f"{window_cycles:,} cycles, {format_seconds(window_cycles / info.clock_hz).replace('us', 'µs')}"
    strip_in = strip_width(growth or {})
    if figure_in - _LEFT - _RIGHT - strip_in < _LEAST_BARS_WIDTH_WITH_GROWTH:
        strip_in = 0.0
    words = f"{info.order_and_sync}, time of each IPU, {length}{f'; {STRIP_WORDS}' if strip_in else ''}"
    title = title_lines(with_headline(timeline, words, picture.title), figure_in - 2 * EDGE_IN)
    head, foot = titles_height(title) + 2 * EDGE_IN, _AXIS + LEGEND_LINE * len(legend) + EDGE_IN
    if picture.height_in is not None:
        bar = (picture.height_in - head - foot) / ipus
        if bar < _LOWEST:
            raise picture.too_low("bars, axis and legend", head + _LOWEST * ipus + foot)
    height = head + bar * ipus + foot
    figure = Chart(figsize=(figure_in, height), facecolor="white")
    write_titles(figure, title, EDGE_IN)
    width = figure_in - _LEFT - _RIGHT - strip_in
    if width < _LEAST_BARS_WIDTH:
        raise picture.refusal(f"names and bars take at least {_LEFT + _RIGHT + _LEAST_BARS_WIDTH:.1f} inches of width")
    axes = figure.add_axes((_LEFT / figure_in, foot / height, width / figure_in, bar * ipus / height))
    _draw_bars(axes, info.ipu_rows, parts, window_cycles, (width, bar))
    draw_legend(figure, legend, EDGE_IN, EDGE_IN)
    if strip_in and growth is not None:
        draw_strip(figure, growth, _LEFT + width, foot, bar)
    return finish(figure, picture)


def _draw_bars(
    axes: Axes,
    ipu_rows: Sequence[int],
    parts: Sequence[tuple[Look, Integers]],
    window_cycles: int,
    size_in: tuple[float, float],
) -> None:
    """Draw a bar of time parts for every IPU; ``size_in`` has the inches of the axes' width and of a row."""
    width, bar = size_in
    rows = np.array(ipu_rows)
    left = np.zeros(len(rows))
    for look, cycles in parts:
        share = cycles / max(window_cycles, 1)
        axes.barh(rows, share, _BAR_SHARE, left, color=look.face, edgecolor=look.ink, hatch=look.hatch, linewidth=0)
        for row in rows[(share * width >= _WRITTEN_IN) & (bar * 72 * _BAR_SHARE >= TEXT_SIZE)]:
            write_share(axes, left[row] + share[row] / 2, row, share[row], look)
        left += share
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    stride = max(1, int(np.ceil(TEXT_SIZE * 1.2 / (bar * 72))))
    axes.set_yticks(range(0, len(rows), stride), [f"IPU {ipu}" for ipu in range(0, len(rows), stride)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("part of the time", fontsize=TEXT_SIZE, color=LINE)
    axes.tick_params(labelsize=TEXT_SIZE, color=FAINT_TEXT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
