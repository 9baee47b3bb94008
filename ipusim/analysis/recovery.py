"""Find the time of redone work: executions that run again after the loss of an IPU."""

from __future__ import annotations

import numpy as np

from ipusim.analysis.executions import executions_of
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import NONE, Timeline


def redone_work(timeline: Timeline) -> tuple[tuple[int, int], ...]:
    """Return start and end cycles of redone work, from each restart until the run is as far as before the loss.

    Work lost with an IPU consists of whole executions and the beginning of the interrupted execution. Redoing the work
    takes as long as it took at first, but ends at the latest with the second run of the interrupted execution, since a
    spare IPU may have slower routes. If another loss interrupts redone work, the rest follows after the next restart.
    """
    rows = timeline.rows(SpanKind.LOST_WORK)
    losses = np.unique(np.stack([timeline.start[rows], timeline.end[rows], timeline.execution[rows]]), axis=1)
    executions = executions_of(timeline) if losses.size else ()
    starts = [*losses[0].tolist(), timeline.makespan_cycles]
    stretches: list[tuple[int, int]] = []
    remainder, last = 0, NONE
    for (start, end, under_way), next_start in zip(losses.T.tolist(), starts[1:], strict=True):
        remainder, last = max(remainder, end - start), max(last, under_way)
        executions_after = [execution for execution in executions if end <= execution.start < next_start]
        if executions_after:
            begin = executions_after[0].start
            interrupted_execution = next((execution for execution in executions_after if execution.index == last), None)
            caught_up = (
                begin + remainder
                if interrupted_execution is None
                else min(max(begin + remainder, interrupted_execution.start), interrupted_execution.end)
            )
            stretches.append((begin, min(caught_up, next_start)))
            remainder = 0 if caught_up <= next_start else remainder - (next_start - begin)
    return tuple(stretches)
