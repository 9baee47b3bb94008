"""Define the Timeline: the recorded spans of a run as read-only integer columns, with the objects behind them."""

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
    Gap,
    cause_rows,
    copies_around,
    copies_at_ends,
    copies_in_window,
    copies_with_execution,
    copies_with_spans,
    every_copy,
    expand_copies,
    expand_rows,
    select_rows,
    shift_rows,
    some_copies,
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
    """Spans as columns, sorted by start (then by end); read-only.

    Every field of :class:`Span` is an int64 array attribute. Timelines are equal if info, columns and blocks are equal.

    A run that repeats has fewer rows than spans: ``repeats`` are blocks, rows that happen several times. Rows are the
    first copy of every block; rows after a block keep the times and numbers of the whole run, after the block's last
    copy. Sums over rows count every row :attr:`weights` times; searches along causes use the :meth:`contiguous`
    Timeline.

    Args:
        columns: int64, shape (rows, 12), in the order of Span's fields and sorted; or records to expand on first use.

    Attributes:
        info: objects behind the columns.
        repeats: blocks of rows that happen several times, sorted by first row, outer before inner.

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
        """Take the columns, or the records from which they are computed."""
        self.info = info
        self.repeats = tuple(repeats)
        self._records = columns if isinstance(columns, Records) else None
        if isinstance(columns, Records):
            self._space = np.empty((len(columns), len(Span._fields)), dtype=np.int64, order="F")
        else:  # an array in column order is used without a copy
            self._space = np.asfortranarray(columns, dtype=np.int64).reshape(-1, len(Span._fields), order="A").view()

    def __getattr__(self, name: str) -> Column:
        """Return a column; from records, it is computed on first use."""
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
        """The columns as a table, of shape (rows, 12)."""
        for name in Span._fields:
            getattr(self, name)
        table = self._space.view()
        table.flags.writeable = False
        return table

    def __reduce__(self) -> tuple[object, ...]:
        """Return the arguments of a copy in another process."""
        return Timeline, (self.info, self._table, self.repeats)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._space)

    def __eq__(self, other: object) -> bool:
        """Compare info, columns and blocks."""
        if not isinstance(other, Timeline):
            return NotImplemented
        is_equal = (self.info, self.repeats) == (other.info, other.repeats)
        return is_equal and np.array_equal(self._table, other._table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Name the run, the number of spans and the length."""
        return f"<Timeline of {self.info.name}: {self.spans_in_all} spans, {self.makespan_cycles} cycles>"

    def __iter__(self) -> Iterator[Span]:
        """Yield every row as a Span."""
        return map(Span._make, self._table.tolist())

    @property
    def columns(self) -> dict[str, Column]:
        """Columns by name."""
        return {name: getattr(self, name) for name in Span._fields}

    @property
    def makespan_cycles(self) -> int:
        """End of the last span, in cycles; 0 for an empty Timeline."""
        return int((self.end + self.blocks.cycles_to_last()).max()) if len(self) else 0

    def with_info(self, info: TimelineInfo) -> Timeline:
        """Return the same spans with another info.

        Args:
            info: objects behind the columns.

        Returns:
            A Timeline of the same columns.
        """
        return Timeline(info, self._table, self.repeats)

    @cached_property
    def blocks(self) -> Blocks:
        """Repeated blocks of rows, with their nesting."""
        return Blocks(self.repeats, len(self))

    @property
    def spans_in_all(self) -> int:
        """Number of spans of the run, including every copy of every block."""
        return self.blocks.spans

    @cached_property
    def weights(self) -> Column:
        """Multiplicity of every row, shape (rows,): 1 outside of blocks."""
        return self.blocks.weights()

    @cached_property
    def weights_of_executions(self) -> Column:
        """Multiplicity of every row's execution, shape (rows,): 1 outside of blocks of executions."""
        return self.blocks.weights_of_executions()

    def contiguous(self) -> Timeline:
        """Return a run with one copy of every block; later rows move up to close the gaps."""
        return self._contiguous if self.repeats else self

    @cached_property
    def _contiguous(self) -> Timeline:
        added = self.blocks.added_by_copies(self.columns)
        table = shift_rows(self._table, added, -1)
        _, micro_batches, time_steps, executions = added
        info = replace(
            self.info,
            count=self.info.count - int(micro_batches.max()),
            time_steps=self.info.time_steps - int(time_steps.max()),
            executions=self.info.executions - int(executions.max()),
        )
        return Timeline(info, table)

    def fold_copies(self, repeats: Sequence[Repeat]) -> Timeline | None:
        """Return the same run with blocks: of consecutive copies only the first keeps its rows.

        Args:
            repeats: blocks of this Timeline, which has no blocks yet; ``times`` counts the copies among the rows.

        Returns:
            The run with these blocks; None if a row after a block has a cause before the block's last two copies.
        """
        is_kept = np.ones(len(self), dtype=bool)
        gaps, offset = [], 0
        for repeat in repeats:
            size = repeat.last - repeat.first
            is_kept[repeat.last : repeat.first + repeat.times * size] = False
            block = repeat._replace(first=repeat.first - offset, last=repeat.last - offset)
            gaps.append(Gap(block, repeat.first, size))
            offset += (repeat.times - 1) * size
        table, cause = self._table[is_kept], cause_rows(self.cause[is_kept], gaps)
        table[:, Span._fields.index("cause")] = cause
        folded = Timeline(self.info, table, [gap.block for gap in gaps])
        is_same_run = (cause >= NONE).all() and np.array_equal(folded.blocks.causes(cause), self.cause[is_kept])
        return folded if is_same_run else None

    def repeat_blocks(self, info: TimelineInfo, repeats: Sequence[Repeat]) -> Timeline:
        """Return the longer run that ``info`` describes, with repeated blocks; inverse of :meth:`contiguous`.

        Args:
            info: objects behind the columns of the longer run.
            repeats: blocks of this Timeline, which has no blocks yet.

        Returns:
            The longer run, with the same rows.
        """
        table = shift_rows(self._table, Blocks(repeats, len(self)).added_by_copies(self.columns), 1)
        return Timeline(info, table, repeats)

    def without_copies(self) -> Timeline:
        """Return the rows as they are, without repeats: the time of the other copies stays empty."""
        return Timeline(self.info, self._table) if self.repeats else self

    def expanded(self) -> Timeline:
        """Return the run with every copy of every block expanded to rows."""
        return self if not self.repeats else self._expanded_copies(every_copy)

    def spans(self, begin: int, end: int) -> Timeline:
        """Return the spans that overlap a window of cycles, with copies expanded.

        Args:
            begin, end: window, in cycles from the start of the run.

        Returns:
            A Timeline of the same info; causes outside the window become NONE.
        """
        copies, _ = expand_copies(self.blocks, copies_in_window(self.start, self.end, (begin, end)))
        inside = (self.start[copies.row] + copies.cycles < end) & (self.end[copies.row] + copies.cycles > begin)
        return Timeline(self.info, select_rows(self._table, self.blocks, copies, inside))

    def spans_by_number(self, first: int, last: int) -> Timeline:
        """Return a range of spans by number.

        Args:
            first, last: numbers of spans in the expanded Timeline; ``last`` is excluded.

        Returns:
            A Timeline of the same info; causes outside the range become NONE.
        """
        copies, _ = expand_copies(self.blocks, copies_with_spans(self.blocks, first, last))
        return Timeline(
            self.info,
            select_rows(self._table, self.blocks, copies, (copies.position >= first) & (copies.position < last)),
        )

    def with_block_ends_expanded(self, execution: int | None = None) -> Timeline:
        """Return the same run with rows for the first and last copies of every block, the parts of the run that repeat.

        The copies between them stay a block. Quantities that depend on neighbouring spans are then equal for every copy
        of a row, and the first or last span of any kind is a row.

        Args:
            execution: execution to expand, even inside a block; None expands only ends of blocks.

        Returns:
            A Timeline with the same spans.
        """
        if execution is None:
            return self._with_ends
        weights = self._with_ends.weights_of_executions[self._with_ends.execution == execution]
        if len(weights) and (weights == 1).all():
            return self._with_ends
        return self._expanded_copies(copies_with_execution(self.execution, execution, self._copies_at_ends))

    @cached_property
    def _with_ends(self) -> Timeline:
        if not self.repeats:
            return self
        return self._expanded_copies(lambda repeat, _: some_copies(repeat.times, self._copies_at_ends(repeat)))

    def _copies_at_ends(self, repeat: Repeat) -> set[int]:
        """Return the first and last copies of a block: as many as its longest span can overlap."""
        rows = slice(repeat.first, repeat.last)
        return copies_at_ends(repeat, int((self.end[rows] - self.start[rows]).max()))

    def expanded_around(self, begin: int, end: int, most_spans: int, micro_batches: int) -> Timeline:
        """Return the same run, expanding the copies of blocks that overlap a window.

        Args:
            begin, end: window, in cycles from the start of the run.
            most_spans: limit on the expanded spans of a block; a block with more expands only copies at both ends of
                the window.
            micro_batches: minimum number of micro-batches to expand at either end.

        Returns:
            A Timeline with the same spans.
        """
        if not self.repeats:
            return self
        limits = most_spans, micro_batches
        around = copies_around(self.blocks, self.start, self.end, (begin, end), limits, self._copies_at_ends)
        return self._expanded_copies(around)

    def _expanded_copies(self, choose: Choice) -> Timeline:
        copies, gaps = expand_copies(self.blocks, choose)
        table, cause = expand_rows(self._table, self.blocks, copies)
        table[:, Span._fields.index("cause")] = cause_rows(cause, gaps)
        return Timeline(self.info, table, [gap.block for gap in gaps])

    def rows(self, *kinds: SpanKind) -> npt.NDArray[np.int64]:
        """Return the row numbers of some kinds of spans.

        Args:
            *kinds: kinds of spans.

        Returns:
            Row numbers, rising, shape (n,).
        """
        return np.flatnonzero(of_kinds(self.kind, kinds))

    def per_ipu(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return rows repeated for every IPU that they occupy.

        Args:
            rows: row numbers of spans on a single IPU or on several, shape (n,).

        Returns:
            The rows and their logical IPUs, both of shape (m,), m >= n.
        """
        is_shared = self.ipu[rows] == ALL_IPUS
        replica = self.replica[rows]
        whole = replica == NONE
        repeats = np.where(is_shared, np.where(whole, len(self.info.ipus), self.info.shards), 1)
        first = np.where(is_shared, np.where(whole, 0, replica * self.info.shards), self.ipu[rows])
        nth = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return np.repeat(rows, repeats), np.repeat(first, repeats) + nth

    def save(self, file: Path | BinaryIO) -> None:
        """Write the Timeline as an npz archive.

        Equal Timelines give equal bytes if their titles, which equality ignores, are equal too.

        Args:
            file: a path, or an open binary file.
        """
        write_timeline(file, self.info, self._table, self.repeats)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> Timeline:
        """Read a Timeline written by :meth:`save`.

        Args:
            file: a path, or an open binary file.

        Returns:
            The Timeline.

        Raises:
            TimelineError: for a file of another kind.
            OSError: for an unreadable file.
        """
        return cls(*read_timeline(file))
