"""Yield notes on a valid request: Graphcore's warnings, and options without effect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ipusim.hardware.system import System
from ipusim.machine.run_changes import replacements
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.offload import no_effect_in_inference, no_effect_without_replicas
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import COLUMNS
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.runs.assemble.lay_out import DeviceAndPlan
from ipusim.runs.content import Content
from ipusim.runs.request.moved_activations_spec import MovedActivationsSpec
from ipusim.runs.request.request import Request
from ipusim.runs.request.schema import Options
from ipusim.schedules.features import Feature


def notes(
    request: Request,
    options: Options,
    layout: DeviceAndPlan,
    program: PipelineProgram,
    content: Content,
    costs: Costs,
) -> Iterator[str]:
    """Yield Graphcore's warnings, and notes on schedule, program and data."""
    pipeline, shape, system = options.pipeline, layout.plan.shape, layout.system
    yield from layout.schedule.notes
    yield from _stage_after_stage(layout, program)
    if pipeline.recomputation_checkpoints and not shape.recompute_inline:
        yield (
            "recomputation_checkpoints will have no effect since activations are not recomputed inside the backward "
            "pass (RecomputeAndBackpropagateInterleaved with allow_recompute)."
        )
    if not shape.training:
        yield from no_effect_in_inference(
            variables_on_host=pipeline.variables_on_host,
            replicated_optimizer_state_sharding=pipeline.replicated_optimizer_state_sharding,
            offload_weight_update_variables=pipeline.offload_weight_update_variables,
            offload_gradient_accumulation_buffers=pipeline.offload_gradient_accumulation_buffers,
            allow_recompute=pipeline.allow_recompute,
            offload_activations=isinstance(pipeline.offload_activations, MovedActivationsSpec),
        )
    yield from no_effect_without_replicas(
        layout.offload,
        pipeline.replicated_optimizer_state_sharding and shape.training,
        pipeline.replicated_weight_sharding,
        pipeline.offload_weights,
    )
    if layout.unused_reason:
        yield layout.unused_reason
    if not layout.plan.sync.has_time_steps and costs.moves:
        yield "Activations move at the same time as passes, as if on separate tiles: point-to-point is idealised."
    yield from _without_effect(request, options, layout, costs)
    gives_updates = any(isinstance(profile.update, int) and profile.update for profile in program.stages)
    if program.offload.variables_on_host and gives_updates:
        yield (
            "The given cycles of weight updates of stages are ignored, because the host updates the weights "
            "(variables_on_host)."
        )
    batch = program.micro_batch_size * program.shape.count * system.learners
    if content.workload is not None and program.shape.training and 0 < content.samples < batch:
        yield (
            f"Each weight update takes {batch} samples, and the data have {content.samples} to train on: one update "
            "uses samples several times. Use more samples, or a smaller pipeline.gradient_accumulation_count."
        )
    yield from _spares(program, system)


def _without_effect(request: Request, options: Options, layout: DeviceAndPlan, costs: Costs) -> Iterator[str]:
    """Yield notes on options without effect."""
    pipeline, plan, system = options.pipeline, layout.plan, layout.system
    if pipeline.gradient_accumulation_dtype is not None and request.has_timed_stages:
        yield (
            "gradient_accumulation_dtype will have no effect since stages with only costs give their bytes in "
            "accumulator_bytes."
        )
    if system.optimizer_update_interval is not None and system.framework is None:
        yield ("updates_optimizer will have no effect since no framework's host is simulated (system.host.framework).")
    if system.optimizer_values is not None and system.framework != "pytorch":
        yield "optimizer_values will have no effect since the framework is not pytorch (system.host.framework)."
    if pipeline.segments is not None and Feature.SEGMENTS not in layout.schedule.supports:
        yield f"segments will have no effect since {layout.schedule.name} runs whole micro-batches."
    if pipeline.micro_batch_group_size is not None and Feature.GROUPS not in layout.schedule.supports:
        yield f"micro_batch_group_size will have no effect since {layout.schedule.name} has no groups of any size."
    if pipeline.authors_order and Feature.AUTHORS_ORDER not in layout.schedule.supports:
        yield f"authors_order will have no effect since {layout.schedule.name} has only one order."
    if pipeline.overlapped != "sum" and not any(costs.composites(plan)):
        yield f"overlapped will have no effect since {layout.schedule.name} has no composite passes."
    if not pipeline.overlap_copies and plan.sync.has_time_steps:
        yield "overlap_copies will have no effect since IPUs meet for all copies in lock-step."
    if layout.offload.moved is not None and not plan.instructions_of(Code.MOVE):
        yield "offload_activations will have no effect since each stage keeps few enough micro-batches on its IPU."


def _stage_after_stage(layout: DeviceAndPlan, program: PipelineProgram) -> Iterator[str]:
    """Yield a note on neighbouring stages of an IPU, if the first runs all micro-batches before the second begins."""
    mapping, passes = layout.plan.shape.mapping, layout.plan.order.table[:, -len(COLUMNS) :]
    if not layout.schedule.in_phases or layout.plan.shape.micro_batches == 1:
        return
    stage_of_forward = passes[passes[:, COLUMNS.index("kind")] == Pass.FORWARD, COLUMNS.index("stage")]
    for stage in (number for number, (ipu, next_ipu) in enumerate(pairwise(mapping)) if ipu == next_ipu):
        rows, next_rows = (np.flatnonzero(stage_of_forward == number) for number in (stage, stage + 1))
        if rows[-1] < next_rows[0]:
            names = " and ".join(program.stages[number].name for number in (stage, stage + 1))
            yield (
                f"{layout.schedule.name} runs all micro-batches through a stage before the next stage of the same IPU, "
                f"such as {names} on IPU {mapping[stage]}: one stage in place of both would send the first micro-batch "
                "on sooner."
            )
            return


def _spares(program: PipelineProgram, system: System) -> Iterator[str]:
    """Yield notes on the IPUs that take over stages of lost IPUs. Only losses with a requested spare get a note."""
    is_one_replica = system.replicas == 1 and system.hosts == 1
    reason = "no other IPU is without a stage" if is_one_replica else "collectives of replicas keep their routes"
    for loss, spare in replacements(system, program.shape.mapping):
        if loss.spare and loss.ipu % system.shards in program.shape.mapping:
            repaired_place = f"on the same IPU, repaired, because {reason}"
            place = repaired_place if spare is None else f"on the physical IPU of IPU {spare}, a spare IPU"
            yield f"IPU {loss.ipu} is lost: its stages continue {place}."
