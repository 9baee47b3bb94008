"""The machine's records, sorted; columns of spans are made of them when first read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.timeline.repeats import Column
from ipusim.timeline.span import NONE, Description

#: Integers of one record in the log: description, step, start, end, cause.
WIDTH: Final = 5


class Records:
    """The records of a run, of which each is a span or, of a group of descriptions, several that follow each other.

    Spans of IPUs that sleep are recorded by the group, of one time and cause: written out, they are many times as
    long as the log. A column of them is therefore written out by itself, when it is asked for.
    """

    def __init__(
        self,
        log: npt.NDArray[np.int64],
        described: npt.NDArray[np.int64],
        groups: Sequence[Column],
        steps: int,
        late: int | None = None,
    ) -> None:
        """Sort records by start and end, and those of the same cycles by their descriptions.

        So the order is a function of times: the order in which events of one cycle came does not show in it.

        Args:
            log: of shape (records, WIDTH), in the order in which they were recorded.
            described: descriptions of spans, with a column for each field of Description.
            groups: the rows of ``described`` that are recorded as one: group ``n`` by the number ``-n - 1``.
            steps: time-steps of an execution, the weight update's included.
            late: the first description that was stored while the run went on; None without any.
        """
        # Groups become their spans behind the sorting: each has one start, and there are far fewer records than spans.
        self._order = _order(log, _places(described, late), groups)
        columns: Sequence[Column] = np.ascontiguousarray(log[self._order].T)  # type: ignore[assignment]
        self._what, self._step, self._start, self._end, self._cause = columns
        self._descriptions, self._groups, self._steps = described, groups, steps
        sizes = np.array([1, *map(len, groups)], dtype=np.int64)
        self._counts = sizes[np.maximum(-self._what, 0)]
        self._rows = np.cumsum(self._counts)

    def __len__(self) -> int:
        """The number of spans."""
        return int(self._rows[-1]) if len(self._rows) else 0

    def write(self, name: str, column: Column) -> None:
        """Write a field of Span of all spans into a column."""
        if name in Description._fields:
            of = np.ascontiguousarray(self._descriptions[:, Description._fields.index(name)])
            rows = self._described
        else:
            of, rows = self._of_record(name), self._record
        # By "clip", as NumPy buffers what may raise: 20 times as slow.
        np.take(of, rows, out=column, mode="clip")

    def _of_record(self, name: str) -> Column:
        """Return a column with a row for each record."""
        if name in ("start", "end"):
            return self._start if name == "start" else self._end
        if name == "cause":
            row_of: Column = np.empty(len(self._order) + 1, dtype=np.int64)
            row_of[self._order] = self._rows - 1
            row_of[NONE] = NONE  # the last place, which a cause of NONE (-1) picks
            return row_of[np.where(self._cause == NONE, NONE, self._cause // WIDTH - 1)]
        number = self._step % self._steps if name == "time_step" else self._step // self._steps
        return np.where(self._step >= 0, number, NONE)

    @cached_property
    def _record(self) -> Column:
        """The record of each span."""
        return np.repeat(np.arange(len(self._order)), self._counts)

    @cached_property
    def _described(self) -> Column:
        """The description of each span."""
        if not self._groups:
            return self._what
        # A table of single descriptions with the groups behind it: the spans of a record follow each other in it.
        table: Column = np.concatenate([np.arange(len(self._descriptions)), *self._groups])
        sizes = np.array([len(group) for group in self._groups], dtype=np.int64)
        begins = len(self._descriptions) + np.cumsum(sizes) - sizes
        begin = np.where(self._what < 0, begins[np.maximum(-self._what, 1) - 1], self._what)
        index = (begin - self._rows + self._counts)[self._record]
        index += np.arange(len(index))
        expanded: Column = table[index]
        return expanded


def _places(described: npt.NDArray[np.int64], late: int | None) -> Column:
    """Return a number for each description, which does not depend on when late ones were stored."""
    places = np.arange(len(described))
    if late is not None:
        places[late + np.lexsort(described[late:].T[::-1])] = np.arange(late, len(described))
    return places


def _order(log: npt.NDArray[np.int64], places: Column, groups: Sequence[Column]) -> Column:
    """Return the order of records by start, end and the places of their descriptions, causes before their effects."""
    order: Column = np.lexsort((log[:, 3], log[:, 2]))  # quick: records come nearly sorted by their ends
    what, _, start, end, cause = log[order].T
    new = np.r_[True, (np.diff(start) != 0) | (np.diff(end) != 0)][: len(order)]
    if new.all():
        return order
    number = np.cumsum(new)
    first = np.array([0, *(group[0] for group in groups)], np.int64)
    place = places[np.where(what < 0, first[np.maximum(-what, 0)], what)]
    instant = start == end
    if not instant.any():
        return order[np.argsort(number * len(places) + place, kind="stable")]
    depth = np.zeros(len(order) + 1, np.int64)  # of records without time: how many of these have brought each about
    before = np.where(cause == NONE, len(order), cause // WIDTH - 1)
    for record, cause_of in zip(order[instant].tolist(), before[instant].tolist(), strict=True):
        depth[record] = depth[cause_of] + 1
    return order[np.lexsort((place, depth[order], number))]
