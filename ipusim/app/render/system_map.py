"""Draw maps of a system: IPUs and cables, coloured by a number such as a slowdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.patches import Circle

from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.ladder import EDGE, Ladder, map_panels
from ipusim.app.render.lettering import text_width
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.style import FAINT_TEXT, LINE, TEXT_SIZE, ink_on

#: Colour map: pale for low, dark for high; a single hue, legible to colour-blind readers.
_COLOURS: Final = "Oranges"
#: Maximum distance of neighbouring rungs in inches.
_WIDEST: Final = 1.4
#: Inches above and below a rung.
_MARGIN: Final = 0.45
#: Maximum radius of an IPU's circle in inches.
_RADIUS: Final = 0.4
#: Maximum radius of an IPU's circle, as share of the distance to the next rung.
_RADIUS_SHARE: Final = 0.36
#: Points from the middle of a cable to its number.
_LABEL_GAP: Final = 5.0
#: Inches right of the panels, for the colour bar and its numbers.
_SCALE: Final = 0.8
#: Distance from the colour bar's left side to the picture's right edge in inches.
_BAR: Final = 0.75
#: Width of the colour bar in inches.
_THICK: Final = 0.12


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


@default_style_settings()
def system_maps(
    maps: Sequence[SystemMap],
    physical: Sequence[int],
    most: float,
    title: str,
    words: str,
    picture: Picture = DEFAULT,
) -> Chart:
    """Return maps of a system with a common colour scale.

    Args:
        maps: numbers of its IPUs and cables.
        physical: physical number of each logical IPU; pairs form rungs, drawn side by side.
        most: darkest number; the scale begins at 1.
        title: title of the picture.
        words: meaning of the numbers.
        picture: size and theme.

    Raises OptionError for an unreadably small size.
    """
    cables = [(physical[source], physical[target]) for source, target in maps[0].cables]
    titles = [system_map.title for system_map in maps]
    figure, panels, ladder = map_panels(
        physical, cables, titles, title, picture, widest=_WIDEST, margin=_MARGIN, right=_SCALE, foot=EDGE
    )
    most = max(most, 1.0 + 1e-9)
    scale = ScalarMappable(Normalize(1.0, most), colormaps[_COLOURS])
    for panel, system_map in zip(panels, maps, strict=True):
        _draw(panel, system_map, ladder, most)
    high, low = panels[0].get_position().y1, panels[-1].get_position().y0
    bar = figure.add_axes((1 - _BAR / picture.width_in, low, _THICK / picture.width_in, high - low))
    figure.colorbar(scale, cax=bar)
    bar.tick_params(labelsize=TEXT_SIZE, color=LINE)
    bar.set_title(words, fontsize=TEXT_SIZE, color=FAINT_TEXT, loc="center", pad=4)
    return finish(figure, picture)


def _draw(panel: Axes, system_map: SystemMap, ladder: Ladder, most: float) -> None:
    """Draw cables as lines and IPUs as circles, with numbers where space permits. Coordinates are in inches."""
    radius = min(_RADIUS_SHARE * ladder.step, _RADIUS)

    def face(number: float) -> str:
        return to_hex(colormaps[_COLOURS]((number - 1.0) / (most - 1.0)))

    for (source, target), number in system_map.cables.items():
        for (x, y), (x2, y2) in ladder.lines(ladder.physical[source], ladder.physical[target], radius):
            for colour, wide in (("white", 7), (LINE, 6), (face(number), 5)):
                panel.plot((x, x2), (y, y2), color=colour, linewidth=wide, zorder=1, solid_capstyle="butt")
            label, upright = f"{number:.2f}", x == x2
            room = 72 * (ladder.step if upright else abs(x2 - x) - 2 * radius)
            if number >= 1.005 and room > text_width(label, TEXT_SIZE) + 2 * _LABEL_GAP * upright:
                style: dict[str, Any] = {"ha": "left", "va": "center"} if upright else {"ha": "center", "va": "bottom"}
                offset = (_LABEL_GAP, 0) if upright else (0, _LABEL_GAP)
                middle = (x + x2) / 2, (y + y2) / 2
                panel.annotate(label, middle, offset, textcoords="offset points", fontsize=TEXT_SIZE, zorder=3, **style)
    for ipu, number in system_map.ipus.items():
        centre, colour = ladder.position_of(ladder.physical[ipu]), face(number)
        panel.add_patch(Circle(centre, radius, facecolor=colour, edgecolor=LINE, linewidth=0.8, zorder=2))
        lines = (f"IPU {ipu}", f"{number:.2f}")
        if max(text_width(line, TEXT_SIZE) for line in lines) < 72 * 2 * radius * 0.85:
            style = {"ha": "center", "va": "center", "color": ink_on(colour), "zorder": 3}
            panel.text(*centre, "\n".join(lines), fontsize=TEXT_SIZE, **style)
