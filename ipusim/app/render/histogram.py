"""Histogram of run times, with marks at special times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from ipusim.app.render.axes import second_unit
from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.style import LINE, SERIES, TEXT_SIZE, WIDTH_IN
from ipusim.app.render.titles import title_lines, write_titles
from ipusim.base.units import format_seconds

#: Most bars, and least runs per bar.
_MOST_BARS: Final = 40
_RUNS_TO_A_BAR: Final = 5
#: Colours and dashes of the marks' lines.
_LINES: Final = (SERIES[1], SERIES[6], SERIES[0], SERIES[0])
_DASHES: Final = ("-", "-", "--", ":")


class Mark(NamedTuple):
    """Special time in a histogram: seconds and name."""

    seconds: float
    name: str


@own_settings()
def histogram(seconds: Sequence[float], marks: Sequence[Mark], name: str, title: str) -> Chart:
    """Return a histogram of ``seconds``; ``marks`` are lines, named in the legend.

    Args:
        seconds: time of each run.
        marks: special times.
        name: name of the times.
        title: title of the picture.
    """
    figure = Chart(figsize=(WIDTH_IN, 3.6))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.065, right=0.985, top=0.87, bottom=0.15)
    write_titles(figure, title_lines(title, WIDTH_IN - 0.2), 0.1)
    factor, unit = second_unit(max(*seconds, *(mark.seconds for mark in marks)))
    times = np.array(seconds) / factor
    bars = int(np.clip(len(seconds) // _RUNS_TO_A_BAR, 1, _MOST_BARS))
    axes.hist(times, bins=bars, color=SERIES[5][0], edgecolor="white", linewidth=0.6)
    for mark, (colour, _), dash in zip(marks, _LINES, _DASHES, strict=False):
        label = f"{mark.name}, {format_seconds(mark.seconds)}"
        axes.axvline(mark.seconds / factor, color=colour, linestyle=dash, linewidth=1.4, label=label)
    axes.set_xlabel(f"{name}, {unit}", fontsize=TEXT_SIZE)
    axes.set_ylabel("runs", fontsize=TEXT_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE, color=LINE)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.legend(fontsize=TEXT_SIZE, frameon=False)
    return figure
