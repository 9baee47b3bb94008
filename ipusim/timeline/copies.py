"""Expanding a Timeline's blocks into rows: all copies, those in a window, or the first and last of each block.

Tables of spans, as moved rows are of, have a column for each field of :class:`Span`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.timeline.repeats import Blocks, Column, Repeat
from ipusim.timeline.span import NONE, Span

#: Copies of a block that a span reaches over, at most: what an IPU or a link does comes one after the other.
_MOST_AT_ENDS: Final = 16
#: The columns to which cycles, micro-batches, time-steps and executions are added.
_MOVED: Final = (("start", "end"), ("micro_batch",), ("time_step",), ("execution",))


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


class Gap(NamedTuple):
    """Copies of a block that are left out behind one that is written out.

    Attributes:
        block: the block that they are together, with that copy: its rows are those written out.
        position: of the copy's first span among all spans, written out.
        spans: of one copy, written out.
    """

    block: Repeat
    position: int
    spans: int


class Chosen(NamedTuple):
    """Copies of a block, rising.

    Attributes:
        number: of each, from 0.
        times: how many copies each stands for: itself, and those behind it up to the next one.
    """

    number: Column
    times: Column


#: Chooses copies of a block that begins later than the Timeline's rows say: by cycles, micro-batches, time-steps,
#: executions and spans.
Choice = Callable[[Repeat, Column], Chosen]


def every_copy(repeat: Repeat, added: Column) -> Chosen:
    """Choose all copies of a block."""
    del added
    return Chosen(np.arange(repeat.times), np.ones(repeat.times, dtype=np.int64))


def at_ends(repeat: Repeat, longest: int) -> set[int]:
    """Return the first copies of a block, as many as a span touches, as many last ones, and the one before these.

    Args:
        repeat: the block.
        longest: cycles of its longest span.
    """
    least = min(max(1, -(-longest // repeat.cycles) if repeat.cycles else 1), _MOST_AT_ENDS)
    return {*range(least), *range(repeat.times - least - 1, repeat.times)}


def touching(repeat: Repeat, added: int, start: Column, end: Column, window: tuple[int, int]) -> range:
    """Return the copies of a block that have a span in a window of cycles.

    Args:
        repeat: the block.
        added: by how many cycles it begins later than the rows say.
        start, end: of each row, in cycles.
        window: from which cycle on, and up to which.
    """
    if not repeat.cycles:
        return range(repeat.times)
    first, last = int(start[repeat.first]) + added, int(end[repeat.first : repeat.last].max()) + added
    low = max(0, -((last - window[0]) // repeat.cycles))
    high = min(repeat.times, -((first - window[1]) // repeat.cycles))
    return range(min(low, high), high)


def copies_in(start: Column, end: Column, window: tuple[int, int]) -> Choice:
    """Return a function that chooses copies with a span in a window of cycles, of rows from ``start`` to ``end``."""

    def choose(repeat: Repeat, added: Column) -> Chosen:
        number = np.array(touching(repeat, int(added[0]), start, end, window), dtype=np.int64)
        return Chosen(number, np.ones(len(number), dtype=np.int64))

    return choose


def copies_numbered(blocks: Blocks, first: int, last: int) -> Choice:
    """Return a function that chooses the copies with a span from one number up to another, of all written out."""
    positions = blocks.positions()

    def choose(repeat: Repeat, added: Column) -> Chosen:
        begin, size = int(positions[repeat.first] + added[4]), blocks.spans_of_copy(repeat)
        low, high = (first - begin) // size, -((begin - last) // size)
        number = np.arange(max(low, 0), min(high, repeat.times))
        return Chosen(number, np.ones(len(number), dtype=np.int64))

    return choose


def some_copies(times: int, chosen: Iterable[int]) -> Chosen:
    """Return the ``chosen`` of so many copies, and of each stretch of others the first one."""
    inside = {number for number in chosen if 0 <= number < times}
    begins = {0, *inside, *(number + 1 for number in inside)}  # of each chosen one, and of what lies behind it
    number = np.array(sorted(begin for begin in begins if begin < times), dtype=np.int64)
    return Chosen(number, np.diff(number, append=times))


@dataclass
class _Writer:
    """Writes the chosen copies of blocks, and notes where some are left out."""

    blocks: Blocks
    choose: Choice
    gaps: list[Gap]
    rows: int = 0

    def walk(
        self, first: int, last: int, inside: Sequence[Repeat], added: Column, position: int
    ) -> Iterator[tuple[Column, ...]]:
        """Yield parts of the columns of :class:`Copies` for rows ``first`` to ``last``, with the blocks ``inside``.

        Args:
            first, last: of the Timeline with blocks.
            inside: blocks of these rows that are in no other block of them.
            added: by how much the numbers of this copy of the rows are larger.
            position: of the first row among all spans, written out.
        """
        at = first
        for repeat in inside:
            yield self._part(np.arange(at, repeat.first), position, added)
            position += repeat.first - at
            size = self.blocks.spans_of_copy(repeat)
            yield from self._copies(repeat, size, added, position)
            position += repeat.times * size
            at = repeat.last
        yield self._part(np.arange(at, last), position, added)

    def _copies(self, repeat: Repeat, size: int, added: Column, position: int) -> Iterator[tuple[Column, ...]]:
        shift = np.array([*repeat[3:], size], dtype=np.int64)
        chosen, inner = self.choose(repeat, added), self.blocks.inside(repeat)
        if not inner and (chosen.times == 1).all():
            number = np.repeat(chosen.number, size)
            within = np.tile(np.arange(size), len(chosen.number))
            self.rows += len(number)
            shifts = added[:, np.newaxis] + shift[:, np.newaxis] * number
            yield repeat.first + within, position + number * size + within, *shifts
            return
        for number, times in zip(chosen.number.tolist(), chosen.times.tolist(), strict=True):
            begin, gap = self.rows, len(self.gaps)
            yield from self.walk(repeat.first, repeat.last, inner, added + number * shift, position + number * size)
            if times > 1:
                block = repeat._replace(first=begin, last=self.rows, times=times)
                self.gaps.insert(gap, Gap(block, position + number * size, size))

    def _part(self, rows: Column, position: int, added: Column) -> tuple[Column, ...]:
        """Return rows that follow each other from a position on as parts of the columns of :class:`Copies`."""
        self.rows += len(rows)
        return rows, position + np.arange(len(rows)), *(np.full(len(rows), number) for number in added.tolist())


def written_out(blocks: Blocks, choose: Choice) -> tuple[Copies, tuple[Gap, ...]]:
    """Return the spans of the chosen copies of blocks, and all rows outside of blocks; and where copies are left out.

    The gaps are sorted as blocks are: by their first row, outer ones before inner ones.
    """
    writer = _Writer(blocks, choose, [])
    parts = list(writer.walk(0, blocks.rows, blocks.outermost, np.zeros(5, dtype=np.int64), 0))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Copies(*(np.asarray(column, dtype=np.int64) for column in columns)), tuple(writer.gaps)


def cause_rows(cause: Column, gaps: Sequence[Gap]) -> Column:
    """Return the rows of causes where copies are left out: behind a gap, of what was just before.

    Args:
        cause: position of each row's cause among all spans, written out; negative where there is none.
        gaps: of the rows, as :func:`written_out` returns them.
    """
    row, rows = np.arange(len(cause)), cause.copy()
    for gap in sorted(gaps, key=lambda gap: (-gap.block.last, gap.block.first)):
        behind = (row >= gap.block.last) & (rows >= gap.position)
        rows[behind] -= (gap.block.times - 1) * gap.spans
    return rows


def moved(table: Column, added: tuple[Column, Column, Column, Column], sign: int) -> Column:
    """Return a table with cycles, micro-batches, time-steps and executions added to its numbers.

    Args:
        table: of spans, shape (rows, fields).
        added: to each row, shape (rows,) each.
        sign: 1, or -1 to take them away.
    """
    result = table.copy(order="F")
    for names, more in zip(_MOVED, added, strict=True):
        for name in names:
            column = result[:, Span._fields.index(name)]
            column += np.where(column == NONE, 0, sign * more)
    return result


def written(table: Column, blocks: Blocks, copies: Copies) -> tuple[Column, Column]:
    """Return a table of copies of rows, and the position of the cause of each among all spans.

    Args:
        table: of spans, shape (rows, fields).
        blocks: of the table.
        copies: of its rows.
    """
    added = copies.cycles, copies.micro_batches, copies.time_steps, copies.executions
    cause = blocks.causes(table[:, Span._fields.index("cause")])[copies.row]
    result = moved(np.asfortranarray(table[copies.row]), added, 1)
    return result, np.where(cause == NONE, NONE, cause + copies.causes)


def alone(table: Column, blocks: Blocks, copies: Copies, chosen: npt.NDArray[np.bool_]) -> Column:
    """Return a table of chosen copies of rows, without the causes that are not among them.

    Args:
        table: of spans, shape (rows, fields).
        blocks: of the table.
        copies: of its rows.
        chosen: which of them.
    """
    result, cause = written(table, blocks, Copies(*(column[chosen] for column in copies)))
    position = copies.position[chosen]
    row = np.minimum(np.searchsorted(position, cause), max(len(position) - 1, 0))
    result[:, Span._fields.index("cause")] = np.where((cause != NONE) & (position[row] == cause), row, NONE)
    return result
