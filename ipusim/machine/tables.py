"""Tables on the host at work: an IPU asks for rows and waits for them, and sends back what they are to learn."""

from __future__ import annotations

from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.facility import IpuId
from ipusim.machine.host_server import HostServer
from ipusim.pipeline.instructions import Code
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind


class Tables(HostServer):
    """The tables of one replica.

    An IPU writes the ids, waits while the host gathers their rows, and reads these. Gradients it writes and goes on;
    a look-up that comes before the host has applied them waits for that, so that it finds the rows as they then are.
    """

    def __init__(self, context: Context, replica: int) -> None:
        """Prepare for the look-ups and updates of every stage that has tables."""
        self._costs = context.costs.tables
        super().__init__(context, replica, list(self._costs), HostTrack.TABLES, SpanKind.HOST_ROWS)
        self.handlers = {Code.LOOK_UP: self._look_up, Code.UPDATE_ROWS: self._update}

    def _look_up(self, _ipu: IpuId, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Bring the rows that the next forward pass of a stage asks for; returns the last span."""
        cost, of = self._costs[stage], (stage, micro_batch)
        cause = yield from self._copy(cost.bytes.ids, cost.ids, of, step, cause)
        cause = yield from self._call(stage, cost.gather, step, cause)
        return (yield from self._copy(cost.bytes.rows, cost.rows, of, step, cause))

    def _update(self, _ipu: IpuId, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Send the gradients of rows to the host, which applies them while the IPU goes on; returns the last span."""
        cost = self._costs[stage]
        cause = yield from self._copy(cost.bytes.back, cost.gradients, (stage, micro_batch), step, cause)
        self._serve(cost.apply, cause)
        return cause


def build(context: Context) -> list[Tables]:
    """Return the tables of each replica on its host; nothing without any."""
    return [Tables(context, replica) for replica in context.replicas if context.costs.tables]
