"""Find causes of every IPU's idle time. An IPU is idle in cycles without arithmetic of its stages.

The IPU's copies, syncs and host transfers are causes themselves. The cause of a wait follows from the span
(recorded interval, such as a pass) that ended it: the host, I/O tiles, Streaming Memory, a tensor in transit, or passes
of another IPU. :func:`ipu_time` divides waits for passes further, by the parts of the whole run's time (the waterfall):
fill and drain, gaps in main, imbalance of stages, and others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ipusim.analysis.critical_path import WAITS
from ipusim.analysis.executions import find_execution
from ipusim.analysis.idle_spans import (
    CAUSES,
    NUMBER,
    WAITS_FOR,
    Intervals,
    IpuSpans,
    ended_waits,
    non_arithmetic,
    spans_during,
)
from ipusim.analysis.waterfall import Waterfall
from ipusim.base.looks import Look
from ipusim.pipeline.ops import Pass
from ipusim.timeline.kinds import (
    COMPUTE_KINDS,
    IO_TILE_KINDS,
    KIND_OF_PASS,
    PASSES,
    SEND_KINDS,
    STREAMED_KINDS,
    SpanKind,
    of_kinds,
)
from ipusim.timeline.repeats import Column
from ipusim.timeline.time_parts import COMPUTES, RECOMPUTATION_WAITS, Idle, TimePart
from ipusim.timeline.timeline import NONE, Timeline


@dataclass(frozen=True, eq=False)
class IdleCauses:
    """Idle intervals of IPUs, sorted by IPU and start, and arithmetic of IPUs.

    The columns from ``ipu`` to ``times`` have an entry per interval. With repeated blocks, one entry may represent
    intervals of several repetitions.

    Attributes:
        ipu: logical IPU of the device.
        start: first cycle.
        end: cycle after the last.
        cause: index into :data:`CAUSES`.
        stage: stage of the pass on another IPU that the idle IPU waits for; -1 for other causes.
        times: number of intervals that this entry represents.
        busy: cycles of arithmetic by IPU, weight updates included; shape (IPUs,).
        recomputing: part of ``busy`` spent recomputing activations.
        updating: cycles of ``busy`` spent on weight updates.
        window_cycles: length of the examined window; busy plus idle cycles of every IPU.
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
        """Words of every cause, in column order of :attr:`cycles`."""
        return tuple(cause.words for cause in CAUSES)

    @cached_property
    def cycles(self) -> Column:
        """Idle cycles by cause, shape (IPUs, causes)."""
        table = np.zeros((len(self.busy), len(CAUSES)), dtype=np.int64)
        np.add.at(table, (self.ipu, self.cause), (self.end - self.start) * self.times)
        return table


def ipu_time(idle: IdleCauses, waterfall: Waterfall | None) -> tuple[tuple[Look, Column], ...]:
    """Divide the time of every IPU into parts.

    Waits for passes of other IPUs are divided in this order:

    - fill and drain, then gaps in main: cycles of the part in the waterfall, which measures both with balanced stages;
      therefore equal for all IPUs.
    - imbalance of stages: useful time and imbalance in the waterfall, minus the IPU's own forward and backward
      arithmetic; 0 if the waterfall has no imbalance.
    - further parts, such as copies: cycles of the part in the waterfall, minus the IPU's own cycles of that part. The
      difference delays passes of other IPUs, for which this IPU waits. Waits for recomputation are listed apart from
      the IPU's own recomputation.

    Parts are limited to the remaining waits. Remaining waits stay waits for passes of other IPUs.

    Args:
        idle: idle intervals of the window.
        waterfall: waterfall of the window; None if unknown, so waits for passes stay undivided.

    Returns:
        Look and cycles of every part, cycles of shape (IPUs,). The parts add up to the window.
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
        run_cycles = waterfall.cycles
        balanced_waits = run_cycles[TimePart.FILL_AND_DRAIN] + run_cycles[TimePart.GAPS_IN_MAIN]
        waits_of_passes_alone = run_cycles[TimePart.USEFUL] + balanced_waits + run_cycles[TimePart.IMBALANCE] - computes
        missing: dict[TimePart, Column | int] = {part: run_cycles[part] - column for part, column in parts.items()}
        missing[TimePart.IMBALANCE] = waits_of_passes_alone - balanced_waits if run_cycles[TimePart.IMBALANCE] else 0
        for part, missing_cycles in missing.items():
            moved = np.minimum(waits, np.maximum(missing_cycles, 0))
            parts[part], waits = parts[part] + moved, waits - moved
    columns = [(part.value, column) for part, column in parts.items()]
    index = list(parts).index(TimePart.RECOMPUTATION)
    columns[index : index + 1] = [
        (TimePart.RECOMPUTATION.value, idle.recomputing),
        (RECOMPUTATION_WAITS, parts[TimePart.RECOMPUTATION] - idle.recomputing),
    ]
    return (
        (COMPUTES, computes),
        (Idle.PASSES.value, waits),
        *columns,
        (Idle.NO_STAGE.value, cycles[Idle.NO_STAGE]),
    )


def idle_causes(
    timeline: Timeline, execution: int | None = None, shares: Mapping[tuple[Pass, int], Fraction] | None = None
) -> IdleCauses:
    """Find the causes of idle time in a run, or in an execution with its weight update.

    Args:
        timeline: the run.
        execution: number of an execution; None for the whole run.
        shares: for passes that include recomputation, their recomputed fraction by kind of pass and stage.

    Raises TimelineError if the Timeline lacks the execution.
    """
    # First and last repetitions of a block have rows of their own; the repetitions between share one row with a count.
    track = IpuSpans(timeline.with_block_ends_expanded(execution))
    begin, finish = 0, int((track.end + track.shift_cycles).max(initial=0))
    if execution is not None:
        window = find_execution(timeline, execution)
        begin, finish = window.start, window.end
    parts = [non_arithmetic(track), _waits(track), *_empty_intervals(track, finish)]
    ipu, start, end, cause, stage, span = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    shift, times = (np.append(column, extra)[span] for column, extra in ((track.shift_cycles, 0), (track.times, 1)))
    start, end = np.maximum(start + shift, begin), np.minimum(end + shift, finish)
    inside = np.flatnonzero(start < end)
    inside = inside[np.lexsort((start[inside], ipu[inside]))]
    kinds = (COMPUTE_KINDS, (SpanKind.RECOMPUTE,), (SpanKind.WEIGHT_UPDATE,))
    busy, recomputing, updating = (_work_cycles(track, of_kinds(track.kind, group), begin, finish) for group in kinds)
    for (pass_kind, number), share in (shares or {}).items():
        rows = (track.kind == KIND_OF_PASS[pass_kind]) & (track.stage == number)
        recomputing += _work_cycles(track, rows, begin, finish) * share.numerator // share.denominator
    ipu, start, end, cause, stage, times = (column[inside] for column in (ipu, start, end, cause, stage, times))
    return IdleCauses(ipu, start, end, cause, stage, times, busy, recomputing, updating, finish - begin)


def _work_cycles(track: IpuSpans, rows: npt.NDArray[np.bool_], begin: int, finish: int) -> Column:
    """Return every IPU's cycles in selected spans, within a window."""
    cycles = np.zeros(len(track.timeline.info.ipus), dtype=np.int64)
    overlap = np.minimum((track.end + track.shift_cycles)[rows], finish) - np.maximum(
        (track.start + track.shift_cycles)[rows], begin
    )
    np.add.at(cycles, track.ipu[rows], np.maximum(overlap, 0) * track.times[rows])
    return cycles


def _empty_intervals(track: IpuSpans, finish: int) -> list[Intervals]:
    """Return idle time of IPUs without a stage, and idle time after every IPU's last span until cycle ``finish``."""
    info = track.timeline.info
    idle = np.setdiff1d(np.arange(len(info.ipus)), list(info.stages_of_ipu))
    ends = np.flatnonzero(track.last)
    intervals = []
    for ipu, start, cause in (
        (idle, np.zeros_like(idle), Idle.NO_STAGE),
        (track.ipu[ends], (track.end + track.shift_cycles)[ends], Idle.PASSES),
    ):
        no_span = np.full(len(ipu), NONE)
        intervals.append((ipu, start, np.full(len(ipu), finish), np.full(len(ipu), NUMBER[cause]), no_span, no_span))
    return intervals


def _waits(track: IpuSpans) -> Intervals:
    """Cut every wait into pieces by activity of the IPU that ended the wait."""
    timeline = track.timeline
    waits, releases = ended_waits(track)
    has_release = releases != NONE
    kind, source = timeline.kind[releases], timeline.ipu[releases]
    # A wait that a tensor ended counts as a wait for the sender until the transfer starts, then for the transfer.
    is_send = has_release & of_kinds(kind, SEND_KINDS)
    start, end = track.start[waits], track.end[waits]
    switch = np.where(is_send, np.clip(timeline.start[releases], start, end), end)
    # If a host copy on the IPU's own I/O tiles ended the wait, the whole wait is for the host.
    is_host_copy = has_release & ~is_send & (source == track.ipu[waits])
    streamed = of_kinds(kind, STREAMED_KINDS)
    transit_rows, streamed_rows = (
        np.flatnonzero(is_send & (switch < end) & (streamed == is_streamed)) for is_streamed in (False, True)
    )
    host_rows = np.flatnonzero(is_host_copy)
    split_rows = np.flatnonzero(~is_host_copy & (switch > start))
    on_io_tiles = has_release & of_kinds(kind, IO_TILE_KINDS)
    pieces = _pieces(
        track,
        waits[split_rows],
        np.where(has_release, source, track.ipu[waits])[split_rows],
        switch[split_rows],
        on_io_tiles[split_rows],
    )
    single_pieces = [
        (
            track.ipu[waits[index]],
            begin[index],
            end[index],
            np.full(len(index), NUMBER[cause]),
            np.full(len(index), NONE),
            waits[index],
        )
        for index, begin, cause in (
            (transit_rows, switch, Idle.COPIES),
            (streamed_rows, switch, Idle.STREAMING),
            (host_rows, start, Idle.HOST),
        )
    ]
    ipu, starts, ends, cause, stage, span = (
        np.concatenate(columns) for columns in zip(pieces, *single_pieces, strict=True)
    )
    return ipu, starts, ends, cause, stage, span


def _pieces(
    track: IpuSpans, waits: Column, source: Column, stop: Column, on_io_tiles: npt.NDArray[np.bool_]
) -> Intervals:
    """Cut ``waits``, up to ``stop``, where spans begin on the IPUs ``source`` that ended the waits.

    The mask ``on_io_tiles`` tells which waits ended with a host copy on I/O tiles; while ``source`` waits too, the host
    is the cause of such a wait.
    """
    wait, during = spans_during(track, source, track.start[waits], stop)
    kind = track.kind[during]
    cause = WAITS_FOR[kind]
    fallback = np.where(on_io_tiles[wait] & of_kinds(kind, WAITS), NUMBER[Idle.HOST], NUMBER[Idle.PASSES])
    return (
        track.ipu[waits[wait]],
        np.maximum(track.start[waits[wait]], track.start[during]),
        np.minimum(stop[wait], track.end[during]),
        np.where(cause == NONE, fallback, cause),
        np.where(of_kinds(kind, PASSES), track.stage[during], NONE),
        waits[wait],
    )
