"""Rows of a Timeline that stand for several copies: a block of rows, how often it repeats, and what each copy adds.

A long execution is recorded once up to where its state recurs. The rows between two equal states are a block: in
copy ``q`` of it every row is later by ``q`` times the block's cycles, and its micro-batch, time-step and execution are
as many further on. Blocks are nested where executions that have a block of their own repeat as a whole.
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
    """A block of rows that happens several times, one copy after the other.

    Attributes:
        first, last: the block's first row, and the row behind its last one.
        times: copies in all, of which the rows are the first.
        cycles, micro_batches, time_steps, executions: what each further copy adds to the rows' numbers. Where stages
            take micro-batches from the last one on, it takes some away.
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
        """The number of micro-batches of a copy."""
        return abs(self.micro_batches)

    def contains(self, other: Repeat) -> bool:
        """Whether ``other`` is nested in this block."""
        return self is not other and self.first <= other.first and other.last <= self.last


class Blocks:
    """All blocks of a Timeline of ``rows`` rows."""

    def __init__(self, repeats: Sequence[Repeat], rows: int) -> None:
        """Take blocks that are nested or apart, sorted by their first row, outer ones before inner ones."""
        self.repeats = tuple(repeats)
        self.rows = rows
        parents = {repeat: self._parent(repeat) for repeat in self.repeats}
        self._inner = {repeat: [inner for inner in self.repeats if parents[inner] is repeat] for repeat in self.repeats}
        #: Those that are in no other block.
        self.outermost = [repeat for repeat in self.repeats if parents[repeat] is None]

    def _parent(self, repeat: Repeat) -> Repeat | None:
        """Return the smallest block around another one."""
        around = [other for other in self.repeats if other.contains(repeat)]
        return min(around, key=lambda other: other.last - other.first, default=None)

    def inside(self, repeat: Repeat) -> list[Repeat]:
        """Return the blocks that are nested in a block, and in no smaller one of it."""
        return self._inner[repeat]

    def spans_of_copy(self, repeat: Repeat) -> int:
        """Return how many spans one copy of a block is, written out."""
        return repeat.last - repeat.first + self._more(self._inner[repeat])

    @property
    def spans(self) -> int:
        """The number of spans, written out."""
        return self.rows + self._more(self.outermost)

    def _more(self, repeats: Sequence[Repeat]) -> int:
        """Return how many more spans than rows blocks of the same level are, written out."""
        return sum(repeat.times * self.spans_of_copy(repeat) - (repeat.last - repeat.first) for repeat in repeats)

    def weights(self) -> Column:
        """Return how many spans each row stands for, shape (rows,)."""
        return self._times(self.repeats)

    def weights_of_executions(self) -> Column:
        """Return how many executions that of each row stands for, shape (rows,)."""
        return self._times([repeat for repeat in self.repeats if repeat.executions])

    def _times(self, repeats: Sequence[Repeat]) -> Column:
        times = np.ones(self.rows, dtype=np.int64)
        for repeat in repeats:
            times[repeat.first : repeat.last] *= repeat.times
        return times

    def cycles_to_last(self) -> Column:
        """Return by how many cycles each row is later in the last copies of its blocks, shape (rows,)."""
        cycles = np.zeros(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            cycles[repeat.first : repeat.last] += (repeat.times - 1) * repeat.cycles
        return cycles

    def cycles_of_executions(self) -> Column:
        """Return by how many cycles copies of blocks of executions delay each row behind them, shape (rows,)."""
        cycles = np.zeros(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            if repeat.executions:
                cycles[repeat.last :] += (repeat.times - 1) * repeat.cycles
        return cycles

    def positions(self) -> Column:
        """Return the position of each row among all spans, written out, in the first copies of its blocks."""
        positions = np.arange(self.rows, dtype=np.int64)
        for repeat in self.repeats:
            positions[repeat.last :] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return positions

    def causes(self, cause: Column) -> Column:
        """Return the position, written out, of the cause of each row in the first copies of its blocks."""
        row = np.arange(self.rows)
        positions = np.where(cause == NONE, NONE, self.positions()[cause])
        for repeat in self.repeats:
            # Behind a block, what was just before is in its last copy, or in the copy before that.
            size = repeat.last - repeat.first
            recent = (row >= repeat.last) & (cause < repeat.last) & (cause >= max(repeat.first - size, 0))
            positions[recent] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return positions

    def added(self, columns: Mapping[str, Column]) -> tuple[Column, Column, Column, Column]:
        """Return the cycles and counts that all copies of blocks before each row add to it.

        Of several blocks of an execution each moves the micro-batches of the stages' passes that its own rows are of.

        Args:
            columns: of the Timeline, by name.

        Returns:
            Of each row its cycles, micro-batches, time-steps and executions; micro-batches and time-steps count
            within the execution of the block.
        """
        execution = columns["execution"]
        within = [repeat for repeat in self.repeats if repeat.micro_batches]
        of = [int(execution[repeat.first : repeat.last].max()) for repeat in within]
        phase = phases(columns) if len(set(of)) < len(of) else np.zeros(self.rows, dtype=np.int64)
        cycles, micro_batches, time_steps, executions = (np.zeros(self.rows, dtype=np.int64) for _ in range(4))
        for repeat in self.repeats:
            more, behind = repeat.times - 1, slice(repeat.last, None)
            cycles[behind] += more * repeat.cycles
            if repeat.executions:
                executions[behind] += more * repeat.executions
            else:
                rows = slice(repeat.first, repeat.last)
                own = execution == execution[rows].max()
                time_steps[behind][own[behind]] += more * repeat.time_steps
                own &= np.isin(phase, phase[rows]) & (phase >= 0)
                # From the last micro-batch on, it is what comes before the copies that is further on.
                moved = behind if repeat.micro_batches > 0 else slice(repeat.last)
                micro_batches[moved][own[moved]] += more * repeat.length
        return cycles, micro_batches, time_steps, executions


def block_between(
    columns: Mapping[str, Column], begin: int, end: int, *, micro_batches: int, time_steps: int, executions: int
) -> Repeat | None:
    """Return the block, of one copy, whose first copy lies between two cycles and whose second one follows it.

    Args:
        columns: of a Timeline without blocks, by name.
        begin, end: when the first and the second copy begin, in cycles.
        micro_batches, time_steps, executions: by how much the numbers of the second are larger.

    Returns:
        The block; None where the spans that begin in as many cycles from ``end`` on are not the same.
    """
    start = columns["start"]
    first, last = np.searchsorted(start, [begin, end]).tolist()
    size = last - first
    if not size or int(np.searchsorted(start, 2 * end - begin)) != last + size:
        return None
    block = Repeat(first, last, 1, end - begin, micro_batches, time_steps, executions)
    own = {name: column[first : last + size] for name, column in columns.items()}
    return block if _have_copies(own, block).all() else None


def with_copies(columns: Mapping[str, Column], block: Repeat) -> Repeat:
    """Return a block that begins with the first of its copies that are rows before it, and counts those behind it.

    Args:
        columns: of a Timeline without blocks, by name.
        block: of it.
    """
    size = block.last - block.first
    have = _have_copies(columns, block)
    ends = np.flatnonzero(~have)
    at = int(np.searchsorted(ends, block.first))
    begin, end = np.concatenate(([-1], ends, [len(have)]))[at : at + 2].tolist()
    before, behind = (block.first - begin - 1) // size, (end - block.first) // size
    first = block.first - before * size
    return block._replace(first=first, last=first + size, times=1 + before + behind)


def _have_copies(columns: Mapping[str, Column], block: Repeat) -> npt.NDArray[np.bool_]:
    """Return of each row that has one a block's length behind it whether that is its copy; shape (rows - length,)."""
    size = block.last - block.first
    added = {
        "start": block.cycles,
        "end": block.cycles,
        "micro_batch": block.micro_batches,
        "time_step": block.time_steps,
        "execution": block.executions,
        "cause": size,
    }
    have = np.ones(max(0, len(columns["start"]) - size), np.bool_)
    for name, column in columns.items():
        own = column[: len(have)]
        have &= np.where(own == NONE, NONE, own + added.get(name, 0)) == column[size:]
    return have


def phases(columns: Mapping[str, Column]) -> Column:
    """Return a number for the stage and the direction of the passes that each row belongs to.

    A send belongs to the pass that has made its tensor, its cause; what a host feeds and takes to forward passes.

    Args:
        columns: of a Timeline, by name.

    Returns:
        Of each row twice the number of its stage, and one more where it is of the backward pass; negative without a
        stage; shape (rows,).
    """
    kind, cause = columns["kind"], columns["cause"]
    backward = of_kinds(kind, [pass_kind for pass_kind in PASSES if pass_kind is not SpanKind.FORWARD])
    sent = of_kinds(kind, _SENDS) & (cause != NONE)
    backward[sent] = backward[cause[sent]]
    return 2 * columns["stage"] + backward
