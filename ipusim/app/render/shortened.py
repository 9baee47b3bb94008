"""Shorten long runs for pictures and files: keep only the first and last of repeated periods.

A Timeline stores equal periods of a long run once, as a block of rows with a number of repeats. Pictures break their
time axis at the periods without rows, and files leave them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ipusim.api import Span, Timeline, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.window import Break, Window
from ipusim.base.errors import OptionError

#: Minimum number of micro-batches drawn on either side of a break.
MICRO_BATCHES: Final = 8
#: Width of a break as share of the picture.
_ROOM: Final = 0.03
#: Maximum number of spans of a run that a file contains completely by default.
_MOST_SPANS: Final = 200_000


def shortened(timeline: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return the Timeline of a picture, in which each row is one span, and its window with breaks.

    Only runs with too many spans for a row each are shortened: every block keeps its first and last periods, with
    a break between them. Spans after a break are earlier in the picture than in the run; the window holds the offsets.
    ``part`` is the window's share of a picture's width.
    """
    return without_gaps(drawn_of(timeline, window), window, part)


def drawn_of(timeline: Timeline, window: Window) -> Timeline:
    """Return the same run with a row for each span shown in ``window``; other spans stay in repeated blocks."""
    return timeline.expanded_around(window.start, window.end, timelines.MOST_SPANS, MICRO_BATCHES)


def without_gaps(timeline: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return a Timeline in cycles of the picture, with the same rows, and its window.

    The picture's cycles leave out the periods without rows, and add room for a break in place of each.
    """
    if not timeline.repeats:
        return timeline, window
    offset, inside = 0, []
    total = 0
    for gap in sorted(gaps(timeline), key=lambda gap: gap.start):
        left, total = gap.start + total, total + gap.cycles
        if gap.start + total <= window.start:
            offset = total
        elif left < window.end:
            inside.append(gap)
    length = window.cycles - sum(gap.cycles for gap in inside)
    room = math.ceil(_ROOM / part * max(length, 1)) if inside else 0
    breaks = tuple(
        replace(gap, start=gap.start + offset + number * room, room=room) for number, gap in enumerate(inside)
    )
    view = replace(window, end=window.start + max(length, 1) + len(breaks) * room, breaks=breaks)
    return _shift_cycles(timeline, offset, inside, room), view


def _shift_cycles(timeline: Timeline, offset: int, inside: Sequence[Break], room: int) -> Timeline:
    """Return a Timeline without repeats, shifted by ``offset`` cycles and ``room`` for every break."""
    run, starts = timeline.contiguous(), [gap.start for gap in inside]
    start = run.start + offset + room * np.searchsorted(starts, run.start, side="right")
    end = run.end + offset + room * np.searchsorted(starts, run.end, side="left")
    columns = timeline.columns | {"start": start, "end": np.maximum(start, end)}
    return Timeline(timeline.info, np.stack([columns[name] for name in Span._fields]).T)


def with_omissions(title: str, window: Window) -> str:
    """Return a picture's title with a further line on omitted periods."""
    if not window.breaks:
        return title
    return f"{title}\nLeft out where the time axis breaks: {left_out_words(window)}"


def left_out_words(window: Window) -> str:
    """Return an explanation of the signs in a window's breaks: ``× 4,080 stands for ...``."""
    parts = ", ".join(f"{gap.sign} stands for {gap.words}" for gap in window.breaks)
    return f"{parts}, each like its neighbours"


def gaps(timeline: Timeline) -> Iterator[Break]:
    """Yield the breaks of a Timeline, in the cycles of the same run with a single copy of every block."""
    run = timeline.contiguous()
    for block in timeline.repeats:
        start = int(run.start[block.last]) if block.last < len(run) else run.makespan_cycles
        copies = block.times - 1
        yield Break(start, 0, copies * block.cycles, copies, block.length, block.executions)


class LeftOut(NamedTuple):
    """Periods without rows: start and end in cycles of the run, description, and the block that they repeat."""

    start: int
    end: int
    words: str
    block: timelines.Repeat


def in_periods(timeline: Timeline, *, full: bool = False) -> Timeline:
    """Return the Timeline of a file: complete, or only the first and last periods of blocks in a long run.

    Raises OptionError if ``full`` is set and the run exceeds the largest file.
    """
    spans = timeline.spans_in_all
    if full and timeline.repeats and spans > timelines.MOST_SPANS:
        raise OptionError(
            "full_trace",
            f"expected a run of at most {timelines.MOST_SPANS:,} spans, got a run of {spans:,}: leave this option out",
        )
    if full or spans <= _MOST_SPANS:
        return timeline.expanded()
    return timeline.expanded_around(0, timeline.makespan_cycles, 0, MICRO_BATCHES)


def left_out(timeline: Timeline) -> Iterator[LeftOut]:
    """Yield the periods without rows in order of time; outer periods include nested ones."""
    total = 0
    for gap, block in sorted(zip(gaps(timeline), timeline.repeats, strict=True), key=lambda pair: pair[0].start):
        start, total = gap.start + total, total + gap.cycles
        yield LeftOut(start, gap.start + total, gap.words, block)


def in_the_run(timeline: Timeline, cycles: Integers) -> Integers:
    """Convert cycles that count every block of a Timeline once to cycles of the run."""
    result = cycles.copy()
    for gap in gaps(timeline):
        result[cycles >= gap.start] += gap.cycles
    return result
