"""Why each IPU is idle: every cycle in which it does none of its stages' arithmetic, with its cause.

What an IPU does by itself (a copy, a sync, a host transfer) is its own cause. A wait is for what released it: where
another IPU then carried out anything but passes, that is the cause (the host that kept it or its I/O tiles, its
Streaming Memory, the tensor on its way); where it ran passes or waited itself, the wait is for passes of other IPUs.
How much of that is fill and drain, gaps in main, imbalance of stages or another part, the waterfall tells
(:func:`ipu_time`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.critical_path import WAITS
from ipusim.analysis.executions import find_execution
from ipusim.analysis.waterfall import Waterfall
from ipusim.base.looks import Look
from ipusim.pipeline.ops import Pass
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import (
    COMPUTE_KINDS,
    IO_TILE_KINDS,
    KIND_OF_PASS,
    PASSES,
    SEND_KINDS,
    STREAMED_KINDS,
    SpanKind,
    by_number,
    kinds_with,
    of_kinds,
)
from ipusim.timeline.repeats import Column
from ipusim.timeline.time_parts import COMPUTES, Idle, TimePart
from ipusim.timeline.timeline import NONE, Timeline

#: Every cause, by its number.
CAUSES: Final = tuple(Idle)
_ON_IPU: Final = kinds_with(lambda row: row.track is Track.IPU)
_NUMBER: Final = {cause: number for number, cause in enumerate(CAUSES)}
#: Of each kind the cause that it is itself; NONE for arithmetic and waits. A weight update keeps other IPUs waiting.
_OWN: Final = by_number(
    lambda row: NONE if row.use is None or row.use.idle is None else _NUMBER[row.use.idle], np.int64
)
_WAITS_FOR: Final = np.where(np.arange(len(_OWN)) == SpanKind.WEIGHT_UPDATE, _NUMBER[Idle.UPDATE], _OWN)


@dataclass(frozen=True, eq=False)
class IdleCauses:
    """Every idle interval of each IPU; columns of one length, sorted by IPU and start.

    Of a run that repeats itself, one interval stands for those of several copies of a block.

    Attributes:
        ipu: logical IPU of the device.
        start, end: in cycles.
        cause: index into :data:`CAUSES`.
        stage: whose pass another IPU runs meanwhile, which this one waits for; -1 where there is none.
        times: how many intervals each stands for, itself included.
        busy: cycles of arithmetic of each IPU, weight updates too; shape (IPUs,).
        recomputing, updating: those of it in which passes compute activations again, and of weight updates.
        window_cycles: of what was looked at; busy and idle cycles add up to it for each IPU.
    """

    ipu: Column
    start: Column
    end: Column
    cause: Column
    stage: Column
    times: Column
    busy: Column
    recomputing: Column
    updating: Column
    window_cycles: int

    @property
    def causes(self) -> tuple[str, ...]:
        """Every cause in words, in the order of the columns of :attr:`cycles`."""
        return tuple(cause.words for cause in CAUSES)

    @cached_property
    def cycles(self) -> Column:
        """Idle cycles by cause, shape (IPUs, causes)."""
        table = np.zeros((len(self.busy), len(CAUSES)), dtype=np.int64)
        np.add.at(table, (self.ipu, self.cause), (self.end - self.start) * self.times)
        return table


def ipu_time(idle: IdleCauses, waterfall: Waterfall | None) -> tuple[tuple[Look, Column], ...]:
    """Return the parts of each IPU's time: looks with cycles of shape (IPUs,), which add up to the window.

    The waits of an IPU for passes of other IPUs are divided in this order:

    - fill and drain, then gaps in main: as many cycles as the waterfall has of them. Balanced IPUs wait equally long.
    - imbalance of stages: further waits of a run of passes alone. None if the waterfall has no imbalance.
    - another part of the waterfall: the cycles of that part that the IPU does not spend itself, as passes of other IPUs
      then come later.

    The remaining waits stay waits for passes of other IPUs.

    Args:
        idle: of the window.
        waterfall: of the window; None where it is not known, and all waits for passes are no more than that.
    """
    cycles = dict(zip(CAUSES, idle.cycles.T, strict=True))
    computes, waits = idle.busy - idle.recomputing - idle.updating, cycles[Idle.PASSES]
    parts = {
        TimePart.FILL_AND_DRAIN: np.zeros_like(waits),
        TimePart.GAPS_IN_MAIN: np.zeros_like(waits),
        TimePart.IMBALANCE: np.zeros_like(waits),
        TimePart.COPIES: cycles[Idle.COPIES],
        TimePart.RECOMPUTATION: idle.recomputing,
        TimePart.HOST: cycles[Idle.HOST],
        TimePart.STREAMING: cycles[Idle.STREAMING],
        TimePart.UPDATE: cycles[Idle.UPDATE] + idle.updating,
        TimePart.DISTURBANCES: cycles[Idle.DISTURBANCES],
    }
    if waterfall is not None:
        whole = waterfall.cycles
        balanced_waits = whole[TimePart.FILL_AND_DRAIN] + whole[TimePart.GAPS_IN_MAIN]
        waits_alone = whole[TimePart.USEFUL] + balanced_waits + whole[TimePart.IMBALANCE] - computes
        missing: dict[TimePart, Column | int] = {part: whole[part] - own for part, own in parts.items()}
        missing[TimePart.IMBALANCE] = waits_alone - balanced_waits if whole[TimePart.IMBALANCE] else 0
        for part, less in missing.items():
            moved = np.minimum(waits, np.maximum(less, 0))
            parts[part], waits = parts[part] + moved, waits - moved
    return (
        (COMPUTES, computes),
        (Idle.PASSES.value, waits),
        *((part.value, column) for part, column in parts.items()),
        (Idle.NO_STAGE.value, cycles[Idle.NO_STAGE]),
    )


def idle_causes(
    timeline: Timeline, execution: int | None = None, shares: Mapping[tuple[Pass, int], Fraction] | None = None
) -> IdleCauses:
    """Return why each IPU of the device is idle, over the whole run or in one execution with its weight update.

    Args:
        timeline: the run.
        execution: which one; None for the whole run.
        shares: which part of a stage's passes of a kind computes activations again, where it is a part of them.

    Raises TimelineError for an execution that the Timeline does not hold.
    """
    track = _Track(timeline.peeled(execution))
    begin, finish = 0, int((track.end + track.later).max(initial=0))
    if execution is not None:
        chosen = find_execution(timeline, execution)
        begin, finish = chosen.start, chosen.end
    parts = [_own(track), _waits(track), *_nothing(track, finish)]
    ipu, start, end, cause, stage, of = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    later, times = (np.append(column, extra)[of] for column, extra in ((track.later, 0), (track.times, 1)))
    start, end = np.maximum(start + later, begin), np.minimum(end + later, finish)
    inside = np.flatnonzero(start < end)
    inside = inside[np.lexsort((start[inside], ipu[inside]))]
    kinds = (COMPUTE_KINDS, (SpanKind.RECOMPUTE,), (SpanKind.WEIGHT_UPDATE,))
    busy, recomputing, updating = (_worked(track, of_kinds(track.kind, of), begin, finish) for of in kinds)
    for (of_pass, number), share in (shares or {}).items():
        rows = (track.kind == KIND_OF_PASS[of_pass]) & (track.stage == number)
        recomputing += _worked(track, rows, begin, finish) * share.numerator // share.denominator
    ipu, start, end, cause, stage, times = (column[inside] for column in (ipu, start, end, cause, stage, times))
    return IdleCauses(ipu, start, end, cause, stage, times, busy, recomputing, updating, finish - begin)


def _worked(track: _Track, rows: npt.NDArray[np.bool_], begin: int, finish: int) -> Column:
    """Return the cycles of each IPU in some spans, from one cycle to another."""
    cycles = np.zeros(len(track.timeline.info.ipus), dtype=np.int64)
    worked = np.minimum((track.end + track.later)[rows], finish) - np.maximum((track.start + track.later)[rows], begin)
    np.add.at(cycles, track.ipu[rows], np.maximum(worked, 0) * track.times[rows])
    return cycles


#: Columns of intervals: ipu, start, end, cause, stage, and in which span of a track; NONE for none, with true times.
_Intervals = tuple[Column, Column, Column, Column, Column, Column]


class _Track:
    """The spans of each IPU that holds a stage, one after the other; sorted by IPU, then by time.

    Attributes:
        timeline: that they are of, with each block once.
        row: of the Timeline.
        ipu, start, end, kind, stage: of each.
        first: where the spans of each IPU begin, with the end of all behind it, shape (IPUs + 1,).
        last: of each span, whether it is its IPU's last.
        later: by how many cycles each is later in the run.
        times: how many spans each stands for.
    """

    def __init__(self, peeled: Timeline) -> None:
        """Put the spans of each IPU in a row, those of all IPUs on each, and leave out those that take no time."""
        self.timeline = timeline = peeled.contiguous()
        rows = np.flatnonzero(of_kinds(timeline.kind, _ON_IPU) & (timeline.start < timeline.end))
        row, ipu = timeline.per_ipu(rows)
        holds = np.isin(np.arange(len(timeline.info.ipus)), list(timeline.info.stages_of_ipu))
        row, ipu = row[holds[ipu]], ipu[holds[ipu]]
        order = np.lexsort((timeline.start[row], ipu))
        self.row, self.ipu = row, ipu = row[order], ipu[order]
        self.start, self.end = timeline.start[row], timeline.end[row]
        self.kind, self.stage = timeline.kind[row], timeline.stage[row]
        self.first = np.searchsorted(ipu, np.arange(len(timeline.info.ipus) + 1))
        self.last = np.append(ipu[1:] != ipu[:-1], [True])[: len(ipu)]
        self.later, self.times = (peeled.start - timeline.start)[row], peeled.weights[row]


def _own(track: _Track) -> _Intervals:
    """Return the spans on IPUs that are no arithmetic, as idle intervals."""
    own = np.where(_waits_for_sum(track), _NUMBER[Idle.UPDATE], _OWN[track.kind])
    at = np.flatnonzero(own != NONE)
    return track.ipu[at], track.start[at], track.end[at], own[at], np.full(len(at), NONE), at


def _waits_for_sum(track: _Track) -> npt.NDArray[np.bool_]:
    """Return which spans are waits for the sum over hosts: a part of the weight update, as its copies beside them."""
    summing, follows = track.kind == SpanKind.HOST_SUM, ~track.last[:-1]
    beside = np.zeros(len(summing), dtype=np.bool_)
    beside[:-1] |= summing[1:] & follows
    beside[1:] |= summing[:-1] & follows
    beside &= track.kind == SpanKind.HOST_WAIT
    beside &= track.timeline.time_step[track.row] >= track.timeline.info.time_steps
    return beside


def _nothing(track: _Track, finish: int) -> list[_Intervals]:
    """Return the idle time of IPUs without a stage, and of finished ones while other replicas still run."""
    info = track.timeline.info
    idle = np.setdiff1d(np.arange(len(info.ipus)), list(info.stages_of_ipu))
    ends = np.flatnonzero(track.last)
    intervals = []
    for ipu, start, cause in (
        (idle, np.zeros_like(idle), Idle.NO_STAGE),
        (track.ipu[ends], (track.end + track.later)[ends], Idle.PASSES),
    ):
        none = np.full(len(ipu), NONE)
        intervals.append((ipu, start, np.full(len(ipu), finish), np.full(len(ipu), _NUMBER[cause]), none, none))
    return intervals


def _waits(track: _Track) -> _Intervals:
    """Return every wait in pieces, each with what went on meanwhile on the IPU that ended it."""
    timeline = track.timeline
    at, released = _released(track)
    known = released != NONE
    kind, source = timeline.kind[released], timeline.ipu[released]
    # A tensor on its way is what is waited for from its start on; before that, its sender.
    sent = known & of_kinds(kind, SEND_KINDS)
    start, end = track.start[at], track.end[at]
    until = np.where(sent, np.clip(timeline.start[released], start, end), end)
    # Host copies on an IPU's own I/O tiles: whatever the IPU does beside them, it waits for them.
    beside = known & ~sent & (source == track.ipu[at])
    streamed = of_kinds(kind, STREAMED_KINDS)
    on_way, loaded = (np.flatnonzero(sent & (until < end) & (streamed == is_streamed)) for is_streamed in (False, True))
    of_host = np.flatnonzero(beside)
    other = np.flatnonzero(~beside & (until > start))
    on_io_tiles = known & of_kinds(kind, IO_TILE_KINDS)
    pieces = _pieces(track, at[other], np.where(known, source, track.ipu[at])[other], until[other], on_io_tiles[other])
    whole = [
        (
            track.ipu[at[chosen]],
            begin[chosen],
            end[chosen],
            np.full(len(chosen), _NUMBER[cause]),
            np.full(len(chosen), NONE),
            at[chosen],
        )
        for chosen, begin, cause in (
            (on_way, until, Idle.COPIES),
            (loaded, until, Idle.STREAMING),
            (of_host, start, Idle.HOST),
        )
    ]
    ipu, begun, ended, cause, stage, of = (np.concatenate(columns) for columns in zip(pieces, *whole, strict=True))
    return ipu, begun, ended, cause, stage, of


def idle_by_root(timeline: Timeline) -> Column:
    """Return idle cycles of each IPU by the IPU and the cause that they are for in the end; shape (IPUs, IPUs, causes).

    Where an IPU waits for another that waits itself meanwhile, that is for the one that this one waits for, and so on.
    What an IPU does by itself that is no arithmetic it is idle for itself. Of waits whose end none has brought about,
    nothing is told.
    """
    track = _Track(timeline.peeled(None))
    table = np.zeros((len(timeline.info.ipus),) * 2 + (len(CAUSES),), dtype=np.int64)
    ipu, start, end, cause, _, of = _own(track)
    np.add.at(table, (ipu, ipu, cause), (end - start) * track.times[of])
    waits, released = _released(track)
    waits, released = waits[released != NONE], released[released != NONE]
    # Of each wait the IPU that ends it, and when it becomes one for a tensor on its way, or for the host by I/O tiles.
    source, until, behind = np.full((3, len(track.row)), NONE)
    source[waits] = track.timeline.ipu[released]
    sent = of_kinds(track.timeline.kind[released], SEND_KINDS)
    beside = ~sent & (source[waits] == track.ipu[waits])
    begun = np.clip(np.where(sent, track.timeline.start[released], 0), track.start[waits], track.end[waits])
    until[waits] = np.where(sent | beside, begun, track.end[waits])
    behind[waits] = np.where(sent, _NUMBER[Idle.COPIES], _NUMBER[Idle.HOST])
    behind[waits[of_kinds(track.timeline.kind[released], STREAMED_KINDS)]] = _NUMBER[Idle.STREAMING]
    waiter, wait, start, end = track.ipu[waits], waits, track.start[waits], track.end[waits]
    weight = track.times[waits]
    for _ in range(len(timeline.info.ipus)):
        if not len(wait):
            break
        on_way = np.maximum(end - np.maximum(start, until[wait]), 0)
        np.add.at(table, (waiter, source[wait], behind[wait]), on_way * weight)
        end = np.maximum(np.minimum(end, until[wait]), start)
        piece, during = _spans_during(track, source[wait], start, end)
        waiter, weight, own = waiter[piece], weight[piece], track.ipu[during]
        start = np.maximum(start[piece], track.start[during])
        end = np.maximum(np.minimum(end[piece], track.end[during]), start)
        further = (source[during] != NONE) & (own != waiter)
        done = ~further
        cause = _WAITS_FOR[track.kind[during]]
        cause = np.where(cause == NONE, _NUMBER[Idle.PASSES], cause)
        np.add.at(table, (waiter[done], own[done], cause[done]), ((end - start) * weight)[done])
        waiter, wait, start, end, weight = (column[further] for column in (waiter, during, start, end, weight))
    return table


def _released(track: _Track) -> tuple[Column, Column]:
    """Return all waits, and the span that ended each, by the cause of what its IPU does next; NONE if unknown."""
    timeline, at = track.timeline, np.flatnonzero(of_kinds(track.kind, WAITS) & (_OWN[track.kind] == NONE))
    following = np.where(track.last[at], NONE, track.row[np.minimum(at + 1, len(track.row) - 1)])
    released = np.where(following == NONE, NONE, timeline.cause[following])
    # What took no time, as the host's work may, passed on what ended just then.
    while (passing := (released != NONE) & (timeline.start[released] == timeline.end[released])).any():
        released = np.where(passing, timeline.cause[released], released)
    waits = of_kinds(timeline.kind, WAITS)
    good = (released != NONE) & (timeline.end[released] == track.end[at]) & ~waits[released]
    good &= timeline.ipu[released] >= 0
    spans = np.where(good, released, NONE)
    for number in np.flatnonzero(~good).tolist():
        spans[number] = _ending(timeline, int(track.end[at[number]]), int(track.ipu[at[number]]), waits)
    return at, spans


def _ending(timeline: Timeline, cycle: int, ipu: int, waits: npt.NDArray[np.bool_]) -> int:
    """Return a span that ended just when a wait of ``ipu`` did: of its replica, if there is one."""
    ended = (timeline.end == cycle) & (timeline.start < cycle) & ~waits & (timeline.ipu >= 0)
    rows = np.flatnonzero(ended & ((timeline.ipu != ipu) | ~of_kinds(timeline.kind, _ON_IPU)))
    if not len(rows):
        return NONE
    near = rows[timeline.replica[rows] == ipu // timeline.info.shards]
    return int(near[-1] if len(near) else rows[-1])


def _pieces(track: _Track, at: Column, source: Column, until: Column, on_io_tiles: npt.NDArray[np.bool_]) -> _Intervals:
    """Return the waits ``at``, each up to ``until``, cut where the IPU ``source`` that ended it began another span.

    It has ended those ``on_io_tiles`` by its host copies there, which are what it waits for itself.
    """
    wait, during = _spans_during(track, source, track.start[at], until)
    kind = track.kind[during]
    cause = _WAITS_FOR[kind]
    placed = np.where(on_io_tiles[wait] & of_kinds(kind, WAITS), _NUMBER[Idle.HOST], _NUMBER[Idle.PASSES])
    return (
        track.ipu[at[wait]],
        np.maximum(track.start[at[wait]], track.start[during]),
        np.minimum(until[wait], track.end[during]),
        np.where(cause == NONE, placed, cause),
        np.where(of_kinds(kind, PASSES), track.stage[during], NONE),
        at[wait],
    )


def _spans_during(track: _Track, ipu: Column, start: Column, end: Column) -> tuple[Column, Column]:
    """Return the spans of an IPU that lie in intervals, whole or in part: the number of the interval, and the span."""
    first, last = np.zeros((2, len(ipu)), dtype=np.int64)
    for number, (begin, finish) in enumerate(pairwise(track.first.tolist())):
        of = ipu == number
        first[of] = begin + np.searchsorted(track.end[begin:finish], start[of], side="right")
        last[of] = begin + np.searchsorted(track.start[begin:finish], end[of], side="left")
    count = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(ipu)), count)
    nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return which, first[which] + nth
