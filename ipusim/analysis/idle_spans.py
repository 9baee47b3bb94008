"""List every IPU's spans one after the other, with the cause of idle spans and the span that ended each wait."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.critical_path import WAITS
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind, by_number, kinds_with, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import NONE, Timeline

#: All causes; an array stores a cause as index into this tuple.
CAUSES: Final = tuple(Idle)
_ON_IPU: Final = kinds_with(lambda row: row.track is Track.IPU)
#: Every cause's index into the tuple CAUSES.
NUMBER: Final = {cause: number for number, cause in enumerate(CAUSES)}
#: Cause of idle time by span kind, on the span's IPU; NONE for arithmetic and waits.
_CAUSE_OF_KIND: Final = by_number(
    lambda row: NONE if row.use is None or row.use.idle is None else NUMBER[row.use.idle], np.int64
)
#: Cause of a wait by kind of the span that ended it; weight updates are a cause as well.
WAITS_FOR: Final = np.where(
    np.arange(len(_CAUSE_OF_KIND)) == SpanKind.WEIGHT_UPDATE, NUMBER[Idle.UPDATE], _CAUSE_OF_KIND
)


#: Columns of intervals: ipu, start, end, cause, stage, and index of a span in IpuSpans. Start and end are cycles of
#: the Timeline; the sum with the span's ``shift_cycles`` gives cycles of the run. Index NONE needs no shift.
Intervals = tuple[Column, Column, Column, Column, Column, Column]


class IpuSpans:
    """Spans of every IPU with a stage, one after the other; sorted by IPU, then by time.

    Attributes:
        timeline: Timeline in which every repeated block of rows is stored once.
        row: row of the Timeline.
        ipu, start, end, kind, stage: columns of the spans.
        first: index of every IPU's first span, followed by the total number of spans; shape (IPUs + 1,).
        last: mask of every IPU's last span.
        shift_cycles: cycles from a span's time in the Timeline, with earlier blocks stored once, to its time in the
            run.
        times: number of spans that this entry represents.
    """

    def __init__(self, with_ends: Timeline) -> None:
        """Sort spans by IPU. Spans of all IPUs appear on every IPU; spans lasting zero cycles are dropped.

        In the Timeline ``with_ends``, first and last copies of repeated blocks have rows of their own.
        """
        self.timeline = timeline = with_ends.contiguous()
        rows = np.flatnonzero(of_kinds(timeline.kind, _ON_IPU) & (timeline.start < timeline.end))
        row, ipu = timeline.per_ipu(rows)
        holds_stage = np.isin(np.arange(len(timeline.info.ipus)), list(timeline.info.stages_of_ipu))
        row, ipu = row[holds_stage[ipu]], ipu[holds_stage[ipu]]
        order = np.lexsort((timeline.start[row], ipu))
        self.row, self.ipu = row, ipu = row[order], ipu[order]
        self.start, self.end = timeline.start[row], timeline.end[row]
        self.kind, self.stage = timeline.kind[row], timeline.stage[row]
        self.first = np.searchsorted(ipu, np.arange(len(timeline.info.ipus) + 1))
        self.last = np.append(ipu[1:] != ipu[:-1], [True])[: len(ipu)]
        self.shift_cycles, self.times = (with_ends.start - timeline.start)[row], with_ends.weights[row]


def non_arithmetic(track: IpuSpans) -> Intervals:
    """Return the spans of IPUs that are not arithmetic, such as copies, as idle intervals."""
    cause = np.where(_waits_for_sum(track), NUMBER[Idle.UPDATE], _CAUSE_OF_KIND[track.kind])
    index = np.flatnonzero(cause != NONE)
    return track.ipu[index], track.start[index], track.end[index], cause[index], np.full(len(index), NONE), index


def _waits_for_sum(track: IpuSpans) -> npt.NDArray[np.bool_]:
    """Mask waits just before or after the sum over hosts; like the sum, such waits belong to the weight update."""
    is_sum, has_next = track.kind == SpanKind.HOST_SUM, ~track.last[:-1]
    is_update_wait = np.zeros(len(is_sum), dtype=np.bool_)
    is_update_wait[:-1] |= is_sum[1:] & has_next
    is_update_wait[1:] |= is_sum[:-1] & has_next
    is_update_wait &= track.kind == SpanKind.HOST_WAIT
    is_update_wait &= track.timeline.time_step[track.row] >= track.timeline.info.time_steps
    return is_update_wait


def ended_waits(track: IpuSpans) -> tuple[Column, Column]:
    """Return waits and their releasing spans; NONE for unknown spans."""
    timeline, index = track.timeline, np.flatnonzero(of_kinds(track.kind, WAITS) & (_CAUSE_OF_KIND[track.kind] == NONE))
    successor = np.where(track.last[index], NONE, track.row[np.minimum(index + 1, len(track.row) - 1)])
    releases = np.where(successor == NONE, NONE, timeline.cause[successor])
    # A span of zero cycles, such as free host work, only passes a release on, so its own cause counts.
    while (is_passing_on := (releases != NONE) & (timeline.start[releases] == timeline.end[releases])).any():
        releases = np.where(is_passing_on, timeline.cause[releases], releases)
    waits = of_kinds(timeline.kind, WAITS)
    is_valid = (releases != NONE) & (timeline.end[releases] == track.end[index]) & ~waits[releases]
    is_valid &= timeline.ipu[releases] >= 0
    spans = np.where(is_valid, releases, NONE)
    for number in np.flatnonzero(~is_valid).tolist():
        spans[number] = _span_ending_wait(timeline, int(track.end[index[number]]), int(track.ipu[index[number]]), waits)
    return index, spans


def _span_ending_wait(timeline: Timeline, cycle: int, ipu: int, waits: npt.NDArray[np.bool_]) -> int:
    """Find a span that ended together with a wait of ``ipu``; spans of the same replica come first."""
    is_ending = (timeline.end == cycle) & (timeline.start < cycle) & ~waits & (timeline.ipu >= 0)
    rows = np.flatnonzero(is_ending & ((timeline.ipu != ipu) | ~of_kinds(timeline.kind, _ON_IPU)))
    if not len(rows):
        return NONE
    rows_of_replica = rows[timeline.replica[rows] == ipu // timeline.info.shards]
    return int(rows_of_replica[-1] if len(rows_of_replica) else rows[-1])


def spans_during(track: IpuSpans, ipu: Column, start: Column, end: Column) -> tuple[Column, Column]:
    """Find spans of IPUs that overlap intervals. Returns indices of intervals and of spans."""
    first, last = np.zeros((2, len(ipu)), dtype=np.int64)
    for number, (begin, finish) in enumerate(pairwise(track.first.tolist())):
        is_ipu = ipu == number
        first[is_ipu] = begin + np.searchsorted(track.end[begin:finish], start[is_ipu], side="right")
        last[is_ipu] = begin + np.searchsorted(track.start[begin:finish], end[is_ipu], side="left")
    count = np.maximum(last - first, 0)
    interval = np.repeat(np.arange(len(ipu)), count)
    nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return interval, first[interval] + nth
