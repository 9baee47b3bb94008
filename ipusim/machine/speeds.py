"""Combine a system's disturbances into speed and delay of every resource over time, for the clock.

A window is a period of lower speed, or of delayed begins, of a resource (:class:`SlowPeriod`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.disturbances import FULL_SPEED, Pace, PieceOfWork, SlowPeriod, SpeedRule, Task, rules_of
from ipusim.machine.run_changes import Skip
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.kinds import SpanKind


class SpeedStretch(NamedTuple):
    """A period with constant windows on a resource.

    Attributes:
        speed: product of the windows' speeds.
        late: sum of the windows' delays, in cycles.
        until: begin of the next stretch; None for the last stretch.
    """

    speed: Fraction
    late: int
    until: int | None


class Course:
    """Speed and delay of a resource over time, from its windows.

    A look-up takes logarithmic time in the number of windows, as a run looks up every pass.
    """

    def __init__(self, windows: Iterable[SlowPeriod]) -> None:
        """Multiply the speeds of overlapping windows."""
        changes = defaultdict[int, list[tuple[Fraction, int, int]]](list)
        changes[0] = []
        for window in windows:
            changes[window.first].append((window.speed, window.late, 1))
            if window.until is not None:
                changes[window.until].append((window.speed, window.late, -1))
        self._begins = sorted(changes)
        self._stretches: list[SpeedStretch] = []
        moving, standstills, late = FULL_SPEED, 0, 0
        for begin, end in zip(self._begins, [*self._begins[1:], None], strict=True):
            for speed, delay, sign in changes[begin]:
                late += sign * delay
                if speed:
                    moving *= speed**sign
                else:
                    standstills += sign
            self._stretches.append(SpeedStretch(Fraction(0) if standstills else moving, late, end))

    @property
    def least_speed(self) -> Fraction:
        """Least speed apart from standstills."""
        return min((stretch.speed for stretch in self._stretches if stretch.speed), default=FULL_SPEED)

    @property
    def standing_cycles(self) -> int:
        """Number of cycles of standstill."""
        stretches = zip(self._begins, self._stretches, strict=True)
        return sum((end or begin) - begin for begin, (speed, _, end) in stretches if not speed)

    @property
    def most_late(self) -> int:
        """Largest delay, in cycles."""
        return max(stretch.late for stretch in self._stretches)

    def stretch_at(self, cycle: int) -> SpeedStretch:
        """Return the stretch around a cycle."""
        return self._stretches[bisect_right(self._begins, cycle) - 1]


class Speeds:
    """Speeds and delays of work under a system's combined disturbances.

    Attributes:
        courses: courses of the resources with windows.
    """

    def __init__(self, rules: Sequence[SpeedRule], skips: Sequence[Skip]) -> None:
        """Take the rules of the disturbances, and the skips, which omit cycles."""
        windows = defaultdict[Resource, list[SlowPeriod]](list)
        for rule_of in rules:
            for worker, worker_windows in rule_of.windows.items():
                windows[worker] += worker_windows
        self.courses = {worker: Course(worker_windows) for worker, worker_windows in windows.items()}
        self._rules, self._skips = [rule_of for rule_of in rules if not rule_of.windows], skips
        self._late = any(rule_of.delay is not None for rule_of in self._rules)
        self._touching = cache(self._find_touching)

    def touches(self, worker: Resource, task: Task | None = None) -> bool:
        """Whether any rule ever slows or delays a resource.

        Args:
            worker: the resource.
            task: kind of work; None for any work.
        """
        return worker in self.courses or bool(self._rules_of(worker, task))

    def _rules_of(self, worker: Resource, task: Task | None) -> list[SpeedRule]:
        """Return the rules without windows that slow or delay a resource."""
        is_pass = task is None or (task.__class__ is PieceOfWork and task.stage != NONE)
        return self._touching(worker, is_pass)

    def _find_touching(self, worker: Resource, is_pass: bool) -> list[SpeedRule]:
        return [rule_of for rule_of in self._rules if (is_pass or not rule_of.passes) and rule_of.touches(worker)]

    def pace(self, worker: Resource, task: Task, cycle: int) -> Pace:
        """Return the pace of a resource's work from a cycle on."""
        if not self.touches(worker, task):
            return FULL_SPEED, None
        more = self._more(cycle) if self._skips else 0
        speed, _, end = self._stretch(worker, cycle + more)
        work = task if isinstance(task, PieceOfWork) else PieceOfWork(task)
        for rule_of in self._rules_of(worker, task):
            part, as_long = rule_of.pace(worker, work, cycle + more)
            speed *= part
            end = as_long if end is None else end if as_long is None else min(end, as_long)
        return speed, None if end is None else end - more

    def _stretch(self, worker: Resource, cycle: int) -> SpeedStretch:
        course = self.courses.get(worker)
        return SpeedStretch(FULL_SPEED, 0, None) if course is None else course.stretch_at(cycle)

    def real_cycles_of(self, worker: Resource) -> Callable[[PieceOfWork, int], int] | None:
        """Return a function from a piece of work and its cycles at full speed to real cycles.

        None if the real cycles depend on the cycle in which the work begins.
        """
        factors = [rule_of.factor for rule_of in self._rules_of(worker, None)]
        if None in factors or worker in self.courses:
            return None

        def real_cycles(work: PieceOfWork, cycles: int) -> int:
            whole = 1
            for factor in factors:
                longer, parts = factor(worker, work)  # type: ignore[misc]
                cycles, whole = cycles * longer, whole * parts
            return -(-cycles // whole)

        return real_cycles

    def delay(self, worker: Resource, task: Task, cycle: int) -> int:
        """Return the delay before a resource begins a piece of work, in cycles."""
        rules = self._rules_of(worker, task) if self._late else []
        delays = [rule_of.delay for rule_of in rules if rule_of.delay is not None]
        if not delays and worker not in self.courses:
            return 0
        work, later = task if isinstance(task, PieceOfWork) else PieceOfWork(task), cycle + self._more(cycle)
        by_window = self._stretch(worker, later).late if work.kind == SpanKind.LINK else 0
        return by_window + sum(late(worker, work, later) for late in delays)

    def _more(self, cycle: int) -> int:
        """Return the number of cycles that skips omit before a cycle."""
        return sum(skip.cycles for skip in self._skips if skip.cycle <= cycle)


def speeds_of(system: System) -> Speeds | None:
    """Return the speeds under a system's combined disturbances; None if no disturbance has an effect."""
    rules = rules_of(system)
    return Speeds(rules, [skip for skip in system.disturbances if isinstance(skip, Skip)]) if rules else None
