"""From stages, schedule and mapping to the device and the Plan."""

from __future__ import annotations

from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE, check_recomputation, recomputation
from ipusim.runs.assemble.mapping import MAPPING, DeviceMapping, resolve_mapping
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.assemble.system import resolve_plan, resolve_system
from ipusim.runs.findings import Findings
from ipusim.runs.request.schema import Options
from ipusim.schedules.registry import Schedule


def lay_out(
    options: Options,
    schedule: Schedule,
    requested: tuple[RequestedStage, ...] | None,
    training: bool,
    overlapped_io: bool,
    rates: Rates,
    findings: Findings,
) -> tuple[System | None, Plan | None]:
    """Return the device and the Plan; each None after noting why."""
    mapping = resolve_mapping(options, schedule, requested, findings) if requested else None
    if mapping is None:
        return resolve_system(options, schedule, DeviceMapping((0,)), rates, findings), None
    pipeline = options.pipeline
    mode = None
    with findings.at(("pipeline", "recomputation_mode")):
        mode = recomputation(pipeline.recomputation_mode, schedule.recomputation_modes, schedule.name)
    if mode is None:
        return resolve_system(options, schedule, mapping, rates, findings), None
    again = mode if pipeline.allow_recompute and training else None
    with findings.at(("pipeline", "allow_recompute")):
        check_recomputation(again is not None, schedule.recomputation_modes, schedule.name)
    shape = None
    with findings.at(MAPPING):
        shape = PlanShape(
            mapping=mapping.ipus,
            micro_batches=pipeline.gradient_accumulation_count * pipeline.batch_serialization_iterations,
            training=training,
            recompute=again == THEN_BACKPROPAGATE,
            recompute_inline=again == INTERLEAVED,
            overlapped_io=overlapped_io,
            sizes=mapping.sizes,
            serialization=pipeline.batch_serialization_iterations,
        )
    system = resolve_system(options, schedule, mapping, rates, findings)
    return system, None if shape is None else resolve_plan(options, schedule, shape, findings)
