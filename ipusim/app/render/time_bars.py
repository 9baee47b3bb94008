"""Draw bars of run times on a common scale, divided into parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ipusim.api import timelines
from ipusim.app.render.axes import draw_torn_edge, second_axis
from ipusim.app.render.figures import Chart
from ipusim.app.render.legend import LEGEND_LINE, Entry, draw_legend, legend_lines
from ipusim.app.render.lettering import text_width, truncate, wrap
from ipusim.app.render.style import EDGE_IN, FAINT_TEXT, LINE, TEXT_SIZE, ink_on
from ipusim.app.render.window import Window
from ipusim.base.looks import Look

#: Height of a heading line in inches.
_HEADING: Final = 0.20
#: Height of the axis above the bars, in inches.
_AXIS: Final = 0.24
#: Space below the legend, in inches.
_FOOT: Final = 0.06
#: Text size of the heading in points.
_HEADING_SIZE: Final = TEXT_SIZE + 1
#: Height of a row with few runs, in inches.
_HIGHEST: Final = 0.22
#: Height of a row with as many runs as fit, in inches.
_LOWEST: Final = 0.13
#: Maximum height of rows together in inches, as long as they are higher than the lowest row.
_MOST_FEW_ROWS_HEIGHT: Final = 2.2
#: Share of a row filled by its bar.
_BAR_SHARE: Final = 0.76
#: Maximum share of the width for names.
_NAMES: Final = 0.30
#: Maximum share of the width for words after bars.
_WORDS: Final = 0.32
#: Inches beside names and words.
_NAME_GAP: Final = 0.08
#: Points left and right of a share in its part.
_ROOM: Final = 3.0
#: Factor on the width of texts, since rendered letters are slightly wider than their outlines.
_LETTER_WIDTH_FACTOR: Final = 1.03
#: Number of teeth of a torn edge.
_TEETH: Final = 3
#: Clock of the time axis, in Hz: :func:`second_axis` counts cycles, and these are short enough for any time.
_TICKS_HZ: Final = 10**12
#: Look of a run with unknown parts.
_UNKNOWN_PARTS: Final = Look("parts not known", "#f3f3f3", "#6a6a6a")


def write_share(axes: Axes, x: float, y: float, share: float, look: Look, size: float = TEXT_SIZE) -> None:
    """Write a share in its part of a bar, with plain background on hatches."""
    ground = {"facecolor": look.face, "edgecolor": "none", "pad": 0.6} if look.hatch else None
    style: dict[str, Any] = {"fontsize": size, "ha": "center", "va": "center_baseline", "color": ink_on(look.face)}
    axes.text(x, y, f"{share:.0%}", bbox=ground, **style)


def draw_part(axes: Axes, corner: tuple[float, float], length: float, height: float, look: Look) -> None:
    """Draw a part of a bar with a white edge, leaving the bounds of the axes unchanged."""
    style: dict[str, Any] = {"facecolor": look.face, "edgecolor": look.ink, "hatch": look.hatch, "linewidth": 0.0}
    axes.add_artist(Rectangle(corner, length, height, **style))
    axes.add_artist(Rectangle(corner, length, height, facecolor="none", edgecolor="white", linewidth=0.5))


@dataclass(frozen=True)
class TimeBar:
    """Row of a run: name, bar and words.

    Attributes:
        name: name of the run.
        words: text to the right of its bar.
        seconds: time of the run; None for a refused run, drawn without a bar.
        parts: cycles of each part of the run's time; None if unknown.
    """

    name: str
    words: str
    seconds: float | None
    parts: Mapping[timelines.TimePart, int] | None = None

    @cached_property
    def lengths_s(self) -> list[tuple[Look, float, float]]:
        """Look, share and seconds of the bar's parts, which add up to the bar.

        Negative parts have no length; positive parts shrink in proportion.
        """
        if self.parts is None or not sum(self.parts.values()):
            return [(_UNKNOWN_PARTS, 0.0, self.seconds or 0.0)] if self.seconds else []
        all_cycles = sum(self.parts.values())
        lengths = {part: cycles for part, cycles in self.parts.items() if cycles > 0}
        seconds = (self.seconds or 0.0) / sum(lengths.values())
        return [(part.value, cycles / all_cycles, cycles * seconds) for part, cycles in lengths.items()]


@dataclass(frozen=True)
class TimeBars:
    """Several bars under a heading, with axis and legend.

    Attributes:
        heading: name of the bars.
        rows: bars from the top down.
        last_s: end of the axis in seconds; longer bars are cut, as their words say.
    """

    heading: str
    rows: Sequence[TimeBar]
    last_s: float

    @staticmethod
    def most(height_in: float) -> int:
        """Return the number of runs that fit a height with a legend of two lines."""
        return max(int((height_in - _HEADING - _AXIS - 2 * LEGEND_LINE - _FOOT) / _LOWEST), 1)

    @property
    def row_in(self) -> float:
        """Height of a row in inches."""
        return min(max(_MOST_FEW_ROWS_HEIGHT / len(self.rows), _LOWEST), _HIGHEST)

    def height_in(self, width_in: float) -> float:
        """Return the height of bars, axis and legend in inches."""
        rows, heading = self.row_in * len(self.rows), _HEADING * len(self._heading(width_in))
        return heading + _AXIS + rows + LEGEND_LINE * len(self._legend(width_in)) + _FOOT

    def draw(self, figure: Chart, top: float) -> None:
        """Draw the bars ``top`` inches below the figure's top."""
        wide, tall = figure.get_size_inches()
        names = [truncate(row.name, TEXT_SIZE, _NAMES * wide * 72) for row in self.rows]
        words = [truncate(row.words, TEXT_SIZE, _WORDS * wide * 72) for row in self.rows]
        left = EDGE_IN + _NAME_GAP + _LETTER_WIDTH_FACTOR * max(text_width(name, TEXT_SIZE) for name in names) / 72
        right = (
            wide - EDGE_IN - _NAME_GAP - _LETTER_WIDTH_FACTOR * max(text_width(word, TEXT_SIZE) for word in words) / 72
        )
        width, rows = right - left, self.row_in * len(self.rows)
        for line in self._heading(wide):
            figure.write(EDGE_IN, top, line, fontsize=_HEADING_SIZE)
            top += _HEADING
        top += _AXIS
        axes = figure.add_clear_axes(left, top, width, rows)
        second_axis(axes, Window(0, max(round(self.last_s * _TICKS_HZ), 1)), _TICKS_HZ, width)
        last = axes.get_xlim()[1]
        axes.set_ylim(len(self.rows), 0)
        for number, (row, name, note) in enumerate(zip(self.rows, names, words, strict=True)):
            style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center_baseline", "clip_on": False}
            style |= {"fontsize": TEXT_SIZE, "color": FAINT_TEXT if row.seconds is None else LINE}
            axes.text(-_NAME_GAP / width, number + 0.5, name, ha="right", **style)
            axes.text(1 + _NAME_GAP / width, number + 0.5, note, ha="left", **style)
            self._draw_bar(axes, row, number, last / self.last_s if self.last_s else 1.0, width)
        foot = tall - top - rows - LEGEND_LINE * len(self._legend(wide))
        draw_legend(figure, self._legend(wide), EDGE_IN, foot)

    def _draw_bar(self, axes: Axes, row: TimeBar, number: int, scale: float, width: float) -> None:
        """Draw the parts of a run's time, with shares where they fit."""
        begin, end = 0.0, self.last_s
        for look, share, seconds in row.lengths_s:
            long = min(seconds, end - begin)
            corner = begin * scale, number + (1 - _BAR_SHARE) / 2
            draw_part(axes, corner, long * scale, _BAR_SHARE, look)
            if share and long / end * width * 72 > text_width(f"{share:.0%}", TEXT_SIZE) + 2 * _ROOM:
                size = min(TEXT_SIZE, self.row_in * 72 * 0.72)
                write_share(axes, (begin + long / 2) * scale, number + 0.5, share, look, size)
            begin += long
        if row.seconds and row.seconds > end:
            top = number + (1 - _BAR_SHARE) / 2
            draw_torn_edge(axes, width, top, top + _BAR_SHARE, _TEETH)

    def _heading(self, width_in: float) -> list[str]:
        """Return the lines of the heading."""
        return wrap(self.heading, _HEADING_SIZE, (width_in - 2 * EDGE_IN) * 72 / _LETTER_WIDTH_FACTOR)

    def _legend(self, width_in: float) -> list[list[Entry]]:
        """Return the lines of the legend: parts of any run, in order."""
        visible = {look for row in self.rows for look, *_ in row.lengths_s}
        looks = [look for look in (*(part.value for part in timelines.TimePart), _UNKNOWN_PARTS) if look in visible]
        return legend_lines([Entry(look.name, look) for look in looks], width_in - 2 * EDGE_IN)
