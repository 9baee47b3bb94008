"""Periods of a long run that files leave out: of repeated periods, all but the first and the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.api import Timeline, timelines
from ipusim.app.render.shortened import MICRO_BATCHES, gaps
from ipusim.base.errors import OptionError

Integers = npt.NDArray[np.int64]

#: Spans up to which a file has all of a run.
_MOST_SPANS: Final = 200_000


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
