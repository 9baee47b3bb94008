"""The two ends of a replica's pipeline at the host: its infeed and its outfeed, also by I/O tiles."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import simpy

from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.facility import Facility, IpuId, Wait
from ipusim.machine.host import HostPort, HostStream
from ipusim.pipeline.instructions import Code
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class Feeds(Facility):
    """What the IPUs of a replica take from the host, and hand to it; at a cost where a stream of the host ends."""

    def __init__(self, context: Context, replica: int) -> None:
        """Connect them to the host."""
        self.ipus = tuple(context.ipus([replica]))
        self.handlers = {
            Code.INFEED: self._take,
            Code.OUTFEED: self._give,
            Code.ADD_RESULTS: self._add_results,
            Code.OUTFEED_TOTAL: self._give_total,
            Code.BEGIN_IO: self._begin_io,
            Code.END_IO: self._end_io,
        }
        self._clock, self._record, self._steps = context.clock, context.recorder.record, context.steps
        self._executor = context.executor(replica)
        infeed, outfeed = _infeed(context, replica), _outfeed(context, replica)
        self._ports = (*infeed, *outfeed)
        self._infeeds = {port.ipu: port.transfer for port in infeed}
        self._outfeeds = {port.ipu: port.transfer for port in outfeed}
        self._total_beside = any(port.on_io_tiles for port in outfeed)
        #: The copies of each IPU's I/O tiles that are under way.
        self._beside: dict[int, simpy.Process] = {}
        self._waits = {
            ipu: context.recorder.describe(Description(SpanKind.SYNC_WAIT, ipu.number, replica=replica))
            for ipu in self.ipus
        }

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        return next((wait for port in self._ports if (wait := port.waits_for(ipu)) is not None), None)

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - places in buffers, of whatever micro-batch
        """Return those of the streams, and the cycles until each I/O tile's copy goes on."""
        beside = tuple((ipu, self._clock.until(process)) for ipu, process in sorted(self._beside.items()))
        return tuple(port.state() for port in self._ports), beside

    def _take(self, ipu: IpuId, _stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        cause = yield from self._infeeds.get(ipu.number, _free)(micro_batch, step, cause)
        self._executor.infeed(ipu.shard, micro_batch)
        return cause

    def _give(self, ipu: IpuId, _stage: int, micro_batch: int, period: int, step: int, cause: int) -> Spans:
        if not self._due(step, period):
            return cause
        return (yield from self._hand_out(ipu, micro_batch, step, cause))

    def _hand_out(self, ipu: IpuId, micro_batch: int, step: int, cause: int) -> Spans:
        cause = yield from self._outfeeds.get(ipu.number, _free)(micro_batch, step, cause)
        self._executor.outfeed(micro_batch)  # it is with the host when its copy has ended
        return cause

    def _due(self, step: int, period: int) -> bool:
        """Return whether results leave in the execution of a step, as they do in every ``period``-th."""
        return (step // self._steps + 1) % period == 0

    def _add_results(self, _ipu: IpuId, _stage: int, micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._executor.outfeed(micro_batch)
        return cause

    def _give_total(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        before, start = cause, self._clock.now
        cause = yield from self._outfeeds.get(ipu.number, _free)(NONE, step, cause)
        if self._total_beside and self._clock.now > start:
            self._record(self._waits[ipu], step, start, self._clock.now, before)
        self._executor.outfeed_total()
        return cause

    def _begin_io(self, ipu: IpuId, period: int, taken: int, given: int, step: int, cause: int) -> int:
        """Begin the host copies that an IPU's I/O tiles make during a time-step."""
        if not self._due(step, period):
            given = NONE
        if (taken, given) != (NONE, NONE):
            self._beside[ipu.number] = self._clock.process(self._copy_beside(ipu, given, taken, step, cause))
        return cause

    def _copy_beside(self, ipu: IpuId, given: int, taken: int, step: int, cause: int) -> Spans:
        """Hand out, then take in, as Graphcore's overlapped visitor does; returns the last span. A SimPy process."""
        if given != NONE:
            cause = yield from self._hand_out(ipu, given, step, cause)
        if taken != NONE:
            cause = yield from self._take(ipu, NONE, taken, NONE, step, cause)
        return cause

    def _end_io(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Wait for the I/O tiles if they are behind, and return what the IPU's time-step ended with."""
        beside = self._beside.pop(ipu.number, None)
        if beside is None:
            return cause
        start = self._clock.now
        last: int = yield beside
        if self._clock.now == start:
            return cause
        self._record(self._waits[ipu], step, start, self._clock.now, cause)
        return last


def _free(micro_batch: int, step: int, cause: int) -> Spans:  # noqa: ARG001 - the copy of an element that costs nothing
    """Copy at once."""
    yield from ()
    return cause


def _infeed(context: Context, replica: int) -> list[HostPort]:
    """Connect the IPU of the first stage of a replica to the host; nothing where the host costs nothing."""
    program, host, shape = context.program, context.costs.host, context.plan.shape
    if not (host.infeed or host.fill):
        return []
    stream = HostStream(
        context.clock,
        context.recorder,
        track=HostTrack.INFEED,
        host_cycles=host.fill,
        depth=program.infeed.prefetch_depth,
        elements=context.executions * shape.micro_batches,
        replica=replica,
    )
    kind = SpanKind.OVERLAPPED_INFEED if shape.overlapped_io else SpanKind.INFEED
    size, numbers = program.infeed.element_bytes, range(shape.micro_batches)
    return [_port(context, stream, replica, kind, 0, size, numbers, host.infeed, "the next element of the infeed")]


def _outfeed(context: Context, replica: int) -> list[HostPort]:
    """Connect the IPU of the last stage of a replica to the host; nothing where the host costs nothing."""
    program, host, shape = context.program, context.costs.host, context.plan.shape
    if not (host.outfeed or host.drain):
        return []
    sent = program.outfeed_elements
    elements = sent.sent(context.executions)
    stream = HostStream(
        context.clock,
        context.recorder,
        track=HostTrack.OUTFEED,
        host_cycles=host.drain,
        depth=min(program.outfeed.buffer_depth, max(1, elements)),  # no more places than ever are taken
        elements=elements,
        replica=replica,
    )
    kind = SpanKind.OVERLAPPED_OUTFEED if shape.overlapped_io else SpanKind.OUTFEED
    numbers = [NONE] if sent.accumulated else sent.micro_batches
    size, last = program.outfeed.element_bytes, shape.stages - 1
    return [_port(context, stream, replica, kind, last, size, numbers, host.outfeed, "room in the outfeed's buffer")]


def _port(
    context: Context,
    stream: HostStream,
    replica: int,
    kind: SpanKind,
    stage: int,
    size: int,
    micro_batches: Sequence[int],
    cycles: int,
    what: str,
) -> HostPort:
    """Return the end of a stream at the IPU of a stage, ``what`` being what that waits for, in words."""
    transfer = Description(kind, context.ipu_of(replica, stage).number, stage, bytes=size, replica=replica)
    wait = SpanKind.OVERLAPPED_WAIT if context.plan.shape.overlapped_io else SpanKind.HOST_WAIT
    return HostPort(context.clock, stream, context.recorder, transfer, micro_batches, cycles, wait, what)


def build(context: Context) -> list[Feeds]:
    """Return the feeds of each replica."""
    return [Feeds(context, replica) for replica in context.replicas]
