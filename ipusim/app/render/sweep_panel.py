"""Draw a panel of a sweep's chart: a measure against the varied options, as lines or bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ipusim.app.render.lettering import truncate
from ipusim.app.render.signs import SIGNS, draw_signs, sign_style
from ipusim.app.render.style import FAINT_TEXT, LINE, SERIES, TEXT_SIZE
from ipusim.app.render.tables import text_of
from ipusim.base.units import format_figure

#: Minimum ratio of largest to smallest value on a logarithmic axis.
_LEAST_LOG_RATIO: Final = 16
#: Maximum number of tick labels below an axis.
_MOST_TICKS: Final = 12
#: Maximum number of points of a line on which every point has a marker.
_MOST_MARKERS: Final = 40
#: Widths of lines in points; earlier lines are wider, since later ones may cover them.
_WIDTHS: Final = (3.6, 2.4, 1.4, 1.2, 1.2, 1.2, 1.2)
#: Maximum height of a drawn level, as multiple of the axis's top; a higher level is left out.
_HIGHEST_LEVEL: Final = 4.0
#: Share of a group's width taken by its bars.
_BARS: Final = 0.8
#: Maximum width of a name in a legend, in points.
_NAME_WIDTH: Final = 560.0
#: Maximum number of columns of a legend.
_COLUMNS: Final = 4
#: Distance between bars and legend, as share of the panel's height.
_ABOVE_BARS: Final = 0.04
#: Properties of a legend; a frame hides the lines behind a legend.
_LEGEND: Final[Mapping[str, Any]] = {
    "fontsize": TEXT_SIZE,
    "frameon": False,
    "facecolor": "white",
    "edgecolor": "none",
    "framealpha": 1.0,
}


@dataclass(frozen=True)
class ChartAxis:
    """One varied option: name, values in order, and whether all values are numbers."""

    name: str
    values: tuple[Any, ...]
    numeric: bool

    @property
    def distinct(self) -> list[Any]:
        """Distinct values, in order."""
        return list({text_of(value): value for value in self.values}.values())


@dataclass(frozen=True)
class Limit:
    """Limit that a line approaches.

    Attributes:
        group: values of the options other than the x axis.
        level: limit in the unit of the first panel.
        near: first x with 95 % of the limit, and the line's value; None outside of the points.
    """

    group: tuple[Any, ...]
    level: float
    near: tuple[float, float] | None


class ChartPoint(NamedTuple):
    """Point of a panel.

    Attributes:
        place: value of each varied option.
        value: value of the panel's measure; None if missing.
        fits: whether the run fits its memory.
        sign: reason of a missing value, a key of SIGNS; empty for points with values.
    """

    place: tuple[Any, ...]
    value: float | None
    fits: bool
    sign: str

    @property
    def is_unfit(self) -> bool:
        """Whether the point has a value and does not fit."""
        return self.value is not None and not self.fits


def _series(x_axis: int, points: Sequence[ChartPoint]) -> dict[tuple[str, ...], list[ChartPoint]]:
    """Group points by their values on every axis except ``x_axis``."""
    series: dict[tuple[str, ...], list[ChartPoint]] = {}
    for point in points:
        rest_of_point = tuple(text_of(value) for axis, value in enumerate(point.place) if axis != x_axis)
        series.setdefault(rest_of_point, []).append(point)
    return series


def _name(axes: Sequence[ChartAxis], x_axis: int, values: Sequence[str]) -> str:
    names = [axis.name for number, axis in enumerate(axes) if number != x_axis]
    return truncate(
        ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True)), TEXT_SIZE, _NAME_WIDTH
    )


def draw_lines(
    panel: Axes,
    axes: Sequence[ChartAxis],
    x_axis: int,
    points: Sequence[ChartPoint],
    limits: Sequence[Limit],
    unfit: str,
) -> None:
    """Draw a line for every combination of the other options.

    The number of colours limits the number of lines.

    A line breaks at points without a value. Signs mark these points above the axis, with a row for each line.
    """
    series = _series(x_axis, points)
    levels = {tuple(map(text_of, limit.group)): limit for limit in limits}
    drawn_limits: list[Limit] = []
    signs: set[str] = set()
    rows = 0
    for number, ((key, members), (colour, marker)) in enumerate(zip(series.items(), SERIES, strict=False)):
        line = sorted(members, key=lambda point: point.place[x_axis])
        x = [point.place[x_axis] for point in line]
        y = np.array([point.value for point in line], dtype=float)
        known = [place for place, point in zip(x, line, strict=True) if point.value is not None]
        width = _WIDTHS[number] if len(series) > 1 else 1.5
        # A point between two breaks is only a marker. Earlier lines have larger markers, since later ones may cover
        # them.
        has_breaks = len(known) < len(x)
        line_marker, size = marker if len(x) <= _MOST_MARKERS or has_breaks else "", 3.5 + width if has_breaks else 4.5
        panel.plot(
            x, y, color=colour, marker=line_marker, markersize=size, linewidth=width, label=_name(axes, x_axis, key)
        )
        hollow = np.array([point.is_unfit for point in line])
        style: dict[str, Any] = {"color": colour, "markerfacecolor": "white", "markersize": 4.5}
        panel.plot([place for place, is_hollow in zip(x, hollow, strict=True) if is_hollow], y[hollow], marker, **style)
        if marks := [(point.place[x_axis], point.sign) for point in line if point.sign]:
            draw_signs(panel, marks, colour, rows)
            signs |= {sign for _, sign in marks}
            rows += 1
        if key in levels:
            middle = known[len(known) // 2]
            _draw_limit(panel, levels[key], colour, middle, is_single=len(series) == 1)
            drawn_limits.append(levels[key])
    for sign in (sign for sign in SIGNS if sign in signs):
        panel.plot([], [], **sign_style(sign, FAINT_TEXT), label=SIGNS[sign])
    if any(point.is_unfit for point in points):
        panel.plot([], [], "o", color=FAINT_TEXT, markerfacecolor="white", markersize=4.5, label=f"hollow: {unfit}")
    if len(series) > len(SERIES):
        panel.plot([], [], " ", label=f"the first {len(SERIES)} of {len(series)} lines")
    if drawn_limits and len(series) > 1:
        panel.plot([], [], "--", color=FAINT_TEXT, linewidth=1.0, label="ceiling")
        if any(limit.near is not None for limit in drawn_limits):
            panel.plot([], [], "o", color=FAINT_TEXT, markerfacecolor="none", markersize=9, label="95 % of it")
    _x_axis(panel, axes[x_axis])


def place_legend(panel: Axes) -> None:
    """Put a panel's legend where no line crosses it, adding columns if needed.

    If no place is free, the legend covers lines.
    """
    if panel.get_legend_handles_labels()[1] in ([], [""]):
        return
    for columns in range(1, _COLUMNS + 1):
        legend = panel.legend(**_LEGEND, loc="best", ncols=columns)
        if _is_within(legend, panel) and not _is_crossed(legend, panel):
            return
    panel.legend(**{**_LEGEND, "frameon": True}, loc="best")


def _is_within(legend: Legend, panel: Axes) -> bool:
    return legend.get_window_extent().width <= 0.99 * panel.bbox.width


def _is_crossed(legend: Legend, panel: Axes) -> bool:
    box = legend.get_window_extent()
    paths = [line.get_transform().transform_path(line.get_path()) for line in panel.lines]
    return any(path.intersects_bbox(box, filled=False) or box.count_contains(path.vertices) for path in paths)


def _draw_limit(panel: Axes, limit: Limit, colour: str, middle: float, *, is_single: bool) -> None:
    """Draw a ceiling and the line's first point near it, with words if ``is_single``: the panel has no other line."""
    panel.axhline(limit.level, color=colour, linestyle="--", linewidth=1.0)
    if is_single:
        _write_above(panel, limit.level, f"ceiling: {format_figure(limit.level)}", 4)
        panel.set_ylim(top=1.1 * limit.level)
    if limit.near is None:
        return
    x, value = limit.near
    panel.plot([x], [value], "o", color=colour, markerfacecolor="none", markersize=9)
    if is_single:
        panel.plot([x, x], [0, value], color=colour, linestyle=":", linewidth=1.0)
        panel.annotate(
            f"95 % of it from {x:g} on",
            (x, 0.45 * limit.level),
            (-6 if x > middle else 6, 0),
            textcoords="offset points",
            ha="right" if x > middle else "left",
            fontsize=TEXT_SIZE,
            color=LINE,
        )


def _write_above(panel: Axes, level: float, words: str, points: float, **style: Any) -> None:
    """Write words ``points`` points above the right end of a horizontal line."""
    panel.annotate(
        words,
        (1.0, level),
        (-4, points),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=TEXT_SIZE,
        color=LINE,
        **style,
    )


def draw_level(panel: Axes, level: float, words: str) -> None:
    """Draw a labelled horizontal line unless it lies far above all values."""
    top = panel.get_ylim()[1]
    if level > _HIGHEST_LEVEL * top:
        return
    panel.axhline(level, color=LINE, linestyle=":", linewidth=1.2)
    _write_above(panel, level, words, 3, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})
    panel.set_ylim(top=max(top, 1.2 * level))


def _x_axis(panel: Axes, axis: ChartAxis) -> None:
    """Name the x axis; wide ranges become logarithmic, with the values as ticks."""
    values = sorted(axis.distinct)
    panel.set_xlabel(axis.name, fontsize=TEXT_SIZE)
    if values[0] > 0 and values[-1] / values[0] >= _LEAST_LOG_RATIO:
        panel.set_xscale("log", base=2)
        if len(values) > _MOST_TICKS:
            powers = np.arange(np.ceil(np.log2(values[0])), np.floor(np.log2(values[-1])) + 1)
            values = [2.0**power for power in powers[:: -(-len(powers) // _MOST_TICKS)]]
        panel.set_xticks(values, [f"{value:,g}" for value in values])
        panel.set_xticks([], minor=True)
    elif len(values) <= _MOST_TICKS:
        panel.set_xticks(values, [f"{value:,g}" for value in values])


def draw_bars(panel: Axes, axes: Sequence[ChartAxis], points: Sequence[ChartPoint], unfit: str) -> None:
    """Draw a group of bars for each value of the longest axis, with a bar for each combination of the other axes."""
    x_axis = max(range(len(axes)), key=lambda candidate: (len(axes[candidate].distinct), -candidate))
    slots = {text_of(value): slot for slot, value in enumerate(axes[x_axis].distinct)}
    series = _series(x_axis, points)
    bar_series = list(series.items())[: len(SERIES)]
    width = _BARS / len(bar_series)
    handles: list[Patch | Line2D] = []
    for turn, ((key, members), (colour, _)) in enumerate(zip(bar_series, SERIES, strict=False)):
        shift = (turn - (len(bar_series) - 1) / 2) * width
        places = [slots[text_of(point.place[x_axis])] + shift for point in members]
        bars = panel.bar(places, [point.value or 0.0 for point in members], 0.94 * width, color=colour)
        if len(axes) > 1:
            handles.append(Patch(color=colour, label=_name(axes, x_axis, key)))
        draw_signs(panel, [(x, point.sign) for point, x in zip(members, places, strict=True)], colour)
        for bar, point in zip(bars, members, strict=True):
            if point.is_unfit:
                bar.set(facecolor="white", edgecolor=colour, hatch="///")
    if any(point.is_unfit for point in points):
        handles.append(Patch(facecolor="white", edgecolor=FAINT_TEXT, hatch="///", label=unfit))
    handles += [
        Line2D([], [], **sign_style(sign, FAINT_TEXT), label=meaning)
        for sign, meaning in SIGNS.items()
        if any(point.sign == sign for point in points)
    ]
    if handles:
        if len(series) > len(bar_series):
            handles.append(Patch(alpha=0, label=f"the first {len(bar_series)} of {len(series)}"))
        for columns in range(_COLUMNS, 0, -1):
            legend = panel.legend(handles=handles, **_LEGEND, loc="upper left", ncols=columns)
            if _is_within(legend, panel):
                break
        share = legend.get_window_extent().height / panel.bbox.height + _ABOVE_BARS
        panel.set_ylim(top=panel.get_ylim()[1] * max(1.2, 1 / (1 - share)))
    panel.set_xlabel(axes[x_axis].name, fontsize=TEXT_SIZE)
    is_crowded = max(map(len, slots)) * len(slots) > 100
    panel.set_xticks(
        range(len(slots)), list(slots), rotation=30 if is_crowded else 0, ha="right" if is_crowded else "center"
    )
