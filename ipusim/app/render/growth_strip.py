"""Draw a strip beside bars of IPUs: how much the run grows per cycle of each pass, as colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ipusim.app.render.figures import Chart
from ipusim.app.render.lettering import text_width
from ipusim.app.render.style import LINE, TEXT_SIZE, ink_on

#: Continuation of the title of a picture with a strip.
STRIP_WORDS: Final = "right: cycles by which the run grows if each pass takes a cycle longer"
#: Inches around the name of a column.
_SPACE: Final = 0.16
#: Inches to the left and right of the strip.
_GAP: Final = 0.25
#: Width of the colour scale in inches.
_SCALE: Final = 0.1
#: Width of the scale's numbers in inches.
_NUMBERS: Final = 0.55
#: Colour map, legible in grey and for colour-blind readers: rising brightness, no red beside green.
_COLOURS: Final = "cividis"


def strip_width(growth: Mapping[str, Sequence[int | None]]) -> float:
    """Return the inches of a strip with a column for each kind of pass; 0 without known growth."""
    if all(cycles is None for column in growth.values() for cycles in column):
        return 0.0
    return _GAP + len(growth) * _column_width(growth) + _GAP + _SCALE + _NUMBERS


def _column_width(growth: Mapping[str, Sequence[int | None]]) -> float:
    return max(text_width(name, TEXT_SIZE) for name in growth) / 72 + _SPACE


def draw_strip(
    figure: Chart, growth: Mapping[str, Sequence[int | None]], left_in: float, below_in: float, row_in: float
) -> None:
    """Draw a row of cells for each IPU, and the scale of the colours.

    Args:
        figure: figure with bars of equal rows.
        growth: cycles of each IPU by kind of pass; None for unknown growth.
        left_in, below_in: lower left corner in inches.
        row_in: height of a row in inches.
    """
    width, height = figure.get_size_inches()
    values = np.array([[np.nan if cycles is None else cycles for cycles in column] for column in growth.values()]).T
    high = float(np.nanmax(values))
    rows, columns = values.shape
    wide, tall = columns * _column_width(growth), rows * row_in

    def box(left: float, box_width: float) -> tuple[float, float, float, float]:
        return (left_in + left) / width, below_in / height, box_width / width, tall / height

    axes = figure.add_axes(box(_GAP, wide))
    shades = values / max(high, 1.0)
    axes.imshow(shades, cmap=_COLOURS, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), list(growth))
    axes.set_yticks([])
    axes.tick_params(labelsize=TEXT_SIZE, length=0)
    axes.spines[:].set_visible(False)
    for row, column in np.ndindex(rows, columns) if row_in * 72 >= TEXT_SIZE * 1.2 else ():
        is_known = not np.isnan(values[row, column])
        ink = ink_on(to_hex(colormaps[_COLOURS](float(shades[row, column])))) if is_known else LINE
        text = f"{values[row, column]:,.0f}" if is_known else "-"
        axes.text(column, row, text, fontsize=TEXT_SIZE, ha="center", va="center_baseline", color=ink)
    scale = figure.add_axes(box(2 * _GAP + wide, _SCALE))
    scale.imshow(np.linspace(1, 0, 256)[:, np.newaxis], cmap=_COLOURS, vmin=0, vmax=1, aspect="auto")
    scale.set_xticks([])
    scale.yaxis.tick_right()
    scale.set_yticks([0, 255], [f"{high:,.0f}", "0"])
    scale.tick_params(labelsize=TEXT_SIZE, length=0)
    scale.spines[:].set_visible(False)
