"""Feed a replica's pipeline from the host: infeed elements in, outfeed elements out, also via I/O tiles."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import partial

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.host import HostStream
from ipusim.machine.shared_rate import SharedRate
from ipusim.pipeline.instructions import Code
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class Feeds(Facility):
    """A replica's infeed and outfeed. Copies that no :class:`HostStream` carries take no time.

    Handlers take and return a cause: the number of the span that lets the next span begin.
    """

    def __init__(self, context: Context, replica: int, infeed_rate: SharedRate | None) -> None:
        """Connect the feeds to the host.

        ``infeed_rate`` is the host's rate of producing elements, shared by the infeeds of all replicas; None if it is
        unlimited.
        """
        self.ipus = tuple(context.ipus([replica]))
        self.handlers = {
            Code.INFEED: self._copy_in,
            Code.OUTFEED: self._copy_out_if_due,
            Code.ADD_RESULTS: self._add_results,
            Code.OUTFEED_TOTAL: self._copy_out_total,
            Code.BEGIN_IO: self._begin_io,
            Code.END_IO: self._end_io,
        }
        self._clock, self._record, self._steps = context.clock, context.recorder.record, context.steps
        self._executor = context.executor(replica)
        self._has_io_tiles = context.plan.shape.overlapped_io
        self._streams = tuple(_streams(context, replica, infeed_rate))
        #: Copies of the streams that take time, by track and IPU.
        self._copies = {(stream.track, stream.ipu): stream.transfer for stream in self._streams}
        #: Copies under way on I/O tiles, by IPU.
        self._io_copies: dict[int, simpy.Process] = {}
        self._waits = context.describe_ipus(SpanKind.SYNC_WAIT, self.ipus)

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits for a feed; None if the IPU does not wait."""
        return next((wait for stream in self._streams if (wait := stream.waits_for(ipu)) is not None), None)

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - buffers do not depend on micro-batches
        """Return the states of streams, and the cycles until the next event of each copy on I/O tiles."""
        io_copies = tuple((ipu, self._clock.cycles_until(process)) for ipu, process in sorted(self._io_copies.items()))
        return tuple(stream.state() for stream in self._streams), io_copies

    def _copy_in(self, ipu: IpuId, _stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        cause = yield from self._copies.get((HostTrack.INFEED, ipu.number), _copy_without_cost)(
            micro_batch, step, cause
        )
        self._executor.infeed(ipu.shard, micro_batch)
        return cause

    def _copy_out_if_due(self, ipu: IpuId, _stage: int, micro_batch: int, period: int, step: int, cause: int) -> Spans:
        if not self._is_outfeed_due(step, period):
            return cause
        return (yield from self._copy_out(ipu, micro_batch, step, cause))

    def _copy_out(self, ipu: IpuId, micro_batch: int, step: int, cause: int) -> Spans:
        cause = yield from self._copies.get((HostTrack.OUTFEED, ipu.number), _copy_without_cost)(
            micro_batch, step, cause
        )
        self._executor.outfeed(micro_batch)  # the host has the results after the copy
        return cause

    def _is_outfeed_due(self, step: int, period: int) -> bool:
        """Tell whether results leave during this execution; they do in every ``period``-th execution."""
        return (step // self._steps + 1) % period == 0

    def _add_results(self, _ipu: IpuId, _stage: int, micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._executor.outfeed(micro_batch)
        return cause

    def _copy_out_total(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        earlier_cause, start = cause, self._clock.now
        cause = yield from self._copies.get((HostTrack.OUTFEED, ipu.number), _copy_without_cost)(NONE, step, cause)
        if self._has_io_tiles and self._clock.now > start:
            self._record(self._waits[ipu.number], step, start, self._clock.now, earlier_cause)
        self._executor.outfeed_total()
        return cause

    def _begin_io(self, ipu: IpuId, period: int, infeed_batch: int, outfeed_batch: int, step: int, cause: int) -> int:
        """Begin the host copies on an IPU's I/O tiles during a time-step."""
        if not self._is_outfeed_due(step, period):
            outfeed_batch = NONE
        if (infeed_batch, outfeed_batch) != (NONE, NONE):
            self._io_copies[ipu.number] = self._clock.process(
                self._copy_on_io_tiles(ipu, outfeed_batch, infeed_batch, step, cause)
            )
        return cause

    def _copy_on_io_tiles(self, ipu: IpuId, outfeed_batch: int, infeed_batch: int, step: int, cause: int) -> Spans:
        """Copy results out, then an element in, in the order of Graphcore's overlapped I/O; return the last span.

        This is a SimPy process.
        """
        if outfeed_batch != NONE:
            cause = yield from self._copy_out(ipu, outfeed_batch, step, cause)
        if infeed_batch != NONE:
            cause = yield from self._copy_in(ipu, NONE, infeed_batch, NONE, step, cause)
        return cause

    def _end_io(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Wait for late I/O tiles, and return the span that ended the time-step."""
        io_copy = self._io_copies.pop(ipu.number, None)
        if io_copy is None:
            return cause
        start = self._clock.now
        last: int = yield io_copy
        if self._clock.now == start:
            return cause
        self._record(self._waits[ipu.number], step, start, self._clock.now, cause)
        return last


def _copy_without_cost(micro_batch: int, step: int, cause: int) -> Spans:  # noqa: ARG001 - copy of an element without cost
    """Copy at once."""
    yield from ()
    return cause


def _streams(context: Context, replica: int, infeed_rate: SharedRate | None) -> Iterator[HostStream]:
    """Yield the streams of a replica's infeeds and outfeeds that take time."""
    program, host, shape = context.program, context.costs.host, context.plan.shape
    outfeed = program.outfeed_elements
    kinds = (SpanKind.INFEED, SpanKind.OUTFEED)
    if shape.overlapped_io:
        kinds = (SpanKind.OVERLAPPED_INFEED, SpanKind.OVERLAPPED_OUTFEED)
    sizes = program.infeed.element_bytes, program.outfeed.element_bytes
    for pipeline_copy in range(len(shape.copies)):
        first, last = (
            Description(kind, context.ipu_of(replica, stage, pipeline_copy).number, stage, bytes=size, replica=replica)
            for kind, stage, size in zip(kinds, (0, shape.stages - 1), sizes, strict=True)
        )
        stream = partial(HostStream, context, replica=replica, pipeline_copy=pipeline_copy)
        batches = range(pipeline_copy, shape.micro_batches, len(shape.copies))
        if host.infeed or host.fill:
            depth, elements = program.infeed.prefetch_depth, context.executions * len(batches)
            yield stream(HostTrack.INFEED, first, batches, depth=depth, elements=elements, rate=infeed_rate)
        numbers = [NONE] if outfeed.accumulated else [number for number in outfeed.micro_batches if number in batches]
        if (host.outfeed or host.drain) and numbers:
            elements = context.executions // outfeed.period * len(numbers)
            depth = min(program.outfeed.buffer_depth, max(1, elements))  # no more places than elements
            yield stream(HostTrack.OUTFEED, last, numbers, depth=depth, elements=elements)


def _shared_infeed_rate(context: Context) -> SharedRate | None:
    """Return the host's joint rate of elements for infeeds; None if it is unlimited."""
    host = context.costs.host
    if not host.data:
        return None
    return SharedRate(
        context.clock,
        resources.hosts(HostTrack.INFEED),
        SpanKind.HOST,
        lambda infeeds: Fraction(1, host.fill_of(infeeds)),
    )


def build(context: Context) -> list[Feeds]:
    """Return the feeds of every replica."""
    infeed_rate = _shared_infeed_rate(context)
    return [Feeds(context, replica, infeed_rate) for replica in context.replicas]
