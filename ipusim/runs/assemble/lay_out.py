"""Lay out a request's stages: choose the device, and make the Plan under the requested schedule and mapping."""

from __future__ import annotations

from typing import Any

from ipusim.base.errors import UnsupportedProgramError
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE, check_recomputation, recomputation
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.mapping import MAPPING, DeviceMapping, resolve_mapping
from ipusim.runs.assemble.named_files import resolve_rates
from ipusim.runs.assemble.recomputation import asked_mode
from ipusim.runs.assemble.schedule_options import micro_batches_of, without_schedule_options
from ipusim.runs.assemble.stages import RequestedStage, requested_stages
from ipusim.runs.assemble.system import resolve_plan, resolve_system
from ipusim.runs.findings import Findings
from ipusim.runs.request.pipeline_spec import PipelineSpec
from ipusim.runs.request.request import Request
from ipusim.runs.request.schema import Options
from ipusim.schedules.features import Feature
from ipusim.schedules.schedule import Schedule


def device_and_plan(request: Request, schedule: Schedule, training: bool) -> tuple[System, Plan]:
    """Return the device and the Plan of a request, without costs and arithmetic.

    Raises RequestError with all problems.
    """
    findings, options = Findings(request.is_set), request.options
    base = without_schedule_options(options)
    requests = findings.cached(requested_stages, base)
    rates = findings.cached(resolve_rates, base, request.folder)
    overlapped = options.system.io_tiles.place_ops_on_io_tiles
    system, laid_out = lay_out(options, base, schedule, requests, training, overlapped, rates, findings)
    return findings.settle(system), findings.settle(laid_out)[1]


def lay_out(
    options: Options,
    base: Options,
    schedule: Schedule,
    requests: tuple[RequestedStage, ...] | None,
    training: bool,
    overlapped_io: bool,
    rates: Rates,
    findings: Findings,
    *,
    shorter: bool = False,
) -> tuple[System | None, tuple[Schedule, Plan] | None]:
    """Return the device and the Plan with its schedule; None after recorded problems.

    In ``base``, options that devices do not depend on have fixed values, so that requests share a cached device. With
    ``shorter``, the Plan has fewer micro-batches if a short run may stand for the whole run.
    """

    def system_for(devices: DeviceMapping) -> System | None:
        return findings.cached(resolve_system, base, schedule.pipelined, devices, rates)

    mapping = resolve_mapping(base, schedule, requests, findings) if requests else None
    if mapping is None:
        return system_for(DeviceMapping((0,))), None
    pipeline = options.pipeline
    modes, path = schedule.recomputation_modes, ("pipeline", "recomputation_mode")
    try:
        mode = recomputation(asked_mode(options, modes), modes, schedule.name)
    except UnsupportedProgramError as error:
        remedy = "Leave recomputation_mode out, or set Auto: each schedule then takes a mode that it supports."
        findings.add(path, f"{error} {remedy}", error)
        return system_for(mapping), None
    recomputed = mode if pipeline.allow_recompute and training else None
    path = ("pipeline", "allow_recompute")
    findings.attempt(path, check_recomputation, recomputed is not None, modes, schedule.name)
    segments = schedule.segments_of(pipeline.segments)
    shape = findings.attempt(
        MAPPING if findings.is_set(MAPPING) or not schedule.mirrored else ("pipeline", "schedule"),
        PlanShape,
        mapping=mapping.ipus,
        micro_batches=micro_batches_of(options, segments),
        training=training,
        recompute=recomputed == THEN_BACKPROPAGATE,
        recompute_inline=recomputed == INTERLEAVED,
        overlapped_io=overlapped_io,
        sizes=mapping.sizes,
        serialization=pipeline.batch_serialization_iterations,
        mirrored=schedule.mirrored,
        segments=segments,
        **order_options(pipeline, schedule),
    )
    system = system_for(mapping)
    if segments > 1 and not all(stage.costs for stage in requests or ()):
        findings.add(
            ("pipeline", "schedule"),
            f"The schedule '{schedule.name}' runs segments of a micro-batch, which only stages with costs have, such "
            f"as {{name: first, forward: 1000, backward: 2000}}; got stages that compute.",
        )
        return system, None
    return system, None if shape is None else resolve_plan(options, schedule, shape, findings, shorter=shorter)


def order_options(pipeline: PipelineSpec, schedule: Schedule) -> dict[str, Any]:
    """Return a schedule's order options for a PlanShape, with defaults for unsupported ones."""
    return {
        "group_size": (pipeline.micro_batch_group_size or 0) if Feature.GROUPS in schedule.supports else 0,
        "authors": pipeline.authors_order and Feature.AUTHORS_ORDER in schedule.supports,
    }
