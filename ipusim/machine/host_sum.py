"""What several hosts do together before a weight update: gradients are summed up over their network, or over links.

A run is one host's. Where the others are simulated too, each tells the others when it has come so far, and with what.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import simpy

from ipusim.machine.clock import Clock, Process
from ipusim.machine.rendezvous import Meeting
from ipusim.pricing.costs import HostSum
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE

Spans = Generator[simpy.Event, Any, int]


class HostSumming(Meeting):
    """Where all IPUs of a host meet behind the sum over its replicas, and hand over to the host or sum up."""

    what = "the sum over hosts"

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
        """Prepare for ``ipus``, the logical IPUs that hold a stage, and the replica of each.

        ``sum_up`` is told the cycle in which this host is ready, does the arithmetic, and returns that in which the
        last host is. Spans carry step ``first_step`` in the first execution, and ``steps`` more in each further one.
        """
        super().__init__(clock, recorder, ipus)
        self._cost, self._sum_up = cost, sum_up
        self._step, self._steps = first_step, steps
        self._what = recorder.describe(Description(SpanKind.HOST_SUM, ALL_IPUS, bytes=cost.bytes, replica=NONE))
        self._wait = recorder.describe(Description(SpanKind.HOST_WAIT, ALL_IPUS, replica=NONE))
        self._network = recorder.describe(Description(SpanKind.HOST, link=HostTrack.NETWORK, bytes=cost.bytes))

    def _meet(self, cause: int) -> None:
        self._clock.process(self._hand_over(cause))

    def _hand_over(self, cause: int) -> Process:
        """Sum up over the network or over links, and release all IPUs; a SimPy process."""
        self._record_waits(self._step)
        links = self._cost.over_links
        found = self._over_network(cause) if links is None else self._over_links(links.cost.total_cycles, cause)
        span = yield from found
        self._step += self._steps
        self._release(span)

    def _over_network(self, cause: int) -> Spans:
        """Write, wait for the slowest host, sum up, and read; returns the last span."""
        start = self._clock.now
        yield self._clock.spend(self._cost.write)
        cause = self._record(self._what, self._step, start, self._clock.now, cause)
        ready = self._clock.now
        last = self._sum_up(ready)
        yield self._clock.spend(last - ready + self._cost.network)
        now = self._clock.now
        cause = self._record(self._network, NONE, ready, now, cause)
        self._record(self._wait, self._step, ready, now, cause)
        yield self._clock.spend(self._cost.read)
        return self._record(self._what, self._step, now, self._clock.now, cause)

    def _over_links(self, cycles: int, cause: int) -> Spans:
        """Wait for the slowest host, and sum up over the links; returns the last span."""
        start = self._clock.now
        last = self._sum_up(start)
        if last > start:
            yield self._clock.spend(last - start)
            cause = self._record(self._wait, self._step, start, last, cause)
        yield self._clock.spend(cycles)
        return self._record(self._what, self._step, last, self._clock.now, cause)
