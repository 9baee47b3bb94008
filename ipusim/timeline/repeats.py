"""Define blocks: rows of a Timeline that represent several copies, for runs that repeat.

A long execution is recorded until its state repeats. The rows between two equal states are a block: copy ``q`` is later
by ``q`` times the block's cycles, with micro-batch, time-step and execution shifted likewise. Blocks nest if whole
executions with inner blocks repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.timeline.kinds import PASSES, SpanKind, of_kinds
from ipusim.timeline.span import NONE

Column = npt.NDArray[np.int64]

_SENDS: Final = (SpanKind.SEND, SpanKind.BLOCKING_SEND)


class Repeat(NamedTuple):
    """A block of rows that happens several times in succession.

    Attributes:
        first: first row.
        last: row after the last row.
        times: number of copies; the rows are the first copy.
        cycles: shift in time per copy.
        micro_batches: shift of micro-batches per copy, negative for stages with micro-batches in descending order.
        time_steps: shift of time-steps per copy.
        executions: shift of executions per copy.
    """

    first: int
    last: int
    times: int
    cycles: int
    micro_batches: int
    time_steps: int
    executions: int

    @property
    def length(self) -> int:
        """Number of micro-batches per copy."""
        return abs(self.micro_batches)

    def contains(self, inner: Repeat) -> bool:
        """Whether ``inner`` is nested within this block."""
        return self is not inner and self.first <= inner.first and inner.last <= self.last


class Blocks:
    """The blocks of a Timeline with ``rows`` rows."""

    def __init__(self, repeats: Sequence[Repeat], rows: int) -> None:
        """Take disjoint or nested blocks, sorted by first row, outer before inner."""
        self.repeats = tuple(repeats)
        self.rows = rows
        parents = {repeat: self._parent(repeat) for repeat in self.repeats}
        self._inner = {repeat: [inner for inner in self.repeats if parents[inner] is repeat] for repeat in self.repeats}
        #: Blocks outside of any other block.
        self.outermost = [repeat for repeat in self.repeats if parents[repeat] is None]

    def _parent(self, repeat: Repeat) -> Repeat | None:
        """Return the smallest block around another block."""
        enclosing = [block for block in self.repeats if block.contains(repeat)]
        return min(enclosing, key=lambda block: block.last - block.first, default=None)

    def inside(self, repeat: Repeat) -> list[Repeat]:
        """Return the blocks directly nested in a block."""
        return self._inner[repeat]

    def spans_of_copy(self, repeat: Repeat) -> int:
        """Return the expanded spans per copy of a block."""
        return repeat.last - repeat.first + self._added_spans(self._inner[repeat])

    @property
    def spans(self) -> int:
        """Number of spans, expanded."""
        return self.rows + self._added_spans(self.outermost)

    def _added_spans(self, repeats: Sequence[Repeat]) -> int:
        """Return the number of spans that the expansion of blocks adds; no block lies in another."""
        return sum(repeat.times * self.spans_of_copy(repeat) - (repeat.last - repeat.first) for repeat in repeats)

    def weights(self) -> Column:
        """Return the multiplicity of every row, shape (rows,)."""
        return self._times(self.repeats)

    def weights_of_executions(self) -> Column:
        """Return the multiplicity of every row's execution, shape (rows,)."""
        return self._times([repeat for repeat in self.repeats if repeat.executions])

    def _times(self, repeats: Sequence[Repeat]) -> Column:
        times = np.ones(self.rows, dtype=np.int64)
        for repeat in repeats:
            times[repeat.first : repeat.last] *= repeat.times
        return times

    def cycles_to_last(self) -> Column:
        """Return the delay of every row's last copy, in cycles, shape (rows,)."""
        cycles = np.zeros(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            cycles[repeat.first : repeat.last] += (repeat.times - 1) * repeat.cycles
        return cycles

    def cycles_of_executions(self) -> Column:
        """Return the cycles by which blocks of executions before a row delay the row, shape (rows,)."""
        cycles = np.zeros(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            if repeat.executions:
                cycles[repeat.last :] += (repeat.times - 1) * repeat.cycles
        return cycles

    def positions(self) -> Column:
        """Return the position of every row's first copy among expanded spans."""
        positions = np.arange(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            positions[repeat.last :] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return positions

    def causes(self, cause: Column) -> Column:
        """Return the expanded position of every row's cause, in first copies of blocks."""
        row = np.arange(self.rows)
        positions = np.where(cause == NONE, NONE, self.positions()[cause])
        for repeat in self.repeats:
            # After a block, a recent cause lies in the last copy, or in the copy before.
            size = repeat.last - repeat.first
            recent = (row >= repeat.last) & (cause < repeat.last) & (cause >= max(repeat.first - size, 0))
            positions[recent] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return positions

    def added_by_copies(self, columns: Mapping[str, Column]) -> tuple[Column, Column, Column, Column]:
        """Return the cycles and counts that the copies of earlier blocks add to each row.

        If an execution has several blocks, a block shifts only micro-batches of stages with passes in the block.

        Args:
            columns: columns of the Timeline, by name.

        Returns:
            Cycles, micro-batches, time-steps and executions per row; micro-batches and time-steps count within the
            block's execution.
        """
        execution = columns["execution"]
        blocks_in_executions = [repeat for repeat in self.repeats if repeat.micro_batches]
        block_executions = [int(execution[repeat.first : repeat.last].max()) for repeat in blocks_in_executions]
        is_shared = len(set(block_executions)) < len(block_executions)
        phase = phases(columns) if is_shared else np.zeros(self.rows, dtype=np.int64)
        cycles, micro_batches, time_steps, executions = (np.zeros(self.rows, dtype=np.int64) for _ in range(4))
        for repeat in self.repeats:
            further_copies, later_rows = repeat.times - 1, slice(repeat.last, None)
            cycles[later_rows] += further_copies * repeat.cycles
            if repeat.executions:
                executions[later_rows] += further_copies * repeat.executions
            else:
                rows = slice(repeat.first, repeat.last)
                in_execution = execution == execution[rows].max()
                time_steps[later_rows][in_execution[later_rows]] += further_copies * repeat.time_steps
                in_execution &= np.isin(phase, phase[rows]) & (phase >= 0)
                # For descending micro-batches, the rows before the copies have the larger numbers.
                target = later_rows if repeat.micro_batches > 0 else slice(repeat.last)
                micro_batches[target][in_execution[target]] += further_copies * repeat.length
        return cycles, micro_batches, time_steps, executions


def block_between(
    columns: Mapping[str, Column], begin: int, end: int, *, micro_batches: int, time_steps: int, executions: int
) -> Repeat | None:
    """Return the block between two cycles, if a second copy follows.

    Args:
        columns: columns of a Timeline without blocks, by name.
        begin: first cycle of the first copy.
        end: first cycle of the second copy.
        micro_batches: shift of micro-batches in the second copy.
        time_steps: shift of time-steps in the second copy.
        executions: shift of executions in the second copy.

    Returns:
        The block; None if the spans after ``end`` differ.
    """
    start = columns["start"]
    first, last = np.searchsorted(start, [begin, end]).tolist()
    size = last - first
    if not size or int(np.searchsorted(start, 2 * end - begin)) != last + size:
        return None
    block = Repeat(first, last, 1, end - begin, micro_batches, time_steps, executions)
    window = {name: column[first : last + size] for name, column in columns.items()}
    return block if _have_copies(window, block).all() else None


def with_copies(columns: Mapping[str, Column], block: Repeat) -> Repeat:
    """Extend a block of a Timeline by its copies among the neighbouring rows.

    The result begins with the first copy before the block, and counts the copies after the block.

    Args:
        columns: columns of a Timeline without blocks, by name.
        block: block of a single copy.
    """
    size = block.last - block.first
    has_copy = _have_copies(columns, block)
    ends = np.flatnonzero(~has_copy)
    index = int(np.searchsorted(ends, block.first))
    begin, end = np.concatenate(([-1], ends, [len(has_copy)]))[index : index + 2].tolist()
    copies_before, copies_after = (block.first - begin - 1) // size, (end - block.first) // size
    first = block.first - copies_before * size
    return block._replace(first=first, last=first + size, times=1 + copies_before + copies_after)


def _have_copies(columns: Mapping[str, Column], block: Repeat) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that equal a copy of them one block later, shape (rows - block length,)."""
    size = block.last - block.first
    added = {
        "start": block.cycles,
        "end": block.cycles,
        "micro_batch": block.micro_batches,
        "time_step": block.time_steps,
        "execution": block.executions,
        "cause": size,
    }
    has_copy = np.ones(max(0, len(columns["start"]) - size), np.bool_)
    for name, column in columns.items():
        values = column[: len(has_copy)]
        has_copy &= np.where(values == NONE, NONE, values + added.get(name, 0)) == column[size:]
    return has_copy


def phases(columns: Mapping[str, Column]) -> Column:
    """Return a number for the stage and the direction of every row's pass.

    A send belongs to the pass that computed the tensor, which is the cause of the send. Host feeds belong to forward
    passes.

    Args:
        columns: columns of a Timeline, by name.

    Returns:
        Twice the stage's number per row, plus one for backward passes; negative without a stage; shape (rows,).
    """
    kind, cause = columns["kind"], columns["cause"]
    backward = of_kinds(kind, [pass_kind for pass_kind in PASSES if pass_kind is not SpanKind.FORWARD])
    is_send = of_kinds(kind, _SENDS) & (cause != NONE)
    backward[is_send] = backward[cause[is_send]]
    return 2 * columns["stage"] + backward
