"""Lay out a request's stages: choose the device, and make the Plan under the requested schedule and mapping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ipusim.analysis.fit import Fit
from ipusim.base.errors import UnsupportedProgramError
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.pipeline.io_tiles import IoTiles
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.offload import Offload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE, check_recomputation, recomputation
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.mapping import MAPPING, DeviceMapping, resolve_mapping
from ipusim.runs.assemble.named_files import resolve_rates
from ipusim.runs.assemble.plans import plan_of
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


@dataclass(frozen=True)
class DeviceAndPlan:
    """System of a program, with its Plan and offloading.

    Attributes:
        schedule: schedule of the Job.
        system: device of the Job.
        plan: Plan of the Job.
        offload: offloads of the program.
        io_tiles: I/O tiles of the program.
        unused_reason: reason why requested I/O tiles are not used; empty if they are used.
        short_count: number of micro-batches to simulate if a short run may stand for the whole run; None if the whole
            run must be simulated.
    """

    schedule: Schedule
    system: System
    plan: Plan
    offload: Offload
    io_tiles: IoTiles
    unused_reason: str = ""
    short_count: int | None = None

    def with_buffers_of_whole(self, micro_batches: int) -> DeviceAndPlan:
        """Return this layout with buffers sized for the run of all ``micro_batches``.

        The Plan may stand for a longer run. Buffers grow with the run if an IPU may run ahead of its successor, or
        keeps all micro-batches: by a fixed number of tensors for each period.
        """
        plan, count = self.plan, self.plan.shape.micro_batches
        may_run_ahead = plan.shape.stages > 1 and not plan.sync.has_time_steps
        if self.short_count in (None, micro_batches) or not (may_run_ahead or self.schedule.in_phases):
            return self
        step = self.schedule.step(plan.shape)
        longer_plan = plan_of(self.schedule, replace(plan.shape, micro_batches=count + step), plan.sync)

        def size_in_whole(number: int, longer_number: int) -> int:
            return number + (longer_number - number) * (micro_batches - count) // step

        return replace(self, plan=plan.with_buffers(longer_plan, size_in_whole))

    def peaks_of_the_whole(self, memory: Fit, micro_batches: int) -> Fit:
        """Return this Plan's memory, with peaks at the micro-batches of the whole run of ``micro_batches``.

        A peak after the repeated part happens at a later micro-batch in the whole run; the difference is the number of
        left-out micro-batches.
        """
        count, ops = self.plan.shape.micro_batches, [peak.op for peak in memory.peaks]
        if count == micro_batches or all(op is None or 2 * op.micro_batch < count for op in ops):
            return memory
        step = self.schedule.step(self.plan.shape)
        longer_plan = plan_of(self.schedule, replace(self.plan.shape, micro_batches=count + step), self.plan.sync)
        renumbered = []
        for peak, longer_peak in zip(memory.peaks, peaks(longer_plan, memory.footprint), strict=True):
            op = peak.op
            if op is not None and longer_peak.op == op._replace(micro_batch=op.micro_batch + step):
                op = op._replace(micro_batch=op.micro_batch + micro_batches - count)
            renumbered.append(peak._replace(op=op))
        return replace(memory, peaks=tuple(renumbered))

    def settle(
        self, options: Options, program: PipelineProgram, findings: Findings
    ) -> tuple[DeviceAndPlan, PipelineProgram]:
        """Return the layout and the program; both lose overlapped I/O if elements of the feeds exceed the I/O tiles."""
        program = replace(program, offload=self.offload)
        problem = self.io_tiles.why_not_placed(program, self.system.ipu.sram_bytes_per_tile)
        if not self.io_tiles.place_ops or not problem:
            return self, program
        shape = replace(self.plan.shape, overlapped_io=False)
        resolution = resolve_plan(options, self.schedule, shape, findings)
        plan = self.plan if resolution is None else resolution[1]
        system = self.system.without_io_tiles()
        return replace(self, plan=plan, system=system, unused_reason=problem), replace(program, shape=plan.shape)


def device_and_plan(request: Request, schedule: Schedule, training: bool) -> tuple[System, Plan]:
    """Return the device and the Plan of a request, without costs and arithmetic.

    Raises RequestError with all problems.
    """
    findings, options = Findings(request.is_set), request.options
    base = without_schedule_options(options)
    requests = findings.cached(requested_stages, base)
    rates = findings.cached(resolve_rates, base, request.folder)
    overlapped = options.system.io_tiles.place_ops_on_io_tiles
    system, schedule_and_plan = lay_out(options, base, schedule, requests, training, overlapped, rates, findings)
    return findings.settle(system), findings.settle(schedule_and_plan)[1]


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

    ``base`` are the options with fixed values for all options that do not affect devices, so that requests share a
    cached device. With ``shorter``, the Plan has fewer micro-batches if a short run may stand for the whole run.
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
