"""The recorder: append-only integer columns that the machine fills while it runs.

What a span is of (kind, IPU, stage, ...) is known before the run, so each such
description is stored once and a span is five integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ipusim.timeline.records import WIDTH, Records
from ipusim.timeline.span import Description
from ipusim.timeline.timeline import Timeline, TimelineInfo

__all__ = ["Description", "Recorder"]


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
        self._late: int | None = None
        self._groups: list[npt.NDArray[np.int64]] = []
        self._log: list[int] = []
        log, extend = self._log, self._log.extend

        def record(what: int, step: int, start: int, end: int, cause: int) -> int:
            extend((what, step, start, end, cause))
            return len(log)  # where the span ends in the log; timeline() turns it into a row number

        self.record = record

    def __len__(self) -> int:
        """The number of spans so far, of which a group's are one."""
        return len(self._log) // WIDTH

    def describe(self, *descriptions: Description) -> int:
        """Store descriptions and return the number by which ``record`` knows the first; the others follow."""
        return self.describe_rows(np.array(descriptions, np.int64).reshape(-1, len(Description._fields)))

    def describe_rows(self, rows: npt.NDArray[np.int64]) -> int:
        """Store an array of descriptions, shape (spans, 7) in the order of Description's fields."""
        first = self._described
        if self._log and self._late is None:
            self._late = first
        self._descriptions.append(rows)
        self._described += len(rows)
        return first

    def describe_columns(self, count: int, **fields: npt.NDArray[np.int64] | int) -> int:
        """Store so many descriptions, of which each field has a column or one value for all."""
        rows = np.empty((count, len(Description._fields)), np.int64)
        for column, value in zip(rows.T, Description(**fields), strict=True):  # type: ignore[arg-type]
            column[:] = value
        return self.describe_rows(rows)

    def group(self, descriptions: Sequence[int]) -> int:
        """Return a number by which ``record`` knows several described spans that begin and end together.

        They come in this order; what ``record`` returns then is the last of them.
        """
        self._groups.append(np.array(descriptions, dtype=np.int64))
        return -len(self._groups)

    def timeline(self, info: TimelineInfo) -> Timeline:
        """Return all that was recorded as a Timeline, sorted by start, causes renumbered; begin anew."""
        log = np.fromiter(self._log, dtype=np.int64, count=len(self._log)).reshape(-1, WIDTH)
        self._log.clear()  # it takes more memory than the Timeline
        empty = np.empty((0, len(Description._fields)), dtype=np.int64)
        described = np.concatenate([empty, *self._descriptions])
        return Timeline(info, Records(log, described, self._groups, self._steps, self._late))
