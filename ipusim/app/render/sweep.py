"""Draw charts of a sweep: measures against the varied options, one panel per measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.heat_map import heat_map
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.signs import SIGNS
from ipusim.app.render.style import FAINT_TEXT, TEXT_SIZE
from ipusim.app.render.sweep_panel import ChartAxis, ChartPoint, Limit, draw_bars, draw_level, draw_lines, place_legend
from ipusim.app.render.tables import text_of
from ipusim.app.render.titles import titled_chart
from ipusim.base.errors import OutputError

#: Minimum number of distinct values of an axis for a line; with fewer values, the chart has bars.
_VALUES_OF_A_LINE: Final = 3
#: Minimum height of a panel in inches.
_LOWEST_PANEL: Final = 0.7
#: Inches for the numbers to the left of the panels.
_LABELS: Final = 0.75
#: Inches for the numbers below the panels.
_FOOT: Final = 0.53


@dataclass(frozen=True)
class Panel:
    """Measure over the points of a sweep.

    Attributes:
        words: name of the measure, with unit.
        values: value of each point; None if missing.
        level: height and name of a horizontal line; if None, no line is drawn.
    """

    words: str
    values: Sequence[float | None]
    level: tuple[float, str] | None = None


@default_style_settings()
def sweep_chart(
    axes: Sequence[ChartAxis],
    points: Sequence[tuple[Any, ...]],
    panels: Sequence[Panel],
    *,
    fits: Sequence[bool],
    has_run: Sequence[bool],
    limits: Sequence[Limit] = (),
    vary_together: bool = False,
    title: str = "",
    unfit: str = "does not fit",
    picture: Picture = DEFAULT,
) -> Chart:
    """Return a chart of ``panels`` against ``axes``, with the first panel largest.

    A single numeric axis gives a line, and a further axis of names gives a line for each of its values. Two numeric
    axes give heat maps, and axes of names alone give bars. ``unfit`` is the label of points that do not fit.
    ``vary_together`` combines all axes into a single axis of names. Raises OutputError if no point has
    a value, and OptionError for an unreadably small size.
    """
    if not any(value is not None for panel in panels for value in panel.values):
        raise OutputError("expected a point with a value to draw, got none")
    if vary_together and len(axes) > 1:
        axes, points = _as_one(axes, points)
    lines = [number for number, axis in enumerate(axes) if axis.numeric and len(axis.distinct) >= _VALUES_OF_A_LINE]
    are_heat_maps = len(axes) == 2 and len(lines) == 2
    tall = 4.4 + (2.8 if are_heat_maps else 1.8) * (len(panels) - 1)
    least = _LOWEST_PANEL * len(panels)
    figure = titled_chart(title, picture, tall, left=max(_LABELS, 0.1 * picture.width_in), foot=_FOOT, least=least)
    figure.subplots_adjust(hspace=0.08)
    ratios = [1 if are_heat_maps or number else 2 for number in range(len(panels))]
    all_axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True, height_ratios=ratios))
    for number, (panel, content) in enumerate(zip(all_axes, panels, strict=True)):
        values = zip(content.values, has_run, strict=True)
        signs = ["" if value is not None else list(SIGNS)[ran] for value, ran in values]
        results = [*map(ChartPoint, points, content.values, fits, signs)]
        if are_heat_maps:
            options = [(axis.name, sorted(axis.distinct)) for axis in axes]
            heat_map(figure, panel, options, results, content.words, unfit)
        elif lines:
            x_axis = max(lines, key=lambda line: len(axes[line].distinct))
            draw_lines(panel, axes, x_axis, results, limits if number == 0 else (), unfit)
        else:
            draw_bars(panel, axes, results, unfit)
        if not are_heat_maps:
            panel.set_ylabel(content.words, fontsize=TEXT_SIZE)
            panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]), top=panel.get_ylim()[1] * 1.04)
            if content.level is not None:
                draw_level(panel, *content.level)
            if lines and number == 0:
                place_legend(panel)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            panel.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        if number and panel.get_title("right") == all_axes[0].get_title("right"):
            panel.set_title("", loc="right")  # the first panel already explains hatches
        if number < len(panels) - 1:
            panel.set_xlabel("")
        panel.tick_params(labelsize=TEXT_SIZE, color=FAINT_TEXT)
        panel.set_axisbelow(True)
    return finish(figure, picture)


def _as_one(
    axes: Sequence[ChartAxis], points: Sequence[tuple[Any, ...]]
) -> tuple[list[ChartAxis], list[tuple[Any, ...]]]:
    """Combine axes that vary together into an axis of names, such as ``4, 2``."""
    names = [", ".join(map(text_of, point)) for point in points]
    return [ChartAxis(", ".join(axis.name for axis in axes), tuple(names), False)], [(name,) for name in names]
