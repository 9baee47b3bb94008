"""What hosts do together between session runs of a program, while its IPUs wait: means of losses, first variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipusim.hardware.system import System
from ipusim.machine.clock import Clock
from ipusim.machine.resources import NETWORK
from ipusim.pricing.exchanges import HostExchange
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE


class BetweenRuns:
    """The hosts' network between session runs: all collectives of one place in a run, one after the other."""

    def __init__(
        self, clock: Clock, recorder: Recorder, system: System, exchanges: Mapping[int, Sequence[HostExchange]]
    ) -> None:
        """Take what stands before each execution, by its number."""
        self._clock, self._recorder = clock, recorder
        self._spans = {
            execution: [(each.cycles(system), each.bytes) for each in found] for execution, found in exchanges.items()
        }
        self._noted: set[int] = set()

    def end(self, execution: int, cause: int) -> int:
        """Return the cycle until which an IPU waits before an execution that is ready now, behind ``cause``.

        What the network does meanwhile is recorded once for all IPUs.
        """
        now = self._clock.now
        spans = self._spans.get(execution, ())
        noted = execution in self._noted
        self._noted.add(execution)
        for cycles, size in spans:
            start, now = now, self._clock.end(NETWORK, SpanKind.HOST, now, cycles)
            if not noted:
                what = self._recorder.describe(Description(SpanKind.HOST, link=HostTrack.NETWORK, bytes=size))
                cause = self._recorder.record(what, NONE, start, now, cause)
        return now
