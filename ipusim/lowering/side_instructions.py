"""Make the side instructions of a Plan: all instructions besides passes, sends and meetings after time-steps.

They are loads and stores of Streaming Memory, all-gathers, table rows, feeds, and the end of an execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ipusim.lowering.items import Items, SortKey, items
from ipusim.lowering.streams import Stream, pass_streams, update_streams
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import OutfeedElements
from ipusim.pipeline.instructions import NONE, Code
from ipusim.pipeline.offload import MovedActivations
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import Column, Mask, PlanShape


@dataclass(frozen=True)
class SideInstructions:
    """Activities of IPUs besides passes, for which the lowerings insert instructions.

    Attributes:
        outfeed: results for the host; None for the results of every micro-batch.
        streams: bytes loaded from Streaming Memory before every (pass, stage), and stored after.
        updates: bytes loaded and stored around every IPU's weight update.
        has_accumulator_loads: whether ``updates`` load accumulators.
        gathering_stages: stages whose weights are all-gathered before every pass.
        gathering_ipus: IPUs with an all-gather for the weight update.
        gather_follows_update: whether this all-gather comes after the weight update, as each replica updates only a
            part; otherwise it comes before.
        collective_passes: (pass, stage) pairs with collectives over replicas.
        host_calls: (pass, stage) pairs that call the host.
        has_replica_sum: whether replicas sum their gradients.
        has_copy_sum: whether the copies of every stage sum their gradients, before replicas do.
        has_host_sum: whether hosts sum their gradients.
        has_host_update: whether the host, not the IPUs, updates weights.
        look_up_stages: stages with look-ups in tables on the host.
        row_update_stages: stages with gradients for host tables.
        overlap_copies: whether IPUs continue during their sends.
        moved: activations moved out and back.
    """

    outfeed: OutfeedElements | None = None
    streams: Mapping[tuple[int, int], Stream] = field(default_factory=dict)
    updates: Mapping[int, Stream] = field(default_factory=dict)
    has_accumulator_loads: bool = False
    gathering_stages: frozenset[int] = frozenset()
    gathering_ipus: frozenset[int] = frozenset()
    gather_follows_update: bool = False
    collective_passes: frozenset[tuple[int, int]] = frozenset()
    host_calls: frozenset[tuple[int, int]] = frozenset()
    has_replica_sum: bool = False
    has_copy_sum: bool = False
    has_host_sum: bool = False
    has_host_update: bool = False
    look_up_stages: frozenset[int] = frozenset()
    row_update_stages: frozenset[int] = frozenset()
    overlap_copies: bool = True
    moved: MovedActivations | None = None


def side_instructions(program: PipelineProgram, replicas: int, hosts: int = 1) -> SideInstructions:
    """Return the side instructions of ``program`` on ``replicas`` replicas per host."""
    shape, offload, profiles = program.shape, program.offload, program.stages
    gathers = shape.training and offload.replicas > 1
    has_gradients = any(profile.accumulator_bytes or profile.tables.gradients for profile in profiles)
    learns = shape.training and (has_gradients or program.learns_for_free)
    passes = [(kind, stage) for kind in Pass for stage in range(shape.stages)]

    def stages_that(condition: Callable[[StageProfile], object]) -> frozenset[int]:
        return frozenset(stage for stage, profile in enumerate(profiles) if condition(profile))

    return SideInstructions(
        outfeed=program.outfeed_elements,
        streams=pass_streams(program),
        updates=update_streams(program),
        has_accumulator_loads=offload.gradient_accumulation_buffers,
        gathering_stages=stages_that(lambda profile: offload.weights and profile.parameter_bytes),
        gathering_ipus=frozenset(
            ipu for stage, ipu in shape.homes if gathers and offload.gathered_bytes(profiles[stage])
        ),
        gather_follows_update=offload.sharded_update,
        look_up_stages=stages_that(lambda profile: profile.tables.rows),
        row_update_stages=stages_that(lambda profile: shape.training and profile.tables.gradients),
        collective_passes=frozenset(key for key in passes if replicas > 1 and program.collectives(*key)),
        host_calls=frozenset(key for key in passes if program.host_calls(*key)),
        overlap_copies=program.overlap_copies,
        moved=program.moved_activations,
        has_host_sum=learns and hosts > 1 and program.sums_over_hosts,
        has_host_update=learns and offload.variables_on_host,
        has_replica_sum=learns and replicas > 1 and program.sums_gradients,
        has_copy_sum=learns and shape.mirrored,
    )


def passes_with_sides(
    side: SideInstructions, key: SortKey, kind: Column, stage: Column, micro_batch: Column
) -> Iterator[Items]:
    """Yield passes at ``key``, surrounded by their side instructions.

    Side instructions are loads, all-gathers, table rows, host calls, collectives and stores. Rows looked up for a
    forward pass stay for its recomputation.
    """
    yield items(key, kind, stage, micro_batch)
    for (pass_kind, pass_stage), stream in side.streams.items():
        mask = (kind == pass_kind) & (stage == pass_stage)
        for code, size, shift in ((Code.LOAD, stream.load, -2), (Code.STORE, stream.store, 2)):
            if size:
                yield items(key.for_passes(mask, shift), code, pass_stage, NONE, pass_kind)
    if side.gathering_stages:
        mask = np.isin(stage, sorted(side.gathering_stages))
        for code, shift in ((Code.GATHER, -1), (Code.RELEASE, 1)):
            yield items(key.for_passes(mask, shift), code, stage[mask])
    backward = (kind == Pass.BACKWARD) | (kind == Pass.INPUT_GRADIENT)
    for code, stages, passes, shift in (
        (Code.LOOK_UP, side.look_up_stages, kind == Pass.FORWARD, -1),
        (Code.UPDATE_ROWS, side.row_update_stages, backward, 1),
    ):
        if stages:
            mask = passes & np.isin(stage, sorted(stages))
            yield items(key.for_passes(mask, shift), code, stage[mask], micro_batch[mask])
    # These come last, because the pass begins directly after host calls and collectives.
    for code, passes_of in ((Code.OUTSIDE, side.host_calls), (Code.COLLECTIVE, side.collective_passes)):
        for pass_kind, pass_stage in sorted(passes_of):
            mask = (kind == pass_kind) & (stage == pass_stage)
            yield items(key.for_passes(mask, -1), code, pass_stage, micro_batch[mask], pass_kind)


def feeds(
    side: SideInstructions, shape: PlanShape, kind: Column, stage: Column, micro_batch: Column
) -> tuple[Mask, Mask, Code, int]:
    """Return masks of passes that read the infeed, and of passes with results.

    Also returns the code of the instruction that hands out results, and its period in executions.
    """
    forward = kind == Pass.FORWARD
    inputs, results = forward & (stage == 0), forward & (stage == shape.stages - 1)
    if side.outfeed is None:
        return inputs, results, Code.OUTFEED, 1
    results &= np.isin(micro_batch, side.outfeed.micro_batches)
    if side.outfeed.accumulated:
        return inputs, results, Code.ADD_RESULTS, NONE
    return inputs, results, Code.OUTFEED, side.outfeed.period


def ending(side: SideInstructions, shape: PlanShape, step: int, rank: int) -> Iterator[Items]:
    """Yield every IPU's instructions after the last pass, through the final meeting."""
    for ipu in sorted(set(shape.mapping)):
        key = SortKey(np.array([ipu]), step, rank)
        for turn, (code, number) in enumerate(_codes_of_end(side, shape, ipu)):
            yield items(key._replace(turn=turn), code, NONE, NONE, number)


def _codes_of_end(side: SideInstructions, shape: PlanShape, ipu: int) -> Iterator[tuple[Code, int]]:
    stream = side.updates.get(ipu, Stream())
    if shape.training:
        if stream.load and side.has_accumulator_loads:  # before replicas sum gradients
            yield Code.LOAD, NONE
        if side.has_copy_sum:
            yield Code.SUM_COPIES, NONE
        if side.has_replica_sum:
            yield Code.ALL_REDUCE, NONE
        if side.has_host_sum:
            yield Code.HOST_SUM, NONE
        if stream.load and not side.has_accumulator_loads:
            yield Code.LOAD, NONE
        update = Code.HOST_UPDATE if side.has_host_update else Code.UPDATE
        gathers = [Code.GATHER] if ipu in side.gathering_ipus else []
        for code in (update, *gathers) if side.gather_follows_update else (*gathers, update):
            yield code, NONE
        if stream.store:
            yield Code.STORE, NONE
    if side.outfeed is not None and side.outfeed.accumulated and ipu in shape.ipus_of(shape.stages - 1):
        yield Code.OUTFEED_TOTAL, NONE
    yield Code.END, NONE
    if shape.training and ipu in side.gathering_ipus and not side.gather_follows_update:
        yield Code.RELEASE, NONE
