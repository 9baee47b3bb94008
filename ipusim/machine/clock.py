"""The machine's time: the one place where it passes, and where processes are begun."""

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
from ipusim.machine.disturbances import Pace, What, Work
from ipusim.machine.resources import Workers
from ipusim.machine.speeds import Speeds
from ipusim.timeline.kinds import SpanKind

Process = Generator[simpy.Event, Any, Any]
#: A part of one, which returns the last span that it has recorded.
Spans = Generator[simpy.Event, Any, int]


class Moment(simpy.Event):
    """The event of a later cycle, whose value is that cycle: SimPy's Timeout without its checks."""

    _ok = True
    _value: int

    @property
    def cycle(self) -> int:
        """When it happens."""
        return self._value


class _Process(simpy.Process):
    """SimPy's process without the handling of failed events: what a process raises ends the run at once."""

    def __init__(self, clock: Clock, generator: Process) -> None:
        super().__init__(clock, generator)
        self._send: Callable[[Any], Any] = generator.send
        self._go_on = self._resume

    def _resume(self, event: simpy.Event) -> None:
        try:
            while True:
                target = self._send(event._value)
                if target.callbacks is not None:
                    break
                event = target  # which has happened already
        except StopIteration as ended:
            self._ok, self._value = True, ended.value
            self.env.schedule(self)
        else:
            target.callbacks.append(self._go_on)
            self._target = target


class Clock(simpy.Environment):
    """Simulated time, a whole number of cycles of the tile clock.

    Every duration of the machine goes through it, with the resources and their work. Its answer is when that ends,
    which is what the Timeline says.

    Attributes:
        steady: whether everything takes as long as it costs.
        end: ``end(workers, what, start, cycles)`` returns the cycle in which work ends that begins in cycle ``start``
            and takes so many cycles at full speed.
        spend: ``spend(workers, what, cycles)`` returns the event of the end of work that begins now; its value is
            that cycle.
        elapse: ``spend`` of cycles in which everything that slows the workers is counted already.
        at: ``at(cycle)`` returns the event of a cycle to come, an ``end`` that was answered before; its value is that
            cycle.
    """

    end: Callable[[Workers, What, int, int], int]
    spend: Callable[[Workers, What, int], Moment]
    elapse: Callable[[Workers, What, int], Moment]
    at: Callable[[int], Moment]

    def __init__(self, speeds: Speeds | None = None) -> None:
        """Start at cycle 0; ``speeds`` says how fast work proceeds and how late it begins, by default at full speed."""
        super().__init__()
        self.steady = speeds is None
        self.process = partial(_Process, self)  # type: ignore[method-assign]
        queue, number, new, clock = self._queue, self._eid, Moment.__new__, self

        # Closures, which look up no resource where all are at full speed: they run for each pass of each simulated IPU.
        def at(cycle: int) -> Moment:
            event = new(Moment)
            event.env, event.callbacks, event._value = clock, [], cycle
            heappush(queue, (cycle, NORMAL, next(number), event))
            return event

        def elapse(workers: Workers, what: What, cycles: int) -> Moment:  # noqa: ARG001
            event = new(Moment)
            event.env, event.callbacks, event._value = clock, [], clock._now + cycles  # type: ignore[assignment]
            heappush(queue, (event._value, NORMAL, next(number), event))
            return event

        self.at, self.elapse = at, elapse
        if speeds is None:
            self.end, self.spend = lambda workers, what, start, cycles: start + cycles, elapse  # noqa: ARG005
            return
        self._speeds = speeds
        end_of, steady = self._end_of, dict[tuple[Workers, SpanKind], bool]()

        def end(workers: Workers, what: What, start: int, cycles: int) -> int:
            if not isinstance(what, Work):
                known = steady.get((workers, what))
                if known is None:
                    known = steady[workers, what] = not any(speeds.touches(worker, what) for worker in workers)
                if known:
                    return start + cycles
            if len(workers) == 1:
                return end_of(workers[0], what, start, cycles)
            return max([end_of(worker, what, start, cycles) for worker in workers] or [start + cycles])

        self.end = end
        self.spend = lambda workers, what, cycles: at(self.end(workers, what, self.now, cycles))

    #: The cycle that it is, a whole number as every duration is; by a getter that is no call in Python.
    now: int = property(attrgetter("_now"))  # type: ignore[assignment]

    def call_at(self, cycle: int, then: Callable[[simpy.Event], None]) -> simpy.Event:
        """Call ``then`` with the event of a later cycle; return the event."""
        event = self.at(cycle)
        event.callbacks.append(then)
        return event

    def happen(self, event: simpy.Event, value: object) -> None:
        """Succeed an event with a value, behind all else that is due now; at once, where nothing is.

        Its turn would come next in any case: to go by the queue of events takes as long as three calls.
        """
        if self._queue and self._queue[0][0] <= self._now:
            event.succeed(value)
            return
        event._ok, event._value = True, value
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)

    def is_steady(self, workers: Iterable[Resource]) -> bool:
        """Whether work of all ``workers`` takes as long as it costs, whenever it is done."""
        return self.steady or not any(map(self._speeds.touches, workers))

    def foreseen(self, workers: Workers) -> Callable[[Work, int], int] | None:
        """Return a function from a pass's cycles at full speed to those it takes; None where its start matters."""
        (worker,) = workers
        return self._speeds.foreseen(worker)

    def speed(self, worker: Resource, what: What) -> Pace:
        """Return the speed of work at this moment, and until when it stays so; None for ever."""
        return (Fraction(1), None) if self.steady else self._speeds.pace(worker, what, self.now)

    def delay(self, workers: Iterable[Resource], what: What, start: int) -> int:
        """Return the cycles that work of all workers, one after the other, begins later than in cycle ``start``."""
        return 0 if self.steady else sum(self._speeds.delay(worker, what, start) for worker in workers)

    def until(self, process: simpy.Process) -> int | None:
        """Return the cycles until a process goes on; None where it waits for something other than a moment."""
        return process.target.cycle - self.now if isinstance(process.target, Moment) else None

    def worked(self, worker: Resource, what: What, start: int, end: int) -> int | Fraction:
        """Return the cycles of work at full speed that a resource does from one cycle to another."""
        if self.steady:
            return end - start
        done = Fraction(0)
        while start < end:
            speed, until = self._speeds.pace(worker, what, start)
            stop = end if until is None else min(until, end)
            done += speed * (stop - start)
            start = stop
        return done

    def _end_of(self, worker: Resource, what: What, start: int, cycles: int) -> int:
        """Return the whole cycle in which a resource has done its part of work."""
        if not self._speeds.touches(worker, what):
            return start + cycles
        start += self._speeds.delay(worker, what, start)
        left: int | Fraction = cycles
        while left:
            speed, until = self._speeds.pace(worker, what, start)
            if until is None or left <= speed * (until - start):
                # In whole numbers: quotients of fractions took a third of a run with jitter.
                return start - (-left.numerator * speed.denominator // (left.denominator * speed.numerator))
            left -= speed * (until - start)
            start = until
        return start

    def run_all(self, processes: list[simpy.Process]) -> bool:
        """Run until all ``processes`` have ended; return False where no event is left before that.

        Raises what a process raises.
        """
        everyone: Any = simpy.AllOf(self, processes)
        queue = self._queue
        # SimPy's own run and step in one: a call for each event was a thirtieth of a run of many IPUs.
        while everyone.callbacks is not None:
            if not queue:
                return False
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
        return True
