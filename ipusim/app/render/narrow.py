"""Widen or merge boxes of a trace that are too narrow to see; no drawing.

A box narrower than a pixel would be visible at some positions only. Each narrow box is widened at the cost of the time
after it. Dense groups of narrow boxes, which would move far, become stacks: boxes as high as each look's share of the
time. A strip is a row of boxes or, in runs with I/O tiles, the lower part of a row (their copies) or its upper part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ipusim.app.render.arrays import Floats
from ipusim.app.render.boxes import FAINT, Boxes, concatenate_boxes, select_boxes, share_boxes
from ipusim.app.render.style import ALWAYS_SHOWN
from ipusim.app.render.window import Window

#: Maximum move of a box, in widths of the narrowest visible box.
_FARTHEST: Final = 4
#: Width of a bin of stacks, in widths of the narrowest visible box.
_BIN: Final = 2


def legible_boxes(spans: Boxes, window: Window, narrowest: int, least: float) -> tuple[Boxes, bool]:
    """Return legible boxes of ``spans``, and whether some are stacks of shares.

    Boxes of passes and weight updates are at least ``narrowest`` cycles wide, other boxes at least half as wide. A
    stacked box is at least ``least`` of a row high. Looks whose widest box is far narrower are left out, since widening
    would exaggerate them, and the box before takes their time. Passes and weight updates are never left out.
    """
    widths = spans.end - spans.start
    looks = np.setdiff1d(spans.look, ALWAYS_SHOWN)
    faint = [look for look in looks if widths[spans.look == look].max() < FAINT * narrowest]
    strip = spans.ipu * 2 + (spans.bottom > 0)  # a row has two strips in runs with I/O tiles
    order = np.lexsort((spans.start, strip))
    parts = [select_boxes(spans, order[:0])]
    stacks: list[Boxes] = []
    for members in np.split(order, np.flatnonzero(np.diff(strip[order])) + 1):
        visible = _remove_looks(select_boxes(spans, members), faint)
        if len(visible):  # empty if an IPU has no stage and only short copies
            separate, merged_stacks = _legible_strip(visible, window, narrowest, least)
            parts.append(separate)
            stacks += merged_stacks
    return concatenate_boxes([*parts, *stacks]), bool(stacks)


def _remove_looks(strip: Boxes, looks: list[int]) -> Boxes:
    """Remove the boxes of ``looks``; the adjacent box before takes their time."""
    end = strip.end.copy()
    is_kept = ~np.isin(strip.look, looks)
    holder = -1
    for position in range(len(strip)):
        if is_kept[position]:
            holder = position
        elif holder >= 0 and end[holder] == strip.start[position]:
            end[holder] = strip.end[position]
    return select_boxes(replace(strip, end=end), np.flatnonzero(is_kept))


def _legible_strip(strip: Boxes, window: Window, narrowest: int, least: float) -> tuple[Boxes, list[Boxes]]:
    """Return the separate boxes of a strip sorted by start, and the stacks that replace the others."""
    start, end = strip.start.copy(), strip.end.copy()
    firsts: list[int] = []  # first boxes of each chain of moved boxes
    free_from = -np.inf
    least_width = np.where(np.isin(strip.look, ALWAYS_SHOWN), narrowest, narrowest / 2)
    for position in range(len(strip)):
        if start[position] >= free_from:
            firsts.append(position)
        start[position] = max(start[position], free_from)
        free_from = end[position] = max(end[position], start[position] + least_width[position])
    _push_back(start, end, window.end, least_width)
    shift = np.where(start < window.start, np.inf, np.abs(start - strip.start))
    crowded: list[tuple[int, int]] = []
    for first, stop in zip(firsts, [*firsts[1:], len(strip)], strict=True):
        if shift[first:stop].max() > _FARTHEST * narrowest:
            touching = crowded and crowded[-1][1] == first
            crowded.append((crowded.pop()[0] if touching else first, stop))
    is_separate = np.ones(len(strip), dtype=bool)
    stacks = []
    for first, stop in crowded:
        high = min(int(end[stop - 1]), window.end)
        low = min(int(strip.start[first]), high - _BIN * narrowest)
        stacks.append(_stack(strip, low, high, narrowest, least))
        is_separate[first:stop] = False
        # Boxes before the stack need not move: they end where they did, and at the latest where the stack begins.
        end[:first] = np.minimum(end[:first], low)
        if first:
            end[first - 1] = max(end[first - 1], min(strip.end[first - 1], low))
    is_separate &= start < end
    return select_boxes(replace(strip, start=start, end=end), np.flatnonzero(is_separate)), stacks


def _push_back(start: Floats, end: Floats, last: float, least_width: Floats) -> None:
    """Move boxes that end after ``last`` before it, pushing earlier boxes back."""
    for position in reversed(range(len(start))):
        if end[position] <= last:
            return
        end[position] = last
        last = start[position] = min(start[position], last - least_width[position])


def _stack(strip: Boxes, low: int, high: int, narrowest: int, least: float) -> Boxes:
    """Return stacks of shares for the boxes of a strip between two cycles."""
    low = max(low, int(strip.start[0]))
    inside = np.flatnonzero((strip.end > low) & (strip.start < high))
    part = replace(strip, start=np.maximum(strip.start, low), end=np.minimum(strip.end, high))
    part = replace(select_boxes(part, inside), ipu=np.zeros(len(inside), dtype=np.int64))
    bins = max((high - low) // (_BIN * narrowest), 1)
    stack = share_boxes(part, 1, np.linspace(low, high, bins + 1).astype(np.int64), least)
    return replace(stack, ipu=np.full(len(stack), strip.ipu[0]))
