"""Map of a system's IPU-Links: routes of copies and link loads by selection order.

IPUs form a ladder; a rung is a pair of IPUs. A cable between distant IPUs, as at the ends of a torus, appears as a
short line at either IPU, a stub.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Circle, Polygon, Rectangle

from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.lettering import text_width
from ipusim.app.render.style import FAINT_TEXT, LINE, SERIES, TEXT_SIZE, WIDTH_IN
from ipusim.app.render.titles import title_lines, titles_height, write_titles

#: Largest device in a picture: the IPUs of a pod.
MOST_IPUS: Final = 64
#: Most rungs side by side; longer ladders continue in the next line.
_RUNGS: Final = 16
#: Inches: largest distance of rungs, distance of a rung's IPUs, distance of lines of rungs.
_WIDEST, _ROWS, _LINES = 1.19, 1.0, 0.6
#: Largest radius of an IPU in inches, radius as share of the distance to the next rung, length of a stub in inches.
_RADIUS, _CIRCLE, _STUB = 0.17, 0.27, 0.5
#: Inches: widest arrow, thinnest arrow, gap between cable and arrows, head of an arrow. Fifth: widest arrow as share of
#: the distance to the next rung.
_WIDTH, _THINNEST, _GAP, _HEAD, _BROAD = 0.11, 0.012, 0.018, 0.09, 0.14
#: Position of numbers along a rung, as share of its length; opposite directions are staggered.
_STAGGERED: Final = 0.34
#: Inches: margin, distance of panels, line of a panel's title, space above it, legend.
_EDGE, _MAP_GAP, _WORDS, _ABOVE, _LEGEND = 0.12, 0.2, 0.15, 0.1, 0.3
#: Colours of a link by kind of copies.
FORWARD, BACKWARD, CROSSING = (SERIES[number][0] for number in (0, 1, 2))
_IDLE: Final = "#c9c9c9"
_LEGENDS: Final = (
    (FORWARD, "forward: a stage's output to the next"),
    (BACKWARD, "backward: a gradient back"),
    (CROSSING, "other copies"),
    (_IDLE, "cable without copies"),
)


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
        flows: load of each direction, by its two physical IPUs.
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


@own_settings()
def link_maps(maps: Sequence[LinkMap], title: str) -> Chart:
    """Return a panel for every selection order, with a common scale of widths.

    Args:
        maps: maps of the same device.
        title: title of the picture; further lines are smaller.

    Returns:
        The picture. Pairs of physical numbers are rungs, and rungs lie side by side.
    """
    rungs = len(maps[0].physical) // 2 or 1
    columns = min(rungs, _RUNGS)
    stubs = _STUB if _has_stubs(maps[0]) else 0.0
    free = WIDTH_IN - 2 * _EDGE - 2 * stubs
    step = min(_WIDEST, free / columns)
    lines = -(-rungs // columns)
    wide = columns * step + 2 * stubs
    panels = min(max(int((free + _MAP_GAP) // (wide + _MAP_GAP)), 1), len(maps))
    room = (WIDTH_IN - 2 * _EDGE + _MAP_GAP) / panels - _MAP_GAP
    titles_of_maps = [title_lines(link_map.title, room) for link_map in maps]
    above, tall = _ABOVE + _WORDS * max(map(len, titles_of_maps)), lines * (_ROWS + _LINES)
    titles = title_lines(title, WIDTH_IN - 2 * _EDGE)
    head = _EDGE + titles_height(titles)
    whole = head + -(-len(maps) // panels) * (above + tall) + _LEGEND
    figure = Chart(figsize=(WIDTH_IN, whole))
    write_titles(figure, titles, _EDGE)
    most = max(link_map.most for link_map in maps)
    for number, link_map in enumerate(maps):
        row, column = divmod(number, panels)
        left, top = _EDGE + column * (room + _MAP_GAP), head + row * (above + tall)
        for index, line in enumerate(titles_of_maps[number]):
            style: dict[str, Any] = {"fontweight": "bold"} if line.headline else {"color": FAINT_TEXT}
            figure.write(left, top + _ABOVE + index * _WORDS, line.text, **style)
        panel = figure.add_clear_axes(left, top + above, wide, tall)
        panel.set_xlim(-step / 2 - stubs, columns * step - step / 2 + stubs)
        panel.set_ylim(tall - _LINES / 2, -_LINES / 2)
        panel.set_axis_off()
        _Panel(panel, link_map, step, most).draw()
    colours = {colour for link_map in maps for flow in link_map.flows.values() for colour in flow.colours}
    _draw_legend(figure, whole - _LEGEND / 2, {*colours, _IDLE})
    return figure


def _place(ipu: int, first: int, step: float) -> tuple[float, float]:
    """Return the place of a physical IPU: x right, y down, in inches."""
    rung, side = divmod(ipu - first, 2)
    line, column = divmod(rung, _RUNGS)
    return column * step, line * (_ROWS + _LINES) + side * _ROWS


def _has_stubs(link_map: LinkMap) -> bool:
    """Return whether a cable joins distant IPUs, as at the ends of a torus."""
    first = link_map.physical[0]
    places = {ipu: _place(ipu, first, 1.0) for ipu in link_map.physical}
    return any(_is_far(places[source], places[target]) for source, target in link_map.cables)


def _is_far(source: tuple[float, float], target: tuple[float, float], step: float = 1.0) -> bool:
    return abs(source[0] - target[0]) > 1.5 * step or (source[0] != target[0] and source[1] != target[1])


class _Panel:
    """Drawing of a selection order; coordinates are in inches."""

    def __init__(self, axes: Axes, link_map: LinkMap, step: float, most: float) -> None:
        self._axes, self._map, self._step = axes, link_map, step
        self._most = most or 1.0
        self._radius, self._widest = min(_CIRCLE * step, _RADIUS), min(_BROAD * step, _WIDTH)
        first = link_map.physical[0]
        self._places = {ipu: _place(ipu, first, step) for ipu in link_map.physical}

    def draw(self) -> None:
        """Draw cables, arrows with loads, and IPUs."""
        for first, second in self._map.cables:
            for source, target in ((first, second), (second, first)):
                for begin, end in self._pieces(source, target):
                    self._axes.plot((begin[0], end[0]), (begin[1], end[1]), color=_IDLE, linewidth=1.2, zorder=1)
                    flow = self._map.flows.get((source, target))
                    if flow is not None:
                        self._arrow(begin, end, flow)
        for ipu, place in self._places.items():
            logical = self._map.ipus[ipu]
            edge = LINE if logical is not None else _IDLE
            self._axes.add_patch(Circle(place, self._radius, facecolor="white", edgecolor=edge, linewidth=1, zorder=4))
            label = "" if logical is None else str(logical)
            if text_width(label, TEXT_SIZE) < 72 * 1.7 * self._radius:
                self._axes.text(*place, label, ha="center", va="center", fontsize=TEXT_SIZE, color=LINE, zorder=5)

    def _pieces(self, source: int, target: int) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Yield the lines between two IPUs: direct, or stubs at either end."""
        source_place, target_place = self._places[source], self._places[target]
        if not _is_far(source_place, target_place, self._step):
            yield source_place, target_place
            return
        length = self._radius + _STUB
        out = 1 if source_place[0] > target_place[0] else -1
        yield source_place, (source_place[0] + out * length, source_place[1])
        yield (target_place[0] - out * length, target_place[1]), target_place

    def _arrow(self, from_place: tuple[float, float], to_place: tuple[float, float], flow: Flow) -> None:
        """Draw the load of a direction on its right side, with its number."""
        length = abs(to_place[0] - from_place[0]) + abs(to_place[1] - from_place[1])
        way = (to_place[0] - from_place[0]) / length, (to_place[1] - from_place[1]) / length
        aside = -way[1], way[0]  # to the right of the way, since y points down
        begin = self._radius if from_place in self._places.values() else 0.0
        end = length - (self._radius if to_place in self._places.values() else 0.0)

        def point(far: float, off: float) -> tuple[float, float]:
            return from_place[0] + way[0] * far + aside[0] * off, from_place[1] + way[1] * far + aside[1] * off

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


def _draw_legend(figure: Chart, top: float, colours: Collection[str]) -> None:
    width, height = figure.get_size_inches()
    left = _EDGE
    for colour, words in _LEGENDS:
        if colour not in colours:
            continue
        corner = left / width, 1 - (top + 0.04) / height
        figure.add_artist(Rectangle(corner, 0.24 / width, 0.08 / height, facecolor=colour, linewidth=0))
        figure.write(left + 0.3, top, words, va="center_baseline")
        left += 0.48 + text_width(words, TEXT_SIZE) / 72
