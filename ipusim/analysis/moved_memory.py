"""Insert moves of activations into an IPU's memory curve: out of the IPU and back, while passes run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from ipusim.pipeline.footprint import Footprint
from ipusim.pipeline.liveness import less_by_moves
from ipusim.timeline.kinds import BACK_KINDS, OUT_KINDS, SpanKind, of_kinds
from ipusim.timeline.repeats import Column, Repeat
from ipusim.timeline.timeline import Timeline

_BACKWARD_KINDS: Final = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)


class Entries(NamedTuple):
    """Entries of an IPU's memory curve, with their blocks.

    Attributes:
        row: row of the timeline, rising; two entries per pass.
        time: cycle from which an entry holds, rising.
        live: bytes alive in passes.
        in_fifos: used bytes of FIFO buffers.
        repeats: blocks of entries that repeat.
    """

    row: Column
    time: Column
    live: Column
    in_fifos: Column
    repeats: tuple[Repeat, ...]


class _Events(NamedTuple):
    """Ends of moves out and starts of moves back.

    Attributes:
        row: row of the timeline.
        time: cycle of the event.
        stage: number of the stage.
        change: 1 if a micro-batch leaves the IPU, -1 if it returns.
        low: least position of the event among entries of passes.
        high: largest position of the event among entries of passes.
    """

    row: Column
    time: Column
    stage: Column
    change: Column
    low: Column
    high: Column


def with_moves(
    entries: Entries,
    stashes: Mapping[int, tuple[Column, Column]],
    timeline: Timeline,
    ipu: int,
    footprint: Footprint,
    blocks: Sequence[Repeat],
) -> Entries:
    """Insert moves into the entries of a curve.

    Args:
        entries: entries of passes and weight updates, without moves.
        stashes: for every stage that moves activations, by number: micro-batches kept at each entry, and a mask of
            entries with a pass that keeps or uses a micro-batch.
        timeline: Timeline of the run, with the first copy of every block as rows.
        ipu: logical IPU.
        footprint: footprint of the program.
        blocks: blocks of Timeline rows, matching the blocks in ``entries.repeats``.
    """
    events = _events(timeline, ipu, entries.row, footprint)
    starts, ends = [], []
    for block, entry_block in zip(blocks, entries.repeats, strict=True):
        start, cycles = int(entries.time[entry_block.first]), block.cycles
        end = int(entries.time[entry_block.last]) if entry_block.last < len(entries.time) else np.iinfo(np.int64).max
        if block.micro_batches:  # a move under way at the end of a copy ends in the next copy
            start = max(int(timeline.start[block.first]), int(entries.time[entry_block.first - 1]))
            end = start + cycles
            events = _in_first_copy(events, block, start)
            is_early, is_late = events.time < start, events.time >= end
            low = np.where(is_late, entry_block.last, np.where(is_early, 0, entry_block.first))
            high = np.where(is_early, entry_block.first, np.where(is_late, len(entries.time), entry_block.last))
            events = events._replace(low=np.maximum(events.low, low), high=np.minimum(events.high, high))
        starts.append(start)
        ends.append(end)
    # At equal times, departures come before the next pass, and returns after the previous pass.
    bounds = (np.searchsorted(entries.time, events.time, side=side) for side in ("left", "right"))
    first, last = (np.clip(position, events.low, np.maximum(events.high, events.low)) for position in bounds)
    position = np.where(events.change > 0, first, last)
    order = np.lexsort((-events.change, events.time, position))
    events, position = _Events(*(column[order] for column in events)), position[order]
    repeats = tuple(
        entry_block._replace(
            first=entry_block.first + int(np.searchsorted(events.time, start)),
            last=entry_block.last + int(np.searchsorted(events.time, end)),
        )
        for entry_block, start, end in zip(entries.repeats, starts, ends, strict=True)
    )

    def extend(column: Column) -> Column:
        return np.insert(column, position, column[position - 1])

    time = np.insert(entries.time, position, events.time)
    row, live, in_fifos = extend(entries.row), extend(entries.live), extend(entries.in_fifos)
    for number, (kept_counts, in_use) in stashes.items():
        changes = np.where(events.stage == number, events.change, 0)
        away_count = np.cumsum(np.insert(np.zeros(len(entries.time), np.int64), position, changes))
        freed_bytes = less_by_moves(footprint.stages[number], extend(kept_counts), extend(in_use), away_count)
        live, in_fifos = live - freed_bytes[0], in_fifos - freed_bytes[1]
    return Entries(row, time, live, in_fifos, repeats)


def _events(timeline: Timeline, ipu: int, entries: Column, footprint: Footprint) -> _Events:
    """Return the moves of an IPU as events; ``entries`` are rows of its passes, two entries per pass."""
    on_ipu = timeline.ipu == ipu
    stages, count = len(timeline.info.stages), timeline.info.count
    keys = (timeline.execution * count + timeline.micro_batch) * stages + timeline.stage
    rows = np.flatnonzero(of_kinds(timeline.kind, OUT_KINDS + BACK_KINDS) & on_ipu)
    is_out = of_kinds(timeline.kind[rows], OUT_KINDS)
    recomputes = np.array([stage.has_recompute_pass for stage in footprint.stages])[timeline.stage]
    is_use = (
        np.where(recomputes, timeline.kind == SpanKind.RECOMPUTE, of_kinds(timeline.kind, _BACKWARD_KINDS)) & on_ipu
    )
    forward_position = _positions_of(
        entries, keys, rows, np.flatnonzero((timeline.kind == SpanKind.FORWARD) & on_ipu), "right", 0
    )
    use_position = _positions_of(entries, keys, rows, np.flatnonzero(is_use), "left", len(entries))
    return _Events(
        rows,
        np.where(is_out, timeline.end[rows], timeline.start[rows]),
        timeline.stage[rows],
        np.where(is_out, 1, -1),
        np.where(is_out, forward_position, 0),
        np.where(is_out, len(entries), use_position),
    )


def _positions_of(
    entries: Column, keys: Column, rows: Column, passes: Column, side: Literal["left", "right"], default: int
) -> Column:
    """Return every row's pass as a position in ``entries``, on one ``side``; ``default`` without a pass."""
    if not len(passes):
        return np.full(len(rows), default)
    passes = passes[np.argsort(keys[passes], kind="stable")]
    matching_passes = passes[np.searchsorted(keys[passes], keys[rows]).clip(max=len(passes) - 1)]
    return np.where(keys[matching_passes] == keys[rows], np.searchsorted(entries, matching_passes, side=side), default)


def _in_first_copy(events: _Events, block: Repeat, start: int) -> _Events:
    """Shift the events of a block into its first repetition, which begins in cycle ``start``.

    A move that begins in one repetition may end in the next. Events before and after all repetitions stay unchanged.
    Events of rows outside the block within its time are dropped: shifted events of the block stand for them.
    """
    cycles, times = block.cycles, block.times
    inside = (events.row >= block.first) & (events.row < block.last)
    in_block = (events.time >= start) & (events.time < start + times * cycles)
    copies = (events.time - start) // cycles
    parts = [_Events(*(column[~inside & ~in_block] for column in events))]
    for shift in np.unique(copies[inside]).tolist():
        group = _Events(*(column[inside & (copies == shift)] for column in events))
        unbounded = group._replace(low=np.zeros_like(group.low), high=np.full_like(group.high, np.iinfo(np.int64).max))
        group = unbounded if shift else group  # another repetition holds the pass that bounds a shifted event
        parts.append(group._replace(time=group.time - shift * cycles))
        other_copies = range(-shift) if shift < 0 else range(max(times - shift, 0), times)
        parts += [group._replace(time=group.time + copy * cycles) for copy in other_copies]
    return _Events(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
