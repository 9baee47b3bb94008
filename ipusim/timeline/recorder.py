"""The recorder: append-only integer columns that the machine fills while it runs.

What a span is of (kind, IPU, stage, ...) is known before the run, so each such
description is stored once and a span is five integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import NONE, Span, Timeline, TimelineInfo

#: Integers of one span in the log: description, step, start, end, cause.
_WIDTH: Final = 5


class Description(NamedTuple):
    """What spans have in common that differ in time only; the fields are those of Span."""

    kind: SpanKind
    ipu: int = NONE
    stage: int = NONE
    micro_batch: int = NONE
    link: int = NONE
    bytes: int = 0
    replica: int = 0


class Recorder:
    """Collects spans in the order in which they end.

    Attributes:
        record: ``record(description, step, start, end, cause)`` appends one span
            and returns its number, which later spans name as their cause. A step
            is the running number of a time-step over all executions,
            ``execution * steps_per_execution + time_step``. It is a closure over
            one flat list: measured, 0.4 us a span, where a method that appends
            to five arrays takes 0.7 us. Several spans of one time and cause, those of a
            :meth:`group`, are recorded as one.
    """

    record: Callable[[int, int, int, int, int], int]

    def __init__(self, steps_per_execution: int) -> None:
        """Start empty, for executions of that many time-steps each, the weight update's included."""
        self._steps = steps_per_execution
        self._descriptions: list[npt.NDArray[np.int64]] = []
        self._described = 0
        self._groups: list[npt.NDArray[np.int64]] = []
        self._log: list[int] = []
        log, extend = self._log, self._log.extend

        def record(what: int, step: int, start: int, end: int, cause: int) -> int:
            extend((what, step, start, end, cause))
            return len(log)  # where the span ends in the log; timeline() turns it into a row number

        self.record = record

    def __len__(self) -> int:
        """The number of spans so far, of which a group's are one."""
        return len(self._log) // _WIDTH

    def describe(self, *descriptions: Description) -> int:
        """Store descriptions and return the number by which ``record`` knows the first; the others follow."""
        return self.describe_rows(np.array(descriptions, dtype=np.int64))

    def describe_rows(self, rows: npt.NDArray[np.int64]) -> int:
        """Store an array of descriptions, shape (spans, 7) in the order of Description's fields."""
        first = self._described
        self._descriptions.append(rows)
        self._described += len(rows)
        return first

    def group(self, descriptions: Sequence[int]) -> int:
        """Return a number by which ``record`` knows several described spans that begin and end together.

        They come in this order; what ``record`` returns then is the last of them.
        """
        self._groups.append(np.array(descriptions, dtype=np.int64))
        return -len(self._groups)

    def timeline(self, info: TimelineInfo) -> Timeline:
        """Return all that was recorded as a Timeline, sorted by start, causes renumbered; begin anew."""
        log = np.fromiter(self._log, dtype=np.int64, count=len(self._log)).reshape(-1, _WIDTH)
        self._log.clear()  # it takes more memory than the Timeline
        # Groups become their spans behind the sorting: each has one start, and there are far fewer records than spans.
        order = np.argsort(log[:, 2], kind="stable")
        what, step, start, end, cause = np.ascontiguousarray(log[order].T)
        counts = self._sizes(what)
        rows = np.cumsum(counts)
        record = np.repeat(np.arange(len(order)), counts)
        described = self._described_by(what, record, rows - counts)
        row_of = np.empty(len(order) + 1, dtype=np.int64)
        row_of[order] = rows - 1
        row_of[NONE] = NONE  # the last place, which a cause of NONE (-1) picks
        columns: dict[str, npt.NDArray[np.int64]] = {
            "start": start,
            "end": end,
            "time_step": np.where(step >= 0, step % self._steps, NONE),
            "execution": np.where(step >= 0, step // self._steps, NONE),
            "cause": row_of[np.where(cause == NONE, NONE, cause // _WIDTH - 1)],
        }
        table = np.empty((len(described), len(Span._fields)), dtype=np.int64, order="F")
        descriptions = np.concatenate(self._descriptions) if self._descriptions else np.empty((0, 7), np.int64)
        for index, name in enumerate(Span._fields):  # by "clip", as NumPy buffers what may raise: 20 times as slow
            if name in columns:
                np.take(columns[name], record, out=table[:, index], mode="clip")
            else:
                column = np.ascontiguousarray(descriptions[:, Description._fields.index(name)])
                np.take(column, described, out=table[:, index], mode="clip")
        return Timeline(info, table)

    def _sizes(self, what: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of spans of each of the records ``what``."""
        sizes = np.array([1, *map(len, self._groups)], dtype=np.int64)
        return sizes[np.maximum(-what, 0)]

    def _described_by(
        self, what: npt.NDArray[np.int64], record: npt.NDArray[np.int64], first: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the description of each span: its record is ``record``, of which ``what`` and ``first`` tell."""
        if not self._groups:
            return what
        # A table of single descriptions with the groups behind it: the spans of a record follow each other in it.
        table = np.concatenate([np.arange(self._described), *self._groups])
        sizes = np.array([len(group) for group in self._groups], dtype=np.int64)
        begins = self._described + np.cumsum(sizes) - sizes
        begin = np.where(what < 0, begins[np.maximum(-what, 1) - 1], what)
        place = np.take(begin - first, record)
        place += np.arange(len(record))
        return np.take(table, place)
