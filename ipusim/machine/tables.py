"""Tables on the host at work: an IPU asks for rows and waits for them, and sends back what they are to learn."""

from __future__ import annotations

from collections.abc import Mapping

from ipusim.machine.asked_host import AskedHost
from ipusim.machine.clock import Clock, Spans
from ipusim.pricing.costs import TableCosts
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class Tables(AskedHost):
    """The tables of one replica.

    An IPU writes the ids, waits while the host gathers their rows, and reads these. Gradients it writes and goes on;
    a look-up that comes before the host has applied them waits for that, so that it finds the rows as they then are.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        costs: Mapping[int, TableCosts],
        *,
        ipus: Mapping[int, int],
        micro_batches: int,
        replica: int,
    ) -> None:
        """Describe what each stage moves; ``ipus`` are the logical IPUs of the stages."""
        super().__init__(clock, recorder, HostTrack.TABLES, SpanKind.HOST_ROWS, replica)
        self._costs = costs
        self._waits = {
            stage: recorder.describe(Description(SpanKind.HOST_WAIT, ipus[stage], replica=replica)) for stage in costs
        }
        self._moves = {
            (stage, size): recorder.describe(
                *(
                    Description(SpanKind.HOST_ROWS, ipus[stage], stage, micro_batch, bytes=size, replica=replica)
                    for micro_batch in range(micro_batches)
                )
            )
            for stage, cost in costs.items()
            for size in {cost.bytes.ids, cost.bytes.rows, cost.bytes.back}
        }

    def look_up(self, stage: int, micro_batch: int, step: int, cause: int) -> Spans:
        """Bring the rows that the next forward pass of a stage asks for; returns the last span."""
        cost = self._costs[stage]
        ids, rows = (self._moves[stage, size] + micro_batch for size in (cost.bytes.ids, cost.bytes.rows))
        cause = yield from self._move(ids, cost.ids, step, cause)
        cause = yield from self._wait_for(self._waits[stage], cost.gather, step, cause)
        return (yield from self._move(rows, cost.rows, step, cause))

    def update(self, stage: int, micro_batch: int, step: int, cause: int) -> Spans:
        """Send the gradients of rows to the host, which applies them while the IPU goes on; returns the last span."""
        cost = self._costs[stage]
        gradients = self._moves[stage, cost.bytes.back] + micro_batch
        cause = yield from self._move(gradients, cost.gradients, step, cause)
        self._host(cost.apply, cause)
        return cause
