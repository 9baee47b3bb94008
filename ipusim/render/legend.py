"""The legend under a trace: what is in the picture, and nothing else, in lines that never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ipusim.render.boxes import has_io_tiles
from ipusim.render.content import Content
from ipusim.render.lettering import text_width
from ipusim.render.style import DASHES, LINE, LOOKS, TEXT_SIZE, Look

#: Inches: of a sample, between it and its name, and to the next sample.
_SAMPLE, _SPACE, _NEXT = 0.24, 0.06, 0.18
_SAMPLE_HEIGHT: Final = 0.12


@dataclass(frozen=True)
class Entry:
    """One entry: a look, or no look for a line (``dashed``) or for words alone."""

    text: str
    look: Look | None = None
    dashed: bool = False

    @property
    def width_in(self) -> float:
        """Width with its sample, in inches."""
        sample = _SAMPLE + _SPACE if self.look or self.dashed else 0.0
        return sample + text_width(self.text, TEXT_SIZE) / 72


def legend_entries(contents: Sequence[Content]) -> list[Entry]:
    """Return an entry for all that appears in any of ``contents``."""
    seen = {int(look) for content in contents for look in np.unique(content.boxes.look)}
    entries = [Entry(LOOKS[index].name, LOOKS[index]) for index in sorted(seen)]
    if any(has_io_tiles(content.timeline) for content in contents):
        entries.append(Entry("below: I/O tiles"))
    if any(len(content.syncs) for content in contents):
        entries.append(Entry("sync point", dashed=True))
    if any(content.shares for content in contents):
        entries.append(Entry("heights are shares of time"))
    return entries


def legend_lines(entries: Sequence[Entry], width_in: float) -> list[list[Entry]]:
    """Return the entries broken into lines no wider than ``width_in`` (but for a single entry that is)."""
    lines: list[list[Entry]] = []
    used = 0.0
    for entry in entries:
        if not lines or used + entry.width_in > width_in:
            lines.append([])
            used = 0.0
        lines[-1].append(entry)
        used += entry.width_in + _NEXT
    return lines


def draw_legend(
    figure: Figure, lines: Sequence[Sequence[Entry]], left_in: float, bottom_in: float, line_in: float
) -> None:
    """Draw ``lines`` upwards from the lower left corner, ``line_in`` inches each."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(reversed(lines)):
        x, y = left_in, bottom_in + (number + 0.5) * line_in
        for entry in line:
            sample = (x / width, (y - _SAMPLE_HEIGHT / 2) / height), _SAMPLE / width, _SAMPLE_HEIGHT / height
            if entry.look:
                figure.add_artist(
                    Rectangle(
                        *sample,
                        facecolor=entry.look.face,
                        edgecolor=entry.look.ink,
                        hatch=entry.look.hatch,
                        linewidth=0,
                    )
                )
                figure.add_artist(Rectangle(*sample, facecolor="none", edgecolor=LINE, linewidth=0.4))
            elif entry.dashed:
                figure.add_artist(
                    Line2D(
                        [(x + _SAMPLE / 2) / width] * 2,
                        [(y - _SAMPLE_HEIGHT * 0.7) / height, (y + _SAMPLE_HEIGHT * 0.7) / height],
                        color=LINE,
                        linewidth=0.7,
                        linestyle=DASHES,
                    )
                )
            at = x + (_SAMPLE + _SPACE if entry.look or entry.dashed else 0.0)
            figure.text(at / width, y / height, entry.text, fontsize=TEXT_SIZE, va="center_baseline", color=LINE)
            x += entry.width_in + _NEXT
