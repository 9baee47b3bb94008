"""The content of a trace of a given width: boxes and lines of a Timeline, chosen before anything is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ipusim.api import SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.boxes import Boxes, bin_edges, share_boxes, some, span_boxes
from ipusim.app.render.fold import rows_of
from ipusim.app.render.narrow import legible_boxes
from ipusim.app.render.style import DPI
from ipusim.app.render.window import Window

#: Every span has its own box up to this many boxes, and while time-steps, or turns of the busiest stage, are on
#: average this wide, in pixels.
_MOST_BOXES: Final = 12_000
_NARROWEST_STEP: Final = 4.0
#: Boxes are drawn at least this wide, in pixels: the first of these at which none has to be stacked, or else the last.
_NARROWEST_BOXES: Final = (3.0, 2.0)
#: Stacked boxes are at least this high, in pixels, but no more than this part of a row.
_LOWEST_BOX: Final = 1.6
_LARGEST_LOWEST: Final = 0.08
#: Sync points are drawn where they are at least this far from their neighbours, in points, if most are.
_NARROWEST_SYNC: Final = 10.0


@dataclass(frozen=True)
class Content:
    """The boxes and lines of one Timeline in a window.

    Attributes:
        timeline, window: what is shown.
        points: points of the figure to a cycle.
        boxes: the rectangles.
        shares: whether heights of some boxes are shares of time, as there is no room for each span.
        syncs: the cycles of the synchronisation points to draw, without those that lie too densely.
        phases: the phases that lie in the window.
        redone: begin and end of each interval in which lost work is done again.
        ipus_to_a_row: neighbouring IPUs in a row.
    """

    timeline: Timeline
    window: Window
    points: float
    boxes: Boxes
    shares: bool
    syncs: Integers
    phases: tuple[analysis.Phase, ...]
    redone: tuple[tuple[int, int], ...]
    ipus_to_a_row: int = 1

    @property
    def rows(self) -> int:
        """The number of rows."""
        return rows_of(self.timeline, self.ipus_to_a_row)


def phases_in(timeline: Timeline, window: Window) -> tuple[analysis.Phase, ...]:
    """Return the phases that lie in a window."""
    return tuple(
        phase for phase in analysis.phases_of(timeline) if phase.end > window.start and phase.start < window.end
    )


def content(
    timeline: Timeline,
    window: Window,
    width_in: float,
    coarser: float = 1.0,
    row_in: float = 0.4,
    ipus_to_a_row: int = 1,
) -> Content:
    """Return what ``timeline`` shows in ``window`` on a width of ``width_in`` inches, in rows ``row_in`` high.

    Bins of shares are ``coarser`` times as wide as they could be read. A row of several IPUs shows the shares of all.
    """
    least = min(_LOWEST_BOX / (row_in * DPI), _LARGEST_LOWEST)
    points = width_in * 72 / window.cycles
    boxes = span_boxes(timeline, window)
    phases = phases_in(timeline, window)
    steps = analysis.time_steps(timeline).start if timeline.info.has_time_steps else _turns(timeline)
    inside = int(np.count_nonzero((steps >= window.start) & (steps < window.end)))
    shares = len(boxes) > _MOST_BOXES or inside * _NARROWEST_STEP > width_in * DPI or ipus_to_a_row > 1
    if shares:
        narrowest = coarser * _NARROWEST_STEP * 72 / DPI / points
        if not timeline.info.has_time_steps:
            steps = _without_gaps(steps, window, max(math.ceil(narrowest), 1))
        edges = bin_edges(steps, window, narrowest, [phase.end for phase in phases])
        boxes = replace(boxes, ipu=boxes.ipu // ipus_to_a_row)
        boxes = share_boxes(boxes, rows_of(timeline, ipus_to_a_row), edges, least, ipus_to_a_row)
        boxes = _with_last(boxes, edges, narrowest)
    else:
        spans = boxes
        for pixels in _NARROWEST_BOXES:
            narrowest = math.ceil(pixels * 72 / DPI / points)
            boxes, shares = legible_boxes(spans, window, narrowest, least)
            if not shares:
                break
    syncs = timeline.start[timeline.rows(SpanKind.SYNC)]
    syncs = syncs[(syncs > window.start) & (syncs < window.end)]
    gaps = np.diff(syncs, prepend=window.start, append=window.end) * points
    # The first and the last have no neighbour on their outer side.
    gaps[0] = gaps[-1] = np.inf
    apart = (gaps[:-1] >= _NARROWEST_SYNC) & (gaps[1:] >= _NARROWEST_SYNC)
    syncs = syncs[apart] if 2 * np.count_nonzero(apart) >= len(syncs) else syncs[:0]
    cut = [(max(begin, window.start), min(end, window.end)) for begin, end in analysis.redone_work(timeline)]
    redone = tuple((begin, end) for begin, end in cut if begin < end)
    return Content(timeline, window, points, boxes, shares, syncs, phases, redone, ipus_to_a_row)


def _with_last(stacks: Boxes, edges: Integers, narrowest: float) -> Boxes:
    """Return the stacks of bins with ``edges``, the last bin at least ``narrowest`` wide, at the cost of those before.

    A weight update may be less than the lines hide that are drawn where it begins and where it ends.
    """
    if edges[-1] - edges[-2] >= narrowest / _NARROWEST_STEP or len(edges) == 2:
        return stacks
    last = edges[-1] - narrowest
    in_last = stacks.start >= edges[-2]
    start, end = np.minimum(stacks.start, last), np.minimum(stacks.end, last)
    moved = replace(stacks, start=start, end=np.where(in_last, stacks.end, end))
    return some(moved, np.flatnonzero(moved.start < moved.end))


def _turns(timeline: Timeline) -> Integers:
    """Return when the busiest stage begins each forward pass and, after the last of them, each backward pass.

    In point-to-point they stand for time-steps: where the pipeline runs evenly, every IPU does the same between two.
    """
    passes = timeline.rows(*timelines.PASSES)
    cycles = timeline.end[passes] - timeline.start[passes]
    busiest = np.bincount(timeline.stage[passes], cycles, len(timeline.info.stages)).argmax()
    own = passes[(timeline.stage[passes] == busiest) & (timeline.replica[passes] <= 0)]
    forward = timeline.kind[own] == SpanKind.FORWARD
    present, execution = np.unique(timeline.execution[own], return_inverse=True)
    last = np.zeros(len(present), dtype=np.int64)
    np.maximum.at(last, execution[forward], timeline.start[own][forward])
    behind = timelines.of_kinds(timeline.kind[own], (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT))
    behind &= timeline.start[own] > last[execution]
    turns: Integers = timeline.start[own[forward | behind]]
    return turns


def _without_gaps(steps: Integers, window: Window, widest: int) -> Integers:
    """Return ``steps`` with further ones wherever two of them, or a bound of the window, are farther apart than that.

    Where the busiest stage waits, bins would otherwise mix what others do at different times.
    """
    bounds = np.concatenate([[window.start], steps[(steps > window.start) & (steps < window.end)], [window.end]])
    more = np.maximum(np.diff(bounds) - 1, 0) // widest
    nth = np.arange(int(more.sum())) - np.repeat(np.cumsum(more) - more, more)
    filled: Integers = np.union1d(bounds, np.repeat(bounds[:-1], more) + (nth + 1) * widest)
    return filled
