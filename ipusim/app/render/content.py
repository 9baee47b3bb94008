"""Choose the boxes and lines of a Timeline at a given width, before drawing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ipusim.api import SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.boxes import Boxes, bin_edges, select_boxes, share_boxes, span_boxes
from ipusim.app.render.fold import rows_of
from ipusim.app.render.narrow import legible_boxes
from ipusim.app.render.style import DPI
from ipusim.app.render.window import Window

#: Maximum number of boxes in a picture with a box for each span.
_MOST_BOXES: Final = 12_000
#: Minimum average width of a time-step in such a picture, in pixels. Without time-steps, the same width is asked of the
#: time between two passes of the busiest stage.
_NARROWEST_STEP: Final = 4.0
#: Minimum box widths in pixels, tried in turn until no box has to be stacked.
_NARROWEST_BOXES: Final = (3.0, 2.0)
#: Minimum height of stacked boxes in pixels.
_LOWEST_BOX: Final = 1.6
#: Upper bound of this minimum, as share of a row.
_LARGEST_LOWEST: Final = 0.08
#: Minimum distance of a drawn sync point from both neighbours, in points of a figure.
_NARROWEST_SYNC: Final = 3.0
#: Distance from both neighbours that at least half of the sync points must have, for any of them to be drawn.
_USUAL_SYNC: Final = 10.0


@dataclass(frozen=True)
class Content:
    """Boxes and lines of one Timeline in a window.

    Attributes:
        timeline, window: the shown run and window.
        points: points of the figure for each cycle.
        boxes: rectangles.
        shares: whether some boxes are stacked shares of time, for lack of room.
        syncs: cycles of the drawn synchronisation points.
        phases: phases within the window.
        redone: begin and end of each interval of work repeated after an IPU failed.
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
        """Number of rows."""
        return rows_of(self.timeline, self.ipus_to_a_row)

    @property
    def phase_ends(self) -> list[int]:
        """Cycles within the window at which a phase ends, rising."""
        return sorted({phase.end for phase in self.phases if self.window.start < phase.end < self.window.end})


def phases_in(timeline: Timeline, window: Window) -> tuple[analysis.Phase, ...]:
    """Return the phases that overlap a window."""
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
    """Return the boxes and lines of ``timeline`` in ``window``.

    Args:
        timeline: the run.
        window: cycles to show.
        width_in: width in inches.
        coarser: factor on the least legible width of stacked bins.
        row_in: height of a row in inches.
        ipus_to_a_row: IPUs in a row, whose shares are added.
    """
    least = min(_LOWEST_BOX / (row_in * DPI), _LARGEST_LOWEST)
    points = width_in * 72 / window.cycles
    boxes = span_boxes(timeline, window)
    phases = phases_in(timeline, window)
    steps = analysis.time_steps(timeline).start if timeline.info.has_time_steps else _busiest_stage_starts(timeline)
    inside = int(np.count_nonzero((steps >= window.start) & (steps < window.end)))
    shares = len(boxes) > _MOST_BOXES or inside * _NARROWEST_STEP > width_in * DPI or ipus_to_a_row > 1
    if shares:
        narrowest = coarser * _NARROWEST_STEP * 72 / DPI / points
        if not timeline.info.has_time_steps:
            steps = _fill_gaps(steps, window, max(math.ceil(narrowest), 1))
        edges = bin_edges(steps, window, narrowest, [phase.end for phase in phases])
        boxes = replace(boxes, ipu=boxes.ipu // ipus_to_a_row)
        boxes = share_boxes(boxes, rows_of(timeline, ipus_to_a_row), edges, least, ipus_to_a_row)
        boxes = _widen_last_bin(boxes, edges, narrowest)
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
    # The outermost sync points have a neighbour on one side only.
    gaps[0] = gaps[-1] = np.inf
    least_gaps = np.minimum(gaps[:-1], gaps[1:])
    syncs = syncs[(least_gaps >= _NARROWEST_SYNC) & (2 * np.count_nonzero(least_gaps >= _USUAL_SYNC) >= len(syncs))]
    periods = [(max(begin, window.start), min(end, window.end)) for begin, end in analysis.redone_work(timeline)]
    redone = tuple((begin, end) for begin, end in periods if begin < end)
    return Content(timeline, window, points, boxes, shares, syncs, phases, redone, ipus_to_a_row)


def _widen_last_bin(stacks: Boxes, edges: Integers, narrowest: float) -> Boxes:
    """Widen the last bin to ``narrowest``, at the cost of earlier bins.

    Lines at a weight update's begin and end would hide a narrower bin.
    """
    if edges[-1] - edges[-2] >= narrowest / _NARROWEST_STEP or len(edges) == 2:
        return stacks
    last = edges[-1] - narrowest
    in_last = stacks.start >= edges[-2]
    start, end = np.minimum(stacks.start, last), np.minimum(stacks.end, last)
    boxes = replace(stacks, start=start, end=np.where(in_last, stacks.end, end))
    return select_boxes(boxes, np.flatnonzero(boxes.start < boxes.end))


def _busiest_stage_starts(timeline: Timeline) -> Integers:
    """Return the starts of the busiest stage's forward passes, and of its backward passes after the last of these.

    They replace time-steps in point-to-point: in steady state every IPU repeats its work from one start to the next.
    """
    passes = timeline.rows(*timelines.PASSES)
    cycles = timeline.end[passes] - timeline.start[passes]
    busiest = np.bincount(timeline.stage[passes], cycles, len(timeline.info.stages)).argmax()
    members = passes[(timeline.stage[passes] == busiest) & (timeline.replica[passes] <= 0)]
    forward = timeline.kind[members] == SpanKind.FORWARD
    present, execution = np.unique(timeline.execution[members], return_inverse=True)
    last = np.zeros(len(present), dtype=np.int64)
    np.maximum.at(last, execution[forward], timeline.start[members][forward])
    is_late_backward = timelines.of_kinds(timeline.kind[members], (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT))
    is_late_backward &= timeline.start[members] > last[execution]
    starts: Integers = timeline.start[members[forward | is_late_backward]]
    return starts


def _fill_gaps(steps: Integers, window: Window, widest: int) -> Integers:
    """Add steps until neighbours are at most ``widest`` cycles apart.

    Otherwise, while the busiest stage waits, one bin would mix different work of other stages.
    """
    bounds = np.concatenate([[window.start], steps[(steps > window.start) & (steps < window.end)], [window.end]])
    added_counts = np.maximum(np.diff(bounds) - 1, 0) // widest
    nth = np.arange(int(added_counts.sum())) - np.repeat(np.cumsum(added_counts) - added_counts, added_counts)
    edges: Integers = np.union1d(bounds, np.repeat(bounds[:-1], added_counts) + (nth + 1) * widest)
    return edges
