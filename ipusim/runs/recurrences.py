"""Find the repeating part of a run of a single execution, without simulating events.

The part is a number of micro-batches; the timing of all IPUs repeats for as many later micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, PlanShape
from ipusim.retiming.retiming import Retiming
from ipusim.runs.job import Job


class Recurrence(NamedTuple):
    """The repeating part of a run with enough micro-batches.

    Attributes:
        micro_batches: number of micro-batches of a run that contains the part.
        length: micro-batches of the part; 0 if only a simulation of events may find the part.
        cycles: cycles of the part; 0 if only a simulation of events may find the part.
    """

    micro_batches: int
    length: int
    cycles: int


def recurrence_of(job: Job, counts: Iterable[int]) -> Recurrence | None:
    """Return the repeating part of a run of a single execution.

    A part repeats if all IPUs begin the same passes and sends again, over later micro-batches, at the same distances in
    time. In point-to-point, also no tensor may wait longer than the part takes. Then the times of each part follow from
    the times of the part before it.

    Args:
        job: Job of the run.
        counts: numbers of micro-batches of short runs, tried in turn.

    Returns:
        The part; None if no short run repeats itself.

    Raises:
        RequestError: if a short run is too large.
    """
    assert job.with_counts is not None
    for count in counts:
        try:
            part = _repeating_part(job.with_counts(count, 1)) if has_only_passes(job) else (0, 0)
        except NotExactError:
            part = 0, 0
        if part is not None:
            return Recurrence(count, *part)
    return None


def has_only_passes(job: Job) -> bool:
    """Return whether IPUs have only passes and copies between them, in periods that the schedule states."""
    costs, host = job.costs, job.costs.host
    is_periodic = job.schedule.period is not None and not job.schedule.in_phases
    other_work = job.plan.order.repeats, job.system.disturbances, job.between, costs.pass_streams, costs.moves
    feeds = host.infeed, host.fill, host.outfeed, host.drain, host.data
    meets_once = job.executions == 1 and len(costs.copies.by_group) <= 1
    return is_periodic and meets_once and not any((*other_work, *feeds))


def _repeating_part(job: Job) -> tuple[int, int] | None:
    """Return micro-batches and cycles of the latest part of a run that repeats; of several, the shortest part.

    Both are 0 if a tensor may wait longer than the part takes. Raises NotExactError if only a simulation of events
    gives the times.
    """
    shape, starts = job.plan.shape, _starts(job)
    # Most runs without a repeating part have no equal states, and need no table of passes and sends.
    table_of = cache(lambda: _passes_and_sends(job, starts))
    wait_of = cache(lambda: _waits(table_of(), shape))
    part = None
    for begin, length, cycles in _equal_states(job, starts):
        table = table_of()
        low, end, high = np.searchsorted(table[-1], begin + np.arange(3) * cycles).tolist()
        shifted_rows = table[:, low:end] + np.array([[0], [0], [0], [length], [0], [cycles]])
        if _has_all_passes(table[1, low:end], length, shape) and np.array_equal(shifted_rows, table[:, end:high]):
            if wait_of()[low:end].max() <= cycles:
                return length, cycles
            part = 0, 0
    return part


def _starts(job: Job) -> Column:
    """Return the start of every instruction; -1 for an instruction without a start.

    Raises NotExactError if only events give the times, and for replicas with different times.
    """
    starts = next(Retiming.from_plan(job.plan, job.program, job.system, costs=job.costs, executions=1).times()).start
    if (starts != starts[:, :1]).any():
        raise NotExactError("replicas with different times")
    return np.asarray(starts[:, 0])


def _equal_states(job: Job, starts: Column) -> Iterator[tuple[int, int, int]]:
    """Yield begin, micro-batches and cycles of possible repeating parts, the latest and shortest first.

    A state of the machine can repeat only if all IPUs begin their next passes at the same distances. A part lies
    between two equal states, and a third equal state follows at the same distance.
    """
    plan, shape, period = job.plan, job.plan.shape, job.schedule.period
    assert period is not None
    ipu, code, stage, micro_batch, _ = plan.instructions.T
    marked = (code == Pass.FORWARD) & (stage == 0) & (ipu == shape.ipus_of(0)[0]) & (micro_batch % period(shape) == 0)
    cycle, number = starts[marked], micro_batch[marked]
    is_pass = code < PASSES
    pass_ipus, pass_starts = ipu[is_pass], starts[is_pass]
    until_next = np.empty((len(plan.ipus), len(cycle)), np.int64)
    for row, shard in enumerate(plan.ipus):  # instructions are sorted by IPU
        low, high = np.searchsorted(pass_ipus, [shard, shard + 1])
        next_starts = np.r_[pass_starts[low:high], np.iinfo(np.int64).max]
        until_next[row] = next_starts[np.searchsorted(next_starts, cycle)] - cycle
    state = np.unique(until_next, axis=1, return_inverse=True)[1].ravel()
    for last in range(len(cycle) - 1, 1, -1):
        middles = last - 1 - np.flatnonzero(state[(last + 1) // 2 : last][::-1] == state[last])
        for middle, first in np.stack([middles, 2 * middles - last], axis=1).tolist():
            length, cycles = int(number[middle] - number[first]), int(cycle[middle] - cycle[first])
            if state[first] == state[last] and min(length, cycles) > 0:
                yield int(cycle[first]), length, cycles


def _passes_and_sends(job: Job, starts: Column) -> Column:
    """Return IPU, code, stage, micro-batch, target and start of all passes and sends, sorted by start."""
    instructions = job.plan.instructions
    rows = np.flatnonzero(any_of(instructions[:, 1], (*Pass, Code.SEND, Code.BLOCKING_SEND)) & (starts >= 0))
    table = np.concatenate([instructions[rows].T, starts[np.newaxis, rows]])
    return np.asarray(table[:, np.lexsort(table)])


def _waits(table: Column, shape: PlanShape) -> Column:
    """Return the cycles from each send to the pass that takes the tensor; 0 for passes."""
    _, code, stage, micro_batch, target, start = table
    # starts of forward passes, then of backward passes
    receiver_starts = np.zeros((2, shape.stages, shape.micro_batches), np.int64)
    for direction, kinds in enumerate(((Pass.FORWARD,), (Pass.BACKWARD, Pass.INPUT_GRADIENT))):
        mask = any_of(code, kinds)
        receiver_starts[direction, stage[mask], micro_batch[mask]] = start[mask]
    backward = (target < stage).astype(np.int64)
    return np.where(code < PASSES, 0, receiver_starts[backward, target, micro_batch] - start)


def _has_all_passes(codes: Column, length: int, shape: PlanShape) -> bool:
    """Return whether a part has the passes of ``length`` micro-batches in every stage."""
    passes, expected_count = np.bincount(codes, minlength=PASSES), length * shape.stages
    backward = passes[Pass.BACKWARD] + passes[[Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT]]
    return bool(passes[Pass.FORWARD] == expected_count and (backward == expected_count * shape.training).all())
