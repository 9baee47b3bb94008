"""Where each execution of the pipeline begins, ends its pipeline and ends its weight update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import TimelineError
from ipusim.timeline.kind_row import Part
from ipusim.timeline.kinds import IPU_KINDS, kinds_with, of_kinds
from ipusim.timeline.timeline import Timeline

#: Kinds of the weight update: the sum over replicas is its first part.
UPDATE_KINDS: Final = kinds_with(lambda row: row.part is Part.UPDATE)
#: Kinds of no execution.
BETWEEN_KINDS: Final = kinds_with(lambda row: row.part is Part.BETWEEN)
#: Kinds that are no part of the pipeline proper: its update, and waiting, which something else always ends.
_AFTER_PIPELINE: Final = kinds_with(lambda row: row.part is not Part.PIPELINE)


@dataclass(frozen=True)
class Execution:
    """One execution of the pipeline, in cycles from the start of the run.

    Attributes:
        index: number of the execution, from 0 over the whole run.
        start: when its first IPU starts.
        pipeline_end: when its last pass, copy or outfeed ends; the weight update follows.
        end: when its weight update ends (``pipeline_end`` where there is none).
        times: executions that it stands for: itself, and those of a block that are as it is, one after the other.
    """

    index: int
    start: int
    pipeline_end: int
    end: int
    times: int = 1

    @property
    def makespan_cycles(self) -> int:
        """Length of the pipeline without its weight update."""
        return self.pipeline_end - self.start

    @property
    def update_cycles(self) -> int:
        """Length of the weight update."""
        return self.end - self.pipeline_end

    @property
    def execution_cycles(self) -> int:
        """Length of the whole: pipeline and weight update."""
        return self.end - self.start


def on_ipus(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Return which rows lie on the IPUs' own tracks, as a mask of shape (spans,)."""
    return of_kinds(timeline.kind, IPU_KINDS)


def executions_of(timeline: Timeline) -> tuple[Execution, ...]:
    """Return every execution that has a span on an IPU, in order; what is between session runs is in none.

    Of those that repeat as a block, the first and the last copies are there, and one for all between them.
    """
    return _executions(timeline.peeled())


def _executions(peeled: Timeline) -> tuple[Execution, ...]:
    timeline = peeled.contiguous()
    rows = np.flatnonzero(on_ipus(timeline) & ~of_kinds(timeline.kind, BETWEEN_KINDS))
    if not len(rows):
        return ()
    index, kind = timeline.execution[rows], timeline.kind[rows]
    # Rows are sorted by start, so an execution's first row is its earliest.
    present, first, number = np.unique(index, return_index=True, return_inverse=True)
    first = rows[first]
    later = peeled.blocks.cycles_of_executions()
    start, end = (peeled.start - later)[first], (peeled.end - later)[rows]
    last = np.zeros(len(present), dtype=np.int64)
    np.maximum.at(last, number, end)
    # What the weight update moves from and to Streaming Memory carries the number behind the last time-step.
    work = ~of_kinds(kind, _AFTER_PIPELINE) & (timeline.time_step[rows] < timeline.info.time_steps)
    pipeline_end = np.zeros(len(present), dtype=np.int64)
    np.maximum.at(pipeline_end, number[work], end[work])
    pipeline_end = np.maximum(start, pipeline_end)
    columns = (
        peeled.execution[first],
        start + later[first],
        pipeline_end + later[first],
        np.maximum(pipeline_end, last) + later[first],
        peeled.weights_of_executions[first],
    )
    return tuple(Execution(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def find_execution(timeline: Timeline, index: int) -> Execution:
    """Return one execution; raises TimelineError naming those that the Timeline holds."""
    executions = _executions(timeline.peeled(index))
    for execution in executions:
        if execution.index == index:
            return execution
    known = f"0 to {executions[-1].index}" if executions else "none"
    raise TimelineError(f"expected an execution of the Timeline ({known}), got {index}")
