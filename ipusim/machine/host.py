"""The host's side of the feeds: streams that run beside the IPUs, with buffers of a few elements between."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import simpy

from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

Process = Generator[simpy.Event, Any, None]

#: Tracks of the host in a Timeline: the value of ``link`` in HOST spans.
INFEED_TRACK, OUTFEED_TRACK = 0, 1


class HostStream:
    """A buffer of ``depth`` places between the host and one IPU, worked by one host process.

    For an infeed the host turns empty places into full ones (it prefetches), for
    an outfeed full ones into empty ones; the IPU does the reverse, and waits only
    when the host is behind. A place is handed over with the number of the span
    that made it ready, so that a wait knows its cause.
    """

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        *,
        track: int,
        host_cycles: int,
        depth: int,
        elements: int,
        replica: int = 0,
    ) -> None:
        """Prepare a stream of ``elements`` elements; the host needs ``host_cycles`` for each.

        Each replica has streams of its own, which the host works side by side (assumed).
        """
        self._env = env
        self._host_cycles = host_cycles
        self._elements = elements
        self._record = recorder.record
        self._what = recorder.describe(Description(SpanKind.HOST, link=track, replica=replica))
        full_at_start = track == OUTFEED_TRACK  # the IPU finds an outfeed's places ready, an infeed's not yet
        self._for_ipu: deque[int] = deque([NONE] * depth if full_at_start else [])
        self._for_host: deque[int] = deque([] if full_at_start else [NONE] * depth)
        self._ipu_waits: simpy.Event | None = None
        self._host_waits: simpy.Event | None = None
        if host_cycles:
            env.process(self._host())

    @property
    def idle_host(self) -> bool:
        """Whether the host needs no time at all, so that the IPU never waits for it."""
        return self._host_cycles == 0

    def waiting(self) -> simpy.Event | None:
        """Return what the IPU must wait for before it can take a place; None if one is ready."""
        if self._for_ipu or self.idle_host:
            return None
        self._ipu_waits = self._env.event()
        return self._ipu_waits

    @property
    def ipu_is_waiting(self) -> bool:
        """Whether the IPU waits for the host at this moment."""
        return self._ipu_waits is not None and not self._ipu_waits.triggered

    def take(self) -> int:
        """Take a ready place for the IPU; returns the span that made it ready, or NONE."""
        return NONE if self.idle_host else self._for_ipu.popleft()

    def give_back(self, span: int) -> None:
        """Hand the place to the host when the IPU's transfer, recorded as ``span``, has ended."""
        if self.idle_host:
            return
        self._for_host.append(span)
        if self._host_waits is not None and not self._host_waits.triggered:
            self._host_waits.succeed()

    def _host(self) -> Process:
        """Work through every element, waiting while there is no place to work on; a SimPy process."""
        previous = NONE
        for _ in range(self._elements):
            if not self._for_host:
                self._host_waits = self._env.event()
                yield self._host_waits
                cause = self._for_host.popleft()
            else:
                self._for_host.popleft()
                cause = previous
            start: int = self._env.now  # type: ignore[assignment]  # time is an integer here
            yield self._env.timeout(self._host_cycles)
            previous = self._record(self._what, NONE, start, start + self._host_cycles, cause)
            self._for_ipu.append(previous)
            if self.ipu_is_waiting:
                assert self._ipu_waits is not None
                self._ipu_waits.succeed()
