"""Draw the memory chart: memory of IPUs over time, and a bar of each peak by holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ipusim.api import Timeline, analysis, pipelines
from ipusim.app.render.axes import cycle_axis, draw_breaks, second_axis
from ipusim.app.render.brackets import draw_brackets
from ipusim.app.render.byte_axis import HEADROOM, TICK_IN, byte_ticks, byte_unit, label_bytes, limit_in_sight
from ipusim.app.render.content import phases_in
from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.fold import first_replica_info
from ipusim.app.render.legend import LEGEND_LINE, Entry, Sign, draw_legend, legend_lines
from ipusim.app.render.lettering import text_width, wrap
from ipusim.app.render.memory_layers import IpuLayers, ipu_layers
from ipusim.app.render.panel import names_width, row_names, stage_names
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.shortened import shortened, with_omissions
from ipusim.app.render.style import DASHES, DPI, EDGE_IN, FAINT_TEXT, LINE, STAGE_SIZE, TEXT_SIZE, WIDTH_IN
from ipusim.app.render.time_bars import draw_part
from ipusim.app.render.titles import default_title, title_lines, titles_height, write_titles
from ipusim.app.render.window import Window
from ipusim.base.looks import Look
from ipusim.base.units import format_bytes

#: Distance from names to tick labels, and from tick labels to the axes, in inches.
_SPACE: Final = 0.11
#: Distance between memory over time and the bars in inches.
_COLUMN_GAP: Final = 0.30
#: Maximum width of the bars in inches.
_BARS: Final = 2.3
#: Width of the sums beside the bars in inches.
_SUMS: Final = 0.72
#: Height of a line of the note above the rows in inches.
_LINE: Final = 0.15
#: Height of the seconds axis in inches.
_SECONDS: Final = 0.30
#: Height of the brackets in inches.
_BAND: Final = 0.28
#: Distance between rows in inches.
_ROW_GAP: Final = 0.07
#: Height of the cycles axis in inches.
_CYCLES: Final = 0.44
#: Target height of all rows together in inches.
_ALL_ROWS: Final = 6.0
#: Minimum height of a row in inches.
_LOWEST_ROW: Final = 0.16
#: Maximum height of a row in inches.
_HIGHEST_ROW: Final = 1.5
#: Minimum height of a row with tick labels for its bytes, in inches.
_SCALED_ROW: Final = 0.30
#: Share of a default picture's width used by memory over time.
_OVER_TIME: Final = 0.6
#: Maximum height of a bar in inches.
_THICKEST_BAR: Final = 0.5
#: Minimum width of memory over time in inches, in a picture of a chosen size.
_NARROWEST: Final = 0.8
#: Number of further layouts after which row height and width of names agree, in a picture of a chosen size.
_ROUNDS: Final = 2
#: Minimum width of a visible layer in pixels, since the hatch covers narrower layers.
_LEAST_LAYER_PIXELS: Final = 6


@default_style_settings()
def memory_chart(timeline: Timeline, fit: analysis.Fit, window: Window, picture: Picture = DEFAULT) -> Chart:
    """Return the memory chart of a run in ``window``.

    Every IPU with a stage has a row: its memory over time on the left, and its peak in the whole run on the right, as a
    bar with a part for each holder (a use of memory). Bars share a scale. Rows over time share a scale if the memory
    limit is within the chart. Otherwise every row has its own scale, to keep small amounts readable. Raises OptionError
    for an unreadably small size.
    """
    short, view = shortened(timeline, window, _OVER_TIME)
    title = with_omissions(default_title(timeline, window, of_replica=True, headline=picture.title), view)
    peaks = [view.shows(analysis.moment(timeline, peak)) for peak in fit.peaks]
    ipus = len(fit.footprint.ipus)
    tall = min(max(_ALL_ROWS / ipus, _LOWEST_ROW), _HIGHEST_ROW)
    chart = _chart(short, fit, view, title, peaks, picture, tall)
    for _ in range(_ROUNDS if picture.height_in else 0):  # names depend on row height
        base_in = chart.get_size_inches()[1] - ipus * tall
        tall = ((picture.height_in or 0.0) - base_in) / ipus
        if tall < _LOWEST_ROW:
            raise picture.too_low("rows, axes and legend", base_in + _LOWEST_ROW * ipus)
        chart = _chart(short, fit, view, title, peaks, picture, tall)
    return finish(chart, picture)


def _chart(
    timeline: Timeline,
    fit: analysis.Fit,
    window: Window,
    title: str,
    peaks: Sequence[int],
    picture: Picture,
    tall: float,
) -> Chart:
    """Return the memory chart of a Timeline without repeats left to expand; rows are ``tall`` inches high."""
    one_replica = timeline.with_info(first_replica_info(timeline.info))
    names, stages = row_names(one_replica), stage_names(one_replica, tall * 72)
    left = EDGE_IN + names_width(one_replica, tall * 72) / 72 + _SPACE + text_width("888 KiB", TEXT_SIZE) / 72 + _SPACE
    figure_in = picture.width_in
    width, bars_in = _columns(left, picture)
    rows = _rows(timeline, fit, window, int(width * DPI), peaks)
    fullest = max(1, *(row.peak_bytes for row in rows))
    limit = limit_in_sight(fit.sram_bytes, fullest)
    highest = HEADROOM * max(fullest, limit or 0)
    titles = title_lines(title, figure_in - 2 * EDGE_IN)
    note = _note_on_scales(fit, timeline, own_scales=limit is None and len(rows) > 1)
    words = wrap(note, TEXT_SIZE, (figure_in - 2 * EDGE_IN) * 72, bold=bool(fit.too_large))
    tops = [highest if limit else HEADROOM * max(row.peak_bytes, 1) for row in rows]
    legend = legend_lines(_entries(rows, tops, tall, width, highest, limit), figure_in - 2 * EDGE_IN)
    height = 2 * EDGE_IN + titles_height(titles) + _LINE * len(words) + _SECONDS + _BAND
    pitch = tall + _ROW_GAP
    height += len(rows) * pitch + _CYCLES + LEGEND_LINE * len(legend)
    figure = Chart(figsize=(figure_in, height), facecolor="white")
    top = EDGE_IN + write_titles(figure, titles, EDGE_IN)
    for number, line in enumerate(words):
        figure.write(EDGE_IN, top + number * _LINE, line, fontweight="bold" if fit.too_large else "normal")
    top += _LINE * len(words) + _SECONDS
    bars = left + width + _COLUMN_GAP
    second_axis(figure.add_clear_axes(left, top, width, 0.01), window, timeline.info.clock_hz, width)
    points = width * 72 / window.cycles
    draw_brackets(figure.add_clear_axes(left, top, width, _BAND), phases_in(timeline, window), window, points)
    figure.write(bars, top + _BAND - 0.04, "at each IPU's peak in the run", va="bottom")
    top += _BAND
    over_time, at_peak = (
        figure.add_clear_axes(x, top, wide, pitch * len(rows)) for x, wide in ((left, width), (bars, bars_in))
    )
    scales = [_Scale((number + 1) * pitch, tall, top_bytes) for number, top_bytes in enumerate(tops)]
    for row, scale, peak in zip(rows, scales, fit.peaks, strict=True):
        _draw_over_time(over_time, row, limit, scale)
        _draw_bar(at_peak, row, limit, highest, scale)
        middle, weight = top + scale.foot - tall / 2, "bold" if fit.excess_bytes(peak) else "normal"
        figure.write(EDGE_IN, middle, names[row.ipu], va="bottom" if stages[row.ipu] else "center_baseline")
        figure.write(EDGE_IN, middle, stages[row.ipu], fontsize=STAGE_SIZE, color=FAINT_TEXT)
        figure.write(
            figure_in - EDGE_IN, middle, format_bytes(peak.bytes), ha="right", va="center_baseline", fontweight=weight
        )
    for axes in (over_time, at_peak):
        _tidy(axes, scales[-1].foot)
    label_bytes(over_time, {position: words for scale in scales for position, words in scale.ticks().items()})
    draw_breaks(over_time, window, width)
    cycle_axis(over_time, window, timeline.info.clock_hz, width, labelled=True)
    _byte_axis(at_peak, highest)
    draw_legend(figure, legend, EDGE_IN, EDGE_IN)
    return figure


def _columns(left: float, picture: Picture) -> tuple[float, float]:
    """Return the widths of memory over time and of the bars, in inches.

    Raises OptionError if the picture is too narrow.
    """
    bars = _BARS * min(picture.width_in / WIDTH_IN, 1.0)
    taken_in = left + _COLUMN_GAP + bars + _SUMS + EDGE_IN
    if picture.width_in < taken_in + _NARROWEST:
        raise picture.refusal(f"memory over time takes at least {taken_in + _NARROWEST:.1f} inches of width")
    return picture.width_in - taken_in, bars


def _rows(
    timeline: Timeline, fit: analysis.Fit, window: Window, most_steps: int, peaks: Sequence[int]
) -> list[IpuLayers]:
    """Return the layers of every IPU with a stage in the first replica; ``peaks`` are the cycles of the IPUs' peaks."""
    footprint = fit.footprint
    curves = analysis.memory_curves(timeline, footprint)
    return [
        ipu_layers(curve, analysis.product_steps(timeline, footprint, ipu), peak, cycle, window, most_steps)
        for curve, ipu, peak, cycle in zip(curves, footprint.ipus, fit.peaks, peaks, strict=True)
    ]


def _note_on_scales(fit: analysis.Fit, timeline: Timeline, *, own_scales: bool) -> str:
    """Return the lines above the rows: verdict and explanation of the chart."""
    replicas = " Every replica has equal memory." if timeline.info.replicas > 1 else ""
    return f"{fit.verdict()}{replicas}{' Each row over time has a separate scale.' if own_scales else ''}"


@dataclass(frozen=True)
class _Scale:
    """Vertical scale of a row: inches from the top down to its foot, its height, and bytes at full height."""

    foot: float
    tall: float
    top_bytes: float

    def position_of(self, level: Any) -> Any:
        """Return the position of an amount of bytes, or of each in an array."""
        return self.foot - self.tall * level / self.top_bytes

    def ticks(self) -> dict[float, str]:
        """Return positions and labels of round byte numbers; empty in a low row."""
        if self.tall < _SCALED_ROW:
            return {}
        return {
            self.position_of(tick): words for tick, words in byte_ticks(self.top_bytes, self.tall / TICK_IN).items()
        }


def _entries(
    rows: Sequence[IpuLayers], tops: Sequence[float], tall: float, width: float, highest: float, limit: int | None
) -> list[Entry]:
    """Return the legend: signs, and layers visible over time or in a bar.

    Full rows are ``tops`` bytes high, full bars ``highest`` bytes long.
    """
    scales = [(row, 2 * top / (tall * DPI)) for row, top in zip(rows, tops, strict=True)]
    wide = 2 * highest / (_BARS * DPI)
    layers = [
        layer
        for layer in pipelines.LAYERS
        if any(row.peak[layer] >= wide or _is_seen(row, layer, least, width * DPI) for row, least in scales)
    ]
    entries = [Entry(layer.name, layer) for layer in layers]
    if limit is not None:
        entries.append(Entry(f"an IPU's memory, {format_bytes(limit)}", Sign.LIMIT))
    if any(row.shows_peak for row in rows):
        entries.append(Entry("peak", Sign.PEAK))
    return entries


def _is_seen(row: IpuLayers, layer: Look, least: float, pixels: float) -> bool:
    """Return whether a layer is visible at the peak, or long enough over ``pixels``.

    ``least`` is the number of bytes of two pixels: a layer two pixels high always fills a whole pixel, while a layer
    one pixel high may lie in two pixels and fill neither.
    """
    changes = np.flatnonzero(np.diff(row.heights[layer] >= least, prepend=False, append=False))
    longest = (row.edges[changes[1::2]] - row.edges[changes[::2]]).max(initial=0.0)
    return bool(row.peak[layer] >= least or longest * pixels >= _LEAST_LAYER_PIXELS * (row.edges[-1] - row.edges[0]))


def _draw_over_time(axes: Axes, row: IpuLayers, limit: int | None, scale: _Scale) -> None:
    left, right = row.edges[0], row.edges[-1]
    _line(
        axes,
        [left, left, right],
        [scale.position_of(scale.top_bytes), scale.foot, scale.foot],
        color=LINE,
        linewidth=0.8,
    )
    foot = np.zeros(len(row.edges))
    for look, heights in row.heights.items():
        if heights.any():
            head = foot + np.append(heights, heights[-1])
            fill: dict[str, Any] = {"linewidth": 0.0, "facecolor": look.face, "edgecolor": look.ink, "zorder": 2}
            levels = scale.position_of(foot), scale.position_of(head)
            axes.fill_between(row.edges, *levels, step="post", hatch=look.hatch or None, **fill)
            foot = head
    _line(axes, row.edges, scale.position_of(foot), drawstyle="steps-post", color="#000000", linewidth=0.7, zorder=3)
    if row.shows_peak:
        mark: dict[str, Any] = {"linestyle": "", "marker": "v", "markersize": 3.5, "clip_on": False}
        _line(axes, [row.peak_cycle], [scale.position_of(row.peak_bytes)], color="#000000", zorder=5, **mark)
    if limit is not None:
        _draw_limit(axes, [left, right], [scale.position_of(limit)] * 2)


def _draw_bar(axes: Axes, row: IpuLayers, limit: int | None, most: float, scale: _Scale) -> None:
    thick, middle = min(0.8 * scale.tall, _THICKEST_BAR), scale.foot - scale.tall / 2
    _line(axes, [0, 0, most], [scale.foot - scale.tall, scale.foot, scale.foot], color=LINE, linewidth=0.8)
    base = 0
    for look, size in row.peak.items():
        if size:
            draw_part(axes, (base, middle - thick / 2), size, thick, look)
            base += size
    if limit is not None:
        _draw_limit(axes, [limit, limit], [scale.foot, scale.foot - scale.tall])


def _draw_limit(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    _line(axes, x, y, color="#000000", linewidth=1.0, linestyle=DASHES, zorder=4)


def _line(axes: Axes, x: Any, y: Any, **style: Any) -> None:
    """Draw a line or marks without updating the fixed bounds of the axes."""
    axes.add_artist(Line2D(x, y, **style))


def _tidy(axes: Axes, foot: float) -> None:
    """Set the y axis downwards to ``foot`` inches, without frame and ticks."""
    axes.set_ylim(foot, 0)
    axes.set_yticks([])
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)


def _byte_axis(axes: Axes, most: float) -> None:
    """Label the byte axis below the bars, up to ``most``."""
    unit, name = byte_unit(most)
    axes.set_xlim(0, most)
    ticks = [0.0, *byte_ticks(most, _BARS / TICK_IN / 2)]
    axes.set_xticks(ticks, [f"{tick / unit:.6g}" for tick in ticks])
    axes.tick_params(axis="x", labelsize=TEXT_SIZE, color=LINE, length=3)
    axes.set_xlabel(f"memory in {name}", fontsize=TEXT_SIZE, labelpad=2)
