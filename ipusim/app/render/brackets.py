"""Draw brackets with phase names above a trace, fitted to the available room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from ipusim.api import analysis
from ipusim.app.render.lettering import space_out, text_width
from ipusim.app.render.style import LINE, TEXT_SIZE
from ipusim.app.render.window import Window

#: Short names of phases.
_SHORT: Final = dict(zip(analysis.PHASES, ("up", "main", "down", "update"), strict=True))
#: Points between names.
_GAP: Final = 6.0
#: Points between the end of a phase and the end of its bracket.
_INSET: Final = 1.0
#: Height of brackets in the band above the rows, from 0 at the rows to 1 at its top.
_BRACKET: Final = 0.12
#: Height in the band at which the leader line of a name ends.
_LEADER: Final = 0.36
#: Height in the band at which names begin.
_NAMES: Final = 0.42


@dataclass(frozen=True)
class _Bracket:
    """Named interval in points from the window's start; the name may be empty."""

    name: str
    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


def draw_brackets(axes: Axes, drawn_phases: Sequence[analysis.Phase], window: Window, points: float) -> None:
    """Draw a named bracket for every phase of ``drawn_phases``, on axes that span ``window``.

    ``points`` is the width of a cycle. Names move sideways to avoid overlaps, and leader lines join them to their
    brackets. If they need too much room, short names are used; if still too much, a bracket for every execution
    replaces the phases.
    """
    width = window.cycles * points
    axes.set_xlim(0, width)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    phases = [
        _Bracket(
            phase.name,
            (max(phase.start, window.start) - window.start) * points,
            (min(phase.end, window.end) - window.start) * points,
        )
        for phase in drawn_phases
    ]
    short = [replace(bracket, name=_SHORT[bracket.name]) for bracket in phases]
    for choice in (phases, short, *_execution_brackets(drawn_phases, phases)):
        labelled = [bracket for bracket in choice if bracket.name]
        widths = [text_width(bracket.name, TEXT_SIZE) + _GAP for bracket in labelled]
        centres = space_out([bracket.middle for bracket in labelled], widths, 0.0, width)
        if centres is not None:
            _draw(axes, choice)
            for bracket, centre in zip(labelled, centres, strict=True):
                half = text_width(bracket.name, TEXT_SIZE) / 2
                # From the nearest end of the name: leaders must not pass below another name.
                from_name = min(max(bracket.middle, centre - half), centre + half)
                axes.plot([bracket.middle, from_name], [_BRACKET, _LEADER], color=LINE, linewidth=0.6, clip_on=False)
                axes.text(centre, _NAMES, bracket.name, fontsize=TEXT_SIZE, ha="center", va="bottom", color=LINE)
            return


def _execution_brackets(drawn_phases: Sequence[analysis.Phase], phases: Sequence[_Bracket]) -> Iterator[list[_Bracket]]:
    """Yield brackets of executions in several versions, naming fewer in every version."""
    bounds: dict[int, tuple[float, float]] = {}
    for phase, bracket in zip(drawn_phases, phases, strict=True):
        start, _ = bounds.get(phase.execution, (bracket.start, bracket.end))
        bounds[phase.execution] = (start, bracket.end)
    stride = 1
    while stride < 2 * len(bounds):
        yield [
            _Bracket(f"execution {number}" if number % stride == 0 else "", start, end)
            for number, (start, end) in bounds.items()
        ]
        stride *= 2


def _draw(axes: Axes, brackets: Sequence[_Bracket]) -> None:
    start, end = (np.array([getattr(bracket, side) for bracket in brackets]) for side in ("start", "end"))
    inset = np.minimum(_INSET, (end - start) / 4)
    left, right = start + inset, end - inset
    x = np.stack([left, left, right, right, np.full(len(left), np.nan)], axis=1)
    y = np.tile([0.0, _BRACKET, _BRACKET, 0.0, np.nan], len(brackets))
    style: dict[str, Any] = {"solid_joinstyle": "miter", "solid_capstyle": "butt", "clip_on": False}
    axes.plot(x.ravel(), y, color=LINE, linewidth=0.9, **style)
