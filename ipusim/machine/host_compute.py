"""What a pass has the host compute, before the pass: its parts are as long in any order."""

from __future__ import annotations

from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.facility import IpuId
from ipusim.machine.host_server import HostServer
from ipusim.pipeline.instructions import Code
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind


class HostCompute(HostServer):
    """What the passes of one replica have its host compute: its IPUs send, wait, and read what comes of it."""

    def __init__(self, context: Context, replica: int) -> None:
        """Prepare for the calls of every (pass, stage)."""
        self._passes = context.costs.outside
        stages = sorted({stage for _, stage in self._passes})
        super().__init__(context, replica, stages, HostTrack.OUTSIDE, SpanKind.OUTSIDE)
        self.handlers = {Code.OUTSIDE: self._compute}

    def _compute(self, _ipu: IpuId, stage: int, micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        """Do all that a pass has the host compute, one after the other; returns the last span."""
        of = stage, micro_batch
        for each in self._passes[kind, stage]:
            cause = yield from self._copy(each.call.sent_bytes, each.send, of, step, cause)
            cause = yield from self._call(stage, each.host, step, cause)
            cause = yield from self._copy(each.call.returned_bytes, each.read, of, step, cause)
        return cause


def build(context: Context) -> list[HostCompute]:
    """Return what the passes of each replica have its host compute; nothing where no pass has."""
    return [HostCompute(context, replica) for replica in context.replicas if context.costs.outside]
