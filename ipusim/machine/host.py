"""Simulate the host's side of a feed: a process that fills or empties a buffer of a few elements."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from ipusim.machine import resources
from ipusim.machine.clock import Process, Spans
from ipusim.machine.facility import Context, Wait
from ipusim.machine.shared_rate import SharedRate
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class HostStream:
    """A buffer of ``depth`` elements between an IPU and a host process.

    The host fills empty places of an infeed (prefetching), and empties full places of an outfeed. The IPU does the
    reverse, and waits only if the host is late. A place that is handed over carries the number of the span that made it
    ready, as the cause of a later wait.

    Attributes:
        track: track of the host's work.
        ipu: logical IPU at the stream's end.
        elements_left: number of elements that the host has not processed yet. It is not part of the state: runs
            continue equally from equal states while enough elements are left.
    """

    def __init__(
        self,
        context: Context,
        track: HostTrack,
        transfer: Description,
        micro_batches: Sequence[int],
        *,
        depth: int,
        elements: int,
        replica: int,
        pipeline_copy: int,
        rate: SharedRate | None = None,
    ) -> None:
        """Prepare a stream of ``elements`` elements for an infeed or an outfeed.

        ``transfer`` describes the IPU's copies, and ``micro_batches`` lists their micro-batches. Every replica and copy
        of the pipeline has separate streams, which the host serves in parallel (assumed). Infeed streams with a common
        ``rate`` wait for each other; without a rate, the host serves every stream independently.
        """
        clock, recorder, host = context.clock, context.recorder, context.costs.host
        self._clock, self._record, self._kind = clock, recorder.record, transfer.kind
        is_outfeed = track is HostTrack.OUTFEED
        self._cycles, self._host_cycles = (host.outfeed, host.drain) if is_outfeed else (host.infeed, host.fill)
        self._wait_text = "room in the outfeed's buffer" if is_outfeed else "the next element of the infeed"
        self._worker, self._port = resources.hosts(track, [replica]), resources.host_ports(track, [replica])
        self.elements_left, self.track, self.ipu = elements, track, transfer.ipu
        self._work_description = recorder.describe(
            Description(SpanKind.HOST, link=track.of_copy(pipeline_copy), replica=replica)
        )
        first = recorder.describe(*(transfer._replace(micro_batch=micro_batch) for micro_batch in micro_batches))
        self._transfers = {micro_batch: first + index for index, micro_batch in enumerate(micro_batches)}
        is_on_io_tiles = transfer.kind.row.track is Track.IO_TILES
        wait = SpanKind.OVERLAPPED_WAIT if is_on_io_tiles else SpanKind.HOST_WAIT
        self._wait_description = recorder.describe(Description(wait, transfer.ipu, replica=replica))
        # At the start an outfeed's places are ready for the IPU, and an infeed's places for the host.
        self._ready_for_ipu: deque[int] = deque([NONE] * depth if is_outfeed else [])
        self._ready_for_host: deque[int] = deque([] if is_outfeed else [NONE] * depth)
        self._ipu_event, self._host_event = clock.event(), clock.event()
        self._ipu_is_waiting = self._host_is_waiting = False
        self._busy_until = 0
        self._rate, self._in_progress = rate, clock.event()
        if self._host_cycles:
            clock.process(self._host_process())

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits for this stream; None if the IPU does not wait."""
        return Wait(self._wait_text) if ipu == self.ipu and self._ipu_is_waiting else None

    def state(self) -> Hashable:
        """Return the places ready for each side, the waiting side, and the host's pending work.

        Pending work is the remaining busy time, and whether any element is unprocessed.
        """
        busy = max(0, self._busy_until - self._clock.now)
        waits = self._ipu_is_waiting, self._host_is_waiting
        rate_state = None if self._rate is None else self._rate.state(self._in_progress)
        return len(self._ready_for_ipu), len(self._ready_for_host), waits, busy, bool(self.elements_left), rate_state

    def transfer(self, micro_batch: int, step: int, cause: int) -> Spans:
        """Wait for a place in the buffer, copy, and hand the place to the host; return the span.

        A host without cost is never late.
        """
        start = self._clock.now
        if self._host_cycles:
            if not self._ready_for_ipu:
                self._ipu_is_waiting, self._ipu_event = True, self._clock.event()
                yield self._ipu_event
                cycle = self._clock.now
                if cycle > start:
                    self._record(self._wait_description, step, start, cycle, cause)
                    cause, start = self._ready_for_ipu[0], cycle
            self._ready_for_ipu.popleft()
        end: int = yield self._clock.spend(self._port, self._kind, self._cycles)
        cause = self._record(self._transfers[micro_batch], step, start, end, cause)
        if self._host_cycles:
            self._ready_for_host.append(cause)
            if self._host_is_waiting:
                self._host_is_waiting = False
                self._host_event.succeed()
        return cause

    def _host_process(self) -> Process:
        """Process every element, waiting while no place is ready; a SimPy process."""
        previous = NONE
        while self.elements_left:
            start, cause = self._clock.now, previous
            if not self._ready_for_host:
                self._host_is_waiting, self._host_event = True, self._clock.event()
                yield self._host_event
                if self._clock.now > start:
                    start, cause = self._clock.now, self._ready_for_host[0]
            self._ready_for_host.popleft()
            if self._rate is None:
                work = self._clock.spend(self._worker, SpanKind.HOST, self._host_cycles)
                self._busy_until = work.cycle
                yield work
            else:
                self._in_progress = self._rate.transfer(1)
                yield self._in_progress
            previous = self._record(self._work_description, NONE, start, self._clock.now, cause)
            self._ready_for_ipu.append(previous)
            self.elements_left -= 1
            if self._ipu_is_waiting:
                self._ipu_is_waiting = False
                self._ipu_event.succeed()
