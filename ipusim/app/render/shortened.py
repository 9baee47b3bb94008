"""Long runs in few periods: of repeated ones the first and the last.

Pictures have breaks of their time axis in place of the others, and files leave them out.
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

#: Micro-batches that are drawn on either side of a break, at least.
MICRO_BATCHES: Final = 8
#: Width of a break as a share of the picture's width.
_ROOM: Final = 0.03
#: Spans up to which a file has all of a run.
_MOST_SPANS: Final = 200_000


def shortened(timeline: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return the Timeline of a picture of a run in a window, without blocks, and its window with breaks.

    Up to the number of spans that a Timeline without blocks may have, nothing is left out. Of more spans, each block
    has its first and last periods with a break between them; spans after a break are earlier in the picture than in
    the run, as the returned window says. ``part`` is the window's share of a picture's width.
    """
    return without_gaps(drawn_of(timeline, window), window, part)


def drawn_of(timeline: Timeline, window: Window) -> Timeline:
    """Return the same run with a row for each span that a picture of ``window`` shows; all others stay in blocks."""
    return timeline.around(window.start, window.end, timelines.MOST_SPANS, MICRO_BATCHES)


def without_gaps(some: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return a Timeline with the cycles of a picture, as :func:`shortened` does, row for row; and its window."""
    if not some.repeats:
        return some, window
    before, inside = 0, []
    passed = 0
    for gap in sorted(gaps(some), key=lambda gap: gap.at):
        left, passed = gap.at + passed, passed + gap.cycles
        if gap.at + passed <= window.start:
            before = passed
        elif left < window.end:
            inside.append(gap)
    length = window.cycles - sum(gap.cycles for gap in inside)
    room = math.ceil(_ROOM / part * max(length, 1)) if inside else 0
    breaks = tuple(replace(gap, at=gap.at + before + number * room, room=room) for number, gap in enumerate(inside))
    shown = replace(window, end=window.start + max(length, 1) + len(breaks) * room, breaks=breaks)
    return _drawn(some, before, inside, room), shown


def _drawn(timeline: Timeline, later: int, inside: Sequence[Break], room: int) -> Timeline:
    """Return a Timeline without its repeats, ``later`` cycles later, with ``room`` cycles for each break ``inside``."""
    once, at = timeline.contiguous(), [gap.at for gap in inside]
    start = once.start + later + room * np.searchsorted(at, once.start, side="right")
    end = once.end + later + room * np.searchsorted(at, once.end, side="left")
    columns = timeline.columns | {"start": start, "end": np.maximum(start, end)}
    return Timeline(timeline.info, np.stack([columns[name] for name in Span._fields]).T)


def with_omissions(title: str, window: Window) -> str:
    """Return the title of a picture with a further line on the periods that its breaks leave out."""
    if not window.breaks:
        return title
    return f"{title}\nLeft out where the time axis breaks: {left_out_words(window)}"


def left_out_words(window: Window) -> str:
    """Return a legend of the signs in the breaks of a window: ``× 4,080 stands for ...``."""
    parts = ", ".join(f"{gap.sign} stands for {gap.words}" for gap in window.breaks)
    return f"{parts}, each as those drawn beside it"


def gaps(timeline: Timeline) -> Iterator[Break]:
    """Yield where a Timeline leaves out copies of its blocks, in cycles of the run with each block once."""
    once = timeline.contiguous()
    for block in timeline.repeats:
        at = int(once.start[block.last]) if block.last < len(once) else once.makespan_cycles
        copies = block.times - 1
        yield Break(at, 0, copies * block.cycles, copies, block.length, block.executions)


class LeftOut(NamedTuple):
    """Periods that a file leaves out: from which cycle of the run to which, how many of what, and of which block."""

    start: int
    end: int
    words: str
    block: timelines.Repeat


def in_periods(timeline: Timeline, *, full: bool = False) -> Timeline:
    """Return the Timeline of a file: all spans in rows, or of a very long run the first and last periods of its blocks.

    Raises OptionError where ``full`` is set and the run has more spans than a file may have.
    """
    spans = timeline.spans_in_all
    if full and timeline.repeats and spans > timelines.MOST_SPANS:
        raise OptionError(
            "full_trace",
            f"expected a run of at most {timelines.MOST_SPANS:,} spans, got one of {spans:,}: leave it out",
        )
    if full or spans <= _MOST_SPANS:
        return timeline.expanded()
    return timeline.around(0, timeline.makespan_cycles, 0, MICRO_BATCHES)


def left_out(timeline: Timeline) -> Iterator[LeftOut]:
    """Yield the periods that a Timeline has no rows of, in order of time; nested ones are part of the outer ones."""
    passed = 0
    for gap, block in sorted(zip(gaps(timeline), timeline.repeats, strict=True), key=lambda pair: pair[0].at):
        start, passed = gap.at + passed, passed + gap.cycles
        yield LeftOut(start, gap.at + passed, gap.words, block)


def in_the_run(timeline: Timeline, cycles: Integers) -> Integers:
    """Return cycles of a Timeline with each of its blocks once as cycles of the run."""
    placed = cycles.copy()
    for gap in gaps(timeline):
        placed[cycles >= gap.at] += gap.cycles
    return placed
