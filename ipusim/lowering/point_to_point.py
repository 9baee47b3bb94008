"""Point-to-point: an IPU runs a pass as soon as its inputs have arrived, and sends the output at once.

No Poplar program runs like this, as all of its IPUs meet to exchange; it is what schedules of the GPU world assume.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ipusim.lowering.buffers import most_waiting
from ipusim.lowering.items import Items, SortKey, in_order, instructions, items
from ipusim.lowering.side_instructions import SideInstructions, beside_passes, ending, fed, handed_out, outfeed_code
from ipusim.pipeline.instructions import NONE, Code, Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.program import PlanShape


def point_to_point(order: Order, side: SideInstructions) -> Plan:
    """Return the Plan in which each IPU runs its passes as their tensors come."""
    shape, passes = order.shape, order.passes
    if order.emitted is not None:  # sorted by time-step
        passes = passes[np.argsort(passes[:, 0], kind="stable")]
    slots = _slots(order.joined)

    def make() -> Table:
        parts = [*_passes(passes, side), *_tensors(passes, slots, shape, side), *_feeds(passes, shape, side)]
        return instructions(in_order([*parts, *ending(side, shape, 1, 0)]))

    return Plan(
        order,
        Sync.POINT_TO_POINT,
        table=np.asfortranarray(np.insert(passes, 0, NONE, axis=1)),
        emitted=1,
        make=make,
        count_waiting=lambda: most_waiting(shape, passes),
    )


def _sort_key(passes: Table) -> SortKey:
    return SortKey(passes[:, 0], turn=np.arange(len(passes)))


def _passes(passes: Table, side: SideInstructions) -> Iterator[Items]:
    _, kind, stage, micro_batch = passes.T
    yield items(_sort_key(passes), kind, stage, micro_batch)
    yield from beside_passes(side, _sort_key(passes), kind, stage, micro_batch)


def _slots(joined: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return of each pass the first and the last pass of its slot: itself, unless passes are joined."""
    turn = np.arange(len(joined))
    first = np.maximum.accumulate(np.where(np.r_[True, ~joined[:-1]][: len(joined)], turn, 0))
    last = np.minimum.accumulate(np.where(joined, len(joined), turn)[::-1])[::-1]
    return first, last


def _tensors(
    passes: Table, slots: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], shape: PlanShape, side: SideInstructions
) -> Iterator[Items]:
    """Yield the receives and sends of passes' tensors.

    What comes from other IPUs is there before the first pass of a slot, and goes to them behind its last. The last
    stage hands its own backward pass what its forward pass has made.
    """
    first_of, last_of = slots
    turn = np.arange(len(passes))
    _, kind, stage, micro_batch = passes.T
    ipu_of, last = shape.ipu_of, shape.stages - 1
    forward = kind == Pass.FORWARD
    backward = (kind == Pass.BACKWARD) | (kind == Pass.INPUT_GRADIENT)
    after = np.where(stage < last, stage + 1, last if shape.training else NONE)
    send = Code.SEND if side.overlap_copies else Code.BLOCKING_SEND
    for made, target in ((forward, after), (backward, stage - 1)):
        own = made & (target != NONE)
        behind = np.where(ipu_of(target, micro_batch) != passes[:, 0], last_of, turn)
        yield items(_picked(passes, own, 3, behind), send, stage[own], micro_batch[own], target[own])
    for taking, source in ((forward, stage - 1), (backward, stage + 1)):
        own = taking & (source != NONE) & (source <= last)
        own[own] = ipu_of(source[own], micro_batch[own]) != passes[own, 0]
        yield items(_picked(passes, own, -3, first_of), Code.RECEIVE, stage[own], micro_batch[own], source[own])


def _feeds(passes: Table, shape: PlanShape, side: SideInstructions) -> Iterator[Items]:
    _, kind, stage, micro_batch = passes.T
    taken, results = fed(kind, stage), handed_out(side, shape, kind, stage, micro_batch)
    code, period = outfeed_code(side)
    yield items(_picked(passes, taken, -4), Code.INFEED, NONE, micro_batch[taken])
    yield items(_picked(passes, results, 4), code, NONE, micro_batch[results], period)


def _picked(
    passes: Table, own: npt.NDArray[np.bool_], around: int, turn: npt.NDArray[np.int64] | None = None
) -> SortKey:
    return SortKey(passes[own, 0], turn=np.flatnonzero(own) if turn is None else turn[own], around=around)
