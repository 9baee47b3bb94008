"""Where all IPUs of a host meet before a weight update, and hand over to the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ipusim.machine import resources
from ipusim.machine.clock import Clock, Spans
from ipusim.machine.rendezvous import BeforeUpdate
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class HostMeeting(BeforeUpdate):
    """Such a meeting, whose IPUs copy to the host, wait while it works, and copy from there.

    Attributes:
        kind: of the spans of these copies.
        track: of the host's work.
    """

    kind: ClassVar[SpanKind]
    track: ClassVar[HostTrack]

    def __init__(
        self, clock: Clock, recorder: Recorder, ipus: Mapping[int, int], *, first_step: int, steps: int
    ) -> None:
        """Prepare as for any such meeting."""
        super().__init__(clock, recorder, ipus, first_step=first_step, steps=steps)
        self._ports = resources.host_ports(self.track, dict.fromkeys(ipus.values()))
        self._wait = recorder.describe(Description(SpanKind.HOST_WAIT, ALL_IPUS, replica=NONE))

    def _copy(self, what: int, cycles: int, cause: int) -> Spans:
        """Copy to the host, or from there, as ``what`` describes, if anything; returns the last span."""
        if not cycles:
            return cause
        start = self._clock.now
        end: int = yield self._clock.spend(self._ports, self.kind, cycles)
        return self._record(what, self._step, start, end, cause)

    def _wait_for_host(self, work: int, end: int, cause: int) -> Spans:
        """Wait while the host works until ``end``, as ``work`` describes, if it does; returns the last span."""
        start = self._clock.now
        if end == start:
            return cause
        yield self._clock.at(end)
        done = self._record(work, NONE, start, end, cause)
        self._record(self._wait, self._step, start, end, cause)
        return done
