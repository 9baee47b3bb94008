"""Choose the window of a run that a picture shows, in cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ipusim.api import SpanKind, Timeline, analysis
from ipusim.base.errors import OptionError, OutputError

#: Margin on either side of a phase's window, as share of the phase.
_CONTEXT: Final = 0.04


@dataclass(frozen=True)
class Break:
    """Break of a picture's time axis, where repeated periods are left out.

    Attributes:
        start: cycle of the picture at the break's start.
        room: width in cycles of the picture.
        cycles: number of cycles of the run that are left out.
        copies: number of periods that are left out.
        micro_batches, executions: length of a period; one of them is 0.
    """

    start: int
    room: int
    cycles: int
    copies: int
    micro_batches: int
    executions: int

    @property
    def sign(self) -> str:
        """Label in the break: ``× 4,080``."""
        return f"× {self.copies:,}"

    @property
    def words(self) -> str:
        """Periods left out: ``4,080 more periods of 8 micro-batches``."""
        number, unit, ending = self.micro_batches, "micro-batch", "es"
        if self.executions:
            number, unit, ending = self.executions, "execution", "s"
        periods = f"{self.copies:,} more period{'s' * (self.copies > 1)}"
        return f"{periods} of {number:,} {unit}{ending * (number > 1)}"


@dataclass(frozen=True)
class Window:
    """Cycles from ``start`` to a later ``end``, with a name that is empty for the whole run.

    With ``breaks``, cycles are those of the picture: after a break they are smaller than the run's.
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
        """Intervals between breaks: start, end, and offset from the picture's cycles to the run's."""
        begin, ahead, intervals = self.start, 0, []
        for gap in self.breaks:
            intervals.append((begin, gap.start, ahead))
            begin, ahead = gap.start + gap.room, ahead + gap.cycles - gap.room
        return (*intervals, (begin, self.end, ahead))

    def shows(self, cycle: int) -> int:
        """Return the picture's cycle for ``cycle`` of the run; a cycle that is left out becomes the window's end."""
        for begin, end, ahead in self.stretches:
            if begin <= cycle - ahead < end:
                return cycle - ahead
        return self.end if cycle >= self.start else cycle


def run_end(timeline: Timeline) -> int:
    """Return the end cycle of the last execution; later host time does not count."""
    executions = analysis.executions_of(timeline)
    return executions[-1].end if executions else 0


def window(timeline: Timeline, start: int | None = None, end: int | None = None) -> Window:
    """Return the window from ``start`` to ``end``, by default the whole run.

    Raises OptionError for an empty window or one outside the run.
    """
    last = max(run_end(timeline), 1)
    low, high = start if start is not None else 0, end if end is not None else last
    if not 0 <= low < high or low >= last:
        raise OptionError("start", f"expected a window of cycles within the run (0 to {last}), got {low} to {high}")
    return Window(low, high, "" if (low, high) == (0, last) else f"cycles {low:,} to {high:,}")


def phase_window(timeline: Timeline, phase: str, execution: int = 0) -> Window:
    """Return the window of a phase of one execution, with a small margin.

    ``phase`` is a phase's name such as ``ramp-up``; ``weight-update`` also means ``weight update``. Raises OutputError
    for a phase that the execution lacks, and TimelineError for an unknown execution.
    """
    name = phase.lower().replace("-", " ")
    phases = analysis.execution_phases(timeline, execution)
    for candidate in phases:
        if candidate.name.replace("-", " ") == name:
            margin = max(1, round(candidate.cycles * _CONTEXT))
            start, end = max(candidate.start - margin, 0), min(candidate.end + margin, run_end(timeline))
            return Window(start, end, f"{candidate.name} of execution {execution}")
    names = ", ".join(candidate.name for candidate in phases)
    raise OutputError(
        f"expected a phase of execution {execution} under the schedule {timeline.info.schedule!r} "
        f"in {timeline.info.sync.words} ({names or 'none'}), got {phase!r}"
    )


def execution_window(timeline: Timeline, execution: int = 0) -> Window:
    """Return the window of one execution with its weight update. Raises TimelineError for an unknown execution."""
    found_execution = analysis.find_execution(timeline, execution)
    executions = timeline.info.executions
    name = f"execution {execution} of {executions}" if executions > 1 else ""
    return Window(found_execution.start, max(found_execution.end, found_execution.start + 1), name)


def loss_window(timeline: Timeline) -> Window | None:
    """Return the window around the first failure of an IPU; None if no IPU fails.

    The window begins with the execution before the lost work, and ends with the execution that completes the repeated
    work.
    """
    rows = timeline.rows(SpanKind.LOST_WORK, SpanKind.DETECTION, SpanKind.RESTART)
    if not len(rows):
        return None
    begin = int(timeline.start[rows].min())
    executions, redone = analysis.executions_of(timeline), analysis.redone_work(timeline)
    last_start = redone[0][1] if redone else begin + 1
    start = max((execution.start for execution in executions if execution.end <= begin), default=begin)
    end = min((execution.end for execution in executions if execution.end >= last_start), default=run_end(timeline))
    return Window(start, end, "the loss of an IPU")


class ShownPart(NamedTuple):
    """Part of a run that a picture shows, as users name it: cycles, a phase, or an execution."""

    start: int | None = None
    end: int | None = None
    phase: str | None = None
    execution: int | None = None


#: The first execution, or the time around the failure of an IPU.
USUAL_PART: Final = ShownPart()


def part_window(timeline: Timeline, part: ShownPart = USUAL_PART) -> Window:
    """Return the window of a phase, of given cycles, or of one execution.

    The default is the first execution, or in a run with a failed IPU the time around its failure.

    Raises:
        OptionError: for a window outside the run.
        OutputError: for a phase that the execution lacks, and for both cycles and a phase.
        TimelineError: for an unknown execution.
    """
    start, end, phase, execution = part
    if phase is not None and (start is not None or end is not None):
        raise OutputError("expected either a phase or cycles from start to end, got both")
    if phase is not None:
        return phase_window(timeline, phase, execution or 0)
    if start is not None or end is not None:
        return window(timeline, start, end)
    around_loss = loss_window(timeline) if execution is None else None
    return around_loss or execution_window(timeline, execution or 0)
