"""Make a Plan in point-to-point: passes run when their inputs have arrived, and send at once.

The input is an Order, with side instructions for activities besides passes, such as feeds.
Poplar programs never run like this, as IPUs meet for every exchange; schedules of the GPU world assume this mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ipusim.lowering.buffers import most_waiting
from ipusim.lowering.items import Items, SortKey, in_order, instructions, items
from ipusim.lowering.side_instructions import SideInstructions, ending, feeds, passes_with_sides
from ipusim.pipeline.instructions import NONE, Code, Table
from ipusim.pipeline.moves import Way, columns_of, moves_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import Column, Mask, PlanShape


def point_to_point(order: Order, side: SideInstructions) -> Plan:
    """Return the Plan in which every IPU runs passes when their tensors arrive."""
    shape, passes = order.shape, order.passes
    if order.emitted is not None:  # rows are sorted by time-step
        passes = passes[np.argsort(passes[:, 0], kind="stable")]
    slots, table = _slots(order.joined), np.asfortranarray(np.insert(passes, 0, NONE, axis=1))

    def make() -> Table:
        ipu, *columns = passes.T
        key = SortKey(ipu, turn=np.arange(len(passes)))
        parts = [*passes_with_sides(side, key, *columns), *_tensors(passes, key, slots, shape, side)]
        reads, results, code, period = feeds(side, shape, *columns)
        micro_batch = columns[-1]
        if side.moved is not None:
            parts += _moves(columns_of(moves_of(table, shape, side.moved, has_time_steps=False)))
        parts.append(items(key.for_passes(reads, -4), Code.INFEED, NONE, micro_batch[reads]))
        parts.append(items(key.for_passes(results, 4), code, NONE, micro_batch[results], period))
        return instructions(in_order([*parts, *ending(side, shape, 1, 0)]))

    return Plan(
        order,
        Sync.POINT_TO_POINT,
        table=table,
        emitted=1,
        make=make,
        count_waiting=lambda: most_waiting(shape, passes),
    )


def _moves(moves: list[Column]) -> Iterator[Items]:
    """Yield moves of activations, and the waits for their end.

    A move begins after a pass. The IPU waits before it needs the memory or the activations.
    """
    ipu, stage, micro_batch, forward, use_row, back_after_row, _, waiting_row, *_ = moves
    has_waiter = waiting_row != NONE
    for code, way, turn, around, mask in (
        (Code.MOVE, Way.OUT, forward, 5, slice(None)),
        (Code.MOVE, Way.BACK, back_after_row, 6, slice(None)),
        (Code.MOVED, Way.OUT, waiting_row, -6, has_waiter),
        (Code.MOVED, Way.BACK, use_row, -2, slice(None)),
    ):
        yield items(SortKey(ipu[mask], turn=turn[mask], around=around), code, stage[mask], micro_batch[mask], way)


def _slots(joins: Mask) -> tuple[Column, Column]:
    """Return the first and the last pass of every pass's slot. A slot is a pass, or several joined passes."""
    turn = np.arange(len(joins))
    first = np.maximum.accumulate(np.where(np.r_[True, ~joins[:-1]][: len(joins)], turn, 0))
    last = np.minimum.accumulate(np.where(joins, len(joins), turn)[::-1])[::-1]
    return first, last


def _tensors(
    passes: Table, key: SortKey, slots: tuple[Column, Column], shape: PlanShape, side: SideInstructions
) -> Iterator[Items]:
    """Yield the receives and sends of passes' tensors.

    Tensors from other IPUs are received before the first pass of a slot, and sent after the last pass. The last stage
    sends the output of its forward pass to its backward pass.
    """
    first_of, last_of = slots
    ipu, kind, stage, micro_batch = passes.T
    ipu_of, last = shape.ipu_of, shape.stages - 1
    forward = kind == Pass.FORWARD
    backward = (kind == Pass.BACKWARD) | (kind == Pass.INPUT_GRADIENT)
    next_stage = np.where(stage < last, stage + 1, last if shape.training else NONE)
    send = Code.SEND if side.overlap_copies else Code.BLOCKING_SEND
    for is_producer, target in ((forward, next_stage), (backward, stage - 1)):
        mask = is_producer & (target != NONE)
        send_key = key._replace(turn=np.where(ipu_of(target, micro_batch) != ipu, last_of, key.turn))
        yield items(send_key.for_passes(mask, 3), send, stage[mask], micro_batch[mask], target[mask])
    for is_consumer, source in ((forward, stage - 1), (backward, stage + 1)):
        mask = is_consumer & (source != NONE) & (source <= last)
        mask[mask] = ipu_of(source[mask], micro_batch[mask]) != ipu[mask]
        receive_key = key._replace(turn=first_of).for_passes(mask, -3)
        yield items(receive_key, Code.RECEIVE, stage[mask], micro_batch[mask], source[mask])
