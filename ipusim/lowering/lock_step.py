"""Make a Plan in lock-step, like Poplar's programs: IPUs meet after every time-step, for a merged copy.

The last stage's results go to the outfeed directly after the next copy. With overlapped I/O,
results go out during the next time-step, and an infeed element comes in during the time-step before its pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from ipusim.lowering.items import Items, SortKey, in_order, instructions, items
from ipusim.lowering.side_instructions import SideInstructions, ending, feeds, passes_with_sides
from ipusim.pipeline.instructions import COLUMNS, NONE, Code, Table
from ipusim.pipeline.moves import Way, columns_of, moves_of
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.time_steps import earliest


class _Rank(IntEnum):
    """Parts of a time-step, in order."""

    AFTER_MEETING = 0  # instructions enabled by the meeting before the time-step
    BEGIN_IO = 1
    INFEED = 2
    PASSES = 3
    END_IO = 4
    END = 5


def lock_step(order: Order, side: SideInstructions, earlier_plan: Plan | None = None) -> Plan:
    """Return ``order``'s Plan, with a meeting of the IPUs after every time-step.

    An order without time-steps gets the time-steps of ``earlier_plan``, an earlier Plan of the same Order, or, without
    such a Plan, the earliest time-steps.
    """
    table, emitted = (
        (order.table, order.emitted) if earlier_plan is None else (earlier_plan.table, earlier_plan.emitted)
    )
    if emitted is None:
        steps = earliest(order, one_at_a_time=False)
        table = np.column_stack([steps, order.passes])
        table = np.asfortranarray(table[np.lexsort((table[:, 1], table[:, 0]))])
        emitted = int(steps.max(initial=-1)) + 1
    shape = order.shape

    def make() -> Table:
        step, ipu, *passes = table.T
        key = SortKey(ipu, step, _Rank.PASSES, np.arange(len(table)))
        around = passes_with_sides(side, key, *passes)
        parts = [*around, *_feeds(table, side, shape), *_moves(table, side, shape)]
        parts += ending(side, shape, emitted, _Rank.END)
        return _with_meetings(in_order(parts), emitted)

    return Plan(order, Sync.LOCK_STEP, table=table, emitted=emitted, make=make)


def _feeds(table: Table, side: SideInstructions, shape: PlanShape) -> Iterator[Items]:
    step, ipu, kind, stage, micro_batch = table.T
    reads, results, code, period = feeds(side, shape, kind, stage, micro_batch)
    if shape.overlapped_io:
        yield from _on_io_tiles(table[reads], table[results], code, period)
        return
    yield items(SortKey(ipu[reads], step[reads], _Rank.INFEED), Code.INFEED, NONE, micro_batch[reads])
    yield items(SortKey(ipu[results], step[results] + 1, _Rank.AFTER_MEETING), code, NONE, micro_batch[results], period)


def _on_io_tiles(reads: Table, results: Table, code: Code, period: int) -> Iterator[Items]:
    """Yield host copies on I/O tiles, a time-step before or after the pass."""
    if code is Code.ADD_RESULTS:  # results stay on the IPU
        yield items(SortKey(results[:, 1], results[:, 0] + 1, _Rank.AFTER_MEETING), code, NONE, results[:, 4])
        results = results[:0]
    rows = np.concatenate([reads[:, :2] - [1, 0], results[:, :2] + [1, 0]])
    moments, moment_of = np.unique(rows, axis=0, return_inverse=True)
    step, ipu = moments.T
    read_moments, result_moments = np.split(moment_of.ravel(), [len(reads)])
    infeed_batch, outfeed_batch = np.full((2, len(moments)), NONE)
    infeed_batch[read_moments] = reads[:, 4]
    outfeed_batch[result_moments] = results[:, 4]
    yield items(SortKey(ipu, step, _Rank.BEGIN_IO), Code.BEGIN_IO, period, infeed_batch, outfeed_batch)
    yield items(SortKey(ipu, step, _Rank.END_IO), Code.END_IO)


def _moves(table: Table, side: SideInstructions, shape: PlanShape) -> Iterator[Items]:
    """Yield moves of activations: around passes, with copies between time-steps, or on I/O tiles."""
    if side.moved is None:
        return
    ipu, stage, micro_batch, forward, use_row, *_ = columns_of(moves_of(table, shape, side.moved, has_time_steps=True))
    for way, row in ((Way.OUT, forward), (Way.BACK, use_row)):
        step, is_out = table[row, 0], way is Way.OUT
        if side.moved.to == "partner":
            begin = SortKey(ipu, step - (not is_out), _Rank.END)
            end = SortKey(ipu, step + is_out, _Rank.AFTER_MEETING)
        elif shape.overlapped_io:
            io_step = step + (1 if is_out else -1)
            begin, end = SortKey(ipu, io_step, _Rank.BEGIN_IO), SortKey(ipu, io_step, _Rank.END_IO)
        else:
            begin, end = (SortKey(ipu, step, _Rank.PASSES, row, place) for place in ((5, 6) if is_out else (-6, -5)))
        for code, key in ((Code.MOVE, begin), (Code.MOVED, end)):
            yield items(key, code, stage, micro_batch, way)


def _with_meetings(table: Items, emitted: int) -> Table:
    """Insert a meeting between instructions for each time-step that ends there."""
    ipu, step = table[0], np.clip(table[1], 0, emitted)
    begins = np.r_[True, np.diff(ipu) != 0]
    distance = step - np.where(begins, 0, np.r_[0, step[:-1]])
    rows = np.flatnonzero(distance)
    meetings = np.full((len(rows), len(COLUMNS)), NONE, dtype=np.int64)
    meetings[:, 0], meetings[:, 1], meetings[:, 4] = ipu[rows], Code.MEET, distance[rows]
    return np.insert(instructions(table), rows, meetings, axis=0)
