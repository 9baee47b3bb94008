"""Check the simulated times of a run against a second computation that simulates no events.

The second computation follows the fixed order of instructions (:mod:`ipusim.retiming`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ipusim.analysis.executions import BETWEEN_KINDS, on_ipus
from ipusim.base.errors import NotExactError
from ipusim.machine.simulate import simulate
from ipusim.pipeline.instructions import PASSES, Code, any_of, text_of
from ipusim.retiming.retiming import Retiming
from ipusim.runs.job import Job
from ipusim.timeline.kinds import PASS_OF_KIND, SpanKind, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.timeline import NONE, Timeline

#: Maximum number of compared spans, for less than 1 GB of memory on both sides.
MOST_SPANS: Final = 1_000_000
#: Columns of compared times; the last two are cycles.
_COLUMNS: Final = ("execution", "replica", "ipu", "code", "stage", "micro_batch", "start", "end")
#: Instruction code of each compared kind of span other than passes.
_CODES: Final = {
    SpanKind.SEND: Code.SEND,
    SpanKind.BLOCKING_SEND: Code.BLOCKING_SEND,
    SpanKind.WEIGHT_UPDATE: Code.UPDATE,
}
#: Sentence on the parts that both computations share, and on the parts that the second lacks.
_INDEPENDENT: Final = (
    "Both computations use one Plan and its prices; the second has no events, clock, IPUs, "
    "delivery, links, meetings or jumps."
)


@dataclass(frozen=True)
class TimesCheck:
    """Outcome of a time comparison.

    Attributes:
        outcome: "equal", "different", or "not exact" if the second computation cannot be exact.
        text: sentence with the number of times, the first difference, or the reason.
    """

    outcome: Literal["equal", "different", "not exact"]
    text: str

    def __str__(self) -> str:
        """Return the sentences printed by commands."""
        return self.text if self.outcome == "not exact" else f"{self.text} {_INDEPENDENT}"


def check_times(job: Job, timeline: Timeline) -> TimesCheck:
    """Compare a run's times with times computed without a simulation of events.

    Compared are passes, sends, updates and ends of executions.

    Args:
        job: Job of the run.
        timeline: whole run. If it has more than :data:`MOST_SPANS` spans, only the part in the Job's Plan is simulated
            again and compared.

    Returns:
        Outcome with the first difference, if any.
    """
    if job.late:
        return TimesCheck("not exact", "Times were not computed a second time: hosts that wait for each other.")
    executions, part_text = timeline.info.executions, ""
    if timeline.spans_in_all <= MOST_SPANS:
        job, timeline = job.whole, timeline.expanded()
    else:
        job, executions = _laid_out_part(job, executions)
        part_text = "of the part that is laid out, "
    try:
        retiming = Retiming.from_plan(
            job.plan, job.program, job.system, costs=job.costs, executions=executions, between=job.between
        )
        second_times = np.concatenate([_sorted_rows(rows) for rows in _second_times(job, retiming)])
    except NotExactError as error:
        return TimesCheck("not exact", f"Times were not computed a second time: {error}.")
    if part_text:
        timeline = simulate(job.plan, job.program, job.system, costs=job.costs, executions=executions)
        part_text += f"micro-batches {job.plan.shape.count:,}, executions {executions:,}, "
    machine_times = _sorted_rows(_machine_times(timeline))
    if np.array_equal(machine_times, second_times):
        code = second_times[:, _COLUMNS.index("code")]
        kinds = {
            "passes": range(PASSES),
            "sends": (Code.SEND, Code.BLOCKING_SEND),
            "weight updates": (Code.UPDATE,),
            "ends of executions": (Code.END,),
        }
        counts = (f"{name} {int(any_of(code, codes).sum()):,}" for name, codes in kinds.items())
        return TimesCheck("equal", f"Times computed a second time are equal, {part_text}{', '.join(counts)}.")
    return TimesCheck(
        "different",
        f"Times computed a second time differ, {part_text}{_first_difference(machine_times, second_times)}.",
    )


def _laid_out_part(job: Job, executions: int) -> tuple[Job, int]:
    """Return a Job reduced to the micro-batches in its Plan, and the number of executions to compare."""
    if job.with_counts is not None:
        job = job.with_counts(job.plan.shape.count, job.program.repeat_count)
    spans = max(1, len(job.plan.instructions) * job.system.replicas)
    return replace(job, between={}), min(executions, max(1, MOST_SPANS // spans))


def _sorted_rows(rows: Column) -> Column:
    return rows[np.lexsort(rows.T[::-1])]


def _machine_times(timeline: Timeline) -> Column:
    """Return the times recorded by a machine, shape (times, columns)."""
    kind = timeline.kind
    rows = np.flatnonzero((PASS_OF_KIND[kind] >= 0) | of_kinds(kind, [*_CODES]))
    table = np.column_stack([getattr(timeline, "kind" if name == "code" else name)[rows] for name in _COLUMNS])
    table[:, 2] -= table[:, 1] * timeline.info.shards
    table[:, 3] = PASS_OF_KIND[table[:, 3]]
    for span_kind, code in _CODES.items():
        table[kind[rows] == span_kind, 3] = code
    execution_rows = np.flatnonzero(on_ipus(timeline) & ~of_kinds(kind, BETWEEN_KINDS))
    replicas = range(timeline.info.replicas)
    ends = np.zeros((len(replicas), timeline.info.executions), np.int64)
    for replica in replicas:
        spans = execution_rows[any_of(timeline.replica[execution_rows], (replica, NONE))]
        np.maximum.at(ends[replica], timeline.execution[spans], timeline.end[spans])
    return np.concatenate([table, *(_ends(execution, column) for execution, column in enumerate(ends.T))])


def _ends(execution: int, ends: Column) -> Column:
    """Return the rows for the end of an execution in each replica."""
    rows = np.full((len(ends), len(_COLUMNS)), NONE)
    rows[:, 0], rows[:, 1], rows[:, 3] = execution, range(len(ends)), Code.END
    rows[:, 6] = rows[:, 7] = ends
    return rows


def _second_times(job: Job, retiming: Retiming) -> Iterator[Column]:
    """Yield the computed times of each execution; raises NotExactError for inexact times."""
    ipu, code, stage, micro_batch, _ = job.plan.instructions.T
    sends = any_of(code, (Code.SEND, Code.BLOCKING_SEND))
    for execution, times in enumerate(retiming.times()):
        parts = [_ends(execution, times.execution_end)]
        for replica in range(job.system.replicas):
            start, end = times.start[:, replica], times.end[:, replica]
            indices = np.flatnonzero((end >= 0) & ~(sends & (start == end)))  # the machine records no send without time
            numbers = (np.full(len(indices), number) for number in (execution, replica))
            columns = (column[indices] for column in (ipu, code, stage, micro_batch, start, end))
            parts.append(np.column_stack([*numbers, *columns]))
        yield np.concatenate(parts)


def _first_difference(machine_times: Column, second_times: Column) -> str:
    """Describe the first span with different times."""
    machine_rows, second_rows = ({*map(tuple, rows.tolist())} for rows in (machine_times, second_times))
    first = min(machine_rows ^ second_rows, key=lambda row: (row[-2:], row))
    counterpart = next(
        (row for row in sorted(second_rows if first in machine_rows else machine_rows) if row[:-2] == first[:-2]), None
    )
    execution, replica, ipu, code, stage, micro_batch, *_ = first
    span_name = f"{text_of(code, stage, micro_batch, NONE)} of IPU {ipu}"
    if code in (Code.SEND, Code.BLOCKING_SEND):
        span_name = f"the send of stage {stage} and micro-batch {micro_batch} from IPU {ipu}"
    span_name = "the end" if code == Code.END else span_name
    spans = [None if row is None else f"{row[-2]:,} to {row[-1]:,}" for row in (first, counterpart)]
    by_machine, second = spans if first in machine_rows else reversed(spans)
    place = f"{span_name} in execution {execution} of replica {replica}"
    return f"{place} is at cycles {by_machine or 'unknown'}, and {second or 'unknown'} without events"
