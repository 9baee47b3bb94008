"""The Timeline: read-only integer columns of spans, and what they are spans of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ipusim.timeline.copies import (
    Choice,
    Chosen,
    Gap,
    alone,
    at_ends,
    cause_rows,
    copies_in,
    copies_numbered,
    every_copy,
    moved,
    some_copies,
    touching,
    written,
    written_out,
)
from ipusim.timeline.file import MOST_SPANS, read_timeline, write_timeline
from ipusim.timeline.info import TimelineInfo, ends_text, layers_text
from ipusim.timeline.kinds import SpanKind, of_kinds
from ipusim.timeline.records import Records
from ipusim.timeline.repeats import Blocks, Column, Repeat
from ipusim.timeline.span import ALL_IPUS, NONE, Span

__all__ = [
    "ALL_IPUS",
    "MOST_SPANS",
    "NONE",
    "Column",
    "Span",
    "Timeline",
    "TimelineInfo",
    "ends_text",
    "layers_text",
]


class Timeline:
    """Spans as columns, sorted by start (equal starts in the order in which they ended); read-only.

    Every field of :class:`Span` is an int64 array attribute of that name. Two
    Timelines are equal when their info, all their columns and their blocks are.

    A run that repeats itself is recorded in part: ``repeats`` are blocks of rows that happen several times. Rows are
    those of the first copy of each block, and rows behind a block have the times and numbers that they have behind its
    last copy. What sums rows up counts each :attr:`weights` times, and what follows causes from row to row does so on
    the :meth:`contiguous` Timeline.

    Args:
        columns: int64, shape (rows, 12), in the order of Span's fields and sorted, or what makes them.

    Attributes:
        info: what the columns refer to.
        repeats: blocks of rows that happen several times, sorted by their first row, outer ones first.

    Example:
        >>> from ipusim.api import Request, SpanKind, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> timeline = execute(assemble(Request.from_dict(options))).timeline
        >>> forward = timeline.kind == SpanKind.FORWARD
        >>> timeline.start[forward].tolist()
        [0, 1000, 1000, 2000, 4000, 7000, 7000, 10000]
    """

    start: Column
    end: Column
    kind: Column
    ipu: Column
    stage: Column
    micro_batch: Column
    time_step: Column
    execution: Column
    link: Column
    bytes: Column
    cause: Column
    replica: Column

    def __init__(
        self, info: TimelineInfo, columns: npt.NDArray[np.int64] | Records, repeats: Sequence[Repeat] = ()
    ) -> None:
        """Take the columns, or the records that they are made of when first read."""
        self.info = info
        self.repeats = tuple(repeats)
        self._records = columns if isinstance(columns, Records) else None
        if isinstance(columns, Records):
            self._space = np.empty((len(columns), len(Span._fields)), dtype=np.int64, order="F")
        else:  # a view of an array in column order is taken as it is
            self._space = np.asfortranarray(columns, dtype=np.int64).reshape(-1, len(Span._fields), order="A").view()

    def __getattr__(self, name: str) -> Column:
        """Return a column, which is made of the records when it is first read: many never are."""
        if name not in Span._fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        column = self._space[:, Span._fields.index(name)]
        if self._records is not None:
            self._records.write(name, column)
        column.flags.writeable = False
        setattr(self, name, column)
        if vars(self).keys() >= set(Span._fields):
            self._records = None
        return column

    @cached_property
    def _table(self) -> npt.NDArray[np.int64]:
        """All columns, of shape (rows, 12)."""
        for name in Span._fields:
            getattr(self, name)
        table = self._space.view()
        table.flags.writeable = False
        return table

    def __reduce__(self) -> tuple[object, ...]:
        """Return the arguments of a copy in another process."""
        return Timeline, (self.info, self._table, self.repeats)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._space)

    def __eq__(self, other: object) -> bool:
        """Compare info, every column and the blocks."""
        if not isinstance(other, Timeline):
            return NotImplemented
        alike = (self.info, self.repeats) == (other.info, other.repeats)
        return alike and np.array_equal(self._table, other._table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Name the run, its spans and its length."""
        return f"<Timeline of {self.info.name}: {self.spans_in_all} spans, {self.makespan_cycles} cycles>"

    def __iter__(self) -> Iterator[Span]:
        """Yield each row as a Span."""
        return map(Span._make, self._table.tolist())

    @property
    def columns(self) -> dict[str, Column]:
        """Every column by its name."""
        return {name: getattr(self, name) for name in Span._fields}

    @property
    def makespan_cycles(self) -> int:
        """The end of the last span, in cycles; 0 for an empty Timeline."""
        return int((self.end + self.blocks.cycles_to_last()).max()) if len(self) else 0

    def about(self, info: TimelineInfo) -> Timeline:
        """Return the same spans with another info.

        Args:
            info: what the spans are of.

        Returns:
            A Timeline of the same columns.
        """
        return Timeline(info, self._table, self.repeats)

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of rows that happen several times, with what lies in them."""
        return Blocks(self.repeats, len(self))

    @property
    def spans_in_all(self) -> int:
        """The number of spans of the run, those of all copies of blocks included."""
        return self.blocks.spans

    @cached_property
    def weights(self) -> Column:
        """How many spans each row stands for, shape (rows,): 1 outside of blocks."""
        return self.blocks.weights()

    @cached_property
    def weights_of_executions(self) -> Column:
        """How many executions that of each row stands for, shape (rows,): 1 outside of blocks of executions."""
        return self.blocks.weights_of_executions()

    def contiguous(self) -> Timeline:
        """Return the run with each block once: a shorter run of its own, in which causes end when their spans begin."""
        return self._contiguous if self.repeats else self

    @cached_property
    def _contiguous(self) -> Timeline:
        added = self.blocks.added(self.columns)
        table = moved(self._table, added, -1)
        _, micro_batches, time_steps, executions = added
        info = replace(
            self.info,
            count=self.info.count - int(micro_batches.max()),
            time_steps=self.info.time_steps - int(time_steps.max()),
            executions=self.info.executions - int(executions.max()),
        )
        return Timeline(info, table)

    def folded(self, repeats: Sequence[Repeat]) -> Timeline | None:
        """Return the same run with the copies of blocks, which are rows one after the other, as one copy of each.

        Args:
            repeats: blocks of this Timeline's rows, which has none yet; their ``times`` are the copies that are rows.

        Returns:
            The run with these blocks; None where a row behind one has its cause too far back in the block.
        """
        remaining = np.ones(len(self), dtype=bool)
        gaps, before = [], 0
        for repeat in repeats:
            size = repeat.last - repeat.first
            remaining[repeat.last : repeat.first + repeat.times * size] = False
            block = repeat._replace(first=repeat.first - before, last=repeat.last - before)
            gaps.append(Gap(block, repeat.first, size))
            before += (repeat.times - 1) * size
        table, cause = self._table[remaining], cause_rows(self.cause[remaining], gaps)
        table[:, Span._fields.index("cause")] = cause
        folded = Timeline(self.info, table, [gap.block for gap in gaps])
        right = (cause >= NONE).all() and np.array_equal(folded.blocks.causes(cause), self.cause[remaining])
        return folded if right else None

    def stretched(self, info: TimelineInfo, repeats: Sequence[Repeat]) -> Timeline:
        """Return the run of ``info`` in which blocks of this one happen several times; :meth:`contiguous` undoes it.

        Args:
            info: of the longer run.
            repeats: blocks of this Timeline's rows, which has none yet.

        Returns:
            The longer run, of the same rows.
        """
        table = moved(self._table, Blocks(repeats, len(self)).added(self.columns), 1)
        return Timeline(info, table, repeats)

    def rows_alone(self) -> Timeline:
        """Return the rows without their blocks' further copies, whose time is then empty."""
        return Timeline(self.info, self._table) if self.repeats else self

    def expanded(self) -> Timeline:
        """Return the run with every copy of every block as rows of their own."""
        return self if not self.repeats else self._written_out(every_copy)

    def spans(self, begin: int, end: int) -> Timeline:
        """Return the spans that touch a window of cycles, every copy of blocks there as rows of their own.

        Args:
            begin, end: of the window, in cycles from the start of the run.

        Returns:
            A Timeline of the same info; a span's cause is NONE where that lies outside of the window.
        """
        copies, _ = written_out(self.blocks, copies_in(self.start, self.end, (begin, end)))
        inside = (self.start[copies.row] + copies.cycles < end) & (self.end[copies.row] + copies.cycles > begin)
        return Timeline(self.info, alone(self._table, self.blocks, copies, inside))

    def numbered(self, first: int, last: int) -> Timeline:
        """Return the spans from one number up to another, among all.

        Args:
            first, last: numbers of spans with all blocks written out; the last one is not among them.

        Returns:
            A Timeline of the same info; causes are as :meth:`spans` has them.
        """
        copies, _ = written_out(self.blocks, copies_numbered(self.blocks, first, last))
        return Timeline(
            self.info, alone(self._table, self.blocks, copies, (copies.position >= first) & (copies.position < last))
        )

    def peeled(self, execution: int | None = None) -> Timeline:
        """Return the same run with the first and the last copies of each block as rows of their own.

        What is left of the block has copies before and behind it that are written out: whatever depends on the spans
        just before and after a row is the same for all spans that it stands for, and what is first or last of
        anything is a row.

        Args:
            execution: one whose spans are to be rows of their own.

        Returns:
            A Timeline that is equal when both are expanded.
        """
        if execution is None:
            return self._peeled
        own = self._peeled.weights_of_executions[self._peeled.execution == execution]
        return self._peeled if len(own) and (own == 1).all() else self._with_execution(execution)

    @cached_property
    def _peeled(self) -> Timeline:
        if not self.repeats:
            return self
        return self._written_out(lambda repeat, _: some_copies(repeat.times, self._at_ends(repeat)))

    def _at_ends(self, repeat: Repeat) -> set[int]:
        """Return the first and the last copies of a block that its longest span may touch."""
        rows = slice(repeat.first, repeat.last)
        return at_ends(repeat, int((self.end[rows] - self.start[rows]).max()))

    def _with_execution(self, execution: int) -> Timeline:
        def choose(repeat: Repeat, added: Column) -> Chosen:
            chosen = self._at_ends(repeat)
            if repeat.executions:
                own = self.execution[repeat.first : repeat.last]
                own = own[own != NONE] + added[3]
                number = (execution - np.unique(own)) // repeat.executions
                chosen |= {*(number[:, np.newaxis] + np.arange(-1, 3)).ravel().tolist()}
            return some_copies(repeat.times, chosen)

        return self._written_out(choose)

    def around(self, begin: int, end: int, most_spans: int, micro_batches: int) -> Timeline:
        """Return the same run with the copies of blocks that touch a window of cycles as rows of their own.

        Args:
            begin, end: of the window, in cycles from the start of the run.
            most_spans: of a block whose copies there are more, those at either end of the window are rows of their own.
            micro_batches: that these are at least, of one end.

        Returns:
            A Timeline that is equal when both are expanded.
        """

        def choose(repeat: Repeat, added: Column) -> Chosen:
            touched: Sequence[int] = touching(repeat, int(added[0]), self.start, self.end, (begin, end))
            if len(touched) * self.blocks.spans_of_copy(repeat) > most_spans:
                copies = 1 if repeat.executions else -(-micro_batches // max(repeat.length, 1))
                touched = [*touched[:copies], *touched[-copies - 1 :]]
            return some_copies(repeat.times, {*self._at_ends(repeat), *touched})

        return self._written_out(choose) if self.repeats else self

    def _written_out(self, choose: Choice) -> Timeline:
        copies, gaps = written_out(self.blocks, choose)
        table, cause = written(self._table, self.blocks, copies)
        table[:, Span._fields.index("cause")] = cause_rows(cause, gaps)
        return Timeline(self.info, table, [gap.block for gap in gaps])

    def rows(self, *kinds: SpanKind) -> npt.NDArray[np.int64]:
        """Return the row numbers of all spans of some kinds.

        Args:
            *kinds: of spans.

        Returns:
            Row numbers, rising, shape (n,).
        """
        return np.flatnonzero(of_kinds(self.kind, kinds))

    def per_ipu(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return rows once for each IPU that they occupy.

        Args:
            rows: row numbers, of spans of one IPU or of all, shape (n,).

        Returns:
            The rows and the logical IPU of each, both of shape (m,), m >= n.
        """
        shared = self.ipu[rows] == ALL_IPUS
        replica = self.replica[rows]
        whole = replica == NONE
        repeats = np.where(shared, np.where(whole, len(self.info.ipus), self.info.shards), 1)
        first = np.where(shared, np.where(whole, 0, replica * self.info.shards), self.ipu[rows])
        nth = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return np.repeat(rows, repeats), np.repeat(first, repeats) + nth

    def save(self, file: Path | BinaryIO) -> None:
        """Write the Timeline as an npz archive; equal Timelines of one title give equal bytes.

        Args:
            file: a path, or an open binary file.
        """
        write_timeline(file, self.info, self._table, self.repeats)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> Timeline:
        """Read back what :meth:`save` wrote.

        Args:
            file: a path, or an open binary file.

        Returns:
            The Timeline.

        Raises:
            TimelineError: for a file that is no Timeline.
            OSError: for one that cannot be read.
        """
        return cls(*read_timeline(file))
