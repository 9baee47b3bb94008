"""Compute the lengths of many runs of a Job, each with other cycles of passes, without a simulation of events.

The computation follows the fixed order of instructions (:mod:`ipusim.retiming`). It is exact, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Final

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.machine.extent import MAX_SUM, tracks_of
from ipusim.pipeline.ops import Pass
from ipusim.retiming.retiming import Retiming
from ipusim.runs.assemble.short_counts import nearest_count
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.recurrences import Recurrence
from ipusim.runs.time_alone import PriceFunction

#: Maximum number of passes of all runs together, which take some seconds to compute.
_MOST_PASSES: Final = 100_000_000
#: The same for runs with Streaming Memory or moves, which take longer.
_MOST_STREAMED_PASSES: Final = 1_000_000
#: Maximum number of passes of a single run: preparing so many for the computation takes a second. The timing
#: of longer runs often repeats, so that a shorter run stands for them.
MOST_PASSES_OF_ONE_RUN: Final = 600_000
#: Minimum number of replicas at which passes in sequence take less time to compute than to simulate: the computation
#: treats equal replicas once.
_MANY_REPLICAS: Final = 4


def are_quick(job: Job, executions: int, sets: int) -> bool:
    """Return whether ``sets`` runs of a Job can be computed within some seconds."""
    return job.program.shape.passes * executions * sets <= _most_passes(job)


def _most_passes(job: Job) -> int:
    has_streams = job.costs.pass_streams or job.costs.update_streams or job.costs.moves
    return _MOST_STREAMED_PASSES if has_streams else _MOST_PASSES


def quick_count(job: Job, executions: int, sets: int) -> int:
    """Return the largest number of micro-batches with which :func:`are_quick` holds; 0 if there is none."""
    passes = job.program.shape.passes * executions * sets
    return _most_passes(job) * job.program.shape.count // passes


def run_without_events(job: Job, executions: int, price: PriceFunction) -> int | None:
    """Return the cycles of a run without repetition, computed without a simulation of events.

    If micro-batches do not overlap, passes wait for each other, and a simulation of few replicas is faster.

    Args:
        job: Job of the run, without exchanges between hosts.
        executions: number of pipeline executions.
        price: function that returns costs and device of the whole Job.

    Returns:
        Cycles of the run; None if a simulation of events is faster, or if only a simulation gives the times.
    """
    simulation_is_faster = not any(job.plan.fifo_depths) and job.system.replicas < _MANY_REPLICAS
    if simulation_is_faster or job.program.shape.passes * executions > MOST_PASSES_OF_ONE_RUN:
        return None
    return runs_with_passes(job, executions, price, [price(job)[0].passes])[0]


def long_run_without_events(job: Job, recurrence: Recurrence) -> int | None:
    """Return the cycles of a run of a single execution, from its repeating part and a run of fewer micro-batches.

    Both runs reach the repeating part in equal states, and have equal instructions after it.

    Args:
        job: Job of the run.
        recurrence: repeating part of this run, or of a run that differs only in the number of micro-batches.

    Returns:
        Cycles of the run. None for a run too short for the part, or if only a simulation of events gives the times of
        the shorter run.
    """
    assert job.with_counts is not None
    shape, length = job.program.shape, recurrence.length
    if not length or shape.micro_batches < recurrence.micro_batches:
        return None
    count = nearest_count(recurrence.micro_batches, shape.micro_batches, lcm(job.schedule.step(shape), length))
    short_job = job.with_counts(count, 1)
    cycles = runs_with_passes(short_job, 1, lambda part: (part.costs, part.system), [short_job.costs.passes])[0]
    total = None if cycles is None else cycles + (shape.micro_batches - count) // length * recurrence.cycles
    return None if total is None or total > MAX_SUM // tracks_of(job.system, job.costs) else total


def runs_with_passes(
    job: Job, executions: int, price: PriceFunction, passes: Sequence[Mapping[tuple[int, int], int]]
) -> list[int | None]:
    """Return the cycles of a run for each set of pass cycles.

    Args:
        job: Job of the run, without exchanges between hosts.
        executions: number of pipeline executions.
        price: function that returns costs and device of the whole Job, see
            :func:`~ipusim.runs.time_alone.timeline_of`.
        passes: pass cycles of each run, by kind and stage.

    Returns:
        Cycles of each run; None for a run with tensors that share links, or with times that only a simulation of
        events gives, and for a run too large for memory, or too long for sums of 64 bits.
    """
    if not are_quick(job, executions, len(passes)):
        return [None] * len(passes)
    durations = np.zeros((len(passes), len(Pass), job.plan.shape.stages), np.int64)
    for number, cycles in enumerate(passes):
        for (kind, stage), duration in cycles.items():
            durations[number, kind, stage] = duration
    try:
        costs, system = price(job.whole)
        retiming = Retiming.from_plan(job.whole.plan, job.whole.program, system, costs=costs, executions=executions)
        ends = retiming.executions(durations)
    except (NotExactError, RequestError):
        return [None] * len(passes)
    cycles = (ends.cycles + int(costs.host.cycles_after(executions, job.program.repeat_count))).tolist()
    limit = MAX_SUM // tracks_of(system, costs)
    return [end if exact and end <= limit else None for end, exact in zip(cycles, ends.exact.tolist(), strict=True)]
