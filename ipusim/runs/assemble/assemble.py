"""Assemble a Request into a Job that is ready to run: check all rules, and fill in the defaults.

Commands and the Python API share this path.
"""

from __future__ import annotations

from dataclasses import replace

from ipusim.base.cache import shared, sharing
from ipusim.base.errors import PlanError
from ipusim.lowering.lower import complete
from ipusim.pipeline.check import check_plan
from ipusim.pipeline.plan import Plan
from ipusim.pricing.code import with_temporary
from ipusim.runs.assemble.lay_out import DeviceAndPlan, lay_out
from ipusim.runs.assemble.layers import Layered, check_layers, layered, returning
from ipusim.runs.assemble.limits import price_run, refuse_large_whole, simulated_executions
from ipusim.runs.assemble.memory import check_memory, memory_of
from ipusim.runs.assemble.named_files import resolve_rates, with_profile, with_stages
from ipusim.runs.assemble.notes import notes
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
from ipusim.runs.request.request import Request
from ipusim.runs.request.schema import Options
from ipusim.schedules import registry
from ipusim.schedules.named import schedule_of
from ipusim.schedules.repeating import Repeating
from ipusim.schedules.schedule import Schedule


@sharing
def assemble(request: Request) -> Job:
    """Assemble a Job from ``request``, with all checks that precede a run.

    To assemble many similar requests, activate a Cache around the calls: repeated data, stages and prices come from the
    cache, and files named by options are read once. Exceptions of the request's Python functions are passed on.

    Args:
        request: all options of the run.

    Returns:
        Job for :func:`ipusim.api.execute`.

    Raises:
        RequestError: if the request has problems; the error lists all problems.
        RequestMemoryError: if the program exceeds its IPUs' memory, unless the request says ``memory: report``.
        PlanError: if the Plan of a user's schedule breaks a rule.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> assemble(Request.from_dict(options)).plan
        <Plan grouped in lock-step: 16 passes, 8 time-steps>
    """
    findings = Findings(request.is_set)
    options, functions, folder = request.options, request.functions, request.folder
    # base has fixed schedules, counts and disturbances: requests that differ only in these share its cached results.
    base = findings.cached(with_stages, without_schedule_options(options), folder)
    requests = findings.cached(requested_stages, base) if functions is None else function_stages(functions)
    base = findings.cached(with_profile, base, requests, folder)
    training = _is_training(base, requests) if functions is None else functions.training
    stages_of_options = requests if functions is None else None
    check_sections(with_schedule_options(base, options), stages_of_options, training, findings)
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
        system, schedule_and_plan = lay_out(
            options, base, schedule, requests, training, overlapped, rates, findings, shorter=time_alone
        )
        if schedule_and_plan is not None:
            schedule, plan = schedule_and_plan
    if layers is not None and plan is not None:
        check_layers(layers, max(plan.fifo_depths, default=0) + 1, base, findings)
    if system is not None:
        system = with_disturbances(options, system, findings)
    requests, schedule, system = findings.settle(requests), findings.settle(schedule), findings.settle(system)
    plan, io_tiles = findings.settle(plan), findings.settle(io_tiles)
    offload = findings.settle(resolve_offloads(options, system, training, [stage.name for stage in requests], findings))
    whole_shape = replace(plan.shape, micro_batches=micro_batches_of(options, plan.shape.segments))
    short_count = next(short_counts(schedule, whole_shape), whole_shape.micro_batches) if time_alone else None
    layout = DeviceAndPlan(schedule, system, plan, offload, io_tiles, short_count=short_count)
    content = _content(request, base, requests, training, layout, layers, findings)
    return _job(request, options, base, layout, content, findings)


def _schedule(request: Request, findings: Findings) -> Schedule | None:
    """Return the requested schedule; None after recording a problem.

    Batch serialization has a default schedule of its own.
    """
    pipeline = request.options.pipeline
    if pipeline.batch_serialization_iterations > 1 and not request.is_set(("pipeline", "schedule")):
        return registry.default_serialized()
    return findings.attempt(("pipeline", "schedule"), schedule_of, pipeline.schedule, request.folder)


def _is_training(options: Options, requests: tuple[RequestedStage, ...] | None) -> bool:
    if options.training is not None:
        return options.training
    timed_costs = [cost for stage in requests or () for cost in stage.costs]
    return options.optimizer is not None or any(stage.whole_backward for stage in timed_costs)


def _content(
    request: Request,
    options: Options,
    requests: tuple[RequestedStage, ...],
    training: bool,
    layout: DeviceAndPlan,
    layers: Layered | None,
    findings: Findings,
) -> Content:
    """Return the profiles (costs) and the workload (arithmetic) of the stages, under the request's Poplar options."""
    shape = layout.plan.shape.fewest_micro_batches
    if request.functions is not None:
        content = request.functions.content(layout.system, layout.offload)
    elif layers is None:
        return shared()(timed_content, options, requests, training, shape.segments)
    else:
        returns = returning(layout.schedule, layout.plan.shape)
        # Layers with arithmetic have state, so requests cannot share them.
        arguments = layers, options, returns, shape, training, layout.offload
        has_arithmetic = options.numerics != "off"
        content = (
            Layered.content(*arguments, findings) if has_arithmetic else findings.cached(Layered.content, *arguments)
        )
    return replace(content, profiles=shared()(apply_options, options, content.profiles, shape))


def _job(
    request: Request, options: Options, base: Options, layout: DeviceAndPlan, content: Content, findings: Findings
) -> Job:
    def job_with(micro_batches: int, repeat_count: int) -> Job:
        """Return the Job with other counts; if only the repeat count differs, the prices stay."""
        laid_out_count = layout.plan.shape.micro_batches
        if micro_batches == laid_out_count and repeat_count != options.pipeline.repeat_count:
            new_program = replace(program, repeat_count=repeat_count)
            plan = complete(layout.plan, new_program, layout.system.replicas, layout.system.hosts)
            return replace(job, program=new_program, plan=plan, in_part=False)
        shape = replace(layout.plan.shape, micro_batches=micro_batches)
        count = shape.count // shape.serialization
        new_options = options.with_pipeline(gradient_accumulation_count=count, repeat_count=repeat_count)
        problems, plan = Findings(request.is_set), incomplete_plan
        if (micro_batches, repeat_count) == (job.program.shape.micro_batches, job.program.repeat_count):
            refuse_large_whole(job, new_options, content.result_bytes, problems)
        if micro_batches != laid_out_count:
            _, plan = problems.settle(resolve_plan(new_options, layout.schedule, shape, problems))
        with cache.activate():
            return _job(request, new_options, base, replace(layout, plan=plan, short_count=None), content, problems)

    cache = shared()
    program = build_program(options, request.name, layout.schedule.name, content, layout.plan.shape)
    layout, program = layout.settle(options, program, findings)
    incomplete_plan = layout.plan
    program = replace(program, stages=cache(with_temporary, program.stages, layout.system))
    layout = replace(layout, plan=complete(layout.plan, program, layout.system.replicas, layout.system.hosts))
    micro_batches = micro_batches_of(options, layout.plan.shape.segments)
    layout = layout.with_buffers_of_whole(micro_batches)
    short_count = layout.short_count
    costs = price_run(
        options, layout.plan, program, layout.system, findings, content.result_bytes, short_count=short_count
    )
    _check(request, base, layout)
    executions = program.repeat_count * options.steps
    fewer_executions = simulated_executions(program, costs, executions) < executions
    # In part: a shorter run stands for the run if the timing repeats.
    job = Job(
        request,
        layout.system,
        replace(program, shape=replace(program.shape, micro_batches=micro_batches)),
        layout.plan,
        costs,
        layout.schedule,
        lambda: layout.peaks_of_the_whole(memory_of(options, layout.system, program, layout.plan), micro_batches),
        options.steps,
        tuple(notes(request, options, layout, program, content, costs)),
        content.workload,
        content.held_out,
        content.constant_loss,
        in_part=short_count is not None and (short_count < micro_batches or fewer_executions),
        with_counts=job_with,
    )
    check_memory(job)
    return job


def _check(request: Request, base: Options, layout: DeviceAndPlan) -> None:
    """Check the Plan; raises PlanError if it breaks a rule.

    Of several Plans of a built-in schedule that differ only in counts, only the first is checked, as tests check
    built-in schedules at all counts. The Plan of a user's schedule is checked each time.
    """
    plan, schedule = layout.plan, layout.schedule
    is_built_in = registry.is_built_in(schedule)
    if isinstance(schedule, Repeating) or request.functions is not None or not is_built_in:
        broken_rule = _broken_rule(plan)
        if broken_rule and isinstance(schedule, Repeating):  # the whole Plan gives the positions for the message
            broken_rule = (
                _broken_rule(plan_of(schedule, replace(plan.shape, micro_batches=schedule.count), plan.sync))
                or broken_rule
            )
        if broken_rule:
            prefix = "" if is_built_in else f"pipeline.schedule: {request.options.pipeline.schedule}: "
            raise PlanError(f"{prefix}{broken_rule}")
        return
    cache_key = base, schedule.name, plan.sync, plan.shape.fewest_micro_batches, layout.system.replicas
    cache = shared()
    if not cache.find(check_plan, *cache_key):
        check_plan(plan)
        cache.keep(None, check_plan, *cache_key)


def _broken_rule(plan: Plan) -> str:
    """Return the rule broken by a Plan; empty for a legal Plan."""
    try:
        check_plan(plan)
    except PlanError as error:
        return str(error)
    return ""
