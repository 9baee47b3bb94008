"""Draw time axes of a trace: cycles below, seconds above, in units with short numbers.

A break is a narrow gap of the axis in place of periods that the picture leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ipusim.app.render.style import LINE, TEXT_SIZE
from ipusim.app.render.window import Window

#: A single unit per axis. matplotlib's EngFormatter would choose one per tick (800 µs, 1 ms, 1.2 ms), and has no words
#: for cycles.
_CYCLES: Final = ((10**9, "billion cycles"), (10**6, "million cycles"), (10**3, "thousand cycles"), (1, "cycles"))
_SECONDS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
#: Inches of axis per tick, to keep labels apart.
_INCHES_TO_A_TICK: Final = 0.95
#: Points right and up from the left end of the seconds axis to its unit, which is in line with the numbers.
_UNIT_OFFSET: Final = (-16.0, 6.5)
#: Factor on the inches per tick on an axis with breaks, whose numbers are longer.
_TICK_ROOM_FACTOR: Final = 1.3
#: Inches without ticks on either side of a break.
_MARGIN: Final = 0.35
#: Depth of torn edges in inches.
_TOOTH_DEPTH: Final = 0.04
#: Number of points of the line that draws a torn edge.
_EDGE_POINTS: Final = 31


def second_unit(seconds: float) -> tuple[float, str]:
    """Return the unit for times up to ``seconds``: seconds per unit, and symbol."""
    return _largest(_SECONDS, seconds)


def _largest(units: Sequence[tuple[float, str]], amount: float) -> tuple[float, str]:
    """Return the largest unit of at most ``amount``, otherwise the smallest."""
    return next((unit for unit in units if amount >= unit[0]), units[-1])


def cycle_axis(
    axes: Axes, window: Window, clock_hz: int, width_in: float, labelled: bool, in_seconds: bool = False
) -> None:
    """Put an axis of cycles or seconds below ``axes``; ticks have labels if ``labelled``."""
    last = _unit_cycles(window)
    if in_seconds:
        unit, symbol = second_unit(last / clock_hz)
        factor, name = clock_hz * unit, f"time in {symbol}"
    else:
        factor, unit_name = _largest(_CYCLES, last)
        name = f"time in {unit_name} of the {clock_hz / 1e9:.6g} GHz tile clock"
    _set_ticks(axes, window, factor, width_in)
    axes.tick_params(axis="x", labelsize=TEXT_SIZE, labelbottom=labelled, color=LINE, length=3)
    if labelled:
        axes.set_xlabel(name, fontsize=TEXT_SIZE, labelpad=2)


def second_axis(axes: Axes, window: Window, clock_hz: int, width_in: float) -> None:
    """Put an axis of seconds above ``axes``, with its unit on the left."""
    unit, symbol = second_unit(_unit_cycles(window) / clock_hz)
    axes.set_yticks([])
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_color(LINE)
    _set_ticks(axes, window, clock_hz * unit, width_in)
    axes.tick_params(
        axis="x", labelsize=TEXT_SIZE, color=LINE, length=3, top=True, bottom=False, labeltop=True, labelbottom=False
    )
    # Units on the left of the numbers save a line.
    style: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(symbol, (0, 1), xytext=_UNIT_OFFSET, fontsize=TEXT_SIZE, ha="right", va="bottom", **style)


def _unit_cycles(window: Window) -> int:
    """Return the number of cycles that determines an axis's unit; with breaks, only shown cycles count."""
    return window.cycles if window.breaks else window.end


def _set_ticks(axes: Axes, window: Window, factor: float, width_in: float) -> None:
    """Set ticks at round multiples of ``factor`` cycles, and none close to a break."""
    axes.set_xlim(window.start, window.end)
    inches, widest = width_in / window.cycles, _TICK_ROOM_FACTOR if window.breaks else 1.0
    label_of_tick: dict[float, str] = {}
    for begin, end, ahead in window.stretches:
        nbins = max(int((end - begin) * inches / widest / _INCHES_TO_A_TICK), 2)
        locator = MaxNLocator(nbins=nbins, steps=[1, 2, 2.5, 5, 10], integer=factor == 1)
        for tick in map(float, locator.tick_values((begin + ahead) / factor, (end + ahead) / factor)):
            cycle = tick * factor - ahead
            left, right = (cycle - begin) * inches, (end - cycle) * inches
            has_room = (begin == window.start or left >= _MARGIN) and (end == window.end or right >= _MARGIN)
            if left >= 0 and right >= 0 and has_room:
                label_of_tick[cycle] = f"{tick:,.12g}" if window.breaks else f"{tick:.9g}"
    axes.set_xticks([*label_of_tick], [*label_of_tick.values()])


def draw_torn_edge(axes: Axes, width_in: float, top: float, foot: float, teeth: int) -> None:
    """Draw a torn right edge from ``top`` to ``foot`` on axes ``width_in`` inches wide."""
    ends = np.linspace(top, foot, 2 * teeth + 1)
    x = 1 + _TOOTH_DEPTH / width_in * (np.arange(len(ends)) % 2)
    axes.plot(x, ends, transform=axes.get_yaxis_transform(), color=LINE, linewidth=0.8, clip_on=False)


def draw_breaks(axes: Axes, window: Window, width_in: float) -> None:
    """Draw the breaks of a window over ``axes``: torn edges, and number of repeats."""
    depth = _TOOTH_DEPTH * window.cycles / width_in
    edges = np.linspace(0.0, 1.0, _EDGE_POINTS)
    tear = depth * (np.arange(_EDGE_POINTS) % 2)
    transform: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    for gap in window.breaks:
        left, right = gap.start + tear, gap.start + gap.room - depth + tear
        axes.fill_betweenx(edges, left, right, facecolor="white", edgecolor="none", zorder=6, **transform)
        for side in (left, right):
            axes.plot(side, edges, color=LINE, linewidth=0.8, zorder=6.1, **transform)
        style: dict[str, Any] = {"fontsize": TEXT_SIZE, "rotation": 90, "ha": "center", "va": "center", "color": LINE}
        axes.text(gap.start + gap.room / 2, 0.5, gap.sign, zorder=6.2, **style, **transform)
