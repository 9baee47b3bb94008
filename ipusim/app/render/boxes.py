"""Compute the rectangles of an execution trace as arrays; no drawing.

A look is the colour and hatching of a kind of work, an entry of ``LOOKS``.

Spans get boxes while time-steps are wide enough to see. Otherwise a bin of whole time-steps becomes a stack with a box
per look. Heights are shares of time: every look keeps its exact area, and equal neighbouring bins merge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from ipusim.api import Timeline, timelines
from ipusim.app.render.arrays import Floats, Integers
from ipusim.app.render.style import ALWAYS_SHOWN, LOOK_OF_KIND
from ipusim.app.render.window import Window

#: Top of the strip for I/O tiles, as share of a row's height.
_IO_TILES_TOP: Final = 0.24
#: Bottom of the boxes above this strip, as share of a row's height.
_ABOVE_IO_TILES: Final = 0.30
#: Minimum size of a look's largest box, as share of the least visible size. A look with smaller boxes is left out,
#: since boxes of visible size would exaggerate it.
FAINT: Final = 1 / 8


@dataclass(frozen=True)
class Boxes:
    """Rectangles in columns of equal length.

    Attributes:
        look: index into LOOKS.
        ipu: logical IPU of the row, or number of the row if several IPUs share a row.
        start, end: cycles within the window.
        bottom, top: shares of the row's height, 0 to 1 from the bottom.
        stage, micro_batch: stage and micro-batch that the span computes; NONE for none or several.
    """

    look: Integers
    ipu: Integers
    start: Floats
    end: Floats
    bottom: Floats
    top: Floats
    stage: Integers
    micro_batch: Integers

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self.look)


def span_boxes(timeline: Timeline, window: Window) -> Boxes:
    """Return boxes of the spans on IPU rows, cut to the window.

    In a run with I/O tiles, their copies fill the lower part of each row, passes the upper part.
    """
    look = LOOK_OF_KIND[timeline.kind]
    rows = np.flatnonzero(
        (look >= 0) & (timeline.end > window.start) & (timeline.start < window.end) & (timeline.end > timeline.start)
    )
    source, ipu = timeline.per_ipu(rows)
    on_io_tiles = timelines.of_kinds(timeline.kind[source], timelines.IO_TILE_KINDS)
    foot = _ABOVE_IO_TILES if has_io_tiles(timeline) else 0.0
    return Boxes(
        look=look[source],
        ipu=ipu,
        start=np.maximum(timeline.start[source], window.start).astype(np.float64),
        end=np.minimum(timeline.end[source], window.end).astype(np.float64),
        bottom=np.where(on_io_tiles, 0.0, foot),
        top=np.where(on_io_tiles, _IO_TILES_TOP, 1.0),
        stage=timeline.stage[source],
        micro_batch=timeline.micro_batch[source],
    )


def has_io_tiles(timeline: Timeline) -> bool:
    """Return whether any IPU uses I/O tiles for host copies."""
    return bool(np.isin(timeline.kind, timelines.IO_TILE_KINDS).any())


def share_boxes(spans: Boxes, rows: int, edges: Integers, least: float = 0.0, ipus_to_a_row: int = 1) -> Boxes:
    """Return stacked boxes whose heights are shares of time by look and bin.

    The I/O tiles' strip and the part of the row above it have a stack each. Passes and weight updates always stay.

    Args:
        spans: boxes of :func:`span_boxes`.
        rows: number of rows.
        edges: bounds of the bins in rising cycles, from the window's start to its end.
        least: minimum height of a box, as share of a row; the highest box of its stack becomes lower instead. Looks
            whose boxes are all far lower are left out.
        ipus_to_a_row: IPUs in a row.
    """
    parts = []
    for foot in np.unique(spans.bottom):
        members = np.flatnonzero(spans.bottom == foot)
        height = float(spans.top[members[0]]) - foot
        stack = _stack_shares(select_boxes(spans, members), rows, edges, least / height, ipus_to_a_row)
        parts.append(replace(stack, bottom=foot + height * stack.bottom, top=foot + height * stack.top))
    if not parts:
        return spans
    return concatenate_boxes(parts)


def concatenate_boxes(parts: Sequence[Boxes]) -> Boxes:
    """Concatenate the columns of one or more ``parts``."""
    return Boxes(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _columns()})


def select_boxes(boxes: Boxes, members: Integers) -> Boxes:
    """Return the boxes at positions ``members``."""
    return Boxes(**{name: getattr(boxes, name)[members] for name in _columns()})


def _columns() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Boxes))


def _stack_shares(spans: Boxes, rows: int, edges: Integers, least: float, ipus_to_a_row: int) -> Boxes:
    """Return the boxes of a part of the rows, stacked over its whole height."""
    start, end = spans.start.astype(np.int64), spans.end.astype(np.int64)
    group = spans.ipu * len(timelines.LOOKS) + spans.look
    order = np.argsort(group, kind="stable")
    groups = rows * len(timelines.LOOKS)
    bounds = np.searchsorted(group[order], np.arange(groups + 1))
    area = np.zeros((groups, len(edges) - 1), dtype=np.int64)
    for number in range(groups):
        members = order[bounds[number] : bounds[number + 1]]
        if len(members):
            area[number] = np.diff(_cycles_since(start[members], edges) - _cycles_since(end[members], edges))
    share = (area / (ipus_to_a_row * np.diff(edges))).reshape(rows, len(timelines.LOOKS), -1)
    if least:
        share = _raise_shares(share, least)
    top = np.cumsum(share, axis=1)
    bottom = top - share
    return _merge_boxes(bottom, top, edges)


def _raise_shares(share: Floats, least: float) -> Floats:
    """Raise positive shares to ``least`` without changing the sums of stacks, shape (rows, LOOKS, bins)."""
    visible = share.max(axis=(0, 2), initial=0.0) >= FAINT * least
    visible[list(ALWAYS_SHOWN)] = True
    height = np.where((share > 0) & visible[:, np.newaxis], np.maximum(share, least), 0.0)
    surplus = height.sum(axis=1, keepdims=True) - share.sum(axis=1, keepdims=True)
    highest = height.argmax(axis=1)[:, np.newaxis]
    most = np.take_along_axis(height, highest, axis=1)
    np.put_along_axis(height, highest, np.where(most > 0, most - surplus, 0.0), axis=1)
    return height


def _cycles_since(times: Integers, edges: Integers) -> Integers:
    """Return for every edge the cycles since each earlier time, added up."""
    times = np.sort(times)
    count = np.searchsorted(times, edges)
    total: Integers = np.concatenate([[0], np.cumsum(times)])
    elapsed: Integers = edges * count - total[count]
    return elapsed


def _merge_boxes(bottom: Floats, top: Floats, edges: Integers) -> Boxes:
    """Turn bounds of shape (rows, LOOKS, bins) into boxes, and merge equal neighbours."""
    visible = top > bottom
    starts_box = np.ones_like(visible)
    starts_box[..., 1:] = (np.diff(bottom) != 0) | (np.diff(top) != 0) | (visible[..., 1:] != visible[..., :-1])
    ipu, look, first = np.nonzero(starts_box)
    # A merged box ends at the next box of its row and look, or at the last edge.
    last = np.append(first[1:], 0)
    last[last == 0] = visible.shape[-1]
    keep = visible[ipu, look, first]
    ipu, look, first, last = ipu[keep], look[keep], first[keep], last[keep]
    blank = np.full(len(ipu), timelines.NONE, dtype=np.int64)
    return Boxes(
        look=look.astype(np.int64),
        ipu=ipu.astype(np.int64),
        start=edges[first].astype(np.float64),
        end=edges[last].astype(np.float64),
        bottom=bottom[ipu, look, first],
        top=top[ipu, look, first],
        stage=blank,
        micro_batch=blank,
    )


def bin_edges(steps: Integers, window: Window, narrowest: float, cuts: Sequence[int] = ()) -> Integers:
    """Return bounds of bins of whole time-steps, at least ``narrowest`` cycles wide.

    ``steps`` are starts of time-steps, rising. To separate phases, a bin may end early at one of ``cuts`` (rising),
    with at least a quarter of that width. Windows without time-steps have bins of equal width. A window narrower than
    ``narrowest`` is a single bin.
    """
    inner = steps[(steps > window.start) & (steps < window.end)]
    if not len(inner):
        count = max(int(window.cycles / max(narrowest, 1.0)), 1)
        return np.unique(np.linspace(window.start, window.end, count + 1).astype(np.int64))
    edges = [window.start]
    while edges[-1] < window.end:
        position = bisect_left(inner, edges[-1] + narrowest)
        end = int(inner[position]) if position < len(inner) else window.end
        if window.end - end < narrowest:
            end = window.end
        next_cut = bisect_left(cuts, edges[-1] + narrowest / 4)
        if next_cut < len(cuts) and cuts[next_cut] < end + narrowest / 4:
            end = min(cuts[next_cut], window.end)
        edges.append(end)
    return np.array(edges, dtype=np.int64)
