"""Live bytes on an IPU along its passes, derived from the order of passes.

A stage has a FIFO and a buffer. The buffer holds the stash of a forward pass until the end of the time-step, when the
FIFO takes over. The buffer also holds a stash taken out of the FIFO until the backward pass, its first half, or the
recomputation has used it. So the micro-batch in use is outside the FIFO, like micro-batches beyond the FIFO's
capacity. Only these micro-batches are alive; the FIFO's buffers are resident.
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
    """A quantity during each of several passes, and after each pass until the next."""

    during: Column
    after: Column

    def __add__(self, other: Levels) -> Levels:
        """Add two quantities along the same passes."""
        return Levels(self.during + other.during, self.after + other.after)

    def times(self, factor: int) -> Levels:
        """Multiply the quantity by ``factor``."""
        return Levels(self.during * factor, self.after * factor)

    def from_zero(self) -> Column:
        """Return 0, then the two levels of every pass in turn."""
        return np.concatenate([[0], np.stack([self.during, self.after], axis=1).ravel()])


class StageLevels(NamedTuple):
    """Memory of a stage, pass by pass.

    Attributes:
        live: bytes alive outside of the FIFO.
        saved: micro-batches kept for a backward pass or recomputation, inside and outside of the FIFO.
        in_fifo: kept micro-batches inside the FIFO.
    """

    live: Levels
    saved: Levels
    in_fifo: Levels


class Alive(NamedTuple):
    """Number of micro-batches with live data along a stage's passes.

    Attributes:
        saved: micro-batches kept for a backward pass or recomputation.
        outside: kept micro-batches outside of the FIFO.
        recomputed: micro-batches with recomputed activations.
        waiting: micro-batches with tensors for the second half of the backward pass.
    """

    saved: Levels
    outside: Levels
    recomputed: Levels
    waiting: Levels


def alive(stage: StageFootprint, kind: Column) -> Alive:
    """Count micro-batches with live data along passes of ``stage``.

    ``kind`` has kinds of passes (see Pass) in order of execution. The result is independent of bytes.
    """
    if not stage.training:
        nothing = np.zeros(len(kind), dtype=np.int64)
        none = Levels(nothing, nothing)
        return Alive(none, none, none, none)
    forward, recomputes, inputs, weights = (
        kind == pass_kind for pass_kind in (Pass.FORWARD, Pass.RECOMPUTE, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    )
    backward = (kind == Pass.BACKWARD) | inputs  # both use the stash of the forward pass
    taken = recomputes if stage.recomputes else backward
    saved = _between(forward, taken)
    outside = Levels(
        np.maximum(saved.during - stage.fifo_depth, np.where(forward | taken, 1, 0)),
        np.maximum(saved.after - stage.fifo_depth, 0),
    )
    recomputed = _between(recomputes, backward) if stage.recomputes else saved.times(0)
    waiting = _between(inputs, weights)
    waiting = Levels(waiting.during - inputs, waiting.after)  # a first half already includes its output
    return Alive(saved, outside, recomputed, waiting)


def stage_levels(stage: StageFootprint, kind: Column) -> StageLevels:
    """Return the levels of ``stage`` along its passes; ``kind`` has their kinds (see Pass)."""
    running = {Pass.FORWARD: stage.forward, Pass.BACKWARD: stage.backward, Pass.RECOMPUTE: stage.recompute}
    running |= {Pass.INPUT_GRADIENT: stage.input_half, Pass.WEIGHT_GRADIENT: stage.weight_half}
    there = alive(stage, kind)
    live = Levels(np.array([running[run] for run in Pass], dtype=np.int64)[kind], np.zeros(len(kind), dtype=np.int64))
    live += (
        there.outside.times(stage.saved) + there.recomputed.times(stage.recomputed) + there.waiting.times(stage.rest)
    )
    in_fifo = Levels(there.saved.during - there.outside.during, there.saved.after - there.outside.after)
    return StageLevels(live, there.saved, in_fifo)


def _between(opening: Mask, closing: Mask) -> Levels:
    """Count micro-batches from the start of an opening to the end of a closing pass."""
    after = np.cumsum(opening.astype(np.int64) - closing)
    return Levels(after + closing.astype(np.int64), after)


def spread(levels: Levels, own: Mask) -> Levels:
    """Extend a stage's levels to every pass on the IPU; ``own`` masks passes of the stage.

    During passes of other stages, the level after the stage's latest pass remains. Levels may have columns.
    """
    nothing = np.zeros((1, *levels.after.shape[1:]), dtype=np.int64)
    behind = np.concatenate([nothing, levels.after])[np.cumsum(own)]
    during = behind.copy()
    during[own] = levels.during
    return Levels(during, behind)


def ipu_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> tuple[Levels, Levels]:
    """Return bytes alive on ``ipu`` and bytes in its FIFOs along its passes."""
    nothing = np.zeros(len(kind), dtype=np.int64)
    live = in_fifos = Levels(nothing, nothing)
    for number, footprint_of in enumerate(footprint.stages):
        if ipu in footprint_of.ipus:
            own = stage == number
            levels = stage_levels(footprint_of, kind[own])
            live += spread(levels.live, own)
            in_fifos += spread(levels.in_fifo.times(footprint_of.saved), own)
    return live, in_fifos


def update_bytes(footprint: Footprint, ipu: int) -> int:
    """Return live bytes of the weight update on ``ipu``, beyond its buffer for products."""
    loaded = sum(stage.update for stage in footprint.stages if ipu in stage.ipus)
    (room,) = (dict(own.resident)[Holder.TEMPORARY] for own in footprint.ipus if own.ipu == ipu)
    return max(loaded - room, 0)


class Kept(NamedTuple):
    """Kept micro-batches of a stage with moved activations, wherever stored, along its IPU's passes.

    Attributes:
        saved: number of micro-batches.
        works: 1 during a pass that stores or uses a micro-batch, else 0.
    """

    saved: Levels
    works: Levels


def kept_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> dict[int, Kept]:
    """Return kept micro-batches of each stage on ``ipu`` with moved activations, by stage number."""
    found: dict[int, Kept] = {}
    for number in sorted({move.stage for move in footprint.moves if move.ipu == ipu}):
        own, of_stage = stage == number, footprint.stages[number]
        there = alive(of_stage, kind[own])
        taking = (Pass.RECOMPUTE,) if of_stage.recomputes else (Pass.BACKWARD, Pass.INPUT_GRADIENT)
        works = any_of(kind, (Pass.FORWARD, *taking)) & own
        found[number] = Kept(spread(there.saved, own), Levels(works.astype(np.int64), np.zeros_like(kind)))
    return found


def less_by_moves(stage: StageFootprint, saved: Column, works: Column, away: Column) -> tuple[Column, Column]:
    """Return the live bytes and FIFO bytes saved by micro-batches moved away."""
    outside = np.maximum(saved - stage.fifo_depth, works)
    less = outside - np.maximum(saved - away - stage.fifo_depth, works)
    return less * stage.saved, (away - less) * stage.saved


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
    return tuple(_peak(plan, footprint, own) for own in footprint.ipus)


def _peak(plan: Plan, footprint: Footprint, own: IpuFootprint) -> Peak:
    rows = np.flatnonzero(plan.ipu == own.ipu)
    stage, kind = plan.stage[rows], plan.kind[rows]
    live, in_fifos = ipu_levels(footprint, own.ipu, stage, kind)
    for number, kept in kept_levels(footprint, own.ipu, stage, kind).items():
        moves = [move for move in footprint.moves if (move.ipu, move.stage) == (own.ipu, number)]
        gone = np.sort([move.gone for move in moves])
        there = np.sort([max(move.gone, move.there) for move in moves])
        away = np.searchsorted(gone, rows, side="right") - np.searchsorted(there, rows, side="right")
        less = less_by_moves(footprint.stages[number], kept.saved.during, kept.works.during, away)
        live, in_fifos = (
            Levels(levels.during - of, levels.after) for levels, of in zip((live, in_fifos), less, strict=True)
        )
    # Bytes that remain after a pass were alive during the pass, so the peak is always within a pass.
    top = int(np.where(live.during == live.during.max(), in_fifos.during, -1).argmax())
    update = update_bytes(footprint, own.ipu)
    if update > live.during[top]:  # the weight update comes last, with empty FIFOs
        return Peak(own.ipu, None, (*own.resident, (Holder.LIVE, update)), 0)
    row = rows[top]
    op = Op(Pass(plan.kind[row]), int(plan.stage[row]), int(plan.micro_batch[row]))
    holders = (*own.resident, (Holder.LIVE, int(live.during[top])))
    return Peak(own.ipu, op, holders, int(in_fifos.during[top]), plan.shape.segments)
