"""Execute a Job, and summarise its run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ipusim.analysis.effects import effects_of
from ipusim.analysis.learning import Learning, read_results
from ipusim.analysis.memory_summary import memory_summary
from ipusim.analysis.orders import OrderReport, order_reports
from ipusim.analysis.run_times import run_times_of
from ipusim.analysis.summary import Summary, gradient_sum, learning_summary, stage_cycles
from ipusim.analysis.verdict import verdict_of
from ipusim.analysis.waterfall import Waterfall
from ipusim.machine.hosts import run_together, this_host
from ipusim.machine.simulate import Progress
from ipusim.runs.assemble.short_counts import nearest_count
from ipusim.runs.disturbed import disturbance_cost
from ipusim.runs.error_ranges import error_words
from ipusim.runs.evaluation import Evaluations
from ipusim.runs.faster_order import faster_order
from ipusim.runs.job import Job
from ipusim.runs.one_ipu import run_on_one_ipu
from ipusim.runs.run import Run
from ipusim.runs.session import Hook, Session
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.waterfall import waterfall_of, without_recomputation
from ipusim.timeline.timeline import Timeline

#: Number of spans simulated in about a second: 64 x 1024 micro-batches under 1F1B in point-to-point take 0.8 s.
_MANY_SPANS: Final = 400_000
#: Maximum number of spans of a run without repeats for which a waterfall is simulated: half a second for all parts.
_SPANS_OF_WATERFALL: Final = 50_000


def execute(job: Job, progress: Progress | None = None, hooks: Sequence[Hook] = (), *, jump: bool = True) -> Run:
    """Execute all steps of a Job and summarise the run.

    Exceptions of the request's Python functions are passed on.

    Args:
        job: Job to run.
        progress: called with the number of finished time-steps and the total number.
        hooks: called at the beginning of each execution and at the end of the run, with the session.
        jump: whether a timing-only run skips micro-batches and executions whose timing repeats; results are equal.

    Returns:
        Job with Timeline, summary and the results of its arithmetic.

    Raises:
        MissingTensorError: if a pass needs a tensor that has not arrived.
        DeadlockError: if no process can continue; the message names all waiting processes.
        UnsupportedProgramError: if replicas without gradient sums have learnt different weights.

    Example:
        >>> from ipusim.api import Request, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> execute(assemble(Request.from_dict(options))).summary.makespan_cycles
        15000
    """
    evaluations = [Evaluations(job.held_out)] if job.held_out is not None else []
    sessions, timeline = _run(job, progress, (*evaluations, *hooks), jump=jump)
    session, learning = sessions[0], None
    if session.computes:
        losses, outputs = read_results(job.program, [result for host in sessions for result in host.results])
        learning = Learning(
            losses=losses,
            outputs=outputs,
            weights=session.variables(),
            evaluations=tuple(result for evaluation in evaluations for result in evaluation.results),
            constant_loss=job.constant_loss,
            not_finite=session.not_finite,
        )
    run = sum_up(job, timeline, learning, jump=jump)
    return replace(run, remarks=_remarks(job, timeline)) if jump else run


def _remarks(job: Job, timeline: Timeline) -> tuple[str, ...]:
    """Return a remark if a long run was simulated in full, because no state repeated."""
    if not job.in_part or timeline.repeats or len(timeline) < _MANY_SPANS:
        return ()
    return (f"No state of this run repeats, so all of its {len(timeline)} spans were simulated one by one.",)


def sum_up(job: Job, timeline: Timeline, learning: Learning | None, *, jump: bool = True) -> Run:
    """Return the Run of a Job from its Timeline and arithmetic results.

    Without ``jump``, the Timeline of a repeating run has no blocks (rows for several copies). Raises
    TimelineError for a Timeline without an execution.
    """
    times, costs = run_times_of(timeline), job.costs
    costs_without_recomputation, orders = without_recomputation(job, costs), _orders(job, timeline)
    summary = Summary(
        **vars(times),
        description=job.request.description,
        throughput_error=error_words(job),
        ipu=job.system.ipu.name,
        notes=(*job.notes, *filter(None, [learning.warning if learning else ""])),
        options=effects_of(job.program, job.system),
        steps=job.steps,
        repeat_count=job.program.repeat_count,
        reduction_method=job.program.reduction,
        selection_order_reason=job.system.order_reason,
        selection_orders=orders,
        gradient_sum=gradient_sum(costs),
        stage_cycles=stage_cycles(costs, times, costs_without_recomputation),
        memory=memory_summary(job.memory, timeline),
        learning=learning_summary(learning) if learning else None,
        find_verdict=lambda: verdict_of(timeline, costs, job.plan.shape, run_on_one_ipu(job, timeline)),
        find_faster_order=lambda: faster_order(job, timeline, orders),
        find_waterfall=partial(_waterfall, job, timeline, jump=jump),
        find_disturbances=lambda: disturbance_cost(job, timeline),
    )
    return Run(job, timeline, summary, learning)


def _waterfall(job: Job, timeline: Timeline, *, jump: bool) -> Waterfall | None:
    """Return the waterfall; None for a long run without repeats, for which `ipusim explain` computes the waterfall."""
    is_long = len(timeline) > _SPANS_OF_WATERFALL and not timeline.repeats
    if is_long and not (jump and job.workload is None):  # a jump without arithmetic has looked for repeats
        is_long = not timeline_of(job, timeline.info.executions).repeats
    return None if is_long else waterfall_of(job, timeline)


def _orders(job: Job, timeline: Timeline) -> tuple[OrderReport, ...]:
    """Return a report per selection order, extrapolated over the Timeline's repeated blocks."""
    lengths = [repeat.length for repeat in timeline.repeats if repeat.micro_batches]
    whole_count = count = job.program.shape.micro_batches
    period = None
    if lengths:
        period = math.lcm(*lengths, job.schedule.step(job.program.shape))
        least_count = max(timeline.contiguous().info.count, job.plan.shape.micro_batches)
        count = nearest_count(least_count, whole_count, period)

    def reports(part: Job) -> tuple[OrderReport, ...]:
        return order_reports(part.plan, replace(part.program, shape=part.plan.shape), part.system, part.costs)

    laid_out_reports = reports(job)
    if job.plan.shape.micro_batches == whole_count:
        return laid_out_reports
    cycles = job.of_whole(
        lambda part: np.array([report.execution_cycles for report in reports(part)], np.int64), count, period
    )
    return tuple(
        replace(report, execution_cycles=total) for report, total in zip(laid_out_reports, cycles.tolist(), strict=True)
    )


def _run(job: Job, progress: Progress | None, hooks: Sequence[Hook], *, jump: bool) -> tuple[list[Session], Timeline]:
    """Run all steps on all hosts, and return sessions and the shared Timeline.

    Without arithmetic, hosts have equal times, and a single host is simulated.
    """
    if job.system.hosts == 1 or job.workload is None:
        session = Session(job)
        return [session], session.run(job.executions, progress, hooks, jump=jump)

    def on_host(rank: int) -> tuple[Session, Timeline]:
        session = Session(job, this_host())
        return session, session.run(job.executions, None if rank else progress, () if rank else hooks)

    hosts = run_together([partial(on_host, rank) for rank in range(job.system.hosts)])
    return [session for session, _ in hosts], hosts[0][1]
