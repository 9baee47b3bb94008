"""Draw a histogram of run times, with marks at special times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from ipusim.app.render.axes import second_unit
from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.style import LINE, SERIES, TEXT_SIZE
from ipusim.app.render.sweep_panel import place_legend
from ipusim.app.render.titles import titled_chart
from ipusim.base.units import format_seconds

#: Maximum number of bars.
_MOST_BARS: Final = 40
#: Minimum average number of runs per bar.
_RUNS_TO_A_BAR: Final = 5
#: Default height of the picture in inches.
_TALL: Final = 3.6
#: Minimum height of the bars in inches.
_LOWEST: Final = 1.0
#: Inches for the numbers to the left of the bars.
_SIDE: Final = 0.65
#: Inches for the numbers below the bars.
_FOOT: Final = 0.54
#: Colours of the marks' lines, with the markers of their series.
_LINES: Final = (SERIES[1], SERIES[6], SERIES[0], SERIES[0])
#: Dashes of the marks' lines.
_DASHES: Final = ("-", "-", "--", ":")


class Mark(NamedTuple):
    """Special time in a histogram: seconds and name."""

    seconds: float
    name: str


@default_style_settings()
def histogram(
    seconds: Sequence[float], marks: Sequence[Mark], name: str, title: str, picture: Picture = DEFAULT
) -> Chart:
    """Return a histogram of ``seconds``; ``marks`` are lines, named in the legend.

    Args:
        seconds: time of each run.
        marks: special times.
        name: name of the times, for the axis.
        title: title of the picture.
        picture: size and theme.

    Raises OptionError for an unreadably small size.
    """
    figure = titled_chart(title, picture, _TALL, left=_SIDE, foot=_FOOT, least=_LOWEST)
    axes = figure.subplots()
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
    place_legend(axes)
    return finish(figure, picture)
