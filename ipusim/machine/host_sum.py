"""What several hosts do together before a weight update: gradients are summed up over their network, or over links.

A run is one host's. Where the others are simulated too, each tells the others when it has come so far, and with what.
"""

from __future__ import annotations

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.machine import resources
from ipusim.machine.carrying import carried_until
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.host_copies import HostCopies
from ipusim.pricing.costs import HostSum
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind


class HostSumming:
    """The sum of the gradients of all hosts, behind that over the replicas of each."""

    def __init__(self, context: Context, cost: HostSum) -> None:
        """Describe the copies.

        ``sum_over_hosts`` of the context's arithmetic is called with the cycle in which this host is ready, and returns
        that in which the last host is.
        """
        self._clock, self._record = context.clock, context.recorder.record
        self._cost, self._sum_up = cost, context.together.sum_over_hosts
        self._copies = HostCopies(context, SpanKind.HOST_SUM, HostTrack.NETWORK)
        self._workers = resources.ipus(ipu.number for ipu in context.ipus())
        self._what = self._copies.copied(cost.bytes)
        self._network, self._late = self._copies.worked(cost.bytes), self._copies.worked(0)

    def carry_out(self, step: int, cause: int) -> Spans:
        """Sum up over the network or over links; returns the last span."""
        links = self._cost.over_links
        return self._over_network(step, cause) if links is None else self._over_links(links.cost, step, cause)

    def _over_network(self, step: int, cause: int) -> Spans:
        """Write, wait for the slowest host, sum up, and read."""
        cause = yield from self._copies.copy(self._what, self._cost.write, step, cause)
        last = self._sum_up(self._clock.now)
        done = self._clock.end(resources.NETWORK, SpanKind.HOST, last, self._cost.network)
        cause = yield from self._copies.wait(self._network, done, step, cause)
        return (yield from self._copies.copy(self._what, self._cost.read, step, cause))

    def _over_links(self, cost: CollectiveCost, step: int, cause: int) -> Spans:
        """Wait for the slowest host, and sum up over the links."""
        cause = yield from self._copies.wait(self._late, self._sum_up(self._clock.now), step, cause)
        start = self._clock.now
        end = carried_until(self._clock, self._workers, SpanKind.HOST_SUM, cost)
        if end == start:
            return cause
        yield self._clock.at(end)
        return self._record(self._what, step, start, end, cause)
