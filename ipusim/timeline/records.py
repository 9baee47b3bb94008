"""Sort the machine's records of a run, and compute the columns of spans on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.timeline.repeats import Column
from ipusim.timeline.span import NONE, Description

#: Integers per record in the log: description, step, start, end, cause.
WIDTH: Final = 5


class Records:
    """The records of a run, each a span or a group of spans.

    Spans of several IPUs with common time and cause are recorded as a group. The spans take many times the memory of
    the log, so each column is computed separately, on request.
    """

    def __init__(
        self,
        log: npt.NDArray[np.int64],
        descriptions: npt.NDArray[np.int64],
        groups: Sequence[Column],
        steps: int,
        late: int | None = None,
    ) -> None:
        """Sort records by start and end, and then by description.

        The order is a function of times and descriptions, independent of the order of events within a cycle.

        Args:
            log: records of shape (records, WIDTH), in recording order.
            descriptions: descriptions of spans, with a column per field of Description.
            groups: rows of ``descriptions`` recorded together; group ``n`` has the number ``-n - 1``.
            steps: time-steps per execution, including the weight update's.
            late: first description stored during the run; None if all are stored before the run.
        """
        # Groups expand after sorting: a group has a single start, and records are far fewer than spans.
        self._order = _order(log, _ranks(descriptions, late), groups)
        columns: Sequence[Column] = np.ascontiguousarray(log[self._order].T)  # type: ignore[assignment]
        self._description, self._step, self._start, self._end, self._cause = columns
        self._descriptions, self._groups, self._steps = descriptions, groups, steps
        sizes = np.array([1, *map(len, groups)], dtype=np.int64)
        self._counts = sizes[np.maximum(-self._description, 0)]
        self._rows = np.cumsum(self._counts)

    def __len__(self) -> int:
        """Number of spans."""
        return int(self._rows[-1]) if len(self._rows) else 0

    def write(self, name: str, column: Column) -> None:
        """Write a field of every Span into a column."""
        if name in Description._fields:
            values = np.ascontiguousarray(self._descriptions[:, Description._fields.index(name)])
            rows = self._description_rows
        else:
            values, rows = self._of_record(name), self._record
        # The default mode may raise, so NumPy buffers its output and takes 20 times as long.
        np.take(values, rows, out=column, mode="clip")

    def _of_record(self, name: str) -> Column:
        """Return a column with a row per record."""
        if name in ("start", "end"):
            return self._start if name == "start" else self._end
        if name == "cause":
            row_of: Column = np.empty(len(self._order) + 1, dtype=np.int64)
            row_of[self._order] = self._rows - 1
            row_of[NONE] = NONE  # the last entry, at index -1
            return row_of[np.where(self._cause == NONE, NONE, self._cause // WIDTH - 1)]
        number = self._step % self._steps if name == "time_step" else self._step // self._steps
        return np.where(self._step >= 0, number, NONE)

    @cached_property
    def _record(self) -> Column:
        """Record of every span."""
        return np.repeat(np.arange(len(self._order)), self._counts)

    @cached_property
    def _description_rows(self) -> Column:
        """Description of every span."""
        if not self._groups:
            return self._description
        # A table of single descriptions followed by the groups: the spans of a record are consecutive entries.
        table: Column = np.concatenate([np.arange(len(self._descriptions)), *self._groups])
        sizes = np.array([len(group) for group in self._groups], dtype=np.int64)
        begins = len(self._descriptions) + np.cumsum(sizes) - sizes
        begin = np.where(self._description < 0, begins[np.maximum(-self._description, 1) - 1], self._description)
        index = (begin - self._rows + self._counts)[self._record]
        index += np.arange(len(index))
        expanded: Column = table[index]
        return expanded


def _ranks(descriptions: npt.NDArray[np.int64], late: int | None) -> Column:
    """Return a rank per description; descriptions stored during the run are ranked by content."""
    ranks = np.arange(len(descriptions))
    if late is not None:
        ranks[late + np.lexsort(descriptions[late:].T[::-1])] = np.arange(late, len(descriptions))
    return ranks


def _order(log: npt.NDArray[np.int64], ranks: Column, groups: Sequence[Column]) -> Column:
    """Return the order of records by start, end and rank, causes before effects."""
    order: Column = np.lexsort((log[:, 3], log[:, 2]))  # quick, as records are nearly sorted by end
    description, _, start, end, cause = log[order].T
    is_new_time = np.r_[True, (np.diff(start) != 0) | (np.diff(end) != 0)][: len(order)]
    if is_new_time.all():
        return order
    number = np.cumsum(is_new_time)
    first = np.array([0, *(group[0] for group in groups)], np.int64)
    rank = ranks[np.where(description < 0, first[np.maximum(-description, 0)], description)]
    is_instantaneous = start == end
    if not is_instantaneous.any():
        return order[np.argsort(number * len(ranks) + rank, kind="stable")]
    depth = np.zeros(len(order) + 1, np.int64)  # length of the chain of instantaneous causes, per record
    cause_record = np.where(cause == NONE, len(order), cause // WIDTH - 1)
    for record, cause_of in zip(order[is_instantaneous].tolist(), cause_record[is_instantaneous].tolist(), strict=True):
        depth[record] = depth[cause_of] + 1
    return order[np.lexsort((rank, depth[order], number))]
