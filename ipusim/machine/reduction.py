"""What replicas do together before a weight update: their gradients are summed up over the IPU-Links."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipusim.hardware.links import LinkDirection
from ipusim.machine.clock import Clock, Process
from ipusim.machine.rendezvous import Meeting
from ipusim.pricing.costs import GradientSum
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class Reduction(Meeting):
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
        """Prepare for ``ipus``, the logical IPUs that hold a stage, and the replica of each.

        ``links`` numbers the link directions. ``reduce`` does the arithmetic. Spans carry step
        ``first_step`` in the first execution, and ``steps`` more in each further one.
        """
        super().__init__(clock, recorder, ipus)
        self._cost = total.cost
        self._reduce = reduce
        self._step, self._steps = first_step, steps
        whole = Description(SpanKind.ALL_REDUCE, ALL_IPUS, bytes=total.bytes, replica=NONE)
        self._what = recorder.describe(whole)
        self._loads = [
            [
                (
                    recorder.describe(
                        Description(SpanKind.LINK, link=links[load.direction], bytes=load.bytes, replica=NONE)
                    ),
                    load.cycles,
                )
                for load in each.links
            ]
            for each in total.cost.rounds
        ]

    def _meet(self, cause: int) -> None:
        self._clock.process(self._sum_up(cause))

    def _sum_up(self, cause: int) -> Process:
        """Synchronise, carry out every round, and release all IPUs; a SimPy process."""
        start = self._clock.now
        self._record_waits(self._step)
        yield self._clock.spend(self._cost.lead_cycles)
        for each, loads in zip(self._cost.rounds, self._loads, strict=True):
            first_byte = self._clock.now + each.latency_cycles
            yield self._clock.spend(each.total_cycles)
            for what, cycles in loads:
                self._record(what, self._step, first_byte, first_byte + cycles, cause)
        self._reduce()
        span = self._record(self._what, self._step, start, self._clock.now, cause)
        self._step += self._steps
        self._release(span)
