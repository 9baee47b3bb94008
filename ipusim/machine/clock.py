"""The machine's time: the one place where it passes, and where processes are begun."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

Process = Generator[simpy.Event, Any, Any]


class Clock:
    """Simulated time, a whole number of cycles of the tile clock.

    Every duration of the machine goes through ``spend``: what makes an IPU, a link or the host slower
    or lets time jump belongs there.

    Attributes:
        spend: ``spend(cycles)`` returns the event of that many cycles having passed.
        event: makes an event that something else lets happen.
        process: begins a process.
    """

    def __init__(self) -> None:
        """Begin at 0."""
        self._env = simpy.Environment()
        # Bound once: these are called for every span.
        self.spend: Callable[[int], simpy.Event] = self._env.timeout
        self.event: Callable[[], simpy.Event] = self._env.event
        self.process: Callable[[Process], simpy.Process] = self._env.process

    @property
    def now(self) -> int:
        """The cycle that it is."""
        return self._env.now  # type: ignore[return-value]  # every duration is a whole number of cycles

    def call(self, cycles: int, then: Callable[[simpy.Event], None]) -> None:
        """Call ``then``, with the event of it, when that many cycles have passed."""
        callbacks = self.spend(cycles).callbacks
        assert callbacks is not None  # it has not happened yet
        callbacks.append(then)

    def run(self, processes: list[simpy.Process]) -> bool:
        """Let time pass until all ``processes`` have ended; False where nothing is left to happen before they have.

        Raises what a process raises.
        """
        everyone = simpy.AllOf(self._env, processes)
        try:
            self._env.run(until=everyone)
        except RuntimeError:  # SimPy's, when no event is left before the one to run until; or one of a user's function
            if everyone.triggered or self._env.peek() != float("inf"):
                raise
            return False
        return True
