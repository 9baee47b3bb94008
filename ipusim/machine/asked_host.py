"""A host that IPUs ask in the middle of their work: they send to it, wait for it, and read what it has for them."""

from __future__ import annotations

from ipusim.machine import resources
from ipusim.machine.clock import Clock, Spans
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE


class AskedHost:
    """The host of one replica, which does one request after the other, beside all else that it does (assumed)."""

    def __init__(self, clock: Clock, recorder: Recorder, track: HostTrack, kind: SpanKind, replica: int) -> None:
        """Take the track of the host's work in the Timeline, and the kind of the copies there and back."""
        self._clock = clock
        self._record = recorder.record
        self._port, self._copying = resources.host_ports(track, [replica]), kind
        self._worker = resources.hosts(track, [replica])
        self._busy_until, self._last = 0, NONE
        self._work = recorder.describe(Description(SpanKind.HOST, link=track, replica=replica))

    @property
    def state(self) -> int:
        """The cycles for which the host is still busy."""
        return max(0, self._busy_until - self._clock.now)

    def _move(self, what: int, cycles: int, step: int, cause: int) -> Spans:
        """Copy to the host, or from there, as ``what`` describes; returns the last span."""
        if not cycles:
            return cause
        start = self._clock.now
        end: int = yield self._clock.spend(self._port, self._copying, cycles)
        return self._record(what, step, start, end, cause)

    def _wait_for(self, wait: int, cycles: int, step: int, cause: int) -> Spans:
        """Wait until the host has worked so long on a request; returns the span of that."""
        asked = self._clock.now
        ready, found = self._host(cycles, cause)
        if ready > asked:
            yield self._clock.at(ready)
            self._record(wait, step, asked, ready, cause)
        return found

    def _host(self, cycles: int, cause: int) -> tuple[int, int]:
        """Have the host work so long, as soon as it can; returns when that is done, and its span."""
        start = self._clock.now
        if self._busy_until > start:
            start, cause = self._busy_until, self._last
        if not cycles:
            return start, cause
        self._busy_until = self._clock.end(self._worker, SpanKind.HOST, start, cycles)
        self._last = cause = self._record(self._work, NONE, start, self._busy_until, cause)
        return self._busy_until, cause
