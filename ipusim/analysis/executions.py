"""Find start, pipeline end and weight update end of every execution of the pipeline in a Timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import TimelineError
from ipusim.timeline.kind_row import Part
from ipusim.timeline.kinds import IPU_KINDS, kinds_with, of_kinds
from ipusim.timeline.timeline import Timeline

#: Kinds of spans of the weight update; it begins with the sum of gradients over replicas.
UPDATE_KINDS: Final = kinds_with(lambda row: row.part is Part.UPDATE)
#: Kinds of spans between two executions.
BETWEEN_KINDS: Final = kinds_with(lambda row: row.part is Part.BETWEEN_RUNS)
#: Kinds of spans that do not tell the end of the pipeline: weight updates, spans between executions, and waits.
_AFTER_PIPELINE: Final = kinds_with(lambda row: row.part is not Part.PIPELINE)


@dataclass(frozen=True)
class Execution:
    """One execution of the pipeline, in cycles from the start of the run.

    Attributes:
        index: number of the execution in the run, from 0.
        start: start of its first IPU.
        pipeline_end: end of its last pass, copy or outfeed; the weight update follows.
        end: end of its weight update; ``pipeline_end`` for an execution without weight update.
        times: number of represented executions: this one, and equal successors in a repeated block.
    """

    index: int
    start: int
    pipeline_end: int
    end: int
    times: int = 1

    @property
    def makespan_cycles(self) -> int:
        """Cycles of the pipeline without its weight update."""
        return self.pipeline_end - self.start

    @property
    def update_cycles(self) -> int:
        """Cycles of the weight update."""
        return self.end - self.pipeline_end

    @property
    def execution_cycles(self) -> int:
        """Cycles of pipeline and weight update."""
        return self.end - self.start


def on_ipus(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Mask the rows on tracks of IPUs; shape (spans,)."""
    return of_kinds(timeline.kind, IPU_KINDS)


def executions_of(timeline: Timeline) -> tuple[Execution, ...]:
    """Return every execution with a span on an IPU, in order. Time between session runs belongs to no execution.

    A repeated block of executions appears three times: first repetition, last repetition, and a representative of the
    rest.
    """
    return _executions(timeline.with_block_ends_expanded())


def _executions(with_ends: Timeline) -> tuple[Execution, ...]:
    """Return the executions of a Timeline in which first and last copies of repeated blocks have rows of their own."""
    timeline = with_ends.contiguous()
    rows = np.flatnonzero(on_ipus(timeline) & ~of_kinds(timeline.kind, BETWEEN_KINDS))
    if not len(rows):
        return ()
    index, kind = timeline.execution[rows], timeline.kind[rows]
    # Rows are sorted by start, so an execution's first row is its earliest.
    indices, first, number = np.unique(index, return_index=True, return_inverse=True)
    first = rows[first]
    shift = with_ends.blocks.cycles_of_executions()
    start, end = (with_ends.start - shift)[first], (with_ends.end - shift)[rows]
    last = np.zeros(len(indices), dtype=np.int64)
    np.maximum.at(last, number, end)
    # Transfers of the weight update from and to Streaming Memory have the number after the pipeline's last time-step.
    work = ~of_kinds(kind, _AFTER_PIPELINE) & (timeline.time_step[rows] < timeline.info.time_steps)
    pipeline_end = np.zeros(len(indices), dtype=np.int64)
    np.maximum.at(pipeline_end, number[work], end[work])
    pipeline_end = np.maximum(start, pipeline_end)
    columns = (
        with_ends.execution[first],
        start + shift[first],
        pipeline_end + shift[first],
        np.maximum(pipeline_end, last) + shift[first],
        with_ends.weights_of_executions[first],
    )
    return tuple(Execution(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def find_execution(timeline: Timeline, index: int) -> Execution:
    """Return one execution; raises TimelineError with the known executions for an unknown index."""
    executions = _executions(timeline.with_block_ends_expanded(index))
    for execution in executions:
        if execution.index == index:
            return execution
    numbers = f"0 to {executions[-1].index}" if executions else "none"
    raise TimelineError(f"expected an execution of the Timeline ({numbers}), got {index}")
