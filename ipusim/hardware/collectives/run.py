"""The arithmetic of a collective: its transfers carried out on NumPy arrays, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipusim.errors import ModelError, PlanError
from ipusim.hardware.collectives.plan import CollectivePlan

Array = NDArray[Any]


def run(plan: CollectivePlan, buffers: Sequence[Array]) -> list[Array]:
    """Return what each participant holds after ``plan``, as new arrays; ``buffers`` stay as they are.

    Arguments:
        plan: the collective.
        buffers: one array per participant, in their order, all of one dtype. For
            an all-gather it is the participant's own chunk, else a whole buffer
            of ``plan.elements``, in any shape.

    Returns one array per participant: of the shape of its buffer for an
    all-reduce, else of one dimension; for a reduce-scatter its own chunk, for an
    all-gather the whole, for an all-to-all the chunks from all participants in
    their order. Sums are taken in the order that the plan gives and rounded to the
    dtype after each addition. Raises ModelError for arrays that are not those of
    the plan, PlanError for transfers beyond the ends of a buffer.
    """
    _check_buffers(plan, buffers)
    held = dict(zip(plan.participants, _laid_out(plan, buffers), strict=True))
    for number, transfers in enumerate(plan.rounds):
        _check_round(plan, number, held)
        # everybody reads before anybody writes
        payloads = [held[each.source][each.start : each.stop].copy() for each in transfers]
        for each, payload in zip(transfers, payloads, strict=True):
            place = held[each.target][each.start + each.shift : each.stop + each.shift]
            if each.reduce:
                place += payload
            else:
                place[:] = payload
    return _results(plan, list(held.values()), buffers)


def _check_buffers(plan: CollectivePlan, buffers: Sequence[Array]) -> None:
    if len(buffers) != plan.count:
        raise ModelError(f"{plan.name}: expected {plan.count} buffers, one per participant, got {len(buffers)}")
    for rank, (ipu, buffer) in enumerate(zip(plan.participants, buffers, strict=True)):
        own = plan.shard(rank)
        size = own.stop - own.start if plan.operation == "all_gather" else plan.elements
        if buffer.size != size or buffer.itemsize != plan.itemsize:
            raise ModelError(
                f"{plan.name}: expected {size} elements of {plan.itemsize} bytes on IPU {ipu}, "
                f"got {buffer.size} of {buffer.itemsize}"
            )
        if buffer.dtype != buffers[0].dtype:
            raise ModelError(f"{plan.name}: expected {buffers[0].dtype} on IPU {ipu}, got {buffer.dtype}")


def _check_round(plan: CollectivePlan, number: int, held: Mapping[int, Array]) -> None:
    for each in plan.rounds[number]:
        for ipu, start in ((each.source, each.start), (each.target, each.start + each.shift)):
            if ipu not in held:
                raise PlanError(f"{plan.name}: round {number}: {each} is with IPU {ipu}, which takes no part")
            if not 0 <= start <= start + each.stop - each.start <= held[ipu].size:
                raise PlanError(
                    f"{plan.name}: round {number}: {each} goes beyond the {held[ipu].size} elements on IPU {ipu}"
                )


def _laid_out(plan: CollectivePlan, buffers: Sequence[Array]) -> list[Array]:
    """Return for each participant a whole buffer of its own with what it has at first, zero elsewhere."""
    size = plan.count * plan.chunk if plan.operation == "all_to_all" else plan.elements
    held = [np.zeros(size, buffer.dtype) for buffer in buffers]
    for rank, buffer in enumerate(buffers):
        place = plan.shard(rank) if plan.operation == "all_gather" else slice(plan.elements)
        held[rank][place] = buffer.ravel()
    return held


def _results(plan: CollectivePlan, held: Sequence[Array], buffers: Sequence[Array]) -> list[Array]:
    match plan.operation:
        case "all_reduce":
            return [whole.reshape(buffer.shape) for whole, buffer in zip(held, buffers, strict=True)]
        case "reduce_scatter":
            return [whole[plan.shard(rank)].copy() for rank, whole in enumerate(held)]
        case "all_gather":
            return list(held)
        case "all_to_all":
            own = [plan.shard(rank) for rank in range(plan.count)]
            slots = (whole.reshape(plan.count, plan.chunk) for whole in held)
            return [slot[:, : each.stop - each.start].ravel().copy() for slot, each in zip(slots, own, strict=True)]
