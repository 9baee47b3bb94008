"""Runs of a Job whose passes take other cycles, computed together and without events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.ops import Pass
from ipusim.retiming.retiming import Retiming
from ipusim.runs.job import Job
from ipusim.runs.time_alone import Priced

#: Passes of all runs that are computed together: some seconds; fewer of Streaming Memory and moves, which take longer.
_MOST_PASSES: Final = 100_000_000
_MOST_STREAMED: Final = 1_000_000


def are_quick(job: Job, executions: int, sets: int) -> bool:
    """Return whether so many runs of a Job are computed within some seconds."""
    streamed = job.costs.pass_streams or job.costs.update_streams or job.costs.moves
    return job.program.shape.passes * executions * sets <= (_MOST_STREAMED if streamed else _MOST_PASSES)


def runs_with_passes(
    job: Job, executions: int, priced: Priced, passes: Sequence[Mapping[tuple[int, int], int]]
) -> list[int | None]:
    """Return the cycles of a run for each set of cycles of its passes.

    Args:
        job: what is run, without exchanges between hosts.
        executions: of the pipeline.
        priced: costs and device of the whole Job, as :func:`~ipusim.runs.time_alone.timeline_of` takes them.
        passes: of each run the cycles by kind and stage.

    Returns:
        Cycles of each run; None for a run whose tensors share links, or that is not computed without events.
    """
    try:
        if not are_quick(job, executions, len(passes)):
            return [None] * len(passes)
        costs, system = priced(job.whole)
        retiming = Retiming.from_plan(job.whole.plan, job.whole.program, system, costs=costs, executions=executions)
    except NotExactError:
        return [None] * len(passes)
    durations = np.zeros((len(passes), len(Pass), job.plan.shape.stages), np.int64)
    for number, cycles in enumerate(passes):
        for (kind, stage), taken in cycles.items():
            durations[number, kind, stage] = taken
    ends = retiming.executions(durations)
    cycles = (ends.cycles + int(costs.host.behind(executions, job.program.repeat_count))).tolist()
    return [end if exact else None for end, exact in zip(cycles, ends.exact.tolist(), strict=True)]
