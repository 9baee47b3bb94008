"""What files of a long run leave out of it: all but the first and the last periods of what repeats itself."""

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
    """Return what a file has of a run: all of it in rows, or of very many spans the first and last periods of blocks.

    Raises OptionError for a ``full`` one of more spans than a file may have.
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
    """Yield the periods that are no rows of a Timeline, in order of time; those within others are told with them."""
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
