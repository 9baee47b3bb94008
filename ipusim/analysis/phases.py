"""Divide each execution of the pipeline into phases: ramp-up, main, ramp-down and weight update.

In lock-step, the main phase is the sequence of full time-steps: the number of forward and backward passes equals the
overlap length, the number of slots of a time-step. Recomputations fill no slot. The ramp-up precedes the main phase,
and the ramp-down follows.

Point-to-point has no time-steps. The ramp-up lasts until every IPU with passes has begun its first pass. The main phase
lasts until the first of these IPUs has ended its last pass, and the ramp-down until the pipeline ends. If an IPU ends
its last pass before another IPU begins its first pass, no main phase exists, and the ramp-down begins with the last
IPU's first pass. The weight update follows in either mode; in point-to-point an early IPU begins its update before the
phase "weight update".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

import numpy as np

from ipusim.analysis.executions import Execution, executions_of, find_execution, on_ipus
from ipusim.timeline.kinds import PASSES, kinds_with, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.timeline import Timeline

RAMP_UP: Final = "ramp-up"
MAIN: Final = "main"
RAMP_DOWN: Final = "ramp-down"
WEIGHT_UPDATE: Final = "weight update"
#: Phase names in execution order.
PHASES: Final = (RAMP_UP, MAIN, RAMP_DOWN, WEIGHT_UPDATE)

#: Kinds of spans that fill slots of a time-step.
_SLOT_KINDS: Final = kinds_with(lambda row: row.fills_slot)


@dataclass(frozen=True)
class Phase:
    """A phase of one execution.

    Attributes:
        name: a member of PHASES.
        execution: number of the execution.
        start: first cycle.
        end: cycle after the last, in which the next phase begins, so that phases cover the execution.
        first_time_step: first time-step; None for the weight update, and in point-to-point.
        last_time_step: last time-step; None for the weight update, and in point-to-point.
    """

    name: str
    execution: int
    start: int
    end: int
    first_time_step: int | None
    last_time_step: int | None

    @property
    def cycles(self) -> int:
        """Number of cycles the phase lasts."""
        return self.end - self.start


@dataclass(frozen=True)
class TimeSteps:
    """Time-steps with a recorded span, sorted by execution and number; columns of equal length.

    Attributes:
        execution: number of the execution.
        time_step: number within the execution.
        start: cycle in which the first IPU enters the time-step: the end of the previous merged copy. An outfeed that
            still runs belongs to the previous time-step.
        pass_counts: number of forward and backward passes in the time-step.
    """

    execution: Column
    time_step: Column
    start: Column
    pass_counts: Column


def time_steps(timeline: Timeline) -> TimeSteps:
    """Return the time-steps of all executions in lock-step, as seen by the first replica.

    Time-steps of replicas are equal, unless replicas run independently and their hosts differ in speed.
    """
    # The weight update and the wait for its slowest IPU have the number after the pipeline's last time-step.
    inside = on_ipus(timeline) & (timeline.time_step >= 0) & (timeline.time_step < timeline.info.time_steps)
    inside &= timeline.replica <= 0
    rows = np.flatnonzero(inside)
    width = int(timeline.time_step[rows].max(initial=0)) + 1
    # Rows are sorted by start, so a time-step's first row is its earliest.
    key, first, position = np.unique(
        timeline.execution[rows] * width + timeline.time_step[rows], return_index=True, return_inverse=True
    )
    # Concurrent stages share one slot.
    positions = np.asarray(timeline.info.position_of)
    is_first_part = np.concatenate([np.diff(positions, prepend=-1) > 0, [False]])  # last entry: rows without a stage
    slots = of_kinds(timeline.kind[rows], _SLOT_KINDS) & is_first_part[timeline.stage[rows]]
    return TimeSteps(
        execution=key // width,
        time_step=key % width,
        start=timeline.start[rows][first],
        pass_counts=np.bincount(position[slots], minlength=len(key)),
    )


def phases_of(timeline: Timeline) -> tuple[Phase, ...]:
    """Return the phases of all executions in order of time.

    A repeated block of executions gives phases of the first repetition, of the last, and of a representative of the
    rest.
    """
    return _phases(timeline.with_block_ends_expanded(), executions_of(timeline))


def execution_phases(timeline: Timeline, execution: int = 0) -> tuple[Phase, ...]:
    """Return the phases of one execution; raises TimelineError if the Timeline lacks the execution."""
    return _phases(timeline.with_block_ends_expanded(execution), (find_execution(timeline, execution),))


def _phases(timeline: Timeline, executions: Iterable[Execution]) -> tuple[Phase, ...]:
    if timeline.info.has_time_steps:
        steps, overlap = time_steps(timeline), timeline.info.overlap
        phases = [_lock_step_phases(execution, steps, overlap) for execution in executions]
    else:
        phases = [_point_to_point_phases(execution, timeline) for execution in executions]
    return tuple(chain.from_iterable(phases))


def _point_to_point_phases(execution: Execution, timeline: Timeline) -> Iterator[Phase]:
    """Yield the phases of an execution in point-to-point."""
    rows = np.flatnonzero(of_kinds(timeline.kind, PASSES) & (timeline.execution == execution.index))
    if len(rows):
        ipu = timeline.ipu[rows]
        _, first = np.unique(ipu, return_index=True)  # rows are sorted by start
        last = np.zeros(int(ipu.max()) + 1, dtype=np.int64)
        np.maximum.at(last, ipu, timeline.end[rows])
        main_start = int(timeline.start[rows][first].max())
        main_end = max(int(last[ipu].min()), main_start)
        edges = (execution.start, main_start, main_end, execution.pipeline_end)
        for name, (start, end) in zip((RAMP_UP, MAIN, RAMP_DOWN), pairwise(edges), strict=True):
            if start < end:
                yield Phase(name, execution.index, start, end, None, None)
    yield from _weight_update_phase(execution)


def _weight_update_phase(execution: Execution) -> Iterator[Phase]:
    if execution.update_cycles:
        yield Phase(WEIGHT_UPDATE, execution.index, execution.pipeline_end, execution.end, None, None)


def _lock_step_phases(execution: Execution, steps: TimeSteps, overlap: int) -> Iterator[Phase]:
    """Yield the phases of an execution in lock-step."""
    low, high = np.searchsorted(steps.execution, [execution.index, execution.index + 1]).tolist()
    if low < high:
        numbers, pass_counts = steps.time_step[low:high].tolist(), steps.pass_counts[low:high]
        edges = [execution.start, *steps.start[low + 1 : high].tolist(), execution.pipeline_end]
        full_steps = np.flatnonzero(pass_counts == overlap)
        # Cuts are positions in ``numbers``: first full time-step, and end of the last full time-step.
        first, last = (int(full_steps[0]), int(full_steps[-1]) + 1) if len(full_steps) else (len(numbers), len(numbers))
        for name, begin, stop in ((RAMP_UP, 0, first), (MAIN, first, last), (RAMP_DOWN, last, len(numbers))):
            if begin < stop:
                yield Phase(name, execution.index, edges[begin], edges[stop], numbers[begin], numbers[stop - 1])
    yield from _weight_update_phase(execution)
