"""Long executions in few periods: what a picture leaves out where a run repeats itself, and where it says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ipusim.api import Span, Timeline, timelines
from ipusim.app.render.window import Break, Window

#: Micro-batches that are drawn on either side of a break, at least.
MICRO_BATCHES: Final = 8
#: Part of what is drawn that a break takes, on the width of a picture.
_ROOM: Final = 0.03


def shortened(timeline: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return what a picture shows of a run in a window, every span a row of its own.

    Up to the number of spans that a run without blocks may have, that is all of the window. Of more, the first and the
    last periods of each block are there, with a break between them: behind it spans are in the picture as much earlier
    than in the run as the returned window says. ``part`` of a picture's width is that of the window.
    """
    return without_gaps(drawn_of(timeline, window), window, part)


def drawn_of(timeline: Timeline, window: Window) -> Timeline:
    """Return the same run with a row for each span that a picture shows in a window; the rest is left in blocks."""
    return timeline.around(window.start, window.end, timelines.MOST_SPANS, MICRO_BATCHES)


def without_gaps(some: Timeline, window: Window, part: float = 1.0) -> tuple[Timeline, Window]:
    """Return the rows of a Timeline in the order of the picture, as :func:`shortened` does; row by row the same."""
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
    """Return a run without what it leaves out, ``later`` by so many cycles, with room for each break ``inside``."""
    once, at = timeline.contiguous(), [gap.at for gap in inside]
    start = once.start + later + room * np.searchsorted(at, once.start, side="right")
    end = once.end + later + room * np.searchsorted(at, once.end, side="left")
    columns = timeline.columns | {"start": start, "end": np.maximum(start, end)}
    return Timeline(timeline.info, np.stack([columns[name] for name in Span._fields]).T)


def told(title: str, window: Window) -> str:
    """Return the title of a picture with what it leaves out, in a line of its own."""
    if not window.breaks:
        return title
    return f"{title}\nLeft out where the time axis breaks: {left_out_words(window)}"


def left_out_words(window: Window) -> str:
    """Return what stands for what in the breaks of a window."""
    parts = ", ".join(f"{gap.sign} stands for {gap.words}" for gap in window.breaks)
    return f"{parts}, each as those drawn beside it"


def gaps(timeline: Timeline) -> Iterator[Break]:
    """Yield where a Timeline leaves out copies of its blocks, in cycles of the run with each block once."""
    once = timeline.contiguous()
    for block in timeline.repeats:
        at = int(once.start[block.last]) if block.last < len(once) else once.makespan_cycles
        copies = block.times - 1
        yield Break(at, 0, copies * block.cycles, copies, block.length, block.executions)
