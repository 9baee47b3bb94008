"""Assemble a Request into a Job that is ready to run: check all rules, and fill in the defaults.

Commands and the Python API share this path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ipusim.analysis.fit import Fit
from ipusim.base.cache import shared, sharing
from ipusim.base.errors import PlanError
from ipusim.hardware.system import System
from ipusim.lowering.lower import complete
from ipusim.machine.run_changes import replacements
from ipusim.pipeline.check import check_plan
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.io_tiles import IoTiles
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.offload import Offload, no_effect_in_inference, no_effect_without_replicas
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.code import with_temporary
from ipusim.pricing.costs import Costs
from ipusim.runs.assemble.lay_out import lay_out
from ipusim.runs.assemble.layers import Layered, check_layers, layered, returning
from ipusim.runs.assemble.limits import price_run, simulated_executions
from ipusim.runs.assemble.memory import check_memory, memory_of
from ipusim.runs.assemble.named_files import resolve_rates, with_profile, with_stages
from ipusim.runs.assemble.options import apply_options
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.assemble.program import build_program, timed_content
from ipusim.runs.assemble.schedule_options import micro_batches_of, with_schedule_options, without_schedule_options
from ipusim.runs.assemble.sections import check_sections
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.assemble.stages import RequestedStage, function_stages, requested_stages
from ipusim.runs.assemble.system import resolve_io_tiles, resolve_offloads, resolve_plan, with_disturbances
from ipusim.runs.content import Content
from ipusim.runs.findings import Findings
from ipusim.runs.job import Job
from ipusim.runs.request.pipeline_spec import MovedActivationsSpec
from ipusim.runs.request.request import Request
from ipusim.runs.request.schema import Options
from ipusim.schedules import registry
from ipusim.schedules.features import Feature
from ipusim.schedules.named import schedule_of
from ipusim.schedules.repeating import Repeating
from ipusim.schedules.schedule import Schedule


@sharing
def assemble(request: Request) -> Job:
    """Assemble a Job from ``request``, with all checks that precede a run.

    To assemble many similar requests, enter a Cache around the calls: repeated data, stages and prices come from the
    cache, and files named by options are read once. Exceptions of the request's Python functions are passed on.

    Args:
        request: all options of the run.

    Returns:
        Job for :func:`ipusim.api.execute`.

    Raises:
        RequestError: with all problems.
        RequestMemoryError: for a program that exceeds its IPUs' memory, unless the request says ``memory: report``.
        PlanError: for a Plan that breaks a rule, as the Plan of a user's schedule may.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> assemble(Request.from_dict(options)).plan
        <Plan grouped in lock-step: 16 passes, 8 time-steps>
    """
    findings = Findings(request.is_set)
    options, functions, folder = request.options, request.functions, request.folder
    base = findings.cached(with_stages, without_schedule_options(options), folder)
    requests = findings.cached(requested_stages, base) if functions is None else function_stages(functions)
    base = findings.cached(with_profile, base, requests, folder)
    training = _is_training(base, requests) if functions is None else functions.training
    by_options = requests if functions is None else None
    check_sections(with_schedule_options(base, options), by_options, training, findings)
    layers = findings.cached(layered, base, requests, folder)
    io_tiles = resolve_io_tiles(options, findings)
    overlapped = io_tiles is not None and io_tiles.place_ops
    rates = findings.cached(resolve_rates, base, folder)
    schedule = _schedule(request, findings)
    system, plan = None, None
    time_alone = functions is None and (layers is None or options.numerics == "off")
    if schedule is not None:
        if schedule.in_phases and any(stage.describes_memory for stage in requests or ()):
            schedule = replace(schedule, period=None)  # memory on IPUs grows from period to period
        system, laid_out_as = lay_out(
            options, base, schedule, requests, training, overlapped, rates, findings, shorter=time_alone
        )
        if laid_out_as is not None:
            schedule, plan = laid_out_as
    if layers is not None and plan is not None:
        check_layers(layers, max(plan.fifo_depths, default=0) + 1, base, findings)
    if system is not None:
        system = with_disturbances(options, system, findings)
    requests, schedule, system = findings.settle(requests), findings.settle(schedule), findings.settle(system)
    plan, io_tiles = findings.settle(plan), findings.settle(io_tiles)
    names = [stage.name for stage in requests]
    offload = findings.settle(resolve_offloads(options, system, training, names, findings))
    whole = replace(plan.shape, micro_batches=micro_batches_of(options, plan.shape.segments))
    short_count = next(short_counts(schedule, whole), whole.micro_batches) if time_alone else None
    laid_out = _LaidOut(schedule, system, plan, offload, io_tiles, short_count=short_count)
    content = _content(request, base, requests, training, laid_out, layers, findings)
    return _job(request, options, base, laid_out, content, findings)


def _schedule(request: Request, findings: Findings) -> Schedule | None:
    """Return the requested schedule; None after recording a problem.

    Batch serialization has a default schedule of its own."""
    pipeline = request.options.pipeline
    if pipeline.batch_serialization_iterations > 1 and not request.is_set(("pipeline", "schedule")):
        return registry.default_serialized()
    return findings.attempt(("pipeline", "schedule"), schedule_of, pipeline.schedule, request.folder)


def _is_training(options: Options, requests: tuple[RequestedStage, ...] | None) -> bool:
    if options.training is not None:
        return options.training
    timed_costs = [cost for stage in requests or () for cost in stage.costs]
    return options.optimizer is not None or any(stage.whole_backward for stage in timed_costs)


@dataclass(frozen=True)
class _LaidOut:
    """System of a program, with its Plan and offloading.

    Attributes:
        schedule, system, plan, offload, io_tiles: attributes of the Job.
        unused_reason: reason for unused I/O tiles; empty for used ones.
        short_count: number of micro-batches to simulate if a short run may stand for the whole run; None if none may.
    """

    schedule: Schedule
    system: System
    plan: Plan
    offload: Offload
    io_tiles: IoTiles
    unused_reason: str = ""
    short_count: int | None = None

    def with_buffers_of_whole(self, micro_batches: int) -> _LaidOut:
        """Return this layout with buffers sized for the run of all ``micro_batches``.

        Buffers grow by a fixed number of tensors with each period if an IPU may run ahead of its successor, or keeps
        all micro-batches.
        """
        plan, count = self.plan, self.plan.shape.micro_batches
        waits = plan.shape.stages > 1 and not plan.sync.meets
        if self.short_count in (None, micro_batches) or not (waits or self.schedule.in_phases):
            return self
        step = self.schedule.step(plan.shape)
        longer = plan_of(self.schedule, replace(plan.shape, micro_batches=count + step), plan.sync)

        def of_whole(number: int, in_longer: int) -> int:
            return number + (in_longer - number) * (micro_batches - count) // step

        return replace(self, plan=plan.with_buffers(longer, of_whole))

    def peaks_of_the_whole(self, memory: Fit, micro_batches: int) -> Fit:
        """Return this Plan's memory, with peaks renumbered for all ``micro_batches``.

        A peak after the repeated part shifts by the number of left-out micro-batches.
        """
        count, ops = self.plan.shape.micro_batches, [peak.op for peak in memory.peaks]
        if count == micro_batches or all(op is None or 2 * op.micro_batch < count for op in ops):
            return memory
        step = self.schedule.step(self.plan.shape)
        longer = plan_of(self.schedule, replace(self.plan.shape, micro_batches=count + step), self.plan.sync)
        renumbered = []
        for peak, later in zip(memory.peaks, peaks(longer, memory.footprint), strict=True):
            op = peak.op
            if op is not None and later.op == op._replace(micro_batch=op.micro_batch + step):
                op = op._replace(micro_batch=op.micro_batch + micro_batches - count)
            renumbered.append(peak._replace(op=op))
        return replace(memory, peaks=tuple(renumbered))

    def settle(
        self, options: Options, program: PipelineProgram, findings: Findings
    ) -> tuple[_LaidOut, PipelineProgram]:
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


def _content(
    request: Request,
    options: Options,
    requests: tuple[RequestedStage, ...],
    training: bool,
    laid_out: _LaidOut,
    layers: Layered | None,
    findings: Findings,
) -> Content:
    """Return the profiles (costs) and the workload (arithmetic) of the stages, planned under the request's Poplar
    options."""
    shape = laid_out.plan.shape.fewest_micro_batches
    if request.functions is not None:
        content = request.functions.content(laid_out.system, laid_out.offload)
    elif layers is None:
        return shared()(timed_content, options, requests, training, shape.segments)
    else:
        returns = returning(laid_out.schedule, laid_out.plan.shape)
        # Layers with arithmetic have state, so requests cannot share them.
        arguments = layers, options, returns, shape, training, laid_out.offload
        computes = options.numerics != "off"
        content = Layered.content(*arguments, findings) if computes else findings.cached(Layered.content, *arguments)
    return replace(content, profiles=shared()(apply_options, options, content.profiles, shape))


def _job(
    request: Request, options: Options, base: Options, laid_out: _LaidOut, content: Content, findings: Findings
) -> Job:
    def job_with(micro_batches: int, repeat_count: int) -> Job:
        """Return the Job with other counts; if only the repeat count differs, the prices stay."""
        laid_out_count = laid_out.plan.shape.micro_batches
        if micro_batches == laid_out_count and repeat_count != options.pipeline.repeat_count:
            fewer = replace(program, repeat_count=repeat_count)
            plan = complete(laid_out.plan, fewer, laid_out.system.replicas, laid_out.system.hosts)
            return replace(job, program=fewer, plan=plan, in_part=False)
        shape = replace(laid_out.plan.shape, micro_batches=micro_batches)
        count = shape.count // shape.serialization
        new_options = options.with_pipeline(gradient_accumulation_count=count, repeat_count=repeat_count)
        problems = Findings(request.is_set)
        _, plan = problems.settle(resolve_plan(new_options, laid_out.schedule, shape, problems))
        with cache.entered():
            return _job(request, new_options, base, replace(laid_out, plan=plan, short_count=None), content, problems)

    cache = shared()
    program = build_program(options, request.name, laid_out.schedule.name, content, laid_out.plan.shape)
    laid_out, program = laid_out.settle(options, program, findings)
    program = replace(program, stages=cache(with_temporary, program.stages, laid_out.system))
    laid_out = replace(laid_out, plan=complete(laid_out.plan, program, laid_out.system.replicas, laid_out.system.hosts))
    micro_batches = micro_batches_of(options, laid_out.plan.shape.segments)
    laid_out = laid_out.with_buffers_of_whole(micro_batches)
    short = laid_out.short_count
    costs = price_run(
        options, laid_out.plan, program, laid_out.system, findings, content.result_bytes, short_count=short
    )
    _check(request, base, laid_out)
    executions = program.repeat_count * options.steps
    fewer_executions = simulated_executions(program, costs, executions) < executions
    job = Job(
        request,
        laid_out.system,
        replace(program, shape=replace(program.shape, micro_batches=micro_batches)),
        laid_out.plan,
        costs,
        laid_out.schedule,
        lambda: laid_out.peaks_of_the_whole(memory_of(options, laid_out.system, program, laid_out.plan), micro_batches),
        options.steps,
        tuple(_notes(request, options, laid_out, program, content, costs)),
        content.workload,
        content.held_out,
        content.constant_loss,
        in_part=short is not None and (short < micro_batches or fewer_executions),
        with_counts=job_with,
    )
    check_memory(job)
    return job


def _check(request: Request, base: Options, laid_out: _LaidOut) -> None:
    """Check the Plan. If Plans of a built-in schedule differ only in counts, check only the first.

    Tests check built-in schedules at all counts; the Plan of a user's schedule is checked each time.
    """
    plan, schedule = laid_out.plan, laid_out.schedule
    of_the_house = registry.is_of_the_house(schedule)
    if isinstance(schedule, Repeating) or request.functions is not None or not of_the_house:
        broken = _broken(plan)
        if broken and isinstance(schedule, Repeating):  # the whole Plan gives the positions for the message
            broken = _broken(plan_of(schedule, replace(plan.shape, micro_batches=schedule.count), plan.sync)) or broken
        if broken:
            of_whom = "" if of_the_house else f"pipeline.schedule: {request.options.pipeline.schedule}: "
            raise PlanError(f"{of_whom}{broken}")
        return
    alike = base, schedule.name, plan.sync, plan.shape.fewest_micro_batches, laid_out.system.replicas
    cache = shared()
    if not cache.find(check_plan, *alike):
        check_plan(plan)
        cache.keep(None, check_plan, *alike)


def _broken(plan: Plan) -> str:
    """Return the rule broken by a Plan; empty for a legal Plan."""
    try:
        check_plan(plan)
    except PlanError as error:
        return str(error)
    return ""


def _notes(
    request: Request,
    options: Options,
    laid_out: _LaidOut,
    program: PipelineProgram,
    content: Content,
    costs: Costs,
) -> Iterator[str]:
    """Yield Graphcore's warnings, and notes on schedule, program and data."""
    pipeline, shape, system = options.pipeline, laid_out.plan.shape, laid_out.system
    yield from laid_out.schedule.notes
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
        laid_out.offload,
        pipeline.replicated_optimizer_state_sharding and shape.training,
        pipeline.replicated_weight_sharding,
        pipeline.offload_weights,
    )
    if laid_out.unused_reason:
        yield laid_out.unused_reason
    if not laid_out.plan.sync.meets and costs.moves:
        yield "Activations move at the same time as passes, as if on separate tiles: point-to-point is idealised."
    yield from _without_effect(request, options, laid_out, costs)
    gives_updates = any(isinstance(profile.update, int) and profile.update for profile in program.stages)
    if program.offload.variables_on_host and gives_updates:
        yield (
            "The given cycles of weight updates of stages are ignored, as the host updates the weights "
            "(variables_on_host)."
        )
    batch = program.micro_batch_size * program.shape.count * system.learners
    if content.workload is not None and program.shape.training and 0 < content.samples < batch:
        yield (
            f"Each weight update takes {batch} samples, and the data have {content.samples} to train on: one update "
            "uses samples several times. Use more samples, or a smaller pipeline.gradient_accumulation_count."
        )
    yield from _spares(program, system)


def _without_effect(request: Request, options: Options, laid_out: _LaidOut, costs: Costs) -> Iterator[str]:
    """Yield notes on options without effect."""
    pipeline, plan, system = options.pipeline, laid_out.plan, laid_out.system
    if pipeline.gradient_accumulation_dtype is not None and request.has_timed_stages:
        yield (
            "gradient_accumulation_dtype will have no effect since stages with only costs give their bytes in "
            "accumulator_bytes."
        )
    if system.updates_optimizer is not None and system.framework is None:
        yield (
            "updates_optimizer will have no effect since the host of no framework is simulated (system.host.framework)."
        )
    if pipeline.segments is not None and Feature.SEGMENTS not in laid_out.schedule.supports:
        yield f"segments will have no effect since {laid_out.schedule.name} runs whole micro-batches."
    if pipeline.micro_batch_group_size is not None and Feature.GROUPS not in laid_out.schedule.supports:
        yield f"micro_batch_group_size will have no effect since {laid_out.schedule.name} has no groups of any size."
    if pipeline.authors_order and Feature.AUTHORS_ORDER not in laid_out.schedule.supports:
        yield f"authors_order will have no effect since {laid_out.schedule.name} has only one order."
    if pipeline.overlapped != "sum" and not any(costs.composites(plan)):
        yield f"overlapped will have no effect since {laid_out.schedule.name} has no composite passes."
    if not pipeline.overlap_copies and plan.sync.meets:
        yield "overlap_copies will have no effect since IPUs meet for all copies in lock-step."
    if laid_out.offload.moved is not None and not plan.instructions_of(Code.MOVE):
        yield "offload_activations will have no effect since each stage keeps few enough micro-batches on its IPU."


def _spares(program: PipelineProgram, system: System) -> Iterator[str]:
    """Yield notes on the IPUs that take over stages of lost IPUs.

    Only losses with a requested spare get a note.
    """
    is_one_replica = system.replicas == 1 and system.hosts == 1
    reason = "no other IPU is without a stage" if is_one_replica else "collectives of replicas keep their routes"
    for loss, spare in replacements(system, program.shape.mapping):
        if loss.spare and loss.ipu % system.shards in program.shape.mapping:
            mended = f"on the same IPU, repaired, as {reason}"
            place = mended if spare is None else f"on the physical IPU of IPU {spare}, a spare IPU"
            yield f"IPU {loss.ipu} is lost: its stages continue {place}."
