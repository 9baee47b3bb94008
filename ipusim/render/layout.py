"""Panels under each other on one time axis: sizes in inches, from the top of the figure to its legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from ipusim.errors import OutputError
from ipusim.render.axes import cycle_axis, second_axis
from ipusim.render.brackets import draw_brackets
from ipusim.render.content import content
from ipusim.render.figures import Chart, own_settings
from ipusim.render.legend import draw_legend, legend_entries, legend_lines
from ipusim.render.lettering import wrap
from ipusim.render.panel import draw_panel, names_width
from ipusim.render.style import LINE, TEXT_SIZE, TITLE_SIZE
from ipusim.render.window import Window
from ipusim.timeline.timeline import Timeline

#: Inches: around everything, beside the rows' names, and right of the axes for half of the last tick's label.
_EDGE, _BESIDE, _RIGHT = 0.10, 0.08, 0.30
#: Inches from the top down: title, seconds axis, heading and brackets of each panel, between panels, cycles axis.
_TITLE_LINE, _BELOW_TITLE, _SECONDS = 0.19, 0.06, 0.40
_ABOVE_HEADING, _HEADING_LINE, _BAND, _BETWEEN, _CYCLES = 0.08, 0.18, 0.32, 0.14, 0.44
_HEADING_SIZE: Final = TEXT_SIZE + 1
_LEGEND_LINE: Final = 0.20
#: All rows together take this height, each row between these bounds while all of them together keep within the last.
_ALL_ROWS: Final = 7.0
_LOWEST_ROW, _HIGHEST_ROW, _MOST_ROWS = 0.12, 0.42, 8.0
#: Of a figure of given height, rows lower than this are refused.
_LEAST_ROW: Final = 0.02
_LEAST_WIDTH: Final = 1.5
#: With more boxes than this, an SVG has them as an image, without what lies above them.
_MOST_DRAWN: Final = 40_000
_ABOVE_BOXES: Final = 2.5
#: With more rows than this, what they show is as much coarser along the time axis, so that boxes do not become more.
_MOST_FINE_ROWS: Final = 256
#: Inches: depth of a torn edge, and from one of its teeth to the next.
_TOOTH: Final = (0.05, 0.10)


@dataclass(frozen=True)
class Headed:
    """A Timeline to draw, and the line above it, empty for none; ``torn`` where it goes on behind the window."""

    heading: str
    timeline: Timeline
    torn: bool = False


@own_settings()
def stack(panels: Sequence[Headed], window: Window, title: str, width_in: float, height_in: float | None) -> Chart:
    """Return a figure ``width_in`` wide of ``panels`` under each other, all showing ``window``.

    Its height follows from the rows unless ``height_in`` is given. Raises
    OutputError where the figure is too small for its text and rows.
    """
    rows = sum(len(panel.timeline.info.ipus) for panel in panels)
    # With a given height, what is left for a row is known in the end; until then this is the most that it can be.
    row = min(max(_ALL_ROWS / rows, _LOWEST_ROW), _HIGHEST_ROW, _MOST_ROWS / rows)
    row = row if height_in is None else height_in / rows
    left = _EDGE + _BESIDE + max(names_width(panel.timeline, row * 72) for panel in panels) / 72
    width = _check_width(width_in, left)
    coarser = max(rows / _MOST_FINE_ROWS, 1.0)
    contents = [content(panel.timeline, window, width, coarser, row) for panel in panels]
    crowded = sum(len(each.boxes) for each in contents) > _MOST_DRAWN
    legend = legend_lines(legend_entries(contents), width_in - 2 * _EDGE)

    titles = wrap(title, TITLE_SIZE, (width_in - 2 * _EDGE) * 72, bold=True)
    headings = [wrap(panel.heading, _HEADING_SIZE, (width_in - left - _EDGE) * 72) for panel in panels]

    fixed = (
        2 * _EDGE
        + (_TITLE_LINE * len(titles) + _BELOW_TITLE if titles else 0)
        + _SECONDS
        + _CYCLES
        + _LEGEND_LINE * len(legend)
    )
    fixed += sum(_BAND + (_HEADING_LINE * len(lines) + _ABOVE_HEADING if lines else 0) for lines in headings)
    fixed += _BETWEEN * (len(panels) - 1)
    if height_in is not None:
        row = _row_height(height_in, fixed, rows)
    height = fixed + row * rows
    figure = Chart(figsize=(width_in, height), facecolor="white")

    def add_axes(top: float, tall: float) -> Axes:
        axes = figure.add_axes((left / width_in, 1 - (top + tall) / height, width / width_in, tall / height))
        axes.patch.set_visible(False)
        return axes

    top = _EDGE + _write_title(figure, titles) + _SECONDS
    clock_hz = panels[0].timeline.info.clock_hz
    second_axis(add_axes(top, 0.01), window, clock_hz, width)
    for index, (panel, shown, lines) in enumerate(zip(panels, contents, headings, strict=True)):
        top += _ABOVE_HEADING if lines else 0
        for line in lines:
            figure.text(left / width_in, 1 - top / height, line, fontsize=_HEADING_SIZE, va="top", color=LINE)
            top += _HEADING_LINE
        draw_brackets(add_axes(top, _BAND), shown)
        tall = row * len(panel.timeline.info.ipus)
        axes = add_axes(top + _BAND, tall)
        draw_panel(axes, shown, row * 72)
        if crowded:
            axes.set_rasterization_zorder(_ABOVE_BOXES)
        if panel.torn:
            _tear(axes, width, tall)
        cycle_axis(axes, window, clock_hz, width, labelled=index == len(panels) - 1)
        top += _BAND + tall + _BETWEEN
    draw_legend(figure, legend, _EDGE, _EDGE, _LEGEND_LINE)
    return figure


def _check_width(width_in: float, left: float) -> float:
    """Return the inches that are left for the panels; raises OutputError for too few."""
    width = width_in - left - _RIGHT
    if width < _LEAST_WIDTH:
        raise OutputError(
            f"expected a figure at least {left + _RIGHT + _LEAST_WIDTH:.1f} inches wide, got {width_in:g}"
        )
    return width


def _row_height(height_in: float, fixed: float, rows: int) -> float:
    """Return the height of each of ``rows`` where all else takes ``fixed`` inches; raises OutputError if too little."""
    row = (height_in - fixed) / rows
    if row < _LEAST_ROW:
        least = fixed + _LEAST_ROW * rows
        raise OutputError(f"expected a figure at least {least:.1f} inches high for this trace, got {height_in:g}")
    return row


def _write_title(figure: Chart, lines: Sequence[str]) -> float:
    """Write the lines of a title at the top of a figure, and return the inches that they take."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(lines):
        top = 1 - (_EDGE + number * _TITLE_LINE) / height
        figure.text(_EDGE / width, top, line, fontsize=TITLE_SIZE, fontweight="bold", va="top", color=LINE)
    return _TITLE_LINE * len(lines) + _BELOW_TITLE if lines else 0


def _tear(axes: Axes, width: float, tall: float) -> None:
    """Draw a torn edge on the right of ``axes``, which are ``width`` by ``tall`` inches."""
    depth, pitch = _TOOTH
    ends = np.linspace(0.0, 1.0, 2 * max(round(tall / pitch), 1) + 1)
    teeth = 1 + depth / width * (np.arange(len(ends)) % 2)
    axes.plot(teeth, ends, transform=axes.transAxes, color=LINE, linewidth=0.8, clip_on=False)
