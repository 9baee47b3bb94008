"""Compute a program's memory: bytes resident on each IPU, and bytes alive during each stage's passes.

A stash consists of the tensors of a micro-batch that a forward pass keeps for the backward pass. Poplar allocates data
shared between its programs once, at compile time, for the whole run: parameters, optimizer state, accumulators, and
buffers of FIFOs, copies and host streams, full or empty. A FIFO holds a stage's stash of each micro-batch for the
backward pass, or the stage's input in case of recomputation (Graphcore's TensorFlow compiler, pipeline_fifo_inserter.cc
and pipeline_recomputation.cc). Further data is alive during passes:

- a forward pass: its stash, and its output for the next stage;
- a forward pass without a stash, in inference or before recomputation: the
  layers' largest input and output together;
- a recomputation: its stash, until the backward pass ends;
- a recomputation inside the backward pass: the stash of the layers between two checkpoints, part by part. In PopART's
  way, the FIFO holds every layer's output (:mod:`ipusim.runs.assemble.recomputation`);
- a backward pass: the stash from the FIFO; gradients of the layers' largest input and output; gradients of the largest
  layer's weights, until added to accumulators; and accumulators from Streaming Memory;
- the first half of a backward pass (the input-gradient pass): the stash or the tensors for the second half, whichever
  are larger, and gradients of the layers' largest input and output; then, until the second half ends, tensors for the
  second half;
- the second half (the weight-gradient pass): these tensors, gradients of the largest layer's weights, and accumulators
  as above;
- a weight update: tensors loaded from Streaming Memory, until stored again; with PopART the state of the largest
  variable.

If activations are moved out and back, the FIFO holds only micro-batches that stay. Other micro-batches are alive until
the move out ends, and from the start of the move back. A receiving IPU reserves copy buffers for the largest number of
micro-batches away at once.

Memory of a stage's products follows from their plans. Each IPU reserves the largest amount of any of its products for
the whole run (assumed: Poplar may reuse this memory between products). Tensors loaded by a weight update use this
memory first. Memory of other operations is omitted, so the footprint is a lower bound.
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
    """Bytes of one stage per micro-batch.

    Attributes:
        ipus: IPUs of the stage, each with a full copy of the stage.
        fifo_depth: capacity of the FIFO in micro-batches.
        kept_bytes: bytes kept for a micro-batch from the forward pass on: the stash, or the stage's input for
            recomputation.
        recomputed_bytes: bytes of the stash that a separate recomputation pass makes for the backward pass; 0 without
            this pass.
        forward_bytes: bytes alive during a forward pass, in addition to kept micro-batches.
        backward_bytes: bytes alive during a backward pass, in addition to kept micro-batches; with inline recomputation
            they include recomputed activations.
        halves_bytes: bytes of a micro-batch between the halves of its backward pass.
        temporary_bytes: bytes of products in passes, inside the IPU's buffer for products.
        input_half_bytes: bytes alive during the first half of a backward pass, in addition to kept micro-batches.
        weight_half_bytes: bytes alive during the second half, in addition to kept micro-batches and ``halves_bytes``.
        has_recompute_pass: whether recomputation is a separate pass.
        training: whether the stage keeps tensors for a backward pass.
        update_bytes: bytes of tensors from Streaming Memory alive during the weight update.
        recompute_weight_bytes: bytes of weights from Streaming Memory alive during a separate recomputation pass.
    """

    ipus: tuple[int, ...]
    fifo_depth: int
    kept_bytes: int
    recomputed_bytes: int
    forward_bytes: int
    backward_bytes: int
    has_recompute_pass: bool
    training: bool
    update_bytes: int = 0
    recompute_weight_bytes: int = 0
    halves_bytes: int = 0
    input_half_bytes: int = 0
    weight_half_bytes: int = 0
    temporary_bytes: int = 0

    @property
    def fifo_bytes(self) -> int:
        """Bytes of the FIFO buffer."""
        return self.fifo_depth * self.kept_bytes


@dataclass(frozen=True)
class IpuFootprint:
    """Bytes resident on one IPU during the whole run.

    Attributes:
        ipu: logical IPU.
        resident: bytes by holder (kind of content), in the order of RESIDENT, holders of 0 bytes included.
        remote_bytes: bytes in Streaming Memory.
        assumed_bytes: bytes of estimated code, included in ``resident``; 0 for stated code.
    """

    ipu: int
    resident: tuple[tuple[Holder, int], ...]
    remote_bytes: int = 0
    assumed_bytes: int = 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of all resident holders."""
        return sum(size for _, size in self.resident)


@dataclass(frozen=True)
class Footprint:
    """Memory footprint of a program.

    Attributes:
        stages: footprints of stages, in order.
        ipus: footprints of IPUs with a stage, ascending.
        moves: moves of activations per execution.
    """

    stages: tuple[StageFootprint, ...]
    ipus: tuple[IpuFootprint, ...]
    moves: tuple[Move, ...] = ()


def footprint(
    plan: Plan, program: PipelineProgram, code_bytes: int = 0, estimated_code: Mapping[int, int] | None = None
) -> Footprint:
    """Return the footprint of ``program`` under ``plan``.

    Args:
        plan: order of the passes.
        program: stages and offloaded tensors.
        code_bytes: stated bytes of code and vertices on each IPU, in addition to code in stage profiles.
        estimated_code: assumed bytes of code and vertices by IPU; Poplar's code generation is not simulated.
    """
    estimates = estimated_code or {}
    move_options, moves = program.moved_activations, tuple[Move, ...]()
    if move_options is not None:
        moves = moves_of(plan.table, plan.shape, move_options, has_time_steps=plan.sync.has_time_steps)
    moving_stages = {move.stage for move in moves}
    stages = tuple(_stage(plan, program, stage, has_moves=stage in moving_stages) for stage in range(plan.shape.stages))
    away_bytes_at: Counter[int] = Counter()  # by receiving IPU, or by IPU whose Streaming Memory receives
    for (ipu, stage), micro_batches in most_away(moves).items():
        assert move_options is not None
        away_bytes_at[move_options.receiving_ipu(ipu, plan.shape.mapping)] += micro_batches * stages[stage].kept_bytes
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
        ipu_stages = [stage for stage, stage_footprint in enumerate(stages) if ipu in stage_footprint.ipus]
        remote = program.offload.remote_bytes(program.stages[stage] for stage in ipu_stages)
        if program.offload.activations:
            remote += sum(_remote_activations(plan, program, stage) for stage in ipu_stages)
        if move_options is not None and move_options.to == "streaming_memory":
            remote += away_bytes_at[ipu]
        else:
            bytes_of[Holder.COPIES] += away_bytes_at[ipu]
        ipus.append(IpuFootprint(ipu, tuple(bytes_of.items()), remote, estimates.get(ipu, 0)))
    return Footprint(stages, tuple(ipus), moves)


def _remote_activations(plan: Plan, program: PipelineProgram, stage: int) -> int:
    """Return the Streaming Memory bytes of a stage's stash and sent tensors."""
    shape = plan.shape
    sent_bytes = sum(
        program.sent_bytes(stage, neighbour)
        for stride in (-1, 1)
        for neighbour in shape.neighbours(stage, stride)
        if shape.training or stride > 0
    )
    kept_bytes = program.saved_bytes(stage) if shape.neighbours(stage, 1) else 0
    return shape.serialization * (sent_bytes + kept_bytes)


def _stage(plan: Plan, program: PipelineProgram, stage: int, *, has_moves: bool) -> StageFootprint:
    shape, profile, offload = plan.shape, program.stages[stage], program.offload
    is_inline = program.recomputes_inside(stage)
    recomputed_somewhere = shape.recomputes(stage) or is_inline
    has_recompute_pass = shape.recomputes_apart(stage)
    kept_bytes = program.saved_bytes(stage)
    # Activations in Streaming Memory occupy the IPU only during passes on them.
    away_bytes = kept_bytes if offload.activations and shape.neighbours(stage, 1) else 0
    weights = offload.weight_bytes(profile)
    keeps_nothing = recomputed_somewhere or not (shape.training and profile.has_backward)
    outputs = max(profile.working_bytes, profile.output_bytes) if keeps_nothing else profile.output_bytes
    gradients = max(profile.working_bytes, profile.gradient_bytes)
    # Bytes that recomputation adds to a whole backward pass.
    recompute_bytes = profile.stash_bytes if profile.cluster_bytes is None else profile.cluster_bytes
    halves_bytes = profile.between_halves_bytes
    # Bytes that the first half needs beyond the stash, weights and gradients.
    half_bytes = max(recompute_bytes, halves_bytes) if is_inline else max(halves_bytes - profile.stash_bytes, 0)
    accumulator_bytes = offload.accumulator_bytes(profile) if shape.training else 0
    depth = plan.fifo_depths[stage] if shape.training else 0
    if has_moves and offload.moved is not None:
        depth = min(depth, offload.moved.most_kept(shape.mapping))
    return StageFootprint(
        ipus=shape.ipus_of(stage),
        fifo_depth=depth,
        kept_bytes=kept_bytes - away_bytes,
        recomputed_bytes=profile.stash_bytes if has_recompute_pass else 0,
        forward_bytes=away_bytes + weights + outputs,
        backward_bytes=away_bytes
        + weights
        + gradients
        + profile.weight_gradient_bytes
        + accumulator_bytes
        + (recompute_bytes if is_inline else 0),
        has_recompute_pass=has_recompute_pass,
        training=shape.training,
        recompute_weight_bytes=weights,
        halves_bytes=halves_bytes if shape.training else 0,
        input_half_bytes=away_bytes + weights + gradients + half_bytes,
        weight_half_bytes=weights + profile.weight_gradient_bytes + accumulator_bytes,
        temporary_bytes=profile.temporary_bytes,
        update_bytes=weights + offload.loaded_state_bytes(profile) + accumulator_bytes if shape.training else 0,
    )


def _resident(
    plan: Plan, program: PipelineProgram, stage: int, stage_footprint: StageFootprint
) -> Iterator[tuple[Holder, int]]:
    """Yield the holders and bytes of a stage on its IPU.

    Every outgoing or incoming tensor has a copy buffer. In lock-step, copies of a time-step run at once, so a tensor
    leaves its buffer before the next pass fills the buffer. Under schedules with merged copies, a tensor from a stage
    of the same IPU also has a buffer, as the sending stage may run again before the tensor is used. In point-to-point,
    tensors wait on the receiving IPU, which reserves buffers for the maximum number of waiting tensors; a sent tensor
    leaves its single buffer before the next pass fills the buffer (assumed).
    """
    profiles, shape = program.stages, plan.shape
    profile, last = profiles[stage], len(profiles) - 1
    yield Holder.PARAMETERS, profile.parameter_bytes - program.offload.weight_bytes(profile) + profile.untrained_bytes
    yield Holder.FIFOS, stage_footprint.fifo_bytes + profile.waiting_bytes
    if stage == 0:
        yield Holder.STREAMS, program.infeed.element_bytes
    if stage == last:
        yield Holder.STREAMS, program.outfeed.element_bytes
    if plan.shape.training:
        yield Holder.STATE, program.offload.resident_state_bytes(profile)
        yield Holder.ACCUMULATORS, profile.accumulator_bytes - program.offload.accumulator_bytes(profile)
    sources, targets = shape.neighbours(stage, -1), shape.neighbours(stage, 1)
    is_merged = plan.copy_rule is CopyRule.MERGED or not plan.sync.has_time_steps
    # With batch serialization a buffer has one element per loop iteration, except in Streaming Memory.
    elements = 1 if program.offload.activations else shape.serialization
    yield Holder.COPIES, elements * profile.gradient_bytes if sources else 0
    yield Holder.COPIES, elements * profile.output_bytes if targets else 0
    for neighbour in (*sources, *targets):
        if shape.mapping[neighbour] != stage_footprint.ipus[0] or is_merged:
            yield Holder.COPIES, plan.waiting.get((neighbour, stage), 1) * program.sent_bytes(neighbour, stage)
