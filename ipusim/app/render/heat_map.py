"""Draw a heat map, with numbers in cells if there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ipusim.app.render.signs import SIGNS
from ipusim.app.render.style import TEXT_SIZE
from ipusim.app.render.sweep_panel import ChartPoint
from ipusim.base.units import format_figure

#: Maximum share of a cell's width for a number.
_SHARE: Final = 0.9
#: Maximum number of tick labels of an axis.
_MOST_TICKS: Final = 16


def heat_map(
    figure: Figure,
    panel: Axes,
    axes: Sequence[tuple[str, Sequence[Any]]],
    points: Sequence[ChartPoint],
    words: str,
    unfit: str,
) -> None:
    """Draw the points of two options as colours, with a colour bar.

    Args:
        figure: figure of the colour bar.
        panel: axes of the map.
        axes: names of the two varied options and their distinct values, rising.
        points: points of the map; a cell without a value shows the sign.
        words: name of the value with its unit.
        unfit: legend of hatched cells, whose runs do not fit.
    """
    (_, columns), (_, up) = axes
    grid = np.full((len(up), len(columns)), np.nan)
    for (x, y), value, *_ in points:
        if value is not None:
            grid[up.index(y), columns.index(x)] = value
    image = panel.imshow(grid, origin="lower", aspect="auto", cmap="cividis")
    bar = figure.colorbar(image, ax=panel, pad=0.02, format=lambda value, _: f"{value:,.10g}")
    bar.set_label(words, fontsize=TEXT_SIZE)
    bar.ax.tick_params(labelsize=TEXT_SIZE)
    texts = [f"hatched: {unfit}"] if any(point.is_unfit for point in points) else []
    signs = {point.sign for point in points}
    texts += [f"{sign}: {meaning}" for sign, meaning in SIGNS.items() if sign in signs]
    panel.set_title("; ".join(texts), fontsize=TEXT_SIZE, loc="right")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    longest = max((_short(point.value) for point in points if point.value is not None), key=len)
    writes_numbers = _fits(longest, panel, grid)
    for (x, y), value, fits, sign in points:
        cell = columns.index(x), up.index(y)
        if value is None:
            panel.text(*cell, sign, ha="center", va="center", fontsize=TEXT_SIZE, color="#b00020")
            continue
        if not fits:
            corner = cell[0] - 0.5, cell[1] - 0.5
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="#ffffff", linewidth=0))
        if writes_numbers:
            ink = "#ffffff" if value < middle else "#000000"
            panel.text(*cell, _short(value), ha="center", va="center", fontsize=TEXT_SIZE, color=ink)
    for (name, option_values), side in zip(axes, (panel.xaxis, panel.yaxis), strict=True):
        ticks = range(0, len(option_values), -(-len(option_values) // _MOST_TICKS))
        side.set_ticks(list(ticks), [f"{option_values[index]:,g}" for index in ticks])
        side.set_label_text(name, fontsize=TEXT_SIZE)


def _fits(text: str, panel: Axes, grid: npt.NDArray[np.float64]) -> bool:
    """Return whether a text fits into a cell of a panel with this grid."""
    written = panel.text(0, 0, text, fontsize=TEXT_SIZE)
    box, whole = written.get_window_extent(), panel.get_window_extent()
    written.remove()
    rows, columns = grid.shape
    return bool(columns * box.width <= _SHARE * whole.width and rows * box.height <= whole.height)


def _short(value: float) -> str:
    """Return a number in few characters."""
    for least, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / factor:.3g}{unit}"
    return format_figure(value)
