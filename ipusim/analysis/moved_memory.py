"""Memory over time with activations moved out of IPUs and back during passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from ipusim.pipeline.footprint import Footprint
from ipusim.pipeline.liveness import less_by_moves
from ipusim.timeline.kinds import BACK_KINDS, OUT_KINDS, SpanKind, of_kinds
from ipusim.timeline.repeats import Column, Repeat
from ipusim.timeline.timeline import Timeline

_USES: Final = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)


class Entries(NamedTuple):
    """Entries of an IPU's memory curve, with their blocks.

    Attributes:
        row: row of the timeline, rising; two entries per pass.
        time: in cycles, rising.
        live, in_fifos: bytes.
        repeats: blocks of entries.
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
        time: in cycles.
        stage: number of the stage.
        change: 1 if a micro-batch leaves the IPU, -1 if it returns.
        least, most: bounds of the event's position among entries of passes.
    """

    row: Column
    time: Column
    stage: Column
    change: Column
    least: Column
    most: Column


def with_moves(
    entries: Entries,
    kept: Mapping[int, tuple[Column, Column]],
    timeline: Timeline,
    ipu: int,
    footprint: Footprint,
    blocks: Sequence[Repeat],
) -> Entries:
    """Insert moves into the entries of a curve.

    Args:
        entries: entries of passes and weight updates, without moves.
        kept: for every stage that moves activations, by number: micro-batches kept at each entry, and a mask of
            entries with a pass that keeps or uses a micro-batch.
        timeline: Timeline of the run, with the first copy of every block as rows.
        ipu: logical IPU.
        footprint: footprint of the program.
        blocks: blocks of Timeline rows, matching the blocks in ``entries.repeats``.
    """
    events = _events(timeline, ipu, entries.row, footprint)
    starts, ends = [], []
    for block, of in zip(blocks, entries.repeats, strict=True):
        start, cycles = int(entries.time[of.first]), block.cycles
        end = int(entries.time[of.last]) if of.last < len(entries.time) else np.iinfo(np.int64).max
        if block.micro_batches:  # moves that go on at the end of a copy end in the next one
            start = max(int(timeline.start[block.first]), int(entries.time[of.first - 1]))
            end = start + cycles
            events = _in_first_copy(events, block, start)
            before, behind = events.time < start, events.time >= end
            least = np.where(behind, of.last, np.where(before, 0, of.first))
            most = np.where(before, of.first, np.where(behind, len(entries.time), of.last))
            events = events._replace(least=np.maximum(events.least, least), most=np.minimum(events.most, most))
        starts.append(start)
        ends.append(end)
    # At equal times, departures come before the next pass, and returns after the previous pass.
    bounds = (np.searchsorted(entries.time, events.time, side=side) for side in ("left", "right"))
    first, last = (np.clip(at, events.least, np.maximum(events.most, events.least)) for at in bounds)
    at = np.where(events.change > 0, first, last)
    order = np.lexsort((-events.change, events.time, at))
    events, at = _Events(*(column[order] for column in events)), at[order]
    repeats = tuple(
        of._replace(
            first=of.first + int(np.searchsorted(events.time, start)),
            last=of.last + int(np.searchsorted(events.time, end)),
        )
        for of, start, end in zip(entries.repeats, starts, ends, strict=True)
    )

    def held(column: Column) -> Column:
        return np.insert(column, at, column[at - 1])

    time = np.insert(entries.time, at, events.time)
    row, live, in_fifos = held(entries.row), held(entries.live), held(entries.in_fifos)
    for number, (saved, works) in kept.items():
        own = np.where(events.stage == number, events.change, 0)
        away = np.cumsum(np.insert(np.zeros(len(entries.time), np.int64), at, own))
        less = less_by_moves(footprint.stages[number], held(saved), held(works), away)
        live, in_fifos = live - less[0], in_fifos - less[1]
    return Entries(row, time, live, in_fifos, repeats)


def _events(timeline: Timeline, ipu: int, entries: Column, footprint: Footprint) -> _Events:
    """Return the moves of an IPU as events; ``entries`` are rows of its passes, two entries per pass."""
    own = timeline.ipu == ipu
    stages, count = len(timeline.info.stages), timeline.info.count
    keys = (timeline.execution * count + timeline.micro_batch) * stages + timeline.stage
    rows = np.flatnonzero(of_kinds(timeline.kind, OUT_KINDS + BACK_KINDS) & own)
    out = of_kinds(timeline.kind[rows], OUT_KINDS)
    recomputes = np.array([stage.recomputes for stage in footprint.stages])[timeline.stage]
    uses = np.where(recomputes, timeline.kind == SpanKind.RECOMPUTE, of_kinds(timeline.kind, _USES)) & own
    made = _found(entries, keys, rows, np.flatnonzero((timeline.kind == SpanKind.FORWARD) & own), "right", 0)
    used = _found(entries, keys, rows, np.flatnonzero(uses), "left", len(entries))
    return _Events(
        rows,
        np.where(out, timeline.end[rows], timeline.start[rows]),
        timeline.stage[rows],
        np.where(out, 1, -1),
        np.where(out, made, 0),
        np.where(out, len(entries), used),
    )


def _found(
    entries: Column, keys: Column, rows: Column, passes: Column, side: Literal["left", "right"], nothing: int
) -> Column:
    """Return every row's pass as a position in ``entries``, on one ``side``; ``nothing`` without a pass."""
    if not len(passes):
        return np.full(len(rows), nothing)
    passes = passes[np.argsort(keys[passes], kind="stable")]
    of = passes[np.searchsorted(keys[passes], keys[rows]).clip(max=len(passes) - 1)]
    return np.where(keys[of] == keys[rows], np.searchsorted(entries, of, side=side), nothing)


def _in_first_copy(events: _Events, block: Repeat, start: int) -> _Events:
    """Move the events of a block into its first copy.

    The first copy begins in cycle ``start``.
    A move that begins in one copy of a block may end in the next copy. Events outside of all copies stay separate.
    """
    cycles, times = block.cycles, block.times
    inside = (events.row >= block.first) & (events.row < block.last)
    covered = (events.time >= start) & (events.time < start + times * cycles)
    copies = (events.time - start) // cycles
    parts = [_Events(*(column[~inside & ~covered] for column in events))]
    for shift in np.unique(copies[inside]).tolist():
        own = _Events(*(column[inside & (copies == shift)] for column in events))
        anywhere = own._replace(least=np.zeros_like(own.least), most=np.full_like(own.most, np.iinfo(np.int64).max))
        own = anywhere if shift else own  # the pass of a shifted event belongs to another copy
        parts.append(own._replace(time=own.time - shift * cycles))
        outside = range(-shift) if shift < 0 else range(max(times - shift, 0), times)
        parts += [own._replace(time=own.time + copy * cycles) for copy in outside]
    return _Events(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
