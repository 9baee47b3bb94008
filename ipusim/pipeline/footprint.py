"""The bytes that each IPU holds for the whole program, and those that a pass of each stage has live.

Everything that a Poplar program keeps between its programs is allocated once, at
compile time, for as long as it runs: parameters, optimizer state, accumulators, and
the buffers of FIFOs, copies and host streams, full or not. A FIFO holds what its
stage keeps of each micro-batch for the backward pass, or the stage's input where
that is computed again (Graphcore's TensorFlow compiler, pipeline_fifo_inserter.cc and
pipeline_recomputation.cc). The rest is alive while passes run:

- a forward pass: what it keeps, and its output, which is copied to the next stage;
- a forward pass that keeps nothing, in inference or because it runs again: its
  layers' largest input and output together;
- a recomputation: what it keeps, until the backward pass ends; one inside of the backward pass, what the layers from
  one checkpoint to the next keep, which are computed again one part after another (PopART's way, with the output of
  each layer in the FIFO: :mod:`ipusim.runs.assemble.recomputation`);
- a backward pass: what its forward kept, taken out of the FIFO; the gradients of the
  layers' largest input and output; those of the largest layer's weights, until they
  are added to their accumulators; and the accumulators, where they lie in Streaming Memory;
- the first half of a backward pass: what its forward kept, or what the second half needs, whichever is more,
  and the gradients of the layers' largest input and output; then, until the second half ends, what that needs;
- the second half: that, those of the largest layer's weights, and accumulators as above;
- a weight update: what it loads from Streaming Memory, all of it until it is stored again; with PopART the state of
  the largest variable.

Of activations that are moved out and back the FIFO has the micro-batches that stay; others are alive until they are
away, and from the moment in which they begin to come back. Another IPU that they go to has room for as many as are
away at once, among its copy buffers.

What the products of a stage hold for themselves follows from their plans. The most that any of an IPU's products
holds is set aside all the time (assumed: between products Poplar may lay other tensors there), and what a weight
update loads lies there first. What other operations hold is left out, so that the rest is a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ipusim.pipeline.holders import RESIDENT, Holder
from ipusim.pipeline.moves import Move, most_away, moves_of
from ipusim.pipeline.order import CopyRule
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram


@dataclass(frozen=True)
class StageFootprint:
    """The bytes that one stage holds of each micro-batch.

    Attributes:
        ipus: where it lives, on each of them whole.
        fifo_depth: micro-batches that its FIFO has room for.
        saved: of a micro-batch between its forward and its backward pass, or its recomputation: the
            stash, or the stage's input.
        recomputed: of a micro-batch between its recomputation and the end of its backward pass: the
            stash; 0 where nothing is computed again.
        forward, backward: alive while the pass runs, beside what is kept; a backward pass that
            computes its activations again holds them too.
        rest: of a micro-batch between the halves of its backward pass.
        temporary: what the products of its passes hold for themselves, in the room that its IPU has for them.
        input_half, weight_half: alive while either half runs, beside what is kept, and beside ``rest`` in the second.
        recomputes: whether the forward pass runs again, as a pass of its own.
        training: whether anything is kept at all.
        update: alive while the weight update runs: what it has loaded from Streaming Memory.
        recompute: alive while a recomputation runs, beside what it recomputes: weights from Streaming Memory.
    """

    ipus: tuple[int, ...]
    fifo_depth: int
    saved: int
    recomputed: int
    forward: int
    backward: int
    recomputes: bool
    training: bool
    update: int = 0
    recompute: int = 0
    rest: int = 0
    input_half: int = 0
    weight_half: int = 0
    temporary: int = 0

    @property
    def fifo_bytes(self) -> int:
        """The FIFO's buffer."""
        return self.fifo_depth * self.saved


@dataclass(frozen=True)
class IpuFootprint:
    """The bytes that one IPU holds all the time.

    Attributes:
        ipu: logical IPU.
        resident: bytes of each holder of RESIDENT, in its order; 0 included.
        remote_bytes: what it keeps in Streaming Memory beside that.
        assumed_bytes: code among the resident bytes that is estimated, not stated.
    """

    ipu: int
    resident: tuple[tuple[Holder, int], ...]
    remote_bytes: int = 0
    assumed_bytes: int = 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(size for _, size in self.resident)


@dataclass(frozen=True)
class Footprint:
    """The footprint of a program.

    Attributes:
        stages: of each stage in order.
        ipus: of each IPU that holds a stage, in rising order.
        moves: of activations in one execution.
    """

    stages: tuple[StageFootprint, ...]
    ipus: tuple[IpuFootprint, ...]
    moves: tuple[Move, ...] = ()


def footprint(
    plan: Plan, program: PipelineProgram, code_bytes: int = 0, estimated_code: Mapping[int, int] | None = None
) -> Footprint:
    """Return the footprint of ``program`` under ``plan``.

    Args:
        plan: the order of the passes.
        program: the stages, and where they lie.
        code_bytes: stated for the code and vertices of each IPU, beside those that a stage's profile knows.
        estimated_code: by IPU, bytes assumed for the same; Poplar's code generation is not simulated.
    """
    estimates = estimated_code or {}
    moved, moves = program.moved_activations, tuple[Move, ...]()
    if moved is not None:
        moves = moves_of(plan.table, plan.shape, moved, meets=plan.sync.meets)
    moving = {move.stage for move in moves}
    stages = tuple(_stage(plan, program, stage, moves=stage in moving) for stage in range(plan.shape.stages))
    room: Counter[int] = Counter()  # by IPU, or by that of the Streaming Memory
    for (ipu, stage), micro_batches in most_away(moves).items():
        assert moved is not None
        room[moved.place(ipu, plan.shape.mapping)] += micro_batches * stages[stage].saved
    ipus = []
    for ipu in plan.ipus:
        bytes_of: dict[Holder, int] = dict.fromkeys(RESIDENT, 0)
        bytes_of[Holder.CODE] = code_bytes + estimates.get(ipu, 0)
        for stage, profile in enumerate(program.stages):
            if ipu in stages[stage].ipus:
                for holder, size in _resident(plan, program, stage, stages[stage]):
                    bytes_of[holder] += size
                bytes_of[Holder.CODE] += profile.code_bytes
                bytes_of[Holder.TEMPORARY] = max(bytes_of[Holder.TEMPORARY], profile.temporary_bytes)
        own = [stage for stage, footprint_of in enumerate(stages) if ipu in footprint_of.ipus]
        remote = program.offload.remote_bytes(program.stages[stage] for stage in own)
        if program.offload.activations:
            remote += sum(_remote_activations(plan, program, stage) for stage in own)
        if moved is not None and moved.to == "streaming_memory":
            remote += room[ipu]
        else:
            bytes_of[Holder.COPIES] += room[ipu]
        ipus.append(IpuFootprint(ipu, tuple(bytes_of.items()), remote, estimates.get(ipu, 0)))
    return Footprint(stages, tuple(ipus), moves)


def _remote_activations(plan: Plan, program: PipelineProgram, stage: int) -> int:
    """Return the bytes of a stage's buffers in Streaming Memory: of what it keeps, and of what it sends."""
    shape = plan.shape
    sent = sum(
        program.sent_bytes(stage, other)
        for stride in (-1, 1)
        for other in shape.neighbours(stage, stride)
        if shape.training or stride > 0
    )
    saved = program.saved_bytes(stage) if shape.neighbours(stage, 1) else 0
    return shape.serialization * (sent + saved)


def _stage(plan: Plan, program: PipelineProgram, stage: int, *, moves: bool) -> StageFootprint:
    shape, profile, offload = plan.shape, program.stages[stage], program.offload
    inline = program.recomputes_inside(stage)
    recomputed_somewhere = shape.recomputes(stage) or inline
    recomputes = recomputed_somewhere and not inline
    saved = program.saved_bytes(stage)
    # Activations that lie in Streaming Memory are on the IPU while a pass works on them only.
    away = saved if offload.activations and shape.neighbours(stage, 1) else 0
    weights = offload.weight_bytes(profile)
    keeps_nothing = recomputed_somewhere or not shape.training
    outputs = max(profile.working_bytes, profile.output_bytes) if keeps_nothing else profile.output_bytes
    gradients = max(profile.working_bytes, profile.gradient_bytes)
    # Alive in a backward pass that computes activations again, and in its first half beside the stash and weights.
    again = profile.stash_bytes if profile.cluster_bytes is None else profile.cluster_bytes
    between = profile.between_halves_bytes
    half = max(again, between) if inline else max(between - profile.stash_bytes, 0)
    sums = offload.accumulator_bytes(profile) if shape.training else 0
    depth = plan.fifo_depths[stage] if shape.training else 0
    if moves and offload.moved is not None:
        depth = min(depth, offload.moved.kept(shape.mapping))
    return StageFootprint(
        ipus=shape.ipus_of(stage),
        fifo_depth=depth,
        saved=saved - away,
        recomputed=profile.stash_bytes if recomputes else 0,
        forward=away + weights + outputs,
        backward=away + weights + gradients + profile.weight_gradient_bytes + sums + (again if inline else 0),
        recomputes=recomputes,
        training=shape.training,
        recompute=weights,
        rest=between if shape.training else 0,
        input_half=away + weights + gradients + half,
        weight_half=weights + profile.weight_gradient_bytes + sums,
        temporary=profile.temporary_bytes,
        update=weights + offload.loaded_state_bytes(profile) + sums if shape.training else 0,
    )


def _resident(plan: Plan, program: PipelineProgram, stage: int, own: StageFootprint) -> Iterator[tuple[Holder, int]]:
    """Yield the holders and bytes that one stage adds to its IPU.

    A copy buffer is one for each tensor that goes out or comes in: the copies of a
    time-step run at once, so that a tensor leaves its buffer before the next pass
    fills it. What comes from a stage of the same IPU has a buffer of its own where
    that stage may run again first, under the schedules with merged copies. In point-to-point
    tensors wait with the IPU that takes them, as many as may come before it does; what an
    IPU sends has left its one buffer before the next pass fills it (assumed).
    """
    profiles, shape = program.stages, plan.shape
    profile, last = profiles[stage], len(profiles) - 1
    yield Holder.PARAMETERS, profile.parameter_bytes - program.offload.weight_bytes(profile) + profile.untrained_bytes
    yield Holder.FIFOS, own.fifo_bytes + profile.waiting_bytes
    if stage == 0:
        yield Holder.STREAMS, program.infeed.element_bytes
    if stage == last:
        yield Holder.STREAMS, program.outfeed.element_bytes
    if plan.shape.training:
        yield Holder.STATE, program.offload.resident_state_bytes(profile)
        yield Holder.ACCUMULATORS, profile.accumulator_bytes - program.offload.accumulator_bytes(profile)
    before, after = shape.neighbours(stage, -1), shape.neighbours(stage, 1)
    merged = plan.copy_rule is CopyRule.MERGED or not plan.sync.meets
    # Under batch serialization a buffer has an element for each turn of the loops, unless it lies elsewhere.
    elements = 1 if program.offload.activations else shape.serialization
    yield Holder.COPIES, elements * profile.gradient_bytes if before else 0
    yield Holder.COPIES, elements * profile.output_bytes if after else 0
    for neighbour in (*before, *after):
        if shape.mapping[neighbour] != own.ipus[0] or merged:
            yield Holder.COPIES, plan.waiting.get((neighbour, stage), 1) * program.sent_bytes(neighbour, stage)
