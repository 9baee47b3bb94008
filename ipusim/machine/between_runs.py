"""What hosts do together between session runs of a program, while its IPUs wait: means of losses, first variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipusim.hardware.system import System
from ipusim.machine.clock import Clock
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
        self._cycles = {execution: sum(each for each, _ in found) for execution, found in self._spans.items()}
        self._noted: set[int] = set()

    def cycles(self, execution: int) -> int:
        """Return for how long IPUs wait before an execution."""
        return self._cycles.get(execution, 0)

    def note(self, execution: int, cause: int) -> None:
        """Record what the network does while IPUs wait before an execution, behind ``cause``; once for all of them."""
        if execution in self._noted:
            return
        self._noted.add(execution)
        now = self._clock.now
        for cycles, size in self._spans[execution]:
            what = self._recorder.describe(Description(SpanKind.HOST, link=HostTrack.NETWORK, bytes=size))
            cause = self._recorder.record(what, NONE, now, now + cycles, cause)
            now += cycles
