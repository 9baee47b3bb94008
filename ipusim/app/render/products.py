"""Draw matrix products by shape: measured points and modelled lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from ipusim.app.render.figures import Chart, default_style_settings
from ipusim.app.render.picture import DEFAULT
from ipusim.app.render.style import FAINT_TEXT, LINE, SERIES, TEXT_SIZE, TITLE_SIZE
from ipusim.app.render.titles import titled_chart

#: Inches for the numbers to the left of the panels.
_SIDE: Final = 0.62
#: Inches for the numbers below the panels.
_FOOT: Final = 0.53
#: Number of sizes before colours repeat.
_SIZES: Final = 5


class ShapePoint(NamedTuple):
    """One matrix product: shape, dtype, measured and modelled TFLOP/s."""

    m: int
    k: int
    n: int
    dtype: str
    measured_rate: float
    modelled: float


@default_style_settings()
def product_chart(points: Sequence[ShapePoint], title: str) -> Chart:
    """Return a panel for each dtype: TFLOP/s over n, with a line for each m x k."""
    dtypes = sorted({point.dtype for point in points})
    figure = titled_chart(title, DEFAULT, 4.4, left=_SIDE, foot=_FOOT, least=0.0)
    figure.subplots_adjust(top=0.86, wspace=0.16)
    panels = figure.subplots(1, len(dtypes), squeeze=False)[0]
    for axes, dtype in zip(panels, dtypes, strict=True):
        _panel(axes, [point for point in points if point.dtype == dtype])
        axes.set_title(dtype, fontsize=TITLE_SIZE, loc="left")
    panels[0].set_ylabel("TFLOP/s", fontsize=TEXT_SIZE)
    return figure


def _panel(axes: Axes, points: Sequence[ShapePoint]) -> None:
    sizes = sorted({(point.m, point.k) for point in points})
    for number, (m, k) in enumerate(sizes):
        colour, marker = SERIES[number % _SIZES]
        row = sorted((point for point in points if (point.m, point.k) == (m, k)), key=lambda point: point.n)
        widths = [point.n for point in row]
        axes.plot(widths, [point.modelled for point in row], color=colour, linewidth=1.2)
        speeds = [point.measured_rate for point in row]
        axes.plot(widths, speeds, marker, color=colour, markersize=5, label=f"{m} x {k}, measured")
    axes.plot([], [], color=LINE, linewidth=1.2, label="modelled")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = [1 << power for power in range(min(point.n for point in points).bit_length() - 1, 20, 2)]
    axes.set_xticks([tick for tick in ticks if tick <= max(point.n for point in points)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("n", fontsize=TEXT_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE, color=FAINT_TEXT)
    axes.grid(color="#e3e3e3", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=TEXT_SIZE, frameon=False, loc="lower right")
