"""The machine's time: the one place where it passes, and where processes are begun."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from fractions import Fraction
from heapq import heappush
from typing import Any, Final

import simpy
from simpy.events import NORMAL

from ipusim.machine.resources import Resource, Workers
from ipusim.timeline.kinds import SpanKind

Process = Generator[simpy.Event, Any, Any]
#: A part of one, which returns the last span that it has recorded.
Spans = Generator[simpy.Event, Any, int]
#: Returns the speed of a resource at a kind of work in a cycle (1 is full speed, 0 stands still), and the cycle until
#: which it stays so; None where it stays for ever, which must be above 0.
Speed = Callable[[Resource, SpanKind, int], tuple[Fraction, int | None]]
_FULL: Final = Fraction(1)


class Moment(simpy.Event):
    """The event of a cycle to come, which is its value."""

    def __init__(self, clock: Clock, cycle: int) -> None:
        """Let it happen in ``cycle``; what SimPy's Timeout does, less what that checks."""
        self.env = clock
        self.callbacks = []
        self._value = cycle
        self._ok = True
        heappush(clock._queue, (cycle, NORMAL, next(clock._eid), self))

    @property
    def cycle(self) -> int:
        """When it happens."""
        return self._value  # type: ignore[no-any-return]


class Clock(simpy.Environment):
    """Simulated time, a whole number of cycles of the tile clock.

    Every duration of the machine goes through it, with those who work and what they do. Its answer is when that ends,
    which is what the Timeline says.

    Attributes:
        steady: whether everything takes as long as it costs.
        end: ``end(workers, what, start, cycles)`` returns the cycle in which work ends that begins in cycle ``start``
            and takes so many cycles at full speed.
        spend: ``spend(workers, what, cycles)`` returns the event of the end of work that begins now; its value is
            that cycle.
    """

    end: Callable[[Workers, SpanKind, int, int], int]
    spend: Callable[[Workers, SpanKind, int], Moment]

    def __init__(self, speed: Speed | None = None) -> None:
        """Begin at 0; ``speed`` tells how fast work goes on, by default at full speed."""
        super().__init__()
        self.steady = speed is None
        if speed is None:
            # Closures that know of nobody: this is called for every pass of every simulated IPU.
            self.end = lambda workers, what, start, cycles: start + cycles  # noqa: ARG005
            self.spend = lambda workers, what, cycles: Moment(self, self._now + cycles)  # type: ignore[arg-type]  # noqa: ARG005
            return
        self._speed = speed
        self.end = lambda workers, what, start, cycles: max(
            (self._end_of(each, what, start, cycles) for each in workers), default=start + cycles
        )
        self.spend = lambda workers, what, cycles: Moment(self, self.end(workers, what, self.now, cycles))

    @property
    def now(self) -> int:
        """The cycle that it is."""
        return self._now  # type: ignore[return-value]  # every duration is a whole number of cycles

    def at(self, cycle: int) -> Moment:
        """Return the event of a cycle to come, an ``end`` that was answered before; its value is that cycle."""
        return Moment(self, cycle)

    def call_at(self, cycle: int, then: Callable[[simpy.Event], None]) -> simpy.Event:
        """Call ``then`` with the event of a cycle to come, which is returned."""
        event = Moment(self, cycle)
        event.callbacks.append(then)
        return event

    def speed(self, worker: Resource, what: SpanKind) -> tuple[Fraction, int | None]:
        """Return the speed of work at this moment, and until when it stays so; None for ever."""
        return (_FULL, None) if self.steady else self._speed(worker, what, self.now)

    def until(self, process: simpy.Process) -> int | None:
        """Return the cycles until a process goes on; None where it waits for something other than a moment."""
        return process.target.cycle - self.now if isinstance(process.target, Moment) else None

    def worked(self, worker: Resource, what: SpanKind, start: int, end: int) -> int | Fraction:
        """Return the cycles of work at full speed that a resource does from one cycle to another."""
        if self.steady:
            return end - start
        done = Fraction(0)
        while start < end:
            speed, until = self._speed(worker, what, start)
            stop = end if until is None else min(until, end)
            done += speed * (stop - start)
            start = stop
        return done

    def _end_of(self, worker: Resource, what: SpanKind, start: int, cycles: int) -> int:
        """Return the whole cycle in which a resource has done its part of work."""
        left = Fraction(cycles)
        while left:
            speed, until = self._speed(worker, what, start)
            if until is None or left <= speed * (until - start):
                return start + math.ceil(left / speed)
            left -= speed * (until - start)
            start = until
        return start

    def run_all(self, processes: list[simpy.Process]) -> bool:
        """Let time pass until all ``processes`` have ended; False where nothing is left to happen before they have.

        Raises what a process raises.
        """
        everyone = simpy.AllOf(self, processes)
        try:
            self.run(until=everyone)
        except RuntimeError:  # SimPy's, when no event is left before the one to run until; or one of a user's function
            if everyone.triggered or self.peek() != float("inf"):
                raise
            return False
        return True
