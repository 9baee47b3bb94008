"""Rows of a Timeline that stand for several copies: a block of rows, how often it repeats, and what each copy adds.

A long execution is recorded once up to where its state recurs. The rows between two equal states are a block: in
copy ``q`` of it every row is later by ``q`` times the block's cycles, and its micro-batch, time-step and execution are
as many further on. Blocks are nested where executions that have a block of their own repeat as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.errors import FileError

Column = npt.NDArray[np.int64]

#: Most blocks of a file, and most copies of one, or cycles: bounds on what a file may say.
_MOST_BLOCKS: Final = 4096
_MOST: Final = 2**62

#: What a row has in place of a number that does not apply to it.
_NONE: Final = -1


class Repeat(NamedTuple):
    """A block of rows that happens several times, one copy after the other.

    Attributes:
        first, last: the block's first row, and the row behind its last one.
        times: copies in all, of which the rows are the first.
        cycles, micro_batches, time_steps, executions: what each further copy adds to the rows' numbers.
    """

    first: int
    last: int
    times: int
    cycles: int
    micro_batches: int
    time_steps: int
    executions: int

    def contains(self, other: Repeat) -> bool:
        """Whether ``other`` is nested in this block."""
        return self is not other and self.first <= other.first and other.last <= self.last


class Copies(NamedTuple):
    """Spans of blocks written out: columns of one length, in the order of the Timeline written out.

    Attributes:
        row: of the Timeline with blocks.
        position: of the span among all spans, written out.
        cycles, micro_batches, time_steps, executions: what its copy adds to the numbers of ``row``.
        causes: what its copy adds to the position of the row's cause.
    """

    row: Column
    position: Column
    cycles: Column
    micro_batches: Column
    time_steps: Column
    executions: Column
    causes: Column


class Blocks:
    """All blocks of a Timeline of ``rows`` rows."""

    def __init__(self, repeats: Sequence[Repeat], rows: int) -> None:
        """Take blocks that are nested or apart, sorted by their first row, outer ones before inner ones."""
        self.repeats = tuple(repeats)
        self._rows = rows
        self._inner = {
            repeat: [other for other in self.repeats if self._parent(other) is repeat] for repeat in self.repeats
        }
        self._outermost = [repeat for repeat in self.repeats if self._parent(repeat) is None]

    def _parent(self, repeat: Repeat) -> Repeat | None:
        """Return the smallest block around another one."""
        around = [other for other in self.repeats if other.contains(repeat)]
        return min(around, key=lambda other: other.last - other.first, default=None)

    def spans_of_copy(self, repeat: Repeat) -> int:
        """Return how many spans one copy of a block is, written out."""
        return (
            repeat.last
            - repeat.first
            + sum((inner.times - 1) * self.spans_of_copy(inner) for inner in self._inner[repeat])
        )

    @property
    def spans(self) -> int:
        """The number of spans, written out."""
        return self._rows + sum((repeat.times - 1) * self.spans_of_copy(repeat) for repeat in self._outermost)

    def weights(self) -> Column:
        """Return how many spans each row stands for, shape (rows,)."""
        found = np.ones(self._rows, dtype=np.int64)
        for repeat in self.repeats:
            found[repeat.first : repeat.last] *= repeat.times
        return found

    def positions(self) -> Column:
        """Return the position of each row among all spans, written out, in the first copies of its blocks."""
        found = np.arange(self._rows, dtype=np.int64)
        for repeat in self.repeats:
            found[repeat.last :] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return found

    def causes(self, cause: Column) -> Column:
        """Return the position, written out, of the cause of each row in the first copies of its blocks."""
        row = np.arange(self._rows)
        found = np.where(cause == _NONE, _NONE, self.positions()[cause])
        for repeat in self.repeats:
            # Behind a block, what was just before is in its last copy, or in the copy before that.
            size = repeat.last - repeat.first
            recent = (row >= repeat.last) & (cause < repeat.last) & (cause >= max(repeat.first - size, 0))
            found[recent] += (repeat.times - 1) * self.spans_of_copy(repeat)
        return found

    def added(self, execution: Column) -> tuple[Column, Column, Column, Column]:
        """Return by how much all copies of blocks before each row put it further on.

        Args:
            execution: of each row.

        Returns:
            Of each row its cycles, micro-batches, time-steps and executions; micro-batches and time-steps count
            within the execution of the block.
        """
        cycles, micro_batches, time_steps, executions = (np.zeros(self._rows, dtype=np.int64) for _ in range(4))
        for repeat in self.repeats:
            more, behind = repeat.times - 1, slice(repeat.last, None)
            cycles[behind] += more * repeat.cycles
            if repeat.executions:
                executions[behind] += more * repeat.executions
            else:
                own = execution[behind] == execution[repeat.first : repeat.last].max()
                micro_batches[behind][own] += more * repeat.micro_batches
                time_steps[behind][own] += more * repeat.time_steps
        return cycles, micro_batches, time_steps, executions

    def written_out(self, start: Column, end: Column, window: tuple[int, int] | None = None) -> Copies:
        """Return every span, or those of the blocks' copies that touch a window of cycles and all outside of blocks.

        Args:
            start, end: of each row, in cycles.
            window: from which cycle on, and up to which.
        """
        parts = list(self._walk(0, self._rows, self._outermost, np.zeros(5, dtype=np.int64), 0, start, end, window))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0, int)] * 7
        return Copies(*(np.asarray(column, dtype=np.int64) for column in columns))

    def _walk(
        self,
        first: int,
        last: int,
        inside: Sequence[Repeat],
        added: Column,
        position: int,
        start: Column,
        end: Column,
        window: tuple[int, int] | None,
    ) -> Iterator[tuple[Column, ...]]:
        """Yield parts of the columns of :class:`Copies` for rows ``first`` to ``last``, with the blocks ``inside``."""
        at = first
        for repeat in inside:
            yield _part(np.arange(at, repeat.first), position, added)
            position += repeat.first - at
            size = self.spans_of_copy(repeat)
            shift = np.array([*repeat[3:], size], dtype=np.int64)
            copies = _touching(repeat, int(added[0]), start, end, window)
            if self._inner[repeat]:
                for copy in copies:
                    own = added + copy * shift
                    begin = position + copy * size
                    yield from self._walk(
                        repeat.first, repeat.last, self._inner[repeat], own, begin, start, end, window
                    )
            else:
                rows = np.arange(repeat.first, repeat.last)
                number = np.repeat(np.arange(copies.start, copies.stop), size)
                shifts = (added[:, None] + shift[:, None] * number).astype(np.int64)
                yield (
                    np.tile(rows, len(copies)),
                    position + copies.start * size + np.arange(len(copies) * size),
                    *shifts,
                )
            position += repeat.times * size
            at = repeat.last
        yield _part(np.arange(at, last), position, added)


def block_between(
    columns: Mapping[str, Column], begin: int, end: int, *, micro_batches: int, time_steps: int, executions: int
) -> tuple[int, int] | None:
    """Return the rows of a block whose first copy lies between two cycles and whose second one follows it.

    Args:
        columns: of a Timeline without blocks, by name.
        begin, end: when the first and the second copy begin, in cycles.
        micro_batches, time_steps, executions: by how much the numbers of the second are larger.

    Returns:
        The first row and the row behind the last one of the first copy; None where the spans that begin in as many
        cycles from ``end`` on are not the same.
    """
    start = columns["start"]
    first, last = np.searchsorted(start, [begin, end]).tolist()
    size = last - first
    behind = slice(last, last + size)
    if not size or int(np.searchsorted(start, 2 * end - begin)) != last + size:
        return None
    added = {
        "start": end - begin,
        "end": end - begin,
        "micro_batch": micro_batches,
        "time_step": time_steps,
        "execution": executions,
        "cause": size,
    }
    for name, column in columns.items():
        own = column[first:last]
        if not np.array_equal(np.where(own == _NONE, _NONE, own + added.get(name, 0)), column[behind]):
            return None
    return first, last


def _part(rows: Column, position: int, added: Column) -> tuple[Column, ...]:
    """Return rows that follow each other from a position on as parts of the columns of :class:`Copies`."""
    return rows, position + np.arange(len(rows)), *(np.full(len(rows), each) for each in added.tolist())


def _touching(repeat: Repeat, added: int, start: Column, end: Column, window: tuple[int, int] | None) -> range:
    """Return the copies of a block that have a span in a window of cycles."""
    if window is None or not repeat.cycles:
        return range(repeat.times)
    begin, finish = window
    first, last = int(start[repeat.first]) + added, int(end[repeat.first : repeat.last].max()) + added
    low = max(0, -((last - begin) // repeat.cycles))
    high = min(repeat.times, -((first - finish) // repeat.cycles))
    return range(min(low, high), high)


def read_repeats(array: npt.NDArray[Any], rows: int) -> tuple[Repeat, ...]:
    """Return the blocks that a file's array says of a Timeline of so many rows.

    Raises FileError for blocks that overlap without being nested, are out of order, or reach out of the run.
    """
    if array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != len(Repeat._fields):
        raise FileError(f"blocks of {array.dtype} and shape {array.shape}")
    if not 0 < len(array) <= _MOST_BLOCKS:
        raise FileError(f"{len(array)} blocks, expected 1 to {_MOST_BLOCKS}")
    found = tuple(Repeat(*row) for row in array.tolist())
    around: list[Repeat] = []
    total = rows
    for repeat in found:
        if not (0 <= repeat.first < repeat.last <= rows and repeat.times > 1 and min(repeat[3:]) >= 0):
            raise FileError(f"a block of rows {repeat.first} to {repeat.last}, {repeat.times} times")
        while around and around[-1].last <= repeat.first:
            around.pop()
        if around and (repeat.last > around[-1].last or repeat[:2] == around[-1][:2]):
            raise FileError(f"blocks that overlap in row {repeat.first}")
        around.append(repeat)
        total += repeat.times * (repeat.last - repeat.first) * math.prod(outer.times for outer in around[:-1])
        if total > _MOST or repeat.times * max(repeat[3:]) > _MOST:
            raise FileError(f"a block of {repeat.times} copies")
    if list(found) != sorted(found, key=lambda repeat: (repeat.first, -repeat.last)):
        raise FileError("blocks out of order")
    return found
