"""Draw the legend under a picture: samples and names in even lines that never overlap.

A look is the colour and hatching of a kind of work.

matplotlib's legend has columns of equal width: with names of different lengths it takes more lines. It also lacks
partly filled samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ipusim.api import timelines
from ipusim.app.render.boxes import has_io_tiles
from ipusim.app.render.content import Content
from ipusim.app.render.lettering import even_lines, text_width
from ipusim.app.render.style import DASHES, LINE, REDONE, TEXT_SIZE
from ipusim.base.looks import Look

#: Width of a sample in inches.
_SAMPLE: Final = 0.24
#: Distance from a sample to its name in inches.
_SPACE: Final = 0.06
#: Distance from a name to the next sample in inches.
_NEXT: Final = 0.18
#: Height of a sample in inches.
_SAMPLE_HEIGHT: Final = 0.12
#: Height of a line in inches.
LEGEND_LINE: Final = 0.20
#: Filled share of the height of the sample for I/O tiles, which have the lower strip of a row.
_STRIP: Final = 0.4


class Sign(Enum):
    """Signs of a picture that are no look, with their names in the legend."""

    PHASE = "end of a phase"
    SYNC = "sync point"
    SHARES = "heights: shares of time"
    IO_TILES = "lower strip: I/O tiles"
    REDONE = "work done again"
    LIMIT = "limit"
    PEAK = "peak"
    EMPTIEST = "of the emptiest IPU"


@dataclass(frozen=True)
class Entry:
    """Legend entry: a name, and the look or sign that its sample shows."""

    text: str
    sample: Look | Sign

    @property
    def width_in(self) -> float:
        """Width of sample and name in inches."""
        return _SAMPLE + _SPACE + text_width(self.text, TEXT_SIZE) / 72


def legend_entries(contents: Sequence[Content]) -> list[Entry]:
    """Return an entry for each visible look and sign of ``contents``."""
    looks: set[int] = set()
    for content in contents:
        boxes = content.boxes
        widths = (boxes.end - boxes.start) * content.points
        least = np.array([look.narrowest for look in timelines.LOOKS])[boxes.look]
        looks.update(np.unique(boxes.look[widths >= least]).tolist())
    entries = [Entry(timelines.LOOKS[index].name, timelines.LOOKS[index]) for index in sorted(looks)]
    signs = {
        Sign.IO_TILES: any(has_io_tiles(content.timeline) for content in contents),
        Sign.PHASE: any(content.phase_ends for content in contents),
        Sign.SYNC: any(len(content.syncs) for content in contents),
        Sign.SHARES: any(content.shares for content in contents),
        Sign.REDONE: any(content.redone for content in contents),
    }
    return entries + [Entry(sign.value, sign) for sign, is_visible in signs.items() if is_visible]


def legend_lines(entries: Sequence[Entry], width_in: float) -> list[list[Entry]]:
    """Return the entries in the fewest lines within ``width_in``, of about equal length."""
    return even_lines(entries, lambda line: sum(entry.width_in + _NEXT for entry in line) - _NEXT, width_in)


def draw_legend(figure: Figure, lines: Sequence[Sequence[Entry]], left_in: float, bottom_in: float) -> None:
    """Draw ``lines`` upwards from the lower left corner."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(reversed(lines)):
        x, y = left_in, bottom_in + (number + 0.5) * LEGEND_LINE
        for entry in line:
            _draw_sample(figure, entry.sample, x, y)
            text_x = x + _SAMPLE + _SPACE
            figure.text(text_x / width, y / height, entry.text, fontsize=TEXT_SIZE, va="center_baseline", color=LINE)
            x += entry.width_in + _NEXT


def _draw_sample(figure: Figure, sample: Look | Sign, x: float, y: float) -> None:
    """Draw a sample with left edge ``x`` and vertical middle ``y``, in inches."""
    width, height = figure.get_size_inches()
    foot, middle = y - _SAMPLE_HEIGHT / 2, x + _SAMPLE / 2

    def box(low: float, high: float, **style: Any) -> None:
        corner = x / width, (foot + low * _SAMPLE_HEIGHT) / height
        size = _SAMPLE / width, (high - low) * _SAMPLE_HEIGHT / height
        figure.add_artist(Rectangle(corner, *size, **style))

    def line(xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
        figure.add_artist(Line2D([value / width for value in xs], [value / height for value in ys], **style))

    if sample in (Sign.PHASE, Sign.SYNC):
        long = _SAMPLE_HEIGHT * 0.7
        style: dict[str, Any] = {"linewidth": 0.8} if sample is Sign.PHASE else {"linewidth": 0.7, "linestyle": DASHES}
        line([middle, middle], [y - long, y + long], color=LINE, **style)
    elif sample is Sign.REDONE:
        line([x, x + _SAMPLE], [y, y], color=REDONE, linewidth=3.0, solid_capstyle="butt")
    elif sample is Sign.LIMIT:
        line([x, x + _SAMPLE], [y, y], color="#000000", linewidth=1.0, linestyle=DASHES)
    elif sample is Sign.EMPTIEST:
        line([x, x + _SAMPLE], [y, y], color="#000000", linewidth=0.7, linestyle=":")
    elif sample is Sign.PEAK:
        line([middle], [y], color="#000000", marker="v", markersize=3.5)
    else:
        if sample is Sign.IO_TILES:
            box(0, _STRIP, facecolor=LINE, linewidth=0)
        elif sample is Sign.SHARES:
            for index, low, high in ((0, 0.0, 0.3), (1, 0.3, 0.75)):
                box(low, high, facecolor=timelines.LOOKS[index].face, linewidth=0)
        else:
            box(0, 1, facecolor=sample.face, edgecolor=sample.ink, hatch=sample.hatch, linewidth=0)
        box(0, 1, facecolor="none", edgecolor=LINE, linewidth=0.4)
