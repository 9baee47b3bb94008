"""What all IPUs hand over to the host before a weight update: they copy there, wait while it works, and copy back."""

from __future__ import annotations

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import ALL_IPUS, NONE


class HostCopies:
    """The copies of all IPUs at once, and their waits for the host."""

    def __init__(self, context: Context, kind: SpanKind, track: HostTrack) -> None:
        """Prepare for copies that are spans of a kind, and for the host's work on a track."""
        self._clock, self._record = context.clock, context.recorder.record
        self._describe = context.recorder.describe
        self._kind, self._track = kind, track
        self._ports = resources.host_ports(track, context.replicas)
        self._wait = self._describe(Description(SpanKind.HOST_WAIT, ALL_IPUS, replica=NONE))

    def copied(self, size: int) -> int:
        """Return the description of a copy of so many bytes."""
        return self._describe(Description(self._kind, ALL_IPUS, bytes=size, replica=NONE))

    def worked(self, size: int) -> int:
        """Return the description of the host's work on so many bytes."""
        return self._describe(Description(SpanKind.HOST, link=self._track, bytes=size))

    def copy(self, what: int, cycles: int, step: int, cause: int) -> Spans:
        """Copy to the host, or from there, as ``what`` describes, if anything; returns the last span."""
        if not cycles:
            return cause
        start = self._clock.now
        end: int = yield self._clock.spend(self._ports, self._kind, cycles)
        return self._record(what, step, start, end, cause)

    def wait(self, work: int, end: int, step: int, cause: int) -> Spans:
        """Wait while the host works until ``end``, as ``work`` describes, if it does; returns the last span."""
        start = self._clock.now
        if end == start:
            return cause
        yield self._clock.at(end)
        done = self._record(work, NONE, start, end, cause)
        self._record(self._wait, step, start, end, cause)
        return done
