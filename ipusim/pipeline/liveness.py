"""Count the live bytes on an IPU pass by pass, from the order of its passes.

A stage has a FIFO and a buffer. The buffer holds the stash of a forward pass until the end of the time-step, when the
FIFO takes over. The buffer also holds a stash taken out of the FIFO, until the pass that uses the stash has ended: the
backward pass, its first half (the input-gradient pass), or the recomputation. So the FIFO holds neither the micro-batch
in use nor micro-batches beyond its capacity. Live bytes are bytes of micro-batches outside of the FIFO; the FIFO itself
is resident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ipusim.pipeline.footprint import Footprint, IpuFootprint, StageFootprint
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.shape import Column, Mask


@dataclass(frozen=True, eq=False)
class Levels:
    """Bytes or micro-batches over time: during each pass, and between its end and the next pass."""

    during: Column
    at_end: Column

    def __add__(self, other: Levels) -> Levels:
        """Add two quantities along the same passes."""
        return Levels(self.during + other.during, self.at_end + other.at_end)

    def times(self, factor: int) -> Levels:
        """Multiply the quantity by ``factor``."""
        return Levels(self.during * factor, self.at_end * factor)

    def from_zero(self) -> Column:
        """Return 0, then the two levels of every pass in turn."""
        return np.concatenate([[0], np.stack([self.during, self.at_end], axis=1).ravel()])


class StageLevels(NamedTuple):
    """Memory of a stage, pass by pass.

    Attributes:
        live: bytes alive outside of the FIFO.
        stash: micro-batches kept for a backward pass or recomputation, inside and outside of the FIFO.
        in_fifo: kept micro-batches inside the FIFO.
    """

    live: Levels
    stash: Levels
    in_fifo: Levels


class Alive(NamedTuple):
    """Number of micro-batches with live data along a stage's passes.

    Attributes:
        stash: micro-batches kept for a backward pass or recomputation.
        outside: kept micro-batches outside of the FIFO.
        recomputed: micro-batches with recomputed activations.
        halves: micro-batches with tensors for the second half of the backward pass.
    """

    stash: Levels
    outside: Levels
    recomputed: Levels
    halves: Levels


def alive(stage: StageFootprint, kind: Column) -> Alive:
    """Count micro-batches with live data along passes of ``stage``.

    ``kind`` has kinds of passes (see Pass) in order of execution. The result is independent of bytes.
    """
    if not stage.training:
        zeros = np.zeros(len(kind), dtype=np.int64)
        empty = Levels(zeros, zeros)
        return Alive(empty, empty, empty, empty)
    forward, recomputes, inputs, weights = (
        kind == pass_kind for pass_kind in (Pass.FORWARD, Pass.RECOMPUTE, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    )
    backward = (kind == Pass.BACKWARD) | inputs  # both use the stash of the forward pass
    uses = recomputes if stage.has_recompute_pass else backward
    stash = _count_open(forward, uses)
    outside = Levels(
        np.maximum(stash.during - stage.fifo_depth, np.where(forward | uses, 1, 0)),
        np.maximum(stash.at_end - stage.fifo_depth, 0),
    )
    recomputed = _count_open(recomputes, backward) if stage.has_recompute_pass else stash.times(0)
    halves = _count_open(inputs, weights)
    halves = Levels(halves.during - inputs, halves.at_end)  # a first half already includes its output
    return Alive(stash, outside, recomputed, halves)


def stage_levels(stage: StageFootprint, kind: Column) -> StageLevels:
    """Return the levels of ``stage`` along its passes; ``kind`` has their kinds (see Pass)."""
    pass_bytes = {Pass.FORWARD: stage.forward_bytes, Pass.BACKWARD: stage.backward_bytes}
    pass_bytes |= {Pass.INPUT_GRADIENT: stage.input_half_bytes, Pass.WEIGHT_GRADIENT: stage.weight_half_bytes}
    pass_bytes[Pass.RECOMPUTE] = stage.recompute_weight_bytes
    counts = alive(stage, kind)
    live = Levels(
        np.array([pass_bytes[run] for run in Pass], dtype=np.int64)[kind], np.zeros(len(kind), dtype=np.int64)
    )
    live += (
        counts.outside.times(stage.kept_bytes)
        + counts.recomputed.times(stage.recomputed_bytes)
        + counts.halves.times(stage.halves_bytes)
    )
    in_fifo = Levels(counts.stash.during - counts.outside.during, counts.stash.at_end - counts.outside.at_end)
    return StageLevels(live, counts.stash, in_fifo)


def _count_open(opening: Mask, closing: Mask) -> Levels:
    """Count micro-batches from the start of an opening to the end of a closing pass."""
    at_end = np.cumsum(opening.astype(np.int64) - closing)
    return Levels(at_end + closing.astype(np.int64), at_end)


def spread_levels(levels: Levels, mask: Mask) -> Levels:
    """Extend a stage's levels to every pass on the IPU; ``mask`` masks passes of the stage.

    During passes of other stages, the level after the stage's latest pass remains. Levels may have columns.
    """
    zeros = np.zeros((1, *levels.at_end.shape[1:]), dtype=np.int64)
    at_end = np.concatenate([zeros, levels.at_end])[np.cumsum(mask)]
    during = at_end.copy()
    during[mask] = levels.during
    return Levels(during, at_end)


def ipu_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> tuple[Levels, Levels]:
    """Return bytes alive on ``ipu`` and bytes in its FIFOs along its passes."""
    zeros = np.zeros(len(kind), dtype=np.int64)
    live = in_fifos = Levels(zeros, zeros)
    for number, stage_footprint in enumerate(footprint.stages):
        if ipu in stage_footprint.ipus:
            mask = stage == number
            levels = stage_levels(stage_footprint, kind[mask])
            live += spread_levels(levels.live, mask)
            in_fifos += spread_levels(levels.in_fifo.times(stage_footprint.kept_bytes), mask)
    return live, in_fifos


def update_bytes(footprint: Footprint, ipu: int) -> int:
    """Return live bytes of the weight update on ``ipu``, beyond its buffer for products."""
    load_bytes = sum(stage.update_bytes for stage in footprint.stages if ipu in stage.ipus)
    (buffer_bytes,) = (
        dict(ipu_footprint.resident)[Holder.TEMPORARY] for ipu_footprint in footprint.ipus if ipu_footprint.ipu == ipu
    )
    return max(load_bytes - buffer_bytes, 0)


class StashLevels(NamedTuple):
    """Kept micro-batches of a stage with moved activations, along its IPU's passes.

    Attributes:
        stash: number of kept micro-batches, on the IPU or moved out.
        works: 1 during a pass that stores or uses a micro-batch, else 0.
    """

    stash: Levels
    works: Levels


def kept_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> dict[int, StashLevels]:
    """Return kept micro-batches by stage number, for stages on ``ipu`` with moved activations."""
    result: dict[int, StashLevels] = {}
    for number in sorted({move.stage for move in footprint.moves if move.ipu == ipu}):
        mask, stage_footprint = stage == number, footprint.stages[number]
        counts = alive(stage_footprint, kind[mask])
        uses = (Pass.RECOMPUTE,) if stage_footprint.has_recompute_pass else (Pass.BACKWARD, Pass.INPUT_GRADIENT)
        works = any_of(kind, (Pass.FORWARD, *uses)) & mask
        result[number] = StashLevels(
            spread_levels(counts.stash, mask), Levels(works.astype(np.int64), np.zeros_like(kind))
        )
    return result


def less_by_moves(stage: StageFootprint, counts: Column, works: Column, away_count: Column) -> tuple[Column, Column]:
    """Return the live bytes and the FIFO bytes that moves save on a stage's IPU.

    Args:
        stage: footprint of the stage.
        counts: number of kept micro-batches, on the IPU or moved out.
        works: 1 during a pass that stores or uses a micro-batch, else 0.
        away_count: number of micro-batches moved out.
    """
    outside = np.maximum(counts - stage.fifo_depth, works)
    freed = outside - np.maximum(counts - away_count - stage.fifo_depth, works)
    return freed * stage.kept_bytes, (away_count - freed) * stage.kept_bytes


class Peak(NamedTuple):
    """Memory peak of an IPU.

    Attributes:
        ipu: logical IPU.
        op: pass of the peak; among several, the first pass with the fullest FIFOs; None for the weight update.
        holders: bytes of every holder at the peak, in the order of Holder.
        fifo_bytes: used bytes of FIFO buffers at the peak.
        segments: segments per micro-batch.
    """

    ipu: int
    op: Op | None
    holders: tuple[tuple[Holder, int], ...]
    fifo_bytes: int
    segments: int = 1

    @property
    def during(self) -> str:
        """Operation of the peak: a pass such as ``B0.3``, or the weight update."""
        return "weight update" if self.op is None else self.op.text(self.segments)

    @property
    def bytes(self) -> int:
        """Bytes of all holders together."""
        return sum(size for _, size in self.holders)

    def largest(self, count: int) -> tuple[tuple[Holder, int], ...]:
        """Return the largest nonempty holders, largest first."""
        holders = [(holder, size) for holder, size in self.holders if size]
        return tuple(sorted(holders, key=lambda item: -item[1])[:count])


def peaks(plan: Plan, footprint: Footprint) -> tuple[Peak, ...]:
    """Return the peak of each IPU that holds a stage, ascending; executions have equal peaks."""
    return tuple(_peak(plan, footprint, ipu_footprint) for ipu_footprint in footprint.ipus)


def _peak(plan: Plan, footprint: Footprint, ipu_footprint: IpuFootprint) -> Peak:
    rows = np.flatnonzero(plan.ipu == ipu_footprint.ipu)
    stage, kind = plan.stage[rows], plan.kind[rows]
    live, in_fifos = ipu_levels(footprint, ipu_footprint.ipu, stage, kind)
    for number, stash_levels in kept_levels(footprint, ipu_footprint.ipu, stage, kind).items():
        moves = [move for move in footprint.moves if (move.ipu, move.stage) == (ipu_footprint.ipu, number)]
        begins = np.sort([move.away_begin for move in moves])
        ends = np.sort([max(move.away_begin, move.away_end) for move in moves])
        away_count = np.searchsorted(begins, rows, side="right") - np.searchsorted(ends, rows, side="right")
        freed = less_by_moves(
            footprint.stages[number], stash_levels.stash.during, stash_levels.works.during, away_count
        )
        live, in_fifos = (
            Levels(levels.during - reduction, levels.at_end)
            for levels, reduction in zip((live, in_fifos), freed, strict=True)
        )
    # Bytes that remain after a pass were alive during the pass, so the peak is always within a pass.
    peak_index = int(np.where(live.during == live.during.max(), in_fifos.during, -1).argmax())
    update = update_bytes(footprint, ipu_footprint.ipu)
    if update > live.during[peak_index]:  # the weight update comes last, with empty FIFOs
        return Peak(ipu_footprint.ipu, None, (*ipu_footprint.resident, (Holder.LIVE, update)), 0)
    row = rows[peak_index]
    op = Op(Pass(plan.kind[row]), int(plan.stage[row]), int(plan.micro_batch[row]))
    holders = (*ipu_footprint.resident, (Holder.LIVE, int(live.during[peak_index])))
    return Peak(ipu_footprint.ipu, op, holders, int(in_fifos.during[peak_index]), plan.shape.segments)
