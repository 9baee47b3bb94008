"""Live bytes on an IPU along its passes, which follow from their order alone.

A stage has one buffer beside its FIFO: what a forward pass keeps lies there until the
FIFO takes it at the end of the time-step, and what the FIFO gives out lies there until
the backward pass, or the first half of it, (or the recomputation) has used it. So of h micro-batches that are
kept, one that a pass works on is outside the FIFO, and so are those that the FIFO
has no room for; these are alive, and the others lie in the buffers that are allocated anyway.
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
    """A quantity while each of several passes runs, and between its end and the next one's start."""

    during: Column
    after: Column

    def __add__(self, other: Levels) -> Levels:
        """Return the sum of two quantities along the same passes."""
        return Levels(self.during + other.during, self.after + other.after)

    def times(self, factor: int) -> Levels:
        """Return the quantity times ``factor``."""
        return Levels(self.during * factor, self.after * factor)

    def from_zero(self) -> Column:
        """Return 0, and then both levels of each pass in turn."""
        return np.concatenate([[0], np.stack([self.during, self.after], axis=1).ravel()])


class StageLevels(NamedTuple):
    """One stage's memory along its passes.

    Attributes:
        live: bytes alive outside of its FIFO.
        saved: micro-batches kept for their backward pass, or their recomputation, in the FIFO and outside.
        in_fifo: those of them that lie in the FIFO.
    """

    live: Levels
    saved: Levels
    in_fifo: Levels


class Alive(NamedTuple):
    """How many micro-batches a stage has live data of along its passes, beside what the passes themselves need.

    Attributes:
        saved: of what is kept for the backward pass, or the recomputation.
        outside: those of them that are not in the FIFO.
        recomputed: of what was computed again.
        waiting: of what the second half of the backward pass needs.
    """

    saved: Levels
    outside: Levels
    recomputed: Levels
    waiting: Levels


def alive(stage: StageFootprint, kind: Column) -> Alive:
    """Return of how many micro-batches ``stage`` has live data along its passes, whose kinds (see Pass) are in order.

    It does not depend on bytes.
    """
    if not stage.training:
        nothing = np.zeros(len(kind), dtype=np.int64)
        none = Levels(nothing, nothing)
        return Alive(none, none, none, none)
    forward, recomputes, inputs, weights = (
        kind == pass_kind for pass_kind in (Pass.FORWARD, Pass.RECOMPUTE, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    )
    backward = (kind == Pass.BACKWARD) | inputs  # either uses what the forward pass kept
    taken = recomputes if stage.recomputes else backward
    saved = _between(forward, taken)
    outside = Levels(
        np.maximum(saved.during - stage.fifo_depth, np.where(forward | taken, 1, 0)),
        np.maximum(saved.after - stage.fifo_depth, 0),
    )
    recomputed = _between(recomputes, backward) if stage.recomputes else saved.times(0)
    waiting = _between(inputs, weights)
    waiting = Levels(waiting.during - inputs, waiting.after)  # a first half counts its own output
    return Alive(saved, outside, recomputed, waiting)


def stage_levels(stage: StageFootprint, kind: Column) -> StageLevels:
    """Return the levels of ``stage`` along its passes, whose kinds (see Pass) come in the order in which they run."""
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
    """Return how many micro-batches are between the start of an opening pass and the end of its closing pass."""
    after = np.cumsum(opening.astype(np.int64) - closing)
    return Levels(after + closing.astype(np.int64), after)


def spread(levels: Levels, own: Mask) -> Levels:
    """Return one stage's levels along the passes of its whole IPU, of which ``own`` are the stage's.

    While other stages' passes run, the stage stays at what its last pass left. Levels may have columns.
    """
    nothing = np.zeros((1, *levels.after.shape[1:]), dtype=np.int64)
    behind = np.concatenate([nothing, levels.after])[np.cumsum(own)]
    during = behind.copy()
    during[own] = levels.during
    return Levels(during, behind)


def ipu_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> tuple[Levels, Levels]:
    """Return bytes alive on ``ipu``, and bytes in its FIFOs, along its passes in the order in which they run."""
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
    """Return the bytes alive on ``ipu`` while its weight update runs, beyond its products' room, which is free then."""
    loaded = sum(stage.update for stage in footprint.stages if ipu in stage.ipus)
    (room,) = (dict(own.resident)[Holder.TEMPORARY] for own in footprint.ipus if own.ipu == ipu)
    return max(loaded - room, 0)


class Kept(NamedTuple):
    """The micro-batches that a stage whose activations are moved keeps along the passes of its IPU, wherever they are.

    Attributes:
        saved: how many.
        works: 1 while a pass that keeps or uses one runs, else 0.
    """

    saved: Levels
    works: Levels


def kept_levels(footprint: Footprint, ipu: int, stage: Column, kind: Column) -> dict[int, Kept]:
    """Return what each stage on ``ipu`` keeps whose activations are moved, by its number."""
    found: dict[int, Kept] = {}
    for number in sorted({move.stage for move in footprint.moves if move.ipu == ipu}):
        own, of_stage = stage == number, footprint.stages[number]
        there = alive(of_stage, kind[own])
        taking = (Pass.RECOMPUTE,) if of_stage.recomputes else (Pass.BACKWARD, Pass.INPUT_GRADIENT)
        works = any_of(kind, (Pass.FORWARD, *taking)) & own
        found[number] = Kept(spread(there.saved, own), Levels(works.astype(np.int64), np.zeros_like(kind)))
    return found


def less_by_moves(stage: StageFootprint, saved: Column, works: Column, away: Column) -> tuple[Column, Column]:
    """Return how many bytes less are alive, and in the FIFO of a stage, with some micro-batches away."""
    outside = np.maximum(saved - stage.fifo_depth, works)
    less = outside - np.maximum(saved - away - stage.fifo_depth, works)
    return less * stage.saved, (away - less) * stage.saved


class Peak(NamedTuple):
    """The peak memory of an IPU.

    Attributes:
        ipu: logical IPU.
        op: the pass during which it holds that much; of several, the first in which its FIFOs are fullest;
            None for the weight update.
        holders: bytes of every holder at that moment, in the order of Holder.
        fifo_bytes: what the FIFOs' buffers really hold then.
        segments: of a micro-batch.
    """

    ipu: int
    op: Op | None
    holders: tuple[tuple[Holder, int], ...]
    fifo_bytes: int
    segments: int = 1

    @property
    def during(self) -> str:
        """The IPU's operation then: a pass such as ``B0.3``, or its weight update."""
        return "weight update" if self.op is None else self.op.text(self.segments)

    @property
    def bytes(self) -> int:
        """Bytes of all holders."""
        return sum(size for _, size in self.holders)

    def largest(self, count: int) -> tuple[tuple[Holder, int], ...]:
        """Return the largest holders that hold anything, the largest first."""
        holders = [(holder, size) for holder, size in self.holders if size]
        return tuple(sorted(holders, key=lambda item: -item[1])[:count])


def peaks(plan: Plan, footprint: Footprint) -> tuple[Peak, ...]:
    """Return the peak of each IPU that holds a stage, in rising order; every execution has the same ones."""
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
    # What a pass leaves behind was alive while it ran, so that the peak is always within a pass.
    top = int(np.where(live.during == live.during.max(), in_fifos.during, -1).argmax())
    update = update_bytes(footprint, own.ipu)
    if update > live.during[top]:  # every micro-batch is behind it, so that the FIFOs are empty
        return Peak(own.ipu, None, (*own.resident, (Holder.LIVE, update)), 0)
    row = rows[top]
    op = Op(Pass(plan.kind[row]), int(plan.stage[row]), int(plan.micro_batch[row]))
    holders = (*own.resident, (Holder.LIVE, int(live.during[top])))
    return Peak(own.ipu, op, holders, int(in_fifos.during[top]), plan.shape.segments)
