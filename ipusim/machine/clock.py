"""Advance simulated time: the only module that starts SimPy processes or waits for a time.

Facilities (parts of the machine, such as links) ask the clock to wait, to start a process, or to spend cycles of work
on resources. The clock applies the system's disturbances to the work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import simpy
from simpy.events import NORMAL

from ipusim.hardware.resources import Resource
from ipusim.machine.disturbances import Pace, PieceOfWork, Task
from ipusim.machine.resources import Workers
from ipusim.machine.speeds import RealCycles, Speeds
from ipusim.timeline.kinds import SpanKind

Process = Generator[simpy.Event, Any, Any]
#: Part of a process; returns the number of the last span recorded.
Spans = Generator[simpy.Event, Any, int]


class Moment(simpy.Event):
    """Event of a later cycle, with this cycle as value: a Timeout without checks."""

    _ok = True
    _value: int

    @property
    def cycle(self) -> int:
        """Cycle of the event."""
        return self._value


class _Process(simpy.Process):
    """A SimPy process that never passes on a failed event: an exception ends the run at once."""

    def __init__(self, clock: Clock, generator: Process) -> None:
        super().__init__(clock, generator)
        self._send: Callable[[Any], Any] = generator.send
        self._resume_callback = self._resume

    def _resume(self, event: simpy.Event) -> None:
        try:
            while True:
                target = self._send(event._value)
                if target.callbacks is not None:
                    break
                event = target  # this event has happened already
        except StopIteration as stop:
            self._ok, self._value = True, stop.value
            self.env.schedule(self)
        else:
            target.callbacks.append(self._resume_callback)
            self._target = target


class Clock(simpy.Environment):
    """Simulated time, a whole number of cycles of the tile clock.

    Every part of the machine hands its work to the clock: the duration at full speed, the resources and the kind of
    work. The clock answers with the end of the work, under the disturbances of the system.

    Attributes:
        steady: whether work always runs at full speed.
        end: ``end(workers, task, start, cycles)`` returns the cycle in which work ends that begins in cycle ``start``
            and takes ``cycles`` at full speed.
        spend: ``spend(workers, task, cycles)`` returns the event of the end of work that begins now; its value is the
            cycle.
        elapse: like ``spend``, for cycles that already include the workers' slowing.
        event_at: ``event_at(cycle)`` returns the event of a future cycle, for example a result of ``end``; its value is
            the cycle.
        happen_at: ``happen_at(cycle, value, event)`` lets an event, by default a new event, happen with a value in a
            future cycle, and returns the event.
    """

    end: Callable[[Workers, Task, int, int], int]
    spend: Callable[[Workers, Task, int], Moment]
    elapse: Callable[[Workers, Task, int], Moment]
    event_at: Callable[[int], Moment]
    happen_at: Callable[..., simpy.Event]

    def __init__(self, speeds: Speeds | None = None) -> None:
        """Start at cycle 0; without ``speeds`` work always runs at full speed."""
        super().__init__()
        self.steady = speeds is None
        self.process = partial(_Process, self)  # type: ignore[method-assign]
        queue, event_ids, new_event, clock = self._queue, self._eid, Moment.__new__, self

        # These closures run for every pass of every simulated IPU. At full speed they skip the look-up of resources.
        def event_at(cycle: int) -> Moment:
            event = new_event(Moment)
            event.env, event.callbacks, event._value = clock, [], cycle
            heappush(queue, (cycle, NORMAL, next(event_ids), event))
            return event

        def elapse(workers: Workers, task: Task, cycles: int) -> Moment:  # noqa: ARG001
            event = new_event(Moment)
            event.env, event.callbacks, event._value = clock, [], clock._now + cycles  # type: ignore[assignment]
            heappush(queue, (event._value, NORMAL, next(event_ids), event))
            return event

        def happen_at(cycle: int, value: object, event: simpy.Event | None = None) -> simpy.Event:
            if event is None:
                event = new_event(simpy.Event)
                event.env, event.callbacks = clock, []
            event._ok, event._value = True, value
            heappush(queue, (cycle, NORMAL, next(event_ids), event))
            return event

        self.event_at, self.elapse, self.happen_at = event_at, elapse, happen_at
        if speeds is None:
            self.end, self.spend = lambda workers, task, start, cycles: start + cycles, elapse  # noqa: ARG005
            return
        self._speeds = speeds
        end_of, known_steady = self._end_of, dict[tuple[Workers, SpanKind], bool]()

        def end(workers: Workers, task: Task, start: int, cycles: int) -> int:
            if not isinstance(task, PieceOfWork):
                is_steady = known_steady.get((workers, task))
                if is_steady is None:
                    is_steady = known_steady[workers, task] = not any(
                        speeds.touches(worker, task) for worker in workers
                    )
                if is_steady:
                    return start + cycles
            if len(workers) == 1:
                return end_of(workers[0], task, start, cycles)
            return max([end_of(worker, task, start, cycles) for worker in workers] or [start + cycles])

        self.end = end
        self.spend = lambda workers, task, cycles: event_at(self.end(workers, task, self.now, cycles))

    #: The current cycle. The getter is written in C, because a getter in Python would cost a function call.
    now: int = property(attrgetter("_now"))  # type: ignore[assignment]

    def call_at(self, cycle: int, callback: Callable[[simpy.Event], None]) -> simpy.Event:
        """Call ``callback`` with the event of a later cycle; return the event."""
        event = self.event_at(cycle)
        event.callbacks.append(callback)
        return event

    def happen(self, event: simpy.Event, value: object) -> None:
        """Succeed an event with a value after every other event of this cycle.

        If no other event is due, a direct call gives the same order and avoids the event queue, which takes as long as
        three calls.
        """
        if self._queue and self._queue[0][0] <= self._now:
            event.succeed(value)
            return
        event._ok, event._value = True, value
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)

    def is_steady(self, workers: Iterable[Resource], task: Task | None = None) -> bool:
        """Whether work of all ``workers`` (by default any work) runs at full speed throughout the run."""
        return self.steady or not any(self._speeds.touches(worker, task) for worker in workers)

    def least_pass(self, ipu: Resource) -> Fraction:
        """Return the least duration of an IPU's passes, relative to their duration at full speed."""
        return Fraction(1) if self.steady else self._speeds.least_pass(ipu)

    def real_cycles_of(self, workers: Workers) -> RealCycles | None:
        """Return a function to the real cycles of an IPU's passes; None if the start cycle matters."""
        (worker,) = workers
        return self._speeds.real_cycles_of(worker)

    def speed(self, worker: Resource, task: Task) -> Pace:
        """Return the speed of work now, and the cycle of its next change; the cycle is None if the speed stays."""
        return (Fraction(1), None) if self.steady else self._speeds.pace(worker, task, self.now)

    def delay(self, workers: Iterable[Resource], task: Task, start: int) -> int:
        """Return the workers' total delay, for work that begins in cycle ``start``."""
        return 0 if self.steady else sum(self._speeds.delay(worker, task, start) for worker in workers)

    def cycles_until(self, process: simpy.Process) -> int | None:
        """Return the cycles until a process resumes; None if the moment is unknown."""
        return process.target.cycle - self.now if isinstance(process.target, Moment) else None

    def work_cycles(self, worker: Resource, task: Task, start: int, end: int) -> int | Fraction:
        """Return a resource's cycles of work at full speed between two cycles."""
        if self.steady:
            return end - start
        total = Fraction(0)
        while start < end:
            speed, next_change = self._speeds.pace(worker, task, start)
            stop = end if next_change is None else min(next_change, end)
            total += speed * (stop - start)
            start = stop
        return total

    def _end_of(self, worker: Resource, task: Task, start: int, cycles: int) -> int:
        """Return the whole cycle in which a resource finishes the work."""
        if not self._speeds.touches(worker, task):
            return start + cycles
        start += self._speeds.delay(worker, task, start)
        rest_cycles: int | Fraction = cycles
        while rest_cycles:
            speed, next_change = self._speeds.pace(worker, task, start)
            if next_change is None or rest_cycles <= speed * (next_change - start):
                # This divides whole numbers, because quotients of fractions took a third of a run with jitter.
                return start - (
                    -rest_cycles.numerator * speed.denominator // (rest_cycles.denominator * speed.numerator)
                )
            rest_cycles -= speed * (next_change - start)
            start = next_change
        return start

    def run_all(self, processes: list[simpy.Process]) -> bool:
        """Run until the ``processes`` have ended; return False if no event is left.

        Raises the exception of any process.
        """
        all_processes: Any = simpy.AllOf(self, processes)
        queue = self._queue
        # The loop merges SimPy's run and step, because a call per event took a thirtieth of a run of many IPUs.
        while all_processes.callbacks is not None:
            if not queue:
                return False
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
        return True
