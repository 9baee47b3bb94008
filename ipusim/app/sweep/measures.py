"""Define the measures that rank and draw the points of a sweep."""

from __future__ import annotations

from typing import Final

from ipusim.api import analysis
from ipusim.app.render.axes import second_unit
from ipusim.app.study.figures import MEASURE_NAMES, MEASURES
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

#: Measures that reports treat in a special way.
THROUGHPUT: Final = analysis.figure("throughput")
BUBBLE: Final = analysis.figure("bubble")
MEMORY: Final = analysis.figure("peak")
#: Measures that need arithmetic.
LEARNT: Final = tuple(figure for figure in MEASURES if figure.path.startswith("learning."))


def on_chart(measure: analysis.Figure, most: float) -> tuple[float, str]:
    """Return a chart's scale and axis title for values up to ``most``."""
    if measure.unit == "seconds":
        seconds, symbol = second_unit(most)
        return 1 / seconds, f"{measure.chart}, {symbol}"
    return analysis.FIGURE_UNITS[measure.unit].chart_scale, measure.chart


def measure_of(name: str, *, losses: bool = False) -> analysis.Figure:
    """Return the measure with this measure or figure name.

    Raises OptionError for an unknown name, and for a measure of learning without ``losses``.
    """
    names = {measure_name: figure for figure in MEASURES for measure_name in (figure.name, figure.measure)}
    if name not in names:
        words = f"expected one of {', '.join(MEASURE_NAMES)}, got {name!r}{did_you_mean(name, names)}"
        raise OptionError("measure", words)
    if names[name] in LEARNT and not losses:
        raise OptionError(
            "measure", f"expected {{}} with {name}, which needs the arithmetic, got only {name}", "losses"
        )
    return names[name]
