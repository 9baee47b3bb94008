"""Draw a system's IPU-Links with the loads of copies, in a panel for each order of the IPUs (selection order)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Circle, Polygon

from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.ladder import EDGE, Ladder, Point, map_panels
from ipusim.app.render.legend import LEGEND_LINE, Entry, draw_legend, legend_lines
from ipusim.app.render.lettering import text_width
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.style import LINE, SERIES, TEXT_SIZE
from ipusim.base.looks import Look

#: Largest device in a picture: the IPUs of a pod.
MOST_IPUS: Final = 64
#: Maximum distance of rungs in inches.
_WIDEST: Final = 1.19
#: Inches above and below a rung.
_MARGIN: Final = 0.3
#: Maximum radius of an IPU's circle in inches.
_RADIUS: Final = 0.17
#: Maximum radius of an IPU's circle, as share of the distance to the next rung.
_RADIUS_SHARE: Final = 0.27
#: Maximum width of an arrow in inches.
_WIDTH: Final = 0.11
#: Maximum width of an arrow, as share of the distance to the next rung.
_WIDTH_SHARE: Final = 0.14
#: Minimum width of an arrow in inches.
_THINNEST: Final = 0.012
#: Distance between a cable and its arrows in inches.
_GAP: Final = 0.018
#: Length of an arrow's head in inches.
_HEAD: Final = 0.09
#: Position of a number along a rung, as share of the arrow's length: numbers of opposite directions do not collide.
_STAGGERED: Final = 0.34
#: Colours of a link by kind of copies.
FORWARD, BACKWARD, CROSSING = (SERIES[number][0] for number in (0, 1, 2))
#: Colour of a cable without copies, and of an IPU without a stage.
_IDLE: Final = "#c9c9c9"
_LEGENDS: Final = {
    FORWARD: "forward: a stage's output to the next",
    BACKWARD: "backward: a gradient back",
    CROSSING: "other copies",
    _IDLE: "cable without copies",
}


class Flow(NamedTuple):
    """Load of a cable's direction, as shares of time with copies in transit.

    Attributes:
        forward, backward: copies of outputs to following stages, and of gradients back.
        other_share: other copies.
    """

    forward: float
    backward: float
    other_share: float = 0.0

    @property
    def load(self) -> float:
        """Share of time with any copy in transit."""
        return sum(self)

    @property
    def colours(self) -> dict[str, float]:
        """Positive shares by colour of their copies."""
        shares = zip((FORWARD, BACKWARD, CROSSING), self, strict=True)
        return {colour: share for colour, share in shares if share}


@dataclass(frozen=True)
class LinkMap:
    """Links of a device under a selection order.

    Attributes:
        title: line above the panel.
        ipus: logical number of each physical IPU; None for an IPU without a stage.
        physical: physical numbers of the device, in ladder order.
        cables: pairs of physical IPUs joined by a cable.
        flows: load of each direction of a cable, by its source and target as physical IPUs.
    """

    title: str
    ipus: Mapping[int, int | None]
    physical: Sequence[int]
    cables: Sequence[tuple[int, int]]
    flows: Mapping[tuple[int, int], Flow]

    @property
    def most(self) -> float:
        """Load of the busiest direction."""
        return max((flow.load for flow in self.flows.values()), default=0.0)


@default_style_settings()
def link_maps(maps: Sequence[LinkMap], title: str, picture: Picture = DEFAULT) -> Chart:
    """Return a panel for every selection order, with a common scale of widths.

    Args:
        maps: maps of the same device.
        title: title of the picture; further lines are smaller.
        picture: size and theme.

    Returns:
        The picture. Pairs of physical numbers are rungs, and rungs lie side by side.

    Raises OptionError for an unreadably small size.
    """
    colours = {_IDLE, *(colour for link_map in maps for flow in link_map.flows.values() for colour in flow.colours)}
    entries = [Entry(words, Look(words, colour, colour)) for colour, words in _LEGENDS.items() if colour in colours]
    legend = legend_lines(entries, picture.width_in - 2 * EDGE)
    first, titles = maps[0], [link_map.title for link_map in maps]
    figure, panels, ladder = map_panels(
        first.physical,
        first.cables,
        titles,
        title,
        picture,
        widest=_WIDEST,
        margin=_MARGIN,
        foot=LEGEND_LINE * len(legend) + EDGE,
    )
    most = max(link_map.most for link_map in maps)
    for panel, link_map in zip(panels, maps, strict=True):
        _Panel(panel, link_map, ladder, most).draw()
    draw_legend(figure, legend, EDGE, EDGE)
    return finish(figure, picture)


class _Panel:
    """Drawing of the links under a selection order; coordinates are in inches."""

    def __init__(self, axes: Axes, link_map: LinkMap, ladder: Ladder, most: float) -> None:
        self._axes, self._map, self._ladder = axes, link_map, ladder
        self._most = most or 1.0
        self._radius, self._widest = min(_RADIUS_SHARE * ladder.step, _RADIUS), min(_WIDTH_SHARE * ladder.step, _WIDTH)
        self._positions = {ipu: ladder.position_of(ipu) for ipu in link_map.physical}

    def draw(self) -> None:
        """Draw cables, arrows with loads, and IPUs."""
        for first, second in self._map.cables:
            for source, target in ((first, second), (second, first)):
                for begin, end in self._ladder.lines(source, target, self._radius):
                    self._axes.plot((begin[0], end[0]), (begin[1], end[1]), color=_IDLE, linewidth=1.2, zorder=1)
                    flow = self._map.flows.get((source, target))
                    if flow is not None:
                        self._arrow(begin, end, flow)
        for ipu, position in self._positions.items():
            logical = self._map.ipus[ipu]
            edge = LINE if logical is not None else _IDLE
            self._axes.add_patch(
                Circle(position, self._radius, facecolor="white", edgecolor=edge, linewidth=1, zorder=4)
            )
            label = "" if logical is None else str(logical)
            if text_width(label, TEXT_SIZE) < 72 * 1.7 * self._radius:
                self._axes.text(*position, label, ha="center", va="center", fontsize=TEXT_SIZE, color=LINE, zorder=5)

    def _arrow(self, start: Point, target: Point, flow: Flow) -> None:
        """Draw the load of a direction on its right side, with its number."""
        length = abs(target[0] - start[0]) + abs(target[1] - start[1])
        way = (target[0] - start[0]) / length, (target[1] - start[1]) / length
        aside = -way[1], way[0]  # to the right of the way, since y points down
        begin = self._radius if start in self._positions.values() else 0.0
        end = length - (self._radius if target in self._positions.values() else 0.0)

        def point(far: float, off: float) -> Point:
            return start[0] + way[0] * far + aside[0] * off, start[1] + way[1] * far + aside[1] * off

        neck, off = end - _HEAD, _GAP
        wide = max(self._widest * flow.load / self._most, _THINNEST)
        for colour, share in flow.colours.items():
            part = wide * share / flow.load
            corners = point(begin, off), point(neck, off), point(neck, off + part), point(begin, off + part)
            self._axes.add_patch(Polygon(corners, facecolor=colour, linewidth=0, zorder=2))
            off += part
        middle, half = _GAP + wide / 2, wide / 2 + 0.03
        tip = point(neck, middle - half), point(end, middle), point(neck, middle + half)
        colour = max(flow.colours, key=flow.colours.__getitem__)
        self._axes.add_patch(Polygon(tip, facecolor=colour, linewidth=0, zorder=2))
        label = f"{flow.load:.0%}" if flow.load >= 0.005 else "<1%"
        upright = not way[0]
        if upright or 72 * (end - begin) > text_width(label, TEXT_SIZE):
            x, y = point(begin + (end - begin) * (_STAGGERED if upright else 0.5), _GAP + wide + 0.03)
            style: dict[str, Any] = {"ha": "right" if aside[0] < 0 else "left", "va": "center"}
            if not upright:
                style = {"ha": "center", "va": "bottom" if aside[1] < 0 else "top"}
            self._axes.text(x, y, label, fontsize=TEXT_SIZE, color=LINE, zorder=3, **style)
