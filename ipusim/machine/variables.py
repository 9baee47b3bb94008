"""Weight updates on IPUs, and what IPUs release of variables that are spread over the replicas."""

from __future__ import annotations

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.facility import Context, Facility, IpuId
from ipusim.pipeline.instructions import NONE, Code
from ipusim.timeline.kinds import SpanKind


class Variables(Facility):
    """The variables of all IPUs."""

    def __init__(self, context: Context) -> None:
        """Describe the weight update of each IPU."""
        self.ipus = tuple(context.ipus())
        self.handlers = {Code.UPDATE: self._update, Code.LET_GO: self._release}
        self._context = context
        self._spans = context.described(SpanKind.WEIGHT_UPDATE, self.ipus)

    def _update(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        clock, cycles = self._context.clock, self._context.costs.updates[ipu.shard]
        start = clock.now
        self._context.executor(ipu.replica).update(ipu.shard)
        end: int = yield clock.spend(resources.ipus([ipu.number]), SpanKind.WEIGHT_UPDATE, cycles)
        return self._context.recorder.record(self._spans[ipu.number], step, start, end, cause)

    def _release(self, ipu: IpuId, stage: int, _micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._context.together.let_go(ipu.replica, ipu.shard, None if stage == NONE else stage)
        return cause


def build(context: Context) -> list[Variables]:
    """Return those of all IPUs."""
    return [Variables(context)]
