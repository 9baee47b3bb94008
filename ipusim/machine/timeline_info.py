"""Describe a run for readers of its Timeline: names, counts, clock, IPUs and links."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from ipusim.hardware.disturbances import Slower
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.machine.run_changes import moves_of, swap_ipus
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.timeline.timeline import TimelineInfo, layers_text


def timeline_info_of(
    plan: Plan, program: PipelineProgram, system: System, links: Iterable[LinkDirection], executions: int
) -> TimelineInfo:
    """Return the TimelineInfo of a run of ``executions`` executions, with link numbers from ``links``."""
    at_end = reduce(swap_ipus, moves_of(system), system).ipus
    slowdowns = (slowdown for slowdown in system.disturbances if isinstance(slowdown, Slower) and slowdown.slower > 1)
    layers = tuple(layers_text(profile.layers) for profile in program.stages)
    return TimelineInfo(
        name=program.name,
        system=system.name,
        clock_hz=system.clock_hz,
        ipus=system.ipus,
        selection_order=system.selection_order,
        schedule=plan.schedule,
        training=plan.shape.training,
        stages=tuple(profile.name for profile in program.stages),
        mapping=plan.shape.mapping,
        count=plan.shape.micro_batches,
        overlap=plan.overlap,
        time_steps=plan.emitted,
        executions=executions,
        executions_per_step=program.repeat_count,
        micro_batch_size=program.micro_batch_size,
        links=tuple(direction.label for direction in links),
        replicas=system.replicas,
        positions=plan.shape.position_of if plan.shape.sizes else (),
        sync=plan.sync,
        layers=layers if any(layers) else (),
        hosts=system.hosts,
        ipus_at_end=at_end if at_end != system.ipus else (),
        mirrored=plan.shape.mirrored,
        segments=plan.shape.segments,
        slow_ipus=tuple(sorted({slowdown.ipu for slowdown in slowdowns if slowdown.ipu is not None})),
    )
