"""Serve the IPUs' calls to the host within a pass: embedding look-ups, and operations placed on the host."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.facility import Context, Facility, IpuId
from ipusim.pipeline.instructions import Code
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class HostServer(Facility):
    """The host of a replica, which serves calls in order.

    Calls are independent of the rest of the host's work (assumed).
    """

    def __init__(self, context: Context, replica: int, stages: list[int], track: HostTrack, kind: SpanKind) -> None:
        """Set the track of the host's work, and the copies' ``kind``."""
        self._clock, self._wait = context.clock, context.wait
        self._record, self._describe = context.recorder.record, context.recorder.describe
        self._replica, self._micro_batches = replica, context.plan.shape.micro_batches
        self._port, self._kind = resources.host_ports(track, [replica]), kind
        self._worker = resources.hosts(track, [replica])
        self._busy_until, self._last_span = 0, NONE
        copies = range(len(context.plan.shape.copies))  # of the pipeline
        self._ipus_of = {stage: [context.ipu_of(replica, stage, number) for number in copies] for stage in stages}
        self.ipus = tuple(dict.fromkeys(ipu for ipus in self._ipus_of.values() for ipu in ipus))
        self._work_description = self._describe(Description(SpanKind.HOST, link=track, replica=replica))
        self._wait_descriptions = context.describe_ipus(SpanKind.HOST_WAIT, self.ipus)
        self._copies: dict[tuple[int, int], int] = {}

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - calls do not depend on micro-batches
        """Return the remaining busy cycles of the host."""
        return max(0, self._busy_until - self._clock.now)

    def _copy(self, size: int, cycles: int, key: tuple[int, int], step: int, cause: int) -> Spans:
        """Copy between host and IPU for a micro-batch; return the last span."""
        if not cycles:
            return cause
        stage, micro_batch = key
        if (stage, size) not in self._copies:
            copy = Description(self._kind, stage=stage, bytes=size, replica=self._replica)
            first = self._describe(
                *(
                    copy._replace(ipu=self._ipu(stage, number), micro_batch=number)
                    for number in range(self._micro_batches)
                )
            )
            self._copies[stage, size] = first
        start = self._clock.now
        end: int = yield self._clock.spend(self._port, self._kind, cycles)
        return self._record(self._copies[stage, size] + micro_batch, step, start, end, cause)

    def _ipu(self, stage: int, micro_batch: int) -> int:
        ipus = self._ipus_of[stage]
        return ipus[micro_batch % len(ipus)].number

    def _call(self, key: tuple[int, int], cycles: int, step: int, cause: int) -> Spans:
        """Wait until the host has worked on a call; return the work's span."""
        ready, work_span = self._serve(cycles, cause)
        yield from self._wait(ready, self._wait_descriptions[self._ipu(*key)], step, cause)
        return work_span

    def _serve(self, cycles: int, cause: int) -> tuple[int, int]:
        """Queue host work of ``cycles``; return the cycle of its end, and the span."""
        start = self._clock.now
        if self._busy_until > start:
            start, cause = self._busy_until, self._last_span
        if not cycles:
            return start, cause
        self._busy_until = self._clock.end(self._worker, SpanKind.HOST, start, cycles)
        self._last_span = cause = self._record(self._work_description, NONE, start, self._busy_until, cause)
        return self._busy_until, cause


class Tables(HostServer):
    """A replica's embedding tables.

    An IPU writes ids, waits while the host gathers rows, and reads the rows. It writes gradients without a wait. A
    later look-up waits until the host has applied these gradients, and gets the updated rows.
    """

    def __init__(self, context: Context, replica: int) -> None:
        """Prepare the look-ups and updates of every stage with tables."""
        self._costs = context.costs.tables
        super().__init__(context, replica, list(self._costs), HostTrack.TABLES, SpanKind.HOST_ROWS)
        self.handlers = {Code.LOOK_UP: self._look_up, Code.UPDATE_ROWS: self._update}

    def _look_up(self, _ipu: IpuId, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Copy looked-up rows from the host for a forward pass; return the last span."""
        cost, key = self._costs[stage], (stage, micro_batch)
        cause = yield from self._copy(cost.bytes.ids, cost.ids, key, step, cause)
        cause = yield from self._call(key, cost.gather, step, cause)
        return (yield from self._copy(cost.bytes.rows, cost.rows, key, step, cause))

    def _update(self, _ipu: IpuId, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Send gradients of rows to the host, without waiting; return the last span."""
        cost = self._costs[stage]
        cause = yield from self._copy(cost.bytes.returned_bytes, cost.gradients, (stage, micro_batch), step, cause)
        self._serve(cost.apply, cause)
        return cause


class HostCompute(HostServer):
    """Host compute for a replica's passes: IPUs send inputs, and wait for results.

    The calls run before the pass, as the order of a pass's parts does not change its total duration.
    """

    def __init__(self, context: Context, replica: int) -> None:
        """Prepare the calls of every (pass, stage)."""
        self._passes = context.costs.host_calls
        stages = sorted({stage for _, stage in self._passes})
        super().__init__(context, replica, stages, HostTrack.OUTSIDE, SpanKind.OUTSIDE)
        self.handlers = {Code.OUTSIDE: self._compute}

    def _compute(self, _ipu: IpuId, stage: int, micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        """Carry out the host calls of a pass in order; return the last span."""
        key = stage, micro_batch
        for call_cost in self._passes[kind, stage]:
            cause = yield from self._copy(call_cost.call.sent_bytes, call_cost.send, key, step, cause)
            cause = yield from self._call(key, call_cost.host, step, cause)
            cause = yield from self._copy(call_cost.call.returned_bytes, call_cost.read, key, step, cause)
        return cause


def build(context: Context) -> Iterator[HostServer]:
    """Yield the tables and the host compute of every replica that uses either."""
    for replica in context.replicas:
        if context.costs.tables:
            yield Tables(context, replica)
        if context.costs.host_calls:
            yield HostCompute(context, replica)
