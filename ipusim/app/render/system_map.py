"""Maps of a system: IPUs and their cables, coloured by a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.patches import Circle

from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.lettering import text_width
from ipusim.app.render.style import FAINT_TEXT, LINE, TEXT_SIZE, WIDTH_IN, ink_on
from ipusim.app.render.titles import title_lines, titles_height, write_titles

#: Colour map: pale for low, dark for high; a single hue, legible to colour-blind readers.
_COLOURS: Final = "Oranges"
#: Inches: largest distance of neighbouring IPUs, distance of the two rows, largest radius of a circle. Fourth: radius
#: as share of the distance to the next IPU.
_WIDEST, _ROWS, _RADIUS, _CIRCLE = 1.4, 1.05, 0.4, 0.36
#: Points from the middle of a cable to its number.
_LABEL_GAP: Final = 5.0
#: Inches: margin around maps, title above a map, colour bar.
_EDGE, _MAP_TITLE, _SCALE = 0.12, 0.26, 0.8


@dataclass(frozen=True)
class SystemMap:
    """Numbers of a system's IPUs and cables.

    Attributes:
        title: configuration behind the numbers, such as a schedule.
        ipus: number of each logical IPU.
        cables: number of each cable, by its two IPUs.
    """

    title: str
    ipus: Mapping[int, float]
    cables: Mapping[tuple[int, int], float]


@own_settings()
def system_maps(maps: Sequence[SystemMap], physical: Sequence[int], most: float, title: str, words: str) -> Chart:
    """Return maps of a system below each other, with a common colour scale.

    Args:
        maps: numbers of its IPUs and cables.
        physical: physical number of each logical IPU; pairs form rungs, drawn side by side.
        most: darkest number; the scale begins at 1.
        title: title of the picture.
        words: meaning of the numbers.
    """
    places = {ipu: (number // 2, number % 2) for ipu, number in enumerate(physical)}
    first = min(column for column, _ in places.values())
    columns = 1 + max(column for column, _ in places.values()) - first
    free = WIDTH_IN - 2 * _EDGE - _SCALE
    step = min(_WIDEST, free / columns)
    radius, wide = min(_CIRCLE * step, _RADIUS), columns * step
    maps_a_row = min(max(int(free // wide), 1), len(maps))
    high = _MAP_TITLE + _ROWS + 2 * radius + _EDGE
    titles = title_lines(title, WIDTH_IN - 2 * _EDGE)
    head = 2 * _EDGE + titles_height(titles)
    whole = head + -(-len(maps) // maps_a_row) * high
    figure = Chart(figsize=(WIDTH_IN, whole))
    write_titles(figure, titles, _EDGE)
    most = max(most, 1.0 + 1e-9)
    scale = ScalarMappable(Normalize(1.0, most), colormaps[_COLOURS])
    centres = {ipu: ((column - first) * step, row * _ROWS) for ipu, (column, row) in places.items()}
    for number, system_map in enumerate(maps):
        row, column = divmod(number, maps_a_row)
        left, bottom = _EDGE + column * wide, whole - head - (row + 1) * high + _EDGE
        inches = wide - step + 2 * radius
        panel = figure.add_axes((left / WIDTH_IN, bottom / whole, inches / WIDTH_IN, (_ROWS + 2 * radius) / whole))
        panel.set_xlim(-radius, wide - step + radius)
        panel.set_ylim(_ROWS + radius, -radius)
        panel.set_axis_off()
        panel.set_title(system_map.title, fontsize=TEXT_SIZE, loc="left", pad=4)
        _draw(panel, system_map, centres, most, radius, step)
    bar = figure.add_axes(
        (1 - 0.75 / WIDTH_IN, _EDGE / whole, 0.12 / WIDTH_IN, 1 - (head + _MAP_TITLE + _EDGE) / whole)
    )
    figure.colorbar(scale, cax=bar)
    bar.tick_params(labelsize=TEXT_SIZE, color=LINE)
    bar.set_title(words, fontsize=TEXT_SIZE, color=FAINT_TEXT, loc="center", pad=4)
    return figure


def _draw(
    panel: Axes,
    system_map: SystemMap,
    centres: Mapping[int, tuple[float, float]],
    most: float,
    radius: float,
    step: float,
) -> None:
    """Draw cables as lines and IPUs as circles, with numbers where space permits.

    Coordinates are in inches.
    """

    def colour(number: float) -> str:
        return to_hex(colormaps[_COLOURS](float((number - 1.0) / (most - 1.0))))

    for (source, target), number in system_map.cables.items():
        (x, y), (x2, y2) = centres[source], centres[target]
        panel.plot((x, x2), (y, y2), color="white", linewidth=7, zorder=1, solid_capstyle="butt")
        panel.plot((x, x2), (y, y2), color=LINE, linewidth=6, zorder=1.1, solid_capstyle="butt")
        panel.plot((x, x2), (y, y2), color=colour(number), linewidth=5, zorder=1.2)
        label, upright = f"{number:.2f}", x == x2
        room = 72 * (step if upright else abs(x2 - x) - 2 * radius)
        if number >= 1.005 and room > text_width(label, TEXT_SIZE) + 2 * _LABEL_GAP * upright:
            style: dict[str, Any] = {"ha": "left", "va": "center"} if upright else {"ha": "center", "va": "bottom"}
            offset = (_LABEL_GAP, 0) if upright else (0, _LABEL_GAP)
            middle = (x + x2) / 2, (y + y2) / 2
            panel.annotate(label, middle, offset, textcoords="offset points", fontsize=TEXT_SIZE, zorder=3, **style)
    for ipu, number in system_map.ipus.items():
        face = colour(number)
        panel.add_patch(
            Circle(centres[ipu], radius, facecolor=face, edgecolor=LINE, linewidth=0.8, zorder=2, clip_on=False)
        )
        lines = (f"IPU {ipu}", f"{number:.2f}")
        if max(text_width(line, TEXT_SIZE) for line in lines) < 72 * 2 * radius * 0.85:
            panel.text(
                *centres[ipu],
                "\n".join(lines),
                ha="center",
                va="center",
                fontsize=TEXT_SIZE,
                color=ink_on(face),
                zorder=3,
            )
