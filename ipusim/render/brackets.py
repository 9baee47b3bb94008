"""The brackets above a trace that name its phases, whatever room they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes

from ipusim.analysis.phases import MAIN, RAMP_DOWN, RAMP_UP, WEIGHT_UPDATE, Phase
from ipusim.render.lettering import spread, text_width
from ipusim.render.style import LINE, TEXT_SIZE
from ipusim.render.window import Window

_SHORT: Final = {RAMP_UP: "up", MAIN: "main", RAMP_DOWN: "down", WEIGHT_UPDATE: "update"}
#: Points between two names, and between a bracket's ends and its phase's.
_GAP: Final = 5.0
_INSET: Final = 1.0
#: Heights in the band, from 0 at the rows to 1: of the bracket, and of the names' feet.
_BRACKET, _NAMES = 0.10, 0.42


@dataclass(frozen=True)
class _Label:
    text: str
    centre: float  # points from the window's start
    middle: float  # of the bracket that it names


def draw_brackets(axes: Axes, phases: Sequence[Phase], window: Window, scale: float, width_points: float) -> None:
    """Draw a bracket with a name for each phase in the window on ``axes``, whose height is 0 to 1.

    ``scale`` is x coordinates to a cycle, ``width_points`` the width of the axes.
    Names move sideways to stay apart, with a line to their bracket; where all
    of them have no room they become short, and where executions are too narrow
    for that, one bracket stands for each execution.
    """
    axes.set_ylim(0, 1)
    points = width_points / window.cycles
    inside = [phase for phase in phases if phase.end > window.start and phase.start < window.end]
    spans = {phase: (max(phase.start, window.start), min(phase.end, window.end)) for phase in inside}

    labels = _labels(inside, spans, window, points, width_points, {phase.name: phase.name for phase in inside})
    labels = labels or _labels(inside, spans, window, points, width_points, _SHORT)
    bars = list(spans.values())
    if labels is None:
        bars, labels = _whole_executions(inside, spans, window, points, width_points)

    to_x = scale / points
    origin = window.start * scale
    for start, end in bars:
        inset = min(_INSET / points, (end - start) / 4)
        left, right = (start + inset) * scale, (end - inset) * scale
        axes.plot([left, left, right, right], [0, _BRACKET, _BRACKET, 0], color=LINE, linewidth=0.9, clip_on=False)
    for label in labels:
        x, middle = origin + label.centre * to_x, origin + label.middle * to_x
        axes.plot([middle, x], [_BRACKET, _NAMES - 0.06], color=LINE, linewidth=0.6, clip_on=False)
        axes.text(x, _NAMES, label.text, fontsize=TEXT_SIZE, ha="center", va="bottom", color=LINE)


def _labels(
    phases: Sequence[Phase],
    spans: dict[Phase, tuple[int, int]],
    window: Window,
    points: float,
    width_points: float,
    names: dict[str, str],
) -> list[_Label] | None:
    """Place a name for every phase, in points from the window's start; None if they have no room."""
    texts = [names[phase.name] for phase in phases]
    middles = [((start + end) / 2 - window.start) * points for start, end in (spans[phase] for phase in phases)]
    placed = spread(middles, [text_width(text, TEXT_SIZE) + _GAP for text in texts], 0.0, width_points)
    if placed is None:
        return None
    return [_Label(text, at, middle) for text, at, middle in zip(texts, placed, middles, strict=True)]


def _whole_executions(
    phases: Sequence[Phase], spans: dict[Phase, tuple[int, int]], window: Window, points: float, width_points: float
) -> tuple[list[tuple[int, int]], list[_Label]]:
    """Return a bar for each execution, and numbers for as many of them, evenly, as there is room for."""
    bars: dict[int, tuple[int, int]] = {}
    for phase in phases:
        start, end = bars.get(phase.execution, spans[phase])
        bars[phase.execution] = (min(start, spans[phase][0]), max(end, spans[phase][1]))
    numbers = list(bars)
    for every in range(1, len(numbers) + 1):
        chosen = [number for number in numbers if number % every == 0] or numbers[:1]
        texts = [f"execution {chosen[0]}", *map(str, chosen[1:])]
        middles = [(sum(bars[number]) / 2 - window.start) * points for number in chosen]
        placed = spread(middles, [text_width(text, TEXT_SIZE) + _GAP for text in texts], 0.0, width_points)
        if placed is not None:
            labels = [_Label(text, at, middle) for text, at, middle in zip(texts, placed, middles, strict=True)]
            return list(bars.values()), labels
    return list(bars.values()), []
