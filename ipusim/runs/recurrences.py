"""Find the recurring part of a run of a single execution: micro-batches that take equally long as those before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import PASSES
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import PlanShape
from ipusim.retiming.exact_run import Cycles
from ipusim.retiming.retiming import Retiming
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.time_alone import repeats_of_short_run

#: Halves of a backward pass.
_HALVES: Final = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


class Recurrence(NamedTuple):
    """The recurring part of a run with enough micro-batches.

    Attributes:
        micro_batches: number of micro-batches of a run with the part.
        length, cycles: micro-batches and cycles of the part; 0 if several parts recur.
    """

    micro_batches: int
    length: int
    cycles: int


def recurrence_of(job: Job, least: int = 1) -> Recurrence | None:
    """Return the recurring part of a run of a single execution; None if no part of any short run recurs.

    Args:
        job: Job of the run.
        least: least number of micro-batches of a short run.

    Raises RequestError for too large a short run.
    """
    assert job.with_counts is not None
    for count in short_counts(job.schedule, job.program.shape):
        if count >= least and (job.schedule.in_phases or _may_recur(job.with_counts(count, 1))):
            parts = repeats_of_short_run(job, count)
            if len(parts) == 1:
                return Recurrence(count, parts[0].length, parts[0].cycles)
            if parts:
                return Recurrence(count, 0, 0)
    return None


def _may_recur(job: Job) -> bool:
    """Return whether a run in point-to-point may repeat itself: its passes recur.

    Tensors in flight decide whether it does.
    """
    host = job.costs.host
    if any((host.infeed, host.fill, host.data)):  # the first stage's IPU begins micro-batches before their passes
        return True
    try:
        return _recurring_passes(job) is not None
    except NotExactError:
        return True


def lock_step_recurrence(job: Job) -> Recurrence | None:
    """Return the recurring part of a run in lock-step, without simulating events.

    A part recurs if all IPUs begin the same passes again, over later micro-batches, at the same distances.

    Args:
        job: Job of the run.

    Returns:
        The recurring part in the micro-batches of the Job's Plan; None without such a part, or if the time depends on
        more than passes and copies.
    """
    count = job.plan.shape.micro_batches
    if not takes_only_steps(job) or count == job.program.shape.micro_batches or job.with_counts is None:
        return None
    try:
        part = _recurring_passes(job.with_counts(count, 1))
    except (NotExactError, RequestError):
        return None
    return None if part is None else Recurrence(count, *part)


def takes_only_steps(job: Job) -> bool:
    """Return whether a run consists of time-steps of passes and copies, with a period stated by its schedule."""
    costs, host = job.costs, job.costs.host
    if not job.plan.sync.meets or len(costs.copies.meetings) > 1 or job.system.disturbances or job.between:
        return False
    if any((host.infeed, host.fill, host.outfeed, host.drain, host.data, costs.pass_streams, costs.moves)):
        return False
    is_periodic = job.schedule.period is not None and not job.schedule.in_phases and job.plan.order.repeats is None
    return is_periodic and job.executions == 1


def _recurring_passes(job: Job) -> tuple[int, int] | None:
    """Return micro-batches and cycles of the latest, shortest part of a run whose passes begin again in the next part.

    Raises NotExactError if only events give the times.
    """
    plan, schedule = job.plan, job.schedule
    retiming = Retiming.from_plan(plan, job.program, job.system, costs=job.costs, executions=1)
    rows = np.flatnonzero(plan.instructions[:, 1] < PASSES)
    ipu, code, stage, micro_batch = plan.instructions[rows, :4].T
    start = next(retiming.times()).start[rows, 0]
    period = 1 if schedule.period is None else schedule.period(plan.shape)
    first_ipu = plan.shape.ipus_of(0)[0]
    marked = np.flatnonzero((code == Pass.FORWARD) & (stage == 0) & (ipu == first_ipu) & (micro_batch % period == 0))
    marked = marked[np.argsort(start[marked])]
    cycle, number = start[marked], micro_batch[marked]
    until_next = []
    for each in plan.ipus:
        begins = np.r_[np.sort(start[ipu == each]), np.iinfo(np.int64).max]
        until_next.append(begins[np.searchsorted(begins, cycle)] - cycle)
    _, state = np.unique(np.stack(until_next), axis=1, return_inverse=True)
    state = state.ravel()
    passes = np.stack([ipu, code, stage, micro_batch, start])
    passes = passes[:, np.lexsort(passes)]
    for last in range(len(marked) - 1, 1, -1):
        for middle in last - 1 - np.flatnonzero(state[last // 2 + last % 2 : last][::-1] == state[last]):
            first = 2 * middle - last
            length, cycles = int(number[middle] - number[first]), int(cycle[middle] - cycle[first])
            if state[first] == state[last] and _recur(plan.shape, passes, int(cycle[first]), length, cycles):
                return length, cycles
    return None


def _recur(shape: PlanShape, passes: Cycles, begin: int, length: int, cycles: int) -> bool:
    """Return whether passes that start in the ``cycles`` from ``begin`` recur in the next cycles.

    Args:
        shape: shape of the Plan.
        passes: IPU, code, stage, micro-batch and start of every pass, in order of start.
        begin, cycles: first cycle of the part, and its length.
        length: number of micro-batches of the part, all of whose passes it has.
    """
    if cycles <= 0 or length <= 0:
        return False
    low, middle, high = np.searchsorted(passes[-1], [begin, begin + cycles, begin + 2 * cycles]).tolist()
    number_of = np.bincount(passes[1, low:middle], minlength=PASSES)
    each, backward = length * shape.stages, length * shape.stages * shape.training
    whole = number_of[Pass.BACKWARD]
    if number_of[Pass.FORWARD] != each or any(whole + number_of[half] != backward for half in _HALVES):
        return False
    shifted = passes[:, low:middle] + np.array([[0], [0], [0], [length], [cycles]])
    return np.array_equal(shifted, passes[:, middle:high])
