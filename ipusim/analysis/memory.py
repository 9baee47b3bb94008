"""Compute the memory of every IPU over time: allocated bytes, and used bytes of FIFO buffers.

A stage's FIFO buffers the stash: micro-batches that wait for their backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ipusim.analysis.moved_memory import Entries, with_moves
from ipusim.pipeline.footprint import Footprint, IpuFootprint
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.liveness import Peak, ipu_levels, kept_levels, stage_levels, update_bytes
from ipusim.timeline.copies import every_copy, expand_copies
from ipusim.timeline.kinds import KIND_OF_PASS, PASS_OF_KIND, PASSES, SpanKind, of_kinds
from ipusim.timeline.repeats import Blocks, Column, Repeat
from ipusim.timeline.timeline import ALL_IPUS, NONE, Timeline


@dataclass(frozen=True, eq=False)
class MemoryCurve:
    """Memory of one IPU over a run, as step functions: entry i holds from ``time[i]`` to ``time[i + 1]``.

    The first entry is for cycle 0. Of entries with equal time the last one remains valid; earlier ones belong to
    passes of zero cycles.

    Attributes:
        ipu: logical IPU of the device.
        resident_bytes: bytes allocated during the whole run, FIFO buffers included.
        time: cycle from which an entry holds, rising.
        live_bytes: bytes alive in passes, without resident bytes.
        fifo_bytes: used bytes of FIFO buffers.
        repeats: blocks of entries that repeat, matching the repeated blocks of the Timeline's rows.
    """

    ipu: int
    resident_bytes: int
    time: Column
    live_bytes: Column
    fifo_bytes: Column
    repeats: tuple[Repeat, ...] = ()

    @property
    def allocated_bytes(self) -> Column:
        """Resident plus live bytes."""
        return self.resident_bytes + self.live_bytes

    @property
    def entries_in_all(self) -> int:
        """Number of entries after expansion of blocks."""
        return Blocks(self.repeats, len(self.time)).spans

    def expanded(self) -> MemoryCurve:
        """Return the same curve with every copy of every block written out."""
        if not self.repeats:
            return self
        copies, _ = expand_copies(Blocks(self.repeats, len(self.time)), every_copy)
        row = copies.row
        return replace(
            self,
            time=self.time[row] + copies.cycles,
            live_bytes=self.live_bytes[row],
            fifo_bytes=self.fifo_bytes[row],
            repeats=(),
        )


def memory_curves(timeline: Timeline, footprint: Footprint, replica: int = 0) -> tuple[MemoryCurve, ...]:
    """Return the curves of a replica's IPUs that hold a stage, in ascending order.

    Bytes are equal in all replicas; cycles differ only between replicas that run independently. Of a block, a part of
    the run that repeats, the curve shows the first and last repetitions.
    """
    return tuple(
        _curve(timeline.with_block_ends_expanded(), footprint, ipu_footprint, replica)
        for ipu_footprint in footprint.ipus
    )


def _curve(timeline: Timeline, footprint: Footprint, ipu_footprint: IpuFootprint, replica: int) -> MemoryCurve:
    ipu = replica * timeline.info.shards + ipu_footprint.ipu
    # An IPU runs one pass at a time, so rows sorted by start are in execution order.
    rows = _of_kinds(timeline, np.flatnonzero(timeline.ipu == ipu), PASSES)
    stage, kind = timeline.stage[rows], PASS_OF_KIND[timeline.kind[rows]]
    live, in_fifos = ipu_levels(footprint, ipu_footprint.ipu, stage, kind)
    moved_levels = kept_levels(footprint, ipu_footprint.ipu, stage, kind)
    columns = [
        steps.from_zero() for steps in (live, in_fifos, *(levels for pair in moved_levels.values() for levels in pair))
    ]
    time = np.concatenate([[0], np.stack([timeline.start[rows], timeline.end[rows]], axis=1).ravel()])
    row_of_entry = np.concatenate([[NONE], np.repeat(rows, 2)])
    update = update_bytes(footprint, ipu_footprint.ipu)
    if update:
        # Between passes of two executions FIFOs are empty and no bytes of passes are alive.
        execution, first, end = _updates(timeline, ipu)
        start = timeline.start[first]
        pass_count = np.searchsorted(timeline.execution[rows], execution, side="right")
        position = np.repeat(1 + 2 * pass_count, 2)
        time = np.insert(time, position, np.stack([start, end], axis=1).ravel())
        updating = np.tile([update, 0], len(start))
        columns = [np.insert(column, position, 0 if number else updating) for number, column in enumerate(columns)]
        row_of_entry = np.insert(row_of_entry, position, np.repeat(first, 2))
    bounds = np.searchsorted(row_of_entry, [block[:2] for block in timeline.repeats] or np.empty((0, 2))).tolist()
    blocks = [
        (block, block._replace(first=first_entry, last=last_entry))
        for block, (first_entry, last_entry) in zip(timeline.repeats, bounds, strict=True)
        if first_entry < last_entry
    ]
    entries = Entries(row_of_entry, time, columns[0], columns[1], tuple(entry_block for _, entry_block in blocks))
    if moved_levels:
        move_levels = dict(zip(moved_levels, zip(columns[2::2], columns[3::2], strict=True), strict=True))
        entries = with_moves(entries, move_levels, timeline, ipu, footprint, [block for block, _ in blocks])
    return MemoryCurve(ipu, ipu_footprint.resident_bytes, *entries[1:])


class Steps(NamedTuple):
    """A step function: entry i of ``level`` holds from cycle ``time[i]`` to ``time[i + 1]``; the first from 0."""

    time: Column
    level: Column

    def level_at(self, cycles: Column) -> Column:
        """Return the level at each of ``cycles``."""
        return self.level[np.searchsorted(self.time, cycles, side="right") - 1]


def product_steps(timeline: Timeline, footprint: Footprint, ipu_footprint: IpuFootprint) -> Steps:
    """Return used bytes of an IPU's buffer for temporary values of products over time, in replica 0.

    The buffer is allocated during the whole run. A pass fills it with the stage's products; a weight update fills it
    with loaded bytes.
    """
    rows = _of_kinds(timeline, np.flatnonzero(timeline.ipu == ipu_footprint.ipu), PASSES)
    sizes = np.array([stage.temporary_bytes for stage in footprint.stages], dtype=np.int64)[timeline.stage[rows]]
    start, end = timeline.start[rows], timeline.end[rows]
    load_bytes = sum(stage.update_bytes for stage in footprint.stages if ipu_footprint.ipu in stage.ipus)
    if load_bytes:
        _, update_rows, update_end = _updates(timeline, ipu_footprint.ipu)
        update_start = timeline.start[update_rows]
        buffer_bytes = dict(ipu_footprint.resident)[Holder.TEMPORARY]
        start, end = np.concatenate([start, update_start]), np.concatenate([end, update_end])
        sizes = np.concatenate([sizes, np.full(len(update_rows), min(load_bytes, buffer_bytes))])
        order = np.argsort(start, kind="stable")
        start, end, sizes = start[order], end[order], sizes[order]
    time = np.stack([start, end], axis=1).ravel()
    level = np.stack([sizes, np.zeros_like(sizes)], axis=1).ravel()
    return Steps(np.concatenate([[0], time]), np.concatenate([[0], level]))


def _of_kinds(timeline: Timeline, rows: Column, kinds: Sequence[SpanKind]) -> Column:
    """Select ``rows`` of ``kinds``; a search of all rows for every IPU would be slower."""
    return rows[of_kinds(timeline.kind[rows], kinds)]


def _updates(timeline: Timeline, ipu: int) -> tuple[Column, Column, Column]:
    """Return execution, first row, and end of each weight update of ``ipu``."""
    update_kinds = (SpanKind.REMOTE_LOAD, SpanKind.WEIGHT_UPDATE, SpanKind.HOST_UPDATE, SpanKind.REMOTE_STORE)
    rows = np.flatnonzero(
        ((timeline.ipu == ipu) | (timeline.ipu == ALL_IPUS)) & (timeline.time_step == timeline.info.time_steps)
    )
    rows = _of_kinds(timeline, rows, update_kinds)
    execution, first, position = np.unique(timeline.execution[rows], return_index=True, return_inverse=True)
    end = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(end, position, timeline.end[rows])
    return execution, rows[first], end


def stashed_micro_batches(timeline: Timeline, footprint: Footprint, stage: int) -> int:
    """Return the maximum number of micro-batches stashed by ``stage``.

    A micro-batch counts from forward to backward pass or recomputation, inside and outside of the FIFO. Of several
    copies of the stage, the largest number counts.
    """
    timeline = timeline.with_block_ends_expanded()
    stage_footprint = footprint.stages[stage]
    rows = np.flatnonzero((timeline.stage == stage) & (timeline.replica == 0))
    rows = _of_kinds(timeline, rows, PASSES)
    most = 0
    for ipu in stage_footprint.ipus:
        ipu_rows = rows[timeline.ipu[rows] == ipu]
        levels = stage_levels(stage_footprint, PASS_OF_KIND[timeline.kind[ipu_rows]]).stash
        counts = levels.during.copy()
        for block in timeline.repeats:
            first, last = np.searchsorted(ipu_rows, block[:2]).tolist()
            if first == last:
                continue
            kept_by_copies = (block.times - 1) * int(
                levels.at_end[last - 1] - (levels.at_end[first - 1] if first else 0)
            )
            counts[first:last] += max(kept_by_copies, 0)
            counts[last:] += kept_by_copies
        most = max(most, int(counts.max(initial=0)))
    return most


def moment(timeline: Timeline, peak: Peak) -> int:
    """Return the start of the pass or weight update of ``peak`` in the first execution."""
    op = peak.op
    if op is None:
        return int(timeline.start[_updates(timeline, peak.ipu)[1]].min())
    is_pass = (timeline.replica == 0) & (timeline.kind == KIND_OF_PASS[op.kind]) & (timeline.stage == op.stage)
    rows = np.flatnonzero(is_pass)
    starts = timeline.start[rows[timeline.micro_batch[rows] == op.micro_batch]]
    for block in timeline.repeats:
        inside = rows[(rows >= block.first) & (rows < block.last)]
        if block.micro_batches:
            copy, remainder = np.divmod(op.micro_batch - timeline.micro_batch[inside], block.micro_batches)
            is_copy = (remainder == 0) & (copy >= 0) & (copy < block.times)
            starts = np.append(starts, timeline.start[inside[is_copy]] + copy[is_copy] * block.cycles)
    return int(starts.min())
