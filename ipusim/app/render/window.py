"""The window of a run that a picture shows, in cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.api import SpanKind, Timeline, analysis
from ipusim.base.errors import OutputError

#: Part of a phase's length that its window shows on either side of it.
_CONTEXT: Final = 0.04


@dataclass(frozen=True)
class Break:
    """A break of a picture's time axis, where repeated periods are left out.

    Attributes:
        at: cycle of the picture in which it begins.
        room: its width in cycles of the picture.
        cycles: cycles of the run that are left out.
        copies: periods that are left out.
        micro_batches, executions: length of a period; one of them is 0.
    """

    at: int
    room: int
    cycles: int
    copies: int
    micro_batches: int
    executions: int

    @property
    def sign(self) -> str:
        """The label in the break: ``× 4,080``."""
        return f"× {self.copies:,}"

    @property
    def words(self) -> str:
        """The periods that are left out: ``4,080 more periods of 8 micro-batches``."""
        number, what, ending = self.micro_batches, "micro-batch", "es"
        if self.executions:
            number, what, ending = self.executions, "execution", "s"
        periods = f"{self.copies:,} more period{'s' * (self.copies > 1)}"
        return f"{periods} of {number:,} {what}{ending * (number > 1)}"


@dataclass(frozen=True)
class Window:
    """The cycles from ``start`` to a later ``end``; ``name`` is empty for the whole run.

    With ``breaks`` they are cycles of the picture, in which everything after a break is earlier than in the run.
    """

    start: int
    end: int
    name: str = ""
    breaks: tuple[Break, ...] = ()

    @property
    def cycles(self) -> int:
        """Length of the window."""
        return self.end - self.start

    @property
    def stretches(self) -> tuple[tuple[int, int, int], ...]:
        """The intervals between breaks: start, end, and the difference of the run's cycles to the picture's."""
        begin, ahead, intervals = self.start, 0, []
        for gap in self.breaks:
            intervals.append((begin, gap.at, ahead))
            begin, ahead = gap.at + gap.room, ahead + gap.cycles - gap.room
        return (*intervals, (begin, self.end, ahead))

    def shows(self, cycle: int) -> int:
        """Return the cycle of the picture that shows ``cycle`` of the run; the window's end for one left out."""
        for begin, end, ahead in self.stretches:
            if begin <= cycle - ahead < end:
                return cycle - ahead
        return self.end if cycle >= self.start else cycle


def run_end(timeline: Timeline) -> int:
    """Return the cycle in which the last IPU ends; host time after that does not count."""
    executions = analysis.executions_of(timeline)
    return executions[-1].end if executions else 0


def window(timeline: Timeline, start: int | None = None, end: int | None = None) -> Window:
    """Return the window from ``start`` to ``end``, by default the whole run.

    Raises OutputError for a window that is empty or lies outside the run.
    """
    last = max(run_end(timeline), 1)
    low, high = start if start is not None else 0, end if end is not None else last
    if not 0 <= low < high or low >= last:
        raise OutputError(f"expected a window of cycles within the run (0 to {last}), got {low} to {high}")
    return Window(low, high, "" if (low, high) == (0, last) else f"cycles {low:,} to {high:,}")


def phase_window(timeline: Timeline, phase: str, execution: int = 0) -> Window:
    """Return the window of a phase of one execution, with a little of its neighbours on either side.

    ``phase`` is a phase's name such as ``ramp-up``; ``weight-update`` is taken for
    ``weight update``. Raises OutputError for a phase that the execution has not,
    TimelineError for an execution that the Timeline has not.
    """
    requested = phase.lower().replace("-", " ")
    phases = analysis.execution_phases(timeline, execution)
    for candidate in phases:
        if candidate.name.replace("-", " ") == requested:
            margin = max(1, round(candidate.cycles * _CONTEXT))
            start, end = max(candidate.start - margin, 0), min(candidate.end + margin, run_end(timeline))
            return Window(start, end, f"{candidate.name} of execution {execution}")
    known = ", ".join(candidate.name for candidate in phases)
    raise OutputError(
        f"expected a phase of execution {execution} under the schedule {timeline.info.schedule!r} "
        f"in {timeline.info.sync.words} ({known or 'none'}), got {phase!r}"
    )


def execution_window(timeline: Timeline, execution: int = 0) -> Window:
    """Return the window of one execution, its weight update included; raises TimelineError if it is not there."""
    chosen = analysis.find_execution(timeline, execution)
    executions = timeline.info.executions
    name = f"execution {execution} of {executions}" if executions > 1 else ""
    return Window(chosen.start, max(chosen.end, chosen.start + 1), name)


def loss_window(timeline: Timeline) -> Window | None:
    """Return the window of the first loss of an IPU; None without a loss.

    It begins with the execution before the lost work, and ends with the execution that completes it again.
    """
    rows = timeline.rows(SpanKind.LOST_WORK, SpanKind.DETECTION, SpanKind.RESTART)
    if not len(rows):
        return None
    begin = int(timeline.start[rows].min())
    executions, redone = analysis.executions_of(timeline), analysis.redone_work(timeline)
    until = redone[0][1] if redone else begin + 1
    start = max((execution.start for execution in executions if execution.end <= begin), default=begin)
    end = min((execution.end for execution in executions if execution.end >= until), default=run_end(timeline))
    return Window(start, end, "the loss of an IPU")


def part_window(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    phase: str | None = None,
    execution: int | None = None,
) -> Window:
    """Return the window of a phase, of the given cycles, or of one execution with its weight update.

    By default it is that of the first execution, or of a run that loses an IPU the one around the first loss.

    Raises OutputError for a window outside the run, for a phase that the execution has not, and for both cycles
    and a phase; TimelineError for an execution that the run has not.
    """
    if phase is not None and (start is not None or end is not None):
        raise OutputError("expected either a phase or cycles from start to end, got both")
    if phase is not None:
        return phase_window(timeline, phase, execution or 0)
    if start is not None or end is not None:
        return window(timeline, start, end)
    shown = loss_window(timeline) if execution is None else None
    return shown or execution_window(timeline, execution or 0)
