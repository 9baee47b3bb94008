"""Place the IPUs of a system's map: rungs of two IPUs side by side, in titled panels.

A cable between distant IPUs, as at the ends of a torus, appears as a short line at either IPU, a stub.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes

from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import Picture
from ipusim.app.render.style import FAINT_TEXT
from ipusim.app.render.titles import title_lines, titles_height, write_titles

#: Maximum number of rungs side by side; longer ladders continue in the next line.
_RUNGS: Final = 16
#: Distance between the two IPUs of a rung in inches.
_RUNG_LENGTH: Final = 1.05
#: Length of a stub in inches.
_STUB: Final = 0.5
#: Minimum distance of rungs in inches.
_NARROWEST: Final = 0.3
#: Margin of the picture in inches.
EDGE: Final = 0.12
#: Distance of panels in inches.
_GAP: Final = 0.2
#: Height of a line of a panel's title in inches.
_WORDS: Final = 0.15
#: Space above a panel's title in inches.
_SPACE: Final = 0.1

#: Point in a panel: inches to the right and inches down.
Point = tuple[float, float]


@dataclass(frozen=True)
class Ladder:
    """Places of a device's IPUs in a panel.

    Attributes:
        physical: physical numbers of the device; pairs of numbers are rungs.
        margin: inches above and below a rung.
        step: inches between rungs.
    """

    physical: Sequence[int]
    margin: float
    step: float = 1.0

    @property
    def rungs(self) -> tuple[int, int]:
        """Number of rungs side by side, and number of lines."""
        rungs = (max(self.physical) - min(self.physical)) // 2 + 1
        return min(rungs, _RUNGS), -(-rungs // _RUNGS)

    def position_of(self, ipu: int) -> Point:
        """Return the position of a physical IPU in a panel."""
        rung, side = divmod(ipu - min(self.physical) // 2 * 2, 2)
        line, column = divmod(rung, _RUNGS)
        return column * self.step, line * (_RUNG_LENGTH + 2 * self.margin) + side * _RUNG_LENGTH

    def is_far(self, source: int, target: int) -> bool:
        """Return whether two IPUs are too far apart for a direct line."""
        (x, y), (x2, y2) = self.position_of(source), self.position_of(target)
        return abs(x - x2) > 1.5 * self.step or (x != x2 and y != y2)

    def lines(self, source: int, target: int, radius: float) -> Iterator[tuple[Point, Point]]:
        """Yield the lines of a cable between IPUs of ``radius`` inches: a direct line, or stubs at either end."""
        start, end = self.position_of(source), self.position_of(target)
        if not self.is_far(source, target):
            yield start, end
            return
        length = (radius + _STUB) * (1 if start[0] > end[0] else -1)
        yield start, (start[0] + length, start[1])
        yield (end[0] - length, end[1]), end


def map_panels(
    physical: Sequence[int],
    cables: Sequence[tuple[int, int]],
    titles: Sequence[str],
    title: str,
    picture: Picture,
    *,
    widest: float,
    margin: float,
    right: float = 0.0,
    foot: float = 0.0,
) -> tuple[Chart, list[Axes], Ladder]:
    """Return a chart with an empty panel for each of ``titles``, its panels measured in inches, and the ladder of IPUs.

    Args:
        physical: physical numbers of the device.
        cables: pairs of physical IPUs that a cable joins.
        titles: titles of the panels; the first line of each is bold.
        title: title of the picture.
        picture: size of the picture.
        widest: largest distance of rungs in inches.
        margin: inches above and below a rung.
        right, foot: inches to the right of the panels and below them.

    Raises OptionError for an unreadably small size.
    """
    ladder = Ladder(physical, margin)
    stub = _STUB if any(ladder.is_far(*cable) for cable in cables) else 0.0
    columns, lines = ladder.rungs
    free = picture.width_in - 2 * EDGE - right
    step = min(widest, (free - 2 * stub) / columns)
    if step < _NARROWEST:
        raise picture.refusal(f"maps take {2 * EDGE + right + 2 * stub + columns * _NARROWEST:.1f} inches of width")
    wide, tall = columns * step + 2 * stub, lines * (_RUNG_LENGTH + 2 * margin)
    a_row = min(max(int((free + _GAP) // (wide + _GAP)), 1), len(titles))
    room = (free + _GAP) / a_row - _GAP
    words = [title_lines(text, room) for text in titles]
    head = _SPACE + _WORDS * max(map(len, words))
    heads = title_lines(title, picture.width_in - 2 * EDGE)
    top = EDGE + titles_height(heads)
    height = top + -(-len(titles) // a_row) * (head + tall) + foot
    if picture.height_in is not None and picture.height_in < height:
        raise picture.too_low("maps and titles", height)
    figure = Chart(figsize=(picture.width_in, picture.height_in or height))
    write_titles(figure, heads, EDGE)
    panels = []
    for number, text in enumerate(words):
        row, column = divmod(number, a_row)
        x, y = EDGE + column * (room + _GAP), top + row * (head + tall)
        for index, line in enumerate(text):
            style: dict[str, Any] = {"fontweight": "bold"} if line.headline else {"color": FAINT_TEXT}
            figure.write(x, y + _SPACE + index * _WORDS, line.text, **style)
        panel = figure.add_clear_axes(x, y + head, wide, tall)
        panel.set_xlim(-step / 2 - stub, wide - step / 2 - stub)
        panel.set_ylim(tall - margin, -margin)
        panel.set_axis_off()
        panels.append(panel)
    return figure, panels, Ladder(physical, margin, step)
