"""Boxes that are too narrow to see, widened or merged; no drawing.

Whether a box narrower than a pixel is visible would depend on its position. Here
it is widened at the cost of the time after it; where so many such boxes are close
together that they would move far, stacks of shares replace them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ipusim.app.render.arrays import Floats
from ipusim.app.render.boxes import FAINT, Boxes, concatenated, share_boxes, some
from ipusim.app.render.style import ALWAYS_SHOWN
from ipusim.app.render.window import Window

#: How far a box may move, and how wide a bin of stacks is, in widths of the narrowest box that can be seen.
_FARTHEST: Final = 4
_BIN: Final = 2


def legible_boxes(spans: Boxes, window: Window, narrowest: int, least: float) -> tuple[Boxes, bool]:
    """Return the boxes of ``spans``, each wide enough to see, and whether some are stacks of shares.

    What an IPU does with its stage is at least ``narrowest`` cycles wide, anything else
    half of that; in a stack, no box is lower than ``least``, in parts of a row. A look
    whose widest box is far narrower is left out, and the box before it has its time:
    widened, it would seem many times what it is. Passes and weight updates never are.
    """
    widths = spans.end - spans.start
    looks = np.setdiff1d(spans.look, ALWAYS_SHOWN)
    faint = [look for look in looks if widths[spans.look == look].max() < FAINT * narrowest]
    strip = spans.ipu * 2 + (spans.bottom > 0)  # a row of a run with I/O tiles has two strips
    order = np.lexsort((spans.start, strip))
    parts = [some(spans, order[:0])]
    stacks: list[Boxes] = []
    for members in np.split(order, np.flatnonzero(np.diff(strip[order])) + 1):
        seen = _without(some(spans, members), faint)
        if len(seen):  # an IPU without a stage may have nothing but its part in short copies
            alone, merged = _legible_strip(seen, window, narrowest, least)
            parts.append(alone)
            stacks += merged
    return concatenated([*parts, *stacks]), bool(stacks)


def _without(strip: Boxes, looks: list[int]) -> Boxes:
    """Return a strip without the boxes of ``looks``, whose time is added to the adjacent box before them."""
    end = strip.end.copy()
    remaining = ~np.isin(strip.look, looks)
    holder = -1
    for position in range(len(strip)):
        if remaining[position]:
            holder = position
        elif holder >= 0 and end[holder] == strip.start[position]:
            end[holder] = strip.end[position]
    return some(replace(strip, end=end), np.flatnonzero(remaining))


def _legible_strip(strip: Boxes, window: Window, narrowest: int, least: float) -> tuple[Boxes, list[Boxes]]:
    """Return the boxes of one strip, which rise: those that have a position of their own, and stacks."""
    start, end = strip.start.copy(), strip.end.copy()
    firsts: list[int] = []  # of the runs of boxes that each have moved because of the one before
    free = -np.inf
    least_width = np.where(np.isin(strip.look, ALWAYS_SHOWN), narrowest, narrowest / 2)
    for position in range(len(strip)):
        if start[position] >= free:
            firsts.append(position)
        start[position] = max(start[position], free)
        free = end[position] = max(end[position], start[position] + least_width[position])
    _push_back(start, end, window.end, least_width)
    moved = np.where(start < window.start, np.inf, np.abs(start - strip.start))
    crowded: list[tuple[int, int]] = []
    for first, stop in zip(firsts, [*firsts[1:], len(strip)], strict=True):
        if moved[first:stop].max() > _FARTHEST * narrowest:
            touching = crowded and crowded[-1][1] == first
            crowded.append((crowded.pop()[0] if touching else first, stop))
    alone = np.ones(len(strip), dtype=bool)
    stacks = []
    for first, stop in crowded:
        high = min(int(end[stop - 1]), window.end)
        low = min(int(strip.start[first]), high - _BIN * narrowest)
        stacks.append(_stack(strip, low, high, narrowest, least))
        alone[first:stop] = False
        # What stood in the way of boxes that are stacked now has its own end again.
        end[:first] = np.minimum(end[:first], low)
        if first:
            end[first - 1] = max(end[first - 1], min(strip.end[first - 1], low))
    alone &= start < end
    return some(replace(strip, start=start, end=end), np.flatnonzero(alone)), stacks


def _push_back(start: Floats, end: Floats, last: float, least_width: Floats) -> None:
    """Move boxes that end after ``last`` before it, and those that are in their way."""
    for position in reversed(range(len(start))):
        if end[position] <= last:
            return
        end[position] = last
        last = start[position] = min(start[position], last - least_width[position])


def _stack(strip: Boxes, low: int, high: int, narrowest: int, least: float) -> Boxes:
    """Return stacks of shares for the boxes between two cycles of a strip."""
    low = max(low, int(strip.start[0]))
    inside = np.flatnonzero((strip.end > low) & (strip.start < high))
    cut = replace(strip, start=np.maximum(strip.start, low), end=np.minimum(strip.end, high))
    cut = replace(some(cut, inside), ipu=np.zeros(len(inside), dtype=np.int64))
    bins = max((high - low) // (_BIN * narrowest), 1)
    stacked = share_boxes(cut, 1, np.linspace(low, high, bins + 1).astype(np.int64), least)
    return replace(stacked, ipu=np.full(len(stacked), strip.ipu[0]))
