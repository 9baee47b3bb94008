"""Combine a system's disturbances into speed and delay of every resource over time, for the clock.

A window (:class:`SlowPeriod`) is a period of slower, or delayed, work on a resource.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import prod
from typing import NamedTuple

from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.disturbances import FULL_SPEED, Pace, PassKey, PieceOfWork, SlowPeriod, SpeedRule, Task, rules_of
from ipusim.machine.run_changes import Skip
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.kinds import SpanKind

#: Function from an execution, its passes, and their cycles at full speed, to real cycles.
RealCycles = Callable[[int, Sequence[PassKey], Sequence[int]], list[int]]


class SpeedStretch(NamedTuple):
    """A period with constant windows on a resource.

    Attributes:
        speed: product of the windows' speeds.
        late: sum of the windows' delays, in cycles.
        until: first cycle of the next stretch; None for the last stretch.
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
        speed_product, standstills, late = FULL_SPEED, 0, 0
        for begin, end in zip(self._begins, [*self._begins[1:], None], strict=True):
            for speed, delay, sign in changes[begin]:
                late += sign * delay
                if speed:
                    speed_product *= speed**sign
                else:
                    standstills += sign
            self._stretches.append(SpeedStretch(Fraction(0) if standstills else speed_product, late, end))

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
        for speed_rule in rules:
            for worker, worker_windows in speed_rule.windows.items():
                windows[worker] += worker_windows
        self.courses = {worker: Course(worker_windows) for worker, worker_windows in windows.items()}
        self._rules, self._skips = [speed_rule for speed_rule in rules if not speed_rule.windows], skips
        self._has_delays = any(speed_rule.delay is not None for speed_rule in self._rules)
        self._cached_rules_of = cache(self._find_rules_of)

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
        return self._cached_rules_of(worker, is_pass)

    def _find_rules_of(self, worker: Resource, is_pass: bool) -> list[SpeedRule]:
        return [
            speed_rule
            for speed_rule in self._rules
            if (is_pass or not speed_rule.passes) and speed_rule.touches(worker)
        ]

    def pace(self, worker: Resource, task: Task, cycle: int) -> Pace:
        """Return the pace of a resource's work from a cycle on."""
        if not self.touches(worker, task):
            return FULL_SPEED, None
        skipped_cycles = self._skipped_before(cycle) if self._skips else 0
        speed, _, end = self._stretch(worker, cycle + skipped_cycles)
        work = task if isinstance(task, PieceOfWork) else PieceOfWork(task)
        for speed_rule in self._rules_of(worker, task):
            rule_speed, next_change = speed_rule.pace(worker, work, cycle + skipped_cycles)
            speed *= rule_speed
            end = next_change if end is None else end if next_change is None else min(end, next_change)
        return speed, None if end is None else end - skipped_cycles

    def _stretch(self, worker: Resource, cycle: int) -> SpeedStretch:
        course = self.courses.get(worker)
        return SpeedStretch(FULL_SPEED, 0, None) if course is None else course.stretch_at(cycle)

    def real_cycles_of(self, worker: Resource) -> RealCycles | None:
        """Return a function from an execution, its passes, and their cycles at full speed, to real cycles.

        None if the real cycles depend on the cycle in which a pass begins.
        """
        rules = [speed_rule.factors for speed_rule in self._rules_of(worker, None)]
        if None in rules or worker in self.courses:
            return None

        def real_cycles(execution: int, passes: Sequence[PassKey], cycles: Sequence[int]) -> list[int]:
            by_rule = [factors(worker, execution, passes) for factors in rules]  # type: ignore[misc]
            products, *others = by_rule or [[(1, 1)] * len(passes)]
            for other in others:
                products = [(a * b, c * d) for (a, c), (b, d) in zip(products, other, strict=True)]
            rows = zip(cycles, products, strict=True)
            return [-(-number * numerator // denominator) for number, (numerator, denominator) in rows]

        return real_cycles

    def least_pass(self, ipu: Resource) -> Fraction:
        """Return the least duration of an IPU's passes, relative to their duration at full speed."""
        return prod((speed_rule.least for speed_rule in self._rules_of(ipu, None)), start=FULL_SPEED)

    def delay(self, worker: Resource, task: Task, cycle: int) -> int:
        """Return the delay before a resource begins a piece of work, in cycles."""
        rules = self._rules_of(worker, task) if self._has_delays else []
        delays = [speed_rule.delay for speed_rule in rules if speed_rule.delay is not None]
        if not delays and worker not in self.courses:
            return 0
        work = task if isinstance(task, PieceOfWork) else PieceOfWork(task)
        original_cycle = cycle + self._skipped_before(cycle)
        by_window = self._stretch(worker, original_cycle).late if work.kind == SpanKind.LINK else 0
        return by_window + sum(delay(worker, work, original_cycle) for delay in delays)

    def _skipped_before(self, cycle: int) -> int:
        """Return the number of cycles that skips omit before a cycle."""
        return sum(skip.cycles for skip in self._skips if skip.cycle <= cycle)


def speeds_of(system: System) -> Speeds | None:
    """Return the speeds under a system's combined disturbances; None if no disturbance has an effect."""
    rules = rules_of(system)
    return Speeds(rules, [skip for skip in system.disturbances if isinstance(skip, Skip)]) if rules else None
