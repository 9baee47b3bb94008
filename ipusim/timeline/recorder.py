"""Record the spans of a run in append-only integer columns, filled by the machine.

Kind, IPU, stage and other properties of a span are known before the run. Such a description is stored once, and a
span takes five integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.timeline.records import WIDTH, Records
from ipusim.timeline.span import NONE, Description
from ipusim.timeline.timeline import Timeline, TimelineInfo

__all__ = ["Description", "Recorder"]


class _Accompanied(NamedTuple):
    """Descriptions of spans, and their companions (:meth:`Recorder.accompany`)."""

    descriptions: npt.NDArray[np.int64]
    delay: int
    companions: Sequence[Description]


class Recorder:
    """Collects spans, nearly in order of their ends.

    Attributes:
        record: ``record(description, step, start, end, cause)`` appends a span and returns its number, used as the
            cause of later spans. A step is the running number of a time-step across executions,
            ``execution * steps_per_execution + time_step``. The function is a closure over a flat list: 0.4 us a span
            (measured), against 0.7 us in a method that appends to five arrays. The spans of a :meth:`group`, which
            share time and cause, take a single record.
    """

    record: Callable[[int, int, int, int, int], int]

    def __init__(self, steps_per_execution: int) -> None:
        """Start empty, with the given time-steps per execution, including the weight update's."""
        self._steps = steps_per_execution
        self._descriptions: list[npt.NDArray[np.int64]] = []
        self._description_count = 0
        self._first_late_description: int | None = None
        self._groups: list[npt.NDArray[np.int64]] = []
        self._accompanied: list[_Accompanied] = []
        self._log: list[int] = []
        log, extend = self._log, self._log.extend

        def record(description: int, step: int, start: int, end: int, cause: int) -> int:
            extend((description, step, start, end, cause))
            return len(log)  # end of the span in the log, which timeline() converts to a row number

        self.record = record

    def __len__(self) -> int:
        """Number of records so far; a group counts once."""
        return len(self._log) // WIDTH

    def describe(self, *descriptions: Description) -> int:
        """Store descriptions; return the number of the first. The others have the numbers after it."""
        return self.describe_rows(np.array(descriptions, np.int64).reshape(-1, len(Description._fields)))

    def describe_rows(self, rows: npt.NDArray[np.int64]) -> int:
        """Store an array of descriptions, shape (spans, 7), columns like Description's fields."""
        first = self._description_count
        if self._log and self._first_late_description is None:
            self._first_late_description = first
        self._descriptions.append(rows)
        self._description_count += len(rows)
        return first

    def describe_columns(self, count: int, **fields: npt.NDArray[np.int64] | int) -> int:
        """Store ``count`` descriptions; every field is a column or a common value."""
        rows = np.empty((count, len(Description._fields)), np.int64)
        for column, value in zip(rows.T, Description(**fields), strict=True):  # type: ignore[arg-type]
            column[:] = value
        return self.describe_rows(rows)

    def group(self, descriptions: Sequence[int]) -> int:
        """Return a number for several described spans that begin and end together.

        The spans keep this order; ``record`` returns the number of the last span.
        """
        self._groups.append(np.array(descriptions, dtype=np.int64))
        return -len(self._groups)

    def accompany(self, descriptions: npt.NDArray[np.int64], delay: int, companions: Sequence[Description]) -> None:
        """Let every span with one of the given descriptions have companions: spans that are no cause of another span.

        A companion begins ``delay`` cycles after its span, ends with it, and has the same step and cause.
        """
        self._accompanied.append(_Accompanied(descriptions, delay, companions))

    def _companions(self, log: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the records of the companions of recorded spans."""
        accompanied = self._accompanied
        entry_of = np.full(self._description_count + 1, NONE)  # the last entry, at index -1, is for groups
        for number, entry in enumerate(accompanied):
            entry_of[entry.descriptions] = number
        entries = entry_of[np.maximum(log[:, 0], NONE)]
        delays = np.array([entry.delay for entry in accompanied])
        result = [log[:0]]
        for place in range(max((len(entry.companions) for entry in accompanied), default=0)):
            numbers = [
                self.describe(entry.companions[place]) if place < len(entry.companions) else NONE
                for entry in accompanied
            ]
            companion = np.where(entries == NONE, NONE, np.array(numbers)[entries])
            records = log[companion != NONE]
            records[:, 0] = companion[companion != NONE]
            records[:, 2] += delays[entries[companion != NONE]]
            result.append(records)
        return np.concatenate(result)

    def timeline(self, info: TimelineInfo) -> Timeline:
        """Return the recorded spans as a Timeline, and clear the log.

        Spans are sorted by start, and causes renumbered.
        """
        log = np.fromiter(self._log, dtype=np.int64, count=len(self._log)).reshape(-1, WIDTH)
        companions = self._companions(log) if self._accompanied else log[:0]
        self._log.clear()  # the log takes more memory than the Timeline
        log = np.concatenate([log, companions]) if len(companions) else log
        empty = np.empty((0, len(Description._fields)), dtype=np.int64)
        descriptions = np.concatenate([empty, *self._descriptions])
        return Timeline(info, Records(log, descriptions, self._groups, self._steps, self._first_late_description))
