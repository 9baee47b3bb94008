"""What replicas do together before a weight update: their gradients are summed up over the IPU-Links."""

from __future__ import annotations

from ipusim.machine import resources
from ipusim.machine.carrying import loads_until
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.pricing.costs import GradientSum
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import ALL_IPUS, NONE


class ReplicaSum:
    """The sum of the gradients of all replicas."""

    def __init__(self, context: Context, total: GradientSum) -> None:
        """Describe the load of each link direction in each round."""
        self._clock, self._record = context.clock, context.recorder.record
        self._cost, self._reduce = total.cost, context.together.reduce
        self._workers = resources.ipus(ipu.number for ipu in context.ipus())
        links = {direction: number for number, direction in enumerate(context.costs.links)}
        describe = context.recorder.describe
        self._what = describe(Description(SpanKind.ALL_REDUCE, ALL_IPUS, bytes=total.bytes, replica=NONE))
        self._loads = [
            [
                describe(Description(SpanKind.LINK, link=links[load.direction], bytes=load.bytes, replica=NONE))
                for load in each.links
            ]
            for each in total.cost.rounds
        ]

    def carry_out(self, step: int, cause: int) -> Spans:
        """Synchronise, and carry out every round; returns the last span."""
        start = self._clock.now
        now: int = yield self._clock.spend(self._workers, SpanKind.ALL_REDUCE, self._cost.lead_cycles)
        for each, described in zip(self._cost.rounds, self._loads, strict=True):
            loads = [span for _, *span in loads_until(self._clock, SpanKind.ALL_REDUCE, each, now)]
            hops = self._clock.end(self._workers, SpanKind.ALL_REDUCE, now, each.latency_cycles)
            now = yield self._clock.at(max((end for _, end in loads), default=hops))
            for what, (first_byte, end) in zip(described, loads, strict=True):
                self._record(what, step, first_byte, end, cause)
        self._reduce()
        return self._record(self._what, step, start, self._clock.now, cause)
