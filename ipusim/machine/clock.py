"""The machine's time: the one place where it passes, and where processes are begun."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

Process = Generator[simpy.Event, Any, Any]
#: A part of one, which returns the last span that it has recorded.
Spans = Generator[simpy.Event, Any, int]


class Clock(simpy.Environment):
    """Simulated time, a whole number of cycles of the tile clock.

    Attributes:
        spend: ``spend(cycles)`` returns the event of that many cycles having passed. Every duration of the machine
            goes through it: what makes an IPU, a link or the host slower or lets time jump belongs there.
    """

    spend: Callable[[int], simpy.Event]

    def __init__(self) -> None:
        """Begin at 0."""
        super().__init__()
        self.spend = self.timeout  # looked up once: a method of our own around it would cost as much as it

    @property
    def now(self) -> int:
        """The cycle that it is."""
        return self._now  # type: ignore[return-value]  # every duration is a whole number of cycles

    def call(self, cycles: int, then: Callable[[simpy.Event], None]) -> simpy.Event:
        """Call ``then`` with the event of that many cycles having passed, which is returned."""
        event = self.spend(cycles)
        assert event.callbacks is not None  # it has not happened yet
        event.callbacks.append(then)
        return event

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
