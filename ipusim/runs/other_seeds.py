"""Compute the lengths of many runs that differ in the seeds of their jitter, without a simulation of events.

The computation follows the fixed order of instructions (:mod:`ipusim.retiming`). It is exact, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.hardware.disturbances import Jitter
from ipusim.retiming.retiming import Retiming
from ipusim.runs.job import Job


class RunCycles(NamedTuple):
    """Cycles of a run.

    Attributes:
        run: length of the run.
        makespan: length of the first execution of the pipeline, without its weight update.
        compute: cycles of all IPUs' passes in the first execution.
    """

    run: int
    makespan: int
    compute: int


def runs_with_seeds(job: Job, seeds: Sequence[Sequence[int]]) -> Iterator[RunCycles | None]:
    """Yield the cycles of a run for each set of seeds.

    Args:
        job: Job of the run.
        seeds: seeds of each run, a seed for each jitter in the order of the disturbances.

    Yields:
        Cycles of the next run; None if tensors share a link, so that only a simulation of events gives the times.

    Raises:
        NotExactError: if only a simulation of events gives the times of the Job; the message is the reason.
    """
    if job.late or job.between:
        raise NotExactError("hosts that wait for each other")
    jitters = [item for item in job.system.disturbances if isinstance(item, Jitter)]
    are_drawn = [bool(item.jitter) for item in jitters]
    drawn_seeds = np.array(seeds, np.int64).reshape(len(seeds), len(jitters))[:, are_drawn]
    whole_job = job.whole
    retiming = Retiming.from_plan(
        whole_job.plan, whole_job.program, whole_job.system, costs=whole_job.costs, executions=whole_job.executions
    )
    for runs in retiming.draw_runs(drawn_seeds):
        columns = runs.cycles, runs.pipeline, runs.compute.sum(axis=0)
        for run, exact in zip(np.stack(columns, axis=1).tolist(), runs.exact.tolist(), strict=True):
            yield RunCycles(*run) if exact else None
