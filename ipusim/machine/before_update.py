"""Where all IPUs meet before a weight update, or for it: sums over replicas and hosts, and updates on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import simpy

from ipusim.machine.clock import Process, Spans
from ipusim.machine.context import Context
from ipusim.machine.facility import IpuId
from ipusim.machine.host_sum import HostSumming
from ipusim.machine.host_update import HostUpdating
from ipusim.machine.meeting import Meeting
from ipusim.machine.replica_sum import ReplicaSum
from ipusim.pipeline.instructions import Code

#: Does what all IPUs do together, of a step and behind the last span of the last IPU; returns the last span.
Work = Callable[[int, int], Spans]


class BeforeUpdate(Meeting):
    """Where all IPUs of all replicas come by one instruction, once in an execution."""

    def __init__(self, context: Context, code: Code, what: str, work: Work) -> None:
        """Prepare to do ``work``, ``what`` in words."""
        super().__init__(context.clock, context.recorder, context.ipus())
        self.what, self.handlers = what, {code: self._arrive}
        self._work, self._steps = work, context.steps
        self._step = context.steps - 1

    def _arrive(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, _step: int, cause: int) -> simpy.Event:
        return self.arrive(ipu.number, cause)

    def _meet(self, cause: int) -> None:
        self._do_together(self._take_turn(cause))

    def _take_turn(self, cause: int) -> Process:
        """Do what is to be done, and release all IPUs; a SimPy process."""
        self._record_waits(self._step)
        span = yield from self._work(self._step, cause)
        self._step += self._steps
        self._release(span)


def build(context: Context) -> Iterator[BeforeUpdate]:
    """Yield where all IPUs meet before a weight update, or for it."""
    costs, together = context.costs, context.together
    if costs.gradient_sum is not None:
        work = ReplicaSum(context, costs.gradient_sum).carry_out
        yield BeforeUpdate(context, Code.ALL_REDUCE, "the sum over replicas", work)
    if costs.host_sum is not None:
        work = HostSumming(context, costs.host_sum).carry_out
        yield BeforeUpdate(context, Code.HOST_SUM, "the sum over hosts", work)
    if costs.host_update is not None:
        update = partial(together.update, context.plan.ipus)
        work = HostUpdating(context, costs.host_update, update).carry_out
        yield BeforeUpdate(context, Code.HOST_UPDATE, "the weight update on the host", work)
