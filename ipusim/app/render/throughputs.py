"""Draw simulated against published throughputs; points on the diagonal have no error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ipusim.app.render.figures import Chart, default_style_settings
from ipusim.app.render.picture import DEFAULT
from ipusim.app.render.style import FAINT_TEXT, LINE, SERIES, TEXT_SIZE
from ipusim.app.render.titles import titled_chart

#: Bands of relative errors: bound, colour and name.
_BANDS: Final = ((0.10, "#eeeeee", "within 10 %"), (0.05, "#d9d9d9", "within 5 %"))
#: Factor from the outermost throughputs to the ends of the axes.
_MARGIN: Final = 1.5
#: Inches for the numbers to the left of the panels.
_SIDE: Final = 0.85
#: Inches for the numbers and the legend below the panels.
_FOOT: Final = 1.3


class ThroughputPoint(NamedTuple):
    """One throughput: model, published and simulated items per second, and whether rates were fitted to it."""

    model: str
    published: float
    simulated_rate: float
    is_fitted: bool


@default_style_settings()
def throughput_chart(points: Sequence[ThroughputPoint], title: str) -> Chart:
    """Return two panels: simulated against published throughput, and the relative errors with bands."""
    figure = titled_chart(title, DEFAULT, 4.8, left=_SIDE, foot=_FOOT, least=0.0)
    panels = figure.subplots(1, 2)
    least = min(min(point.published, point.simulated_rate) for point in points) / _MARGIN
    most = max(max(point.published, point.simulated_rate) for point in points) * _MARGIN
    ends = np.array([least, most])
    for share, colour, name in _BANDS:
        panels[0].fill_between(ends, ends * (1 - share), ends * (1 + share), color=colour, linewidth=0, label=name)
        panels[1].axhspan(-100 * share, 100 * share, color=colour, linewidth=0)
    panels[0].plot(ends, ends, color=LINE, linewidth=0.8)
    panels[1].axhline(0, color=LINE, linewidth=0.8)
    _points(panels, points)
    panels[0].set_yscale("log")
    panels[0].set_ylim(least, most)
    panels[0].set_ylabel("simulated, items/s", fontsize=TEXT_SIZE)
    panels[1].set_ylabel("error of the simulation, %  (above: too fast)", fontsize=TEXT_SIZE)
    errors = [100 * (point.simulated_rate / point.published - 1) for point in points]
    panels[1].set_ylim(min(-12.0, 1.15 * min(errors)), max(12.0, 1.15 * max(errors)))
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlim(least, most)
        axes.set_xlabel("published, items/s", fontsize=TEXT_SIZE)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.tick_params(labelsize=TEXT_SIZE, color=FAINT_TEXT)
        axes.set_axisbelow(True)
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    # The legend is below the panels, since inside a panel it would cover points.
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower left", ncols=5, fontsize=TEXT_SIZE, frameon=False)
    return figure


def _points(panels: Sequence[Axes], points: Sequence[ThroughputPoint]) -> None:
    """Draw the points of each model in both panels; fitted points are hollow."""
    for number, model in enumerate(dict.fromkeys(point.model for point in points)):
        turn, first = divmod(number, len(SERIES))
        # Colours repeat after one turn through the series; the marker changes.
        colour, marker = SERIES[first][0], SERIES[(first + 3 * turn) % len(SERIES)][1]
        members = [point for point in points if point.model == model]
        for axes in panels:
            axes.plot([], [], marker, color=colour, markersize=5, label=model)
            for point in members:
                value = (
                    point.simulated_rate if axes is panels[0] else 100 * (point.simulated_rate / point.published - 1)
                )
                face = "white" if point.is_fitted else colour
                axes.plot(point.published, value, marker, color=colour, markerfacecolor=face, markersize=5.5)
    if any(point.is_fitted for point in points):
        panels[0].plot(
            [], [], "o", color=FAINT_TEXT, markerfacecolor="white", markersize=5, label="hollow: rates fitted"
        )
