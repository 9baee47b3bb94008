"""Make timing-only runs, without arithmetic.

The timing of a run often repeats, for later micro-batches or executions. A shorter run is simulated in place of a
repeating run, and extended by repeated blocks to the whole Timeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ipusim.hardware.system import System
from ipusim.machine.disturbances import changes, steady_from
from ipusim.machine.executor import Replicas
from ipusim.machine.recurrence import executions_in_a_row
from ipusim.machine.repeating import ShortRun, short_run
from ipusim.machine.simulate import Progress, simulate
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.assemble.limits import SIMULATED_EXECUTIONS, check_sums
from ipusim.runs.assemble.short_counts import nearest_count, short_counts
from ipusim.runs.between_changes import BetweenChanges
from ipusim.runs.job import Job
from ipusim.runs.lost import loses, with_pauses
from ipusim.runs.marked import marked_run
from ipusim.runs.problems import Problem, RequestError
from ipusim.timeline.timeline import Timeline

#: Numbers of executions in short runs, tried in turn until a run repeats; then all executions are simulated.
_TRIED_EXECUTIONS: Final = (SIMULATED_EXECUTIONS, 16, 64)
#: Function that returns costs and device of a Job.
PriceFunction = Callable[[Job], tuple[Costs, System]]


def _price_on(system: System, price: PriceFunction) -> PriceFunction:
    """Return a price function with the costs of ``price``, and with ``system`` as device."""
    return lambda job: (price(job)[0], system)


def timeline_of(
    job: Job,
    executions: int | None = None,
    *,
    jump: bool = True,
    price: PriceFunction = lambda job: (job.costs, job.system),
    replicas: Replicas | None = None,
    between: Mapping[int, Sequence[HostExchange]] | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Return the Timeline of a Job's timing-only run.

    Args:
        job: Job to run.
        executions: executions of the pipeline; by default the program's repeat count.
        jump: whether a shorter run stands for a run that repeats; its Timeline then has repeated blocks, and equals the
            fully simulated Timeline after expansion.
        price: function that returns costs and device of the Job, or of the Job with other counts.
        replicas: replacement for the arithmetic, for a host that waits for others (``Job.late``).
        between: joint work of hosts before an execution, by number of the execution.
        progress: called with the progress.

    Raises:
        DeadlockError: if no process of the machine can continue.
        RequestError: if a large run does not repeat, or a run is too long for 64-bit figures.
    """
    count = job.program.repeat_count if executions is None else executions
    device, executions_may_repeat = price(job)[1], replicas is None and not between
    if loses(device):
        device = with_pauses(job.whole, price(job.whole)[0], device, count, between)
        price, executions_may_repeat = _price_on(device, price), False
    run = _ShorterRuns(job, count, price, replicas, between, progress)
    attempts: list[Callable[[], Timeline | None]] = []
    if steady_from(device) is not None:
        attempts.append(lambda: run.extended(executions_may_repeat=executions_may_repeat))
    if executions_may_repeat and changes(device):
        # With several executions long enough to be shortened, first try executions after the last change.
        executions_first = count > 1 and next(short_counts(job.schedule, job.program.shape), None) is not None
        attempts.insert(len(attempts) if executions_first else 0, lambda: _between_changes(run))
    for attempt in attempts if jump else ():
        timeline = attempt()
        if timeline is not None:
            return check_sums(timeline, device, price(job)[0])
    whole_job = job.whole
    costs, system = price(whole_job)
    timeline = simulate(
        whole_job.plan,
        whole_job.program,
        system,
        costs=costs,
        executor=replicas,
        executions=count,
        progress=progress,
        between=between,
    )
    return check_sums(timeline, system, costs)


def _between_changes(run: _ShorterRuns) -> Timeline | None:
    """Return the Timeline of a run simulated only around the beginnings and ends of disturbances.

    None if no part can be left out.
    """
    with suppress(RequestError):  # about a count not requested by the user; the full simulation reports any problem
        return BetweenChanges(run.job, run.price, run.executions, run.in_a_row).timeline()
    return None


@dataclass(frozen=True)
class _ShorterRuns:
    """Shorter runs that may stand for a run; attributes are the arguments of :func:`timeline_of`."""

    job: Job
    executions: int
    price: PriceFunction
    replicas: Replicas | None
    between: Mapping[int, Sequence[HostExchange]] | None
    progress: Progress | None

    def extended(self, *, executions_may_repeat: bool) -> Timeline | None:
        """Return the Timeline extended from the shortest repeating run; None if no short run repeats.

        The number of micro-batches grows until the timing repeats, and the number of executions if executions may
        repeat.
        """
        whole_count, executions = self.job.program.shape.micro_batches, self.executions
        counts = (
            short_counts(self.job.schedule, self.job.program.shape) if self.job.with_counts is not None else iter(())
        )
        execution_counts = (
            count * self.in_a_row
            for count in (_TRIED_EXECUTIONS if executions_may_repeat and self.job.with_counts is not None else ())
        )
        part_counts = (number for number in execution_counts if number < executions)
        micro_batches, part_executions = next(counts, whole_count), next(part_counts, executions)
        short: ShortRun | None = None
        last_count = 0
        while (micro_batches, part_executions) != (whole_count, executions):
            short = None  # free the previous run's memory before the next run
            try:
                short = self._short_run(micro_batches, part_executions)
            except RequestError as error:  # about a count not requested by the user
                raise (
                    error
                    if micro_batches == whole_count
                    else RequestError(_problems_of_whole(error, whole_count, last_count))
                ) from None
            last_count = micro_batches
            if not short.inner_repeats:
                micro_batches = next(counts, whole_count)
            elif not short.outer_repeats:
                part_executions = next(part_counts, executions)
            elif (count := self._count_of_whole_periods(micro_batches, short)) != micro_batches:
                micro_batches = count
            elif left_out := short.executions_over(executions - part_executions):
                part_executions += left_out
            else:
                return self._whole_timeline(short)
        return None

    @property
    def in_a_row(self) -> int:
        """Number of executions after which the run may repeat."""
        return executions_in_a_row(self.job.program, self.price(self.job)[0], self.executions)

    def _count_of_whole_periods(self, micro_batches: int, short: ShortRun) -> int:
        """Return the least number of micro-batches, from ``micro_batches`` up, that leaves out whole periods."""
        shape, schedule = self.job.program.shape, self.job.schedule
        if not short.inner:
            return micro_batches
        multiple = math.lcm(schedule.step(shape), short.micro_batches)
        return nearest_count(micro_batches, shape.micro_batches, multiple)

    def _short_run(self, micro_batches: int, executions: int) -> ShortRun:
        """Simulate a short run, and return it with its repeated blocks."""
        job = self.job
        one_run = self.executions == job.program.repeat_count
        short_job = _job_with(job, micro_batches, executions if one_run else job.program.repeat_count)
        whole_count = job.program.shape.micro_batches
        period = job.schedule.period(job.program.shape) if job.schedule.period is not None else whole_count
        costs, system = self.price(short_job)
        timeline, marks = marked_run(
            short_job,
            costs,
            system,
            executions,
            range(0, micro_batches if micro_batches < whole_count else 0, period),
            executor=self.replicas,
            between=self.between,
            in_phases=job.schedule.in_phases,
            progress=self.progress,
        )
        steady = steady_from(system)  # an equal state before that cycle may have another future
        marks = [mark for mark in marks if steady is not None and mark.cycle >= steady]
        outer_length = self.in_a_row if executions < self.executions else 0
        return short_run(
            timeline, marks, short_job.plan, needs_inner=micro_batches < whole_count, outer_length=outer_length
        )

    def _whole_timeline(self, short: ShortRun) -> Timeline:
        """Return the whole run's Timeline, extended from ``short``."""
        info_of_part, count = short.timeline.info, self.job.program.shape.micro_batches
        info = replace(
            info_of_part,
            count=count,
            time_steps=info_of_part.time_steps + short.time_steps(count - info_of_part.count),
            overlap=self.job.plan.overlap,
            executions=self.executions,
            executions_per_step=self.job.program.repeat_count,
        )
        return short.lengthen(info)


def _problems_of_whole(error: RequestError, whole_count: int, first_count: int) -> Iterator[Problem]:
    """Yield the problems of a short run that exceeds memory, worded for the whole run."""
    for problem in error.problems:
        text = (
            f"expected a run that repeats, or a run that fits in memory as a whole, got {whole_count} micro-batches, "
            f"and the first {first_count} do not repeat; make the run smaller"
        )
        is_too_large = problem.path[-1:] == ("gradient_accumulation_count",)
        yield replace(problem, text=text) if is_too_large else problem


def _job_with(job: Job, micro_batches: int, repeat_count: int) -> Job:
    """Return the Job with other counts, or ``job`` itself for equal counts."""
    if (micro_batches, repeat_count) == (job.program.shape.micro_batches, job.program.repeat_count):
        return job.whole
    assert job.with_counts is not None
    return job.with_counts(micro_batches, repeat_count)
