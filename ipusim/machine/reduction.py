"""What replicas do together before a weight update: their gradients are summed up over the IPU-Links."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipusim.hardware.links import LinkDirection
from ipusim.machine.carrying import loads_until
from ipusim.machine.clock import Clock, Spans
from ipusim.machine.rendezvous import BeforeUpdate
from ipusim.pricing.costs import GradientSum
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class Reduction(BeforeUpdate):
    """Where all IPUs of all replicas meet between a pipeline and its weight update."""

    what = "the sum over replicas"

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        total: GradientSum,
        *,
        ipus: Mapping[int, int],
        links: Mapping[LinkDirection, int],
        reduce: Callable[[], object],
        first_step: int,
        steps: int,
    ) -> None:
        """Prepare as for any such meeting; ``links`` numbers the link directions, ``reduce`` does the arithmetic."""
        super().__init__(clock, recorder, ipus, first_step=first_step, steps=steps)
        self._cost = total.cost
        self._reduce = reduce
        whole = Description(SpanKind.ALL_REDUCE, ALL_IPUS, bytes=total.bytes, replica=NONE)
        self._what = recorder.describe(whole)
        self._loads = [
            [
                recorder.describe(
                    Description(SpanKind.LINK, link=links[load.direction], bytes=load.bytes, replica=NONE)
                )
                for load in each.links
            ]
            for each in total.cost.rounds
        ]

    def _carry_out(self, cause: int) -> Spans:
        """Synchronise, and carry out every round."""
        start = self._clock.now
        now: int = yield self._clock.spend(self._workers, SpanKind.ALL_REDUCE, self._cost.lead_cycles)
        for each, described in zip(self._cost.rounds, self._loads, strict=True):
            loads = [span for _, *span in loads_until(self._clock, SpanKind.ALL_REDUCE, each, now)]
            hops = self._clock.end(self._workers, SpanKind.ALL_REDUCE, now, each.latency_cycles)
            now = yield self._clock.at(max((end for _, end in loads), default=hops))
            for what, (first_byte, end) in zip(described, loads, strict=True):
                self._record(what, self._step, first_byte, end, cause)
        self._reduce()
        return self._record(self._what, self._step, start, self._clock.now, cause)
