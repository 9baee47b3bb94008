"""The two time axes of a trace: cycles below, seconds above, in units that keep the numbers short."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ipusim.render.style import LINE, TEXT_SIZE
from ipusim.render.window import Window

#: One unit for a whole axis, named once below it: matplotlib's EngFormatter would give each tick one of its own, as in
#: 800 µs, 1 ms, 1.2 ms, and has no words for cycles.
_CYCLES: Final = ((10**9, "billion cycles"), (10**6, "million cycles"), (10**3, "thousand cycles"), (1, "cycles"))
_SECONDS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
#: Inches of axis to a tick, so that tick labels keep their distance.
_INCHES_TO_A_TICK: Final = 0.95
#: Points from the left end of the axis of seconds to their unit: before the first number, on its line.
_UNIT: Final = (-16.0, 6.5)


def cycle_unit(cycles: float) -> tuple[int, str]:
    """Return the unit for times up to ``cycles``: cycles in one of it, and its name."""
    return next((unit for unit in _CYCLES if cycles >= unit[0]), _CYCLES[-1])


def second_unit(seconds: float) -> tuple[float, str]:
    """Return the unit for times up to ``seconds``: seconds in one of it, and its symbol."""
    return next((unit for unit in _SECONDS if seconds >= unit[0]), _SECONDS[-1])


def cycle_axis(
    axes: Axes, window: Window, clock_hz: int, width_in: float, labelled: bool, in_seconds: bool = False
) -> None:
    """Put cycles below ``axes``, or no numbers of them but seconds; its ticks have labels if ``labelled``."""
    axes.set_xlim(window.start, window.end)
    if in_seconds:
        unit, symbol = second_unit(window.end / clock_hz)
        scale = clock_hz * unit
        ticks = _locator(width_in, whole=False).tick_values(window.start / scale, window.end / scale)
        axes.set_xticks([tick * scale for tick in ticks if window.start <= tick * scale <= window.end])
        factor, name = scale, f"time in {symbol}"
    else:
        cycles, unit_name = cycle_unit(window.end)
        axes.xaxis.set_major_locator(_locator(width_in, whole=True))
        factor, name = cycles, f"time in {unit_name} of the {clock_hz / 1e9:.6g} GHz tile clock"
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:.9g}"))
    axes.tick_params(axis="x", labelsize=TEXT_SIZE, labelbottom=labelled, color=LINE, length=3)
    if labelled:
        axes.set_xlabel(name, fontsize=TEXT_SIZE, labelpad=2)


def second_axis(axes: Axes, window: Window, clock_hz: int, width_in: float) -> None:
    """Put seconds above ``axes``, their unit left of them, and nothing else on it."""
    factor, symbol = second_unit(window.end / clock_hz)
    scale = 1.0 / (clock_hz * factor)
    axes.set_xlim(window.start * scale, window.end * scale)
    axes.set_yticks([])
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["top"].set_color(LINE)
    axes.xaxis.set_major_locator(_locator(width_in, whole=False))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.9g}"))
    axes.tick_params(
        axis="x", labelsize=TEXT_SIZE, color=LINE, length=3, top=True, bottom=False, labeltop=True, labelbottom=False
    )
    # The unit stands left of the numbers: above them it would take a line of its own.
    beside: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(symbol, (0, 1), xytext=_UNIT, fontsize=TEXT_SIZE, ha="right", va="bottom", **beside)


def _locator(width_in: float, whole: bool) -> MaxNLocator:
    return MaxNLocator(nbins=max(int(width_in / _INCHES_TO_A_TICK), 2), steps=[1, 2, 2.5, 5, 10], integer=whole)
