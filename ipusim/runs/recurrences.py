"""Find the recurring part of a run of a single execution: micro-batches that take equally long as those before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import PlanShape
from ipusim.retiming.exact_run import Cycles
from ipusim.retiming.retiming import Retiming
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.time_alone import repeats_of_short_run

#: Instructions whose times recur with a part.
_TIMED: Final = (*Pass, Code.SEND, Code.BLOCKING_SEND)
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
    counts = [count for count in short_counts(job.schedule, job.program.shape) if count >= least]
    if counts and not _may_recur(job.with_counts(counts[-1], 1)):  # fewer micro-batches begin in the same way
        return None
    for count in counts:
        if _may_recur(job.with_counts(count, 1)):
            parts = repeats_of_short_run(job, count)
            if len(parts) == 1:
                return Recurrence(count, parts[0].length, parts[0].cycles)
            if parts:
                return Recurrence(count, 0, 0)
    return None


def _may_recur(job: Job) -> bool:
    """Return whether a run may repeat itself, as its passes recur."""
    try:
        return not has_only_passes(job) or _recurring_part(job, any_wait=True) is not None
    except NotExactError:
        return True


def recurrence_without_events(job: Job) -> Recurrence | None:
    """Return the recurring part of a run of a single execution, without simulating events.

    A part recurs if all IPUs begin the same passes and sends again, over later micro-batches, at the same distances,
    and no pass waits for a tensor longer than the part takes: all times follow from those of a part before.

    Args:
        job: Job of the run.

    Returns:
        The recurring part in the micro-batches of the Job's Plan; None without such a part, or if the time depends on
        more than passes and copies.
    """
    count = job.plan.shape.micro_batches
    if not has_only_passes(job) or count == job.program.shape.micro_batches or job.with_counts is None:
        return None
    try:
        part = _recurring_part(job.with_counts(count, 1))
    except (NotExactError, RequestError):
        return None
    return None if part is None else Recurrence(count, *part)


def has_only_passes(job: Job) -> bool:
    """Return whether IPUs have only passes and copies between them, in periods that the schedule states."""
    costs, host = job.costs, job.costs.host
    if len(costs.copies.meetings) > 1 or job.system.disturbances or job.between or job.executions > 1:
        return False
    if any((host.infeed, host.fill, host.outfeed, host.drain, host.data, costs.pass_streams, costs.moves)):
        return False
    return job.schedule.period is not None and not job.schedule.in_phases and job.plan.order.repeats is None


def _recurring_part(job: Job, *, any_wait: bool = False) -> tuple[int, int] | None:
    """Return micro-batches and cycles of the latest, shortest part of a run that happens again.

    With ``any_wait``, its passes may also wait for tensors longer than the part takes.

    Raises NotExactError if only events give the times.
    """
    shape, period = job.plan.shape, job.schedule.period
    assert period is not None
    table = _timed_instructions(job)
    ipu, code, stage, micro_batch, _, start, wait = table
    is_first = (code == Pass.FORWARD) & (stage == 0) & (ipu == shape.ipus_of(0)[0])
    cycle, number = start[marked := is_first & (micro_batch % period(shape) == 0)], micro_batch[marked]
    until_next = []
    for each in job.plan.ipus:
        begins = np.r_[start[(ipu == each) & (code < PASSES)], np.iinfo(np.int64).max]
        until_next.append(begins[np.searchsorted(begins, cycle)] - cycle)
    _, state = np.unique(np.stack(until_next), axis=1, return_inverse=True)
    state = state.ravel()
    for last in range(len(cycle) - 1, 1, -1):
        middles = last - 1 - np.flatnonzero(state[(last + 1) // 2 : last][::-1] == state[last])
        for middle, first in np.stack([middles, 2 * middles - last], axis=1).tolist():
            length, cycles = int(number[middle] - number[first]), int(cycle[middle] - cycle[first])
            if state[first] != state[last] or length <= 0 or cycles <= 0:
                continue
            low, end, high = np.searchsorted(start, cycle[first] + np.arange(3) * cycles).tolist()
            again = table[:-1, low:end] + np.array([[0], [0], [0], [length], [0], [cycles]])
            is_again = np.array_equal(again, table[:-1, end:high]) and (any_wait or wait[end:high].max() <= cycles)
            if is_again and _has_all_passes(shape, code[low:end], length):
                return length, cycles
    return None


def _timed_instructions(job: Job) -> Cycles:
    """Return a run's passes and sends in order of start, shape (7, instructions).

    Rows are IPU, code, stage, micro-batch, target, start, and the cycles for which the input's maker has begun before.

    Raises NotExactError if only events give the times.
    """
    plan, shape = job.plan, job.plan.shape
    retiming = Retiming.from_plan(plan, job.program, job.system, costs=job.costs, executions=1)
    starts = next(retiming.times()).start
    rows = np.flatnonzero(any_of(plan.instructions[:, 1], _TIMED) & (starts[:, 0] >= 0))
    if (starts != starts[:, :1]).any():
        raise NotExactError("replicas with different times")
    table = np.concatenate([plan.instructions[rows].T, starts[rows, :1].T, np.zeros((1, len(rows)), np.int64)])
    table = table[:, np.lexsort(table[:-1])]
    if plan.sync.meets:  # no pass waits for tensors
        return table
    passes = np.flatnonzero(table[1] < PASSES)
    _, code, stage, micro_batch, _, start, _ = table[:, passes]
    made = np.full((PASSES, shape.stages, shape.micro_batches), -1)
    made[code, stage, micro_batch] = start
    made[Pass.BACKWARD] = np.maximum(made[Pass.BACKWARD], made[Pass.INPUT_GRADIENT])
    waits = np.zeros_like(made)
    for number in range(shape.stages):
        for kind, way in ((Pass.FORWARD, -1), (Pass.BACKWARD, 1)):
            for source in shape.neighbours(number, way):
                waits[kind, number] = np.maximum(waits[kind, number], made[kind, number] - made[kind, source])
    waits[Pass.INPUT_GRADIENT] = waits[Pass.BACKWARD]
    table[-1, passes] = waits[code, stage, micro_batch]
    return table


def _has_all_passes(shape: PlanShape, code: Cycles, length: int) -> bool:
    """Return whether instructions of these codes have the passes of all stages over ``length`` micro-batches."""
    number_of = np.bincount(code, minlength=PASSES)
    each, backward = length * shape.stages, length * shape.stages * shape.training
    whole = number_of[Pass.BACKWARD]
    return bool(number_of[Pass.FORWARD] == each and all(whole + number_of[half] == backward for half in _HALVES))
