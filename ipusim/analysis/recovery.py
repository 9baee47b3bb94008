"""The time of a run that goes to work done again, as an IPU was lost after the last checkpoint."""

from __future__ import annotations

import numpy as np

from ipusim.analysis.executions import executions_of
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import NONE, Timeline


def redone_work(timeline: Timeline) -> tuple[tuple[int, int], ...]:
    """Return from which cycle to which work is done again: behind restarts, until it is as far as at the loss.

    That takes as long as the lost work did, in whole executions and the part of the last one, in which it ends also
    where a spare IPU has other routes. Another loss cuts it, and what is left of it comes behind that one.
    """
    rows = timeline.rows(SpanKind.LOST_WORK)
    losses = np.unique(np.stack([timeline.start[rows], timeline.end[rows], timeline.execution[rows]]), axis=1)
    executions = executions_of(timeline) if losses.size else ()
    starts = [*losses[0].tolist(), timeline.makespan_cycles]
    stretches: list[tuple[int, int]] = []
    left, last = 0, NONE
    for (start, end, under_way), until in zip(losses.T.tolist(), starts[1:], strict=True):
        left, last = max(left, end - start), max(last, under_way)
        behind = [execution for execution in executions if end <= execution.start < until]
        if behind:
            begin = behind[0].start
            goal = next((execution for execution in behind if execution.index == last), None)
            caught_up = begin + left if goal is None else min(max(begin + left, goal.start), goal.end)
            stretches.append((begin, min(caught_up, until)))
            left = 0 if caught_up <= until else left - (until - begin)
    return tuple(stretches)
