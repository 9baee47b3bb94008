"""Write out copies of a Timeline's blocks (rows that happen several times): all copies, or some.

A block is a group of rows that happens several times in succession; each time is a copy, stored only once. Expanded
copies become separate rows. Tables of spans have a column per field of :class:`Span`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.timeline.repeats import Blocks, Column, Repeat
from ipusim.timeline.span import NONE, Span

#: Upper bound on the copies of a block that a span overlaps; spans of an IPU or a link follow each other.
_MOST_OVERLAPPED_COPIES: Final = 16
#: Columns shifted by cycles, micro-batches, time-steps and executions.
_SHIFT_COLUMNS: Final = (("start", "end"), ("micro_batch",), ("time_step",), ("execution",))


class Copies(NamedTuple):
    """Expanded spans of blocks: equally long columns, in order of the expanded Timeline.

    Attributes:
        row: row in the Timeline with blocks.
        position: number of the span in the expanded Timeline.
        cycles, micro_batches, time_steps, executions: amounts to add to the numbers of ``row``.
        causes: amount to add to the position of the row's cause.
    """

    row: Column
    position: Column
    cycles: Column
    micro_batches: Column
    time_steps: Column
    executions: Column
    causes: Column


class Gap(NamedTuple):
    """Omitted copies of a block, after an expanded copy.

    Attributes:
        block: the expanded copy together with the omitted copies; its rows are the expanded copy's.
        position: number of the copy's first span in the expanded Timeline.
        spans: spans per copy, expanded.
    """

    block: Repeat
    position: int
    spans: int


class CopySet(NamedTuple):
    """Chosen copies of a block, in rising order.

    Attributes:
        number: numbers of the chosen copies, from 0.
        times: multiplicity of every chosen copy: 1, plus the copies before the next chosen copy.
    """

    number: Column
    times: Column


#: Entries of a shift: amounts by which a copy is later than the first copy, or has larger numbers.
CYCLES, _, _, EXECUTIONS, SPANS = range(5)
#: Function that chooses copies of a block. Its second argument is the shift of the block inside the outer blocks.
Choice = Callable[[Repeat, Column], CopySet]


def every_copy(repeat: Repeat, shift: Column) -> CopySet:
    """Choose every copy of a block."""
    del shift
    return CopySet(np.arange(repeat.times), np.ones(repeat.times, dtype=np.int64))


def copies_at_ends(repeat: Repeat, longest: int) -> set[int]:
    """Return a block's first and last copies, which may differ from middle copies.

    The first copies are as many as the longest span may overlap; the last copies are one more.

    Args:
        repeat: the block.
        longest: longest span of the block, in cycles.
    """
    count = min(max(1, -(-longest // repeat.cycles) if repeat.cycles else 1), _MOST_OVERLAPPED_COPIES)
    return {*range(count), *range(repeat.times - count - 1, repeat.times)}


def copies_touching(repeat: Repeat, shift: int, start: Column, end: Column, window: tuple[int, int]) -> range:
    """Return the copies of a block with a span inside a window of cycles.

    Args:
        repeat: the block.
        shift: delay of the block relative to the rows, in cycles.
        start, end: first and last cycle of every row.
        window: first cycle, and end.
    """
    if not repeat.cycles:
        return range(repeat.times)
    first, last = int(start[repeat.first]) + shift, int(end[repeat.first : repeat.last].max()) + shift
    low = max(0, -((last - window[0]) // repeat.cycles))
    high = min(repeat.times, -((first - window[1]) // repeat.cycles))
    return range(min(low, high), high)


def copies_in_window(start: Column, end: Column, window: tuple[int, int]) -> Choice:
    """Return a Choice of copies with a span inside a window of cycles. ``start`` and ``end`` are the rows' columns."""

    def choose(repeat: Repeat, shift: Column) -> CopySet:
        number = np.array(copies_touching(repeat, int(shift[CYCLES]), start, end, window), dtype=np.int64)
        return CopySet(number, np.ones(len(number), dtype=np.int64))

    return choose


def copies_with_spans(blocks: Blocks, first: int, last: int) -> Choice:
    """Return a Choice of copies that contain expanded spans numbered ``first`` to ``last``."""
    positions = blocks.positions()

    def choose(repeat: Repeat, shift: Column) -> CopySet:
        begin, size = int(positions[repeat.first] + shift[SPANS]), blocks.spans_of_copy(repeat)
        low, high = (first - begin) // size, -((begin - last) // size)
        number = np.arange(max(low, 0), min(high, repeat.times))
        return CopySet(number, np.ones(len(number), dtype=np.int64))

    return choose


def copies_with_execution(column: Column, execution: int, at_ends: Callable[[Repeat], set[int]]) -> Choice:
    """Return a Choice of the copies at both ends of a block and of those with spans of an execution.

    Args:
        column: execution of every row, NONE outside of executions.
        execution: number of the execution, from 0.
        at_ends: function from a block to its first and last copies.
    """

    def choose(repeat: Repeat, shift: Column) -> CopySet:
        numbers = at_ends(repeat)
        if repeat.executions:
            executions = column[repeat.first : repeat.last]
            executions = executions[executions != NONE] + shift[EXECUTIONS]
            number = (execution - np.unique(executions)) // repeat.executions
            numbers |= {*(number[:, np.newaxis] + np.arange(-1, 3)).ravel().tolist()}
        return some_copies(repeat.times, numbers)

    return choose


def copies_around(
    blocks: Blocks,
    start: Column,
    end: Column,
    window: tuple[int, int],
    limits: tuple[int, int],
    at_ends: Callable[[Repeat], set[int]],
) -> Choice:
    """Return a Choice of the copies at both ends of a block and of those inside a window of cycles.

    Args:
        blocks: blocks of the Timeline.
        start, end: first and last cycle of every row.
        window: first cycle, and end.
        limits: maximum number of expanded spans of a block, and minimum number of micro-batches. A block with more
            spans inside the window expands only copies with that many micro-batches at both ends of the window.
        at_ends: function from a block to its first and last copies.
    """
    most_spans, micro_batches = limits

    def choose(repeat: Repeat, shift: Column) -> CopySet:
        numbers: Sequence[int] = copies_touching(repeat, int(shift[CYCLES]), start, end, window)
        if len(numbers) * blocks.spans_of_copy(repeat) > most_spans:
            copies = 1 if repeat.executions else -(-micro_batches // max(repeat.length, 1))
            numbers = [*numbers[:copies], *numbers[-copies - 1 :]]
        return some_copies(repeat.times, {*at_ends(repeat), *numbers})

    return choose


def some_copies(times: int, numbers: Iterable[int]) -> CopySet:
    """Choose the copies in ``numbers``, and the first of the copies in every gap between them."""
    inside = {number for number in numbers if 0 <= number < times}
    begins = {0, *inside, *(number + 1 for number in inside)}  # the chosen copies and their successors
    number = np.array(sorted(begin for begin in begins if begin < times), dtype=np.int64)
    return CopySet(number, np.diff(number, append=times))


@dataclass
class _Expander:
    """Expands the chosen copies of blocks, and notes gaps."""

    blocks: Blocks
    choose: Choice
    gaps: list[Gap]
    rows: int = 0

    def walk(
        self, first: int, last: int, inside: Sequence[Repeat], shift: Column, position: int
    ) -> Iterator[tuple[Column, ...]]:
        """Yield parts of the columns of :class:`Copies` for rows ``first`` to ``last``.

        Args:
            first, last: rows of the Timeline with blocks.
            inside: outermost blocks within these rows.
            shift: amounts to add to the numbers of the rows.
            position: number of the first row in the expanded Timeline.
        """
        row = first
        for repeat in inside:
            yield self._part(np.arange(row, repeat.first), position, shift)
            position += repeat.first - row
            size = self.blocks.spans_of_copy(repeat)
            yield from self._copies(repeat, size, shift, position)
            position += repeat.times * size
            row = repeat.last
        yield self._part(np.arange(row, last), position, shift)

    def _copies(self, repeat: Repeat, size: int, shift: Column, position: int) -> Iterator[tuple[Column, ...]]:
        per_copy = np.array([*repeat[3:], size], dtype=np.int64)
        choice, inner = self.choose(repeat, shift), self.blocks.inside(repeat)
        if not inner and (choice.times == 1).all():
            number = np.repeat(choice.number, size)
            offset = np.tile(np.arange(size), len(choice.number))
            self.rows += len(number)
            shifts = shift[:, np.newaxis] + per_copy[:, np.newaxis] * number
            yield repeat.first + offset, position + number * size + offset, *shifts
            return
        for number, times in zip(choice.number.tolist(), choice.times.tolist(), strict=True):
            begin, gap = self.rows, len(self.gaps)
            yield from self.walk(repeat.first, repeat.last, inner, shift + number * per_copy, position + number * size)
            if times > 1:
                block = repeat._replace(first=begin, last=self.rows, times=times)
                self.gaps.insert(gap, Gap(block, position + number * size, size))

    def _part(self, rows: Column, position: int, shift: Column) -> tuple[Column, ...]:
        """Return consecutive rows as parts of the columns of :class:`Copies`."""
        self.rows += len(rows)
        return rows, position + np.arange(len(rows)), *(np.full(len(rows), number) for number in shift.tolist())


def expand_copies(blocks: Blocks, choose: Choice) -> tuple[Copies, tuple[Gap, ...]]:
    """Expand the chosen copies of blocks, and the other rows; return spans and gaps.

    The gaps are sorted like blocks: by first row, outer before inner.
    """
    expander = _Expander(blocks, choose, [])
    parts = list(expander.walk(0, blocks.rows, blocks.outermost, np.zeros(5, dtype=np.int64), 0))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Copies(*(np.asarray(column, dtype=np.int64) for column in columns)), tuple(expander.gaps)


def cause_rows(cause: Column, gaps: Sequence[Gap]) -> Column:
    """Convert causes from expanded positions to rows, if copies are omitted.

    A cause in an omitted copy becomes the same span of the copy before the gap.

    Args:
        cause: position of every row's cause in the expanded Timeline; negative without a cause.
        gaps: gaps between the rows, from :func:`expand_copies`.
    """
    row, rows = np.arange(len(cause)), cause.copy()
    for gap in sorted(gaps, key=lambda gap: (-gap.block.last, gap.block.first)):
        is_later = (row >= gap.block.last) & (rows >= gap.position)
        rows[is_later] -= (gap.block.times - 1) * gap.spans
    return rows


def shift_rows(table: Column, shift: tuple[Column, Column, Column, Column], sign: int) -> Column:
    """Return a table with cycles, micro-batches, time-steps and executions added.

    Args:
        table: spans, shape (rows, fields).
        shift: amounts per row, each of shape (rows,).
        sign: 1 to add, or -1 to subtract.
    """
    result = table.copy(order="F")
    for names, more in zip(_SHIFT_COLUMNS, shift, strict=True):
        for name in names:
            column = result[:, Span._fields.index(name)]
            column += np.where(column == NONE, 0, sign * more)
    return result


def expand_rows(table: Column, blocks: Blocks, copies: Copies) -> tuple[Column, Column]:
    """Return the table of expanded rows, and the expanded position of every cause.

    Args:
        table: spans, shape (rows, fields).
        blocks: blocks of the table.
        copies: expanded copies of the rows.
    """
    shift = copies.cycles, copies.micro_batches, copies.time_steps, copies.executions
    cause = blocks.causes(table[:, Span._fields.index("cause")])[copies.row]
    result = shift_rows(np.asfortranarray(table[copies.row]), shift, 1)
    return result, np.where(cause == NONE, NONE, cause + copies.causes)


def select_rows(table: Column, blocks: Blocks, copies: Copies, mask: npt.NDArray[np.bool_]) -> Column:
    """Return the table of some expanded rows; causes outside these rows become NONE.

    Args:
        table: spans, shape (rows, fields).
        blocks: blocks of the table.
        copies: expanded copies of the rows.
        mask: mask over ``copies``.
    """
    result, cause = expand_rows(table, blocks, Copies(*(column[mask] for column in copies)))
    position = copies.position[mask]
    row = np.minimum(np.searchsorted(position, cause), max(len(position) - 1, 0))
    result[:, Span._fields.index("cause")] = np.where((cause != NONE) & (position[row] == cause), row, NONE)
    return result
