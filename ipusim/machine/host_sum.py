"""What several hosts do together before a weight update: gradients are summed up over their network, or over links.

A run is one host's. Where the others are simulated too, each tells the others when it has come so far, and with what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.machine.carrying import carried_until
from ipusim.machine.clock import Clock, Spans
from ipusim.machine.host_meeting import HostMeeting
from ipusim.machine.resources import NETWORK
from ipusim.pricing.costs import HostSum
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class HostSumming(HostMeeting):
    """Where all IPUs of a host meet behind the sum over its replicas, and hand over to the host or sum up."""

    what = "the sum over hosts"
    kind, track = SpanKind.HOST_SUM, HostTrack.NETWORK

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        cost: HostSum,
        *,
        ipus: Mapping[int, int],
        sum_up: Callable[[int], int],
        first_step: int,
        steps: int,
    ) -> None:
        """Prepare as for any such meeting.

        ``sum_up`` is told the cycle in which this host is ready, does the arithmetic, and returns that in which the
        last host is.
        """
        super().__init__(clock, recorder, ipus, first_step=first_step, steps=steps)
        self._cost, self._sum_up = cost, sum_up
        self._what = recorder.describe(Description(SpanKind.HOST_SUM, ALL_IPUS, bytes=cost.bytes, replica=NONE))
        self._network, self._late = (
            recorder.describe(Description(SpanKind.HOST, link=HostTrack.NETWORK, bytes=size))
            for size in (cost.bytes, 0)
        )

    def _carry_out(self, cause: int) -> Spans:
        """Sum up over the network or over links."""
        links = self._cost.over_links
        return self._over_network(cause) if links is None else self._over_links(links.cost, cause)

    def _over_network(self, cause: int) -> Spans:
        """Write, wait for the slowest host, sum up, and read; returns the last span."""
        cause = yield from self._copy(self._what, self._cost.write, cause)
        ready = self._clock.now
        last = self._sum_up(ready)
        done = self._clock.end(NETWORK, SpanKind.HOST, last, self._cost.network)
        cause = yield from self._wait_for_host(self._network, done, cause)
        return (yield from self._copy(self._what, self._cost.read, cause))

    def _over_links(self, cost: CollectiveCost, cause: int) -> Spans:
        """Wait for the slowest host, and sum up over the links; returns the last span."""
        start = self._clock.now
        cause = yield from self._wait_for_host(self._late, self._sum_up(start), cause)
        start = self._clock.now
        end = carried_until(self._clock, self._workers, SpanKind.HOST_SUM, cost)
        if end == start:
            return cause
        yield self._clock.at(end)
        return self._record(self._what, self._step, start, end, cause)
