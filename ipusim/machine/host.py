"""The host's side of the feeds: streams that run beside the IPUs, with buffers of a few elements between."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock, Process, Spans
from ipusim.machine.facility import Wait
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE


class HostStream:
    """A buffer of ``depth`` places between the host and one IPU, worked by one host process.

    For an infeed the host turns empty places into full ones (it prefetches), for
    an outfeed full ones into empty ones; the IPU does the reverse, and waits only
    when the host is behind. A place is handed over with the number of the span
    that made it ready, so that a wait knows its cause.

    Attributes:
        track: what the host does in it.
        port: the way between the IPU and the host.
        left: elements that the host has not worked through yet. No state tells of them: where states recur, it goes on
            as before for as long as there are enough.
        ipu_is_waiting: whether the IPU waits for the host at this moment.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        *,
        track: HostTrack,
        host_cycles: int,
        depth: int,
        elements: int,
        replica: int = 0,
    ) -> None:
        """Prepare a stream of ``elements`` elements; the host needs ``host_cycles`` for each.

        Each replica has streams of its own, which the host works side by side (assumed).
        """
        self._clock = clock
        self._host_cycles = host_cycles
        self._worker, self.port = resources.hosts(track, [replica]), resources.host_ports(track, [replica])
        self.left, self.track = elements, track
        self._record = recorder.record
        self._what = recorder.describe(Description(SpanKind.HOST, link=track, replica=replica))
        full_at_start = track == HostTrack.OUTFEED  # the IPU finds an outfeed's places ready, an infeed's not yet
        self._for_ipu: deque[int] = deque([NONE] * depth if full_at_start else [])
        self._for_host: deque[int] = deque([] if full_at_start else [NONE] * depth)
        self._places_for_ipu, self._places_for_host = clock.event(), clock.event()
        self.ipu_is_waiting = self._host_is_waiting = False
        self._busy_until = 0
        if host_cycles:
            clock.process(self._host())

    @property
    def idle_host(self) -> bool:
        """Whether the host needs no time at all, so that the IPU never waits for it."""
        return self._host_cycles == 0

    def waiting(self) -> simpy.Event | None:
        """Return what the IPU must wait for before it can take a place; None if one is ready."""
        if self._for_ipu or self.idle_host:
            return None
        self.ipu_is_waiting, self._places_for_ipu = True, self._clock.event()
        return self._places_for_ipu

    def state(self) -> Hashable:
        """Return the places that are ready for the IPU and for the host, who waits, and what the host has to do.

        That is for how long it is busy, and whether there are elements that it has not begun.
        """
        busy = max(0, self._busy_until - self._clock.now)
        waits = self.ipu_is_waiting, self._host_is_waiting
        return len(self._for_ipu), len(self._for_host), waits, busy, bool(self.left)

    def take(self) -> int:
        """Take a ready place for the IPU; returns the span that made it ready, or NONE."""
        return NONE if self.idle_host else self._for_ipu.popleft()

    def give_back(self, span: int) -> None:
        """Hand the place to the host when the IPU's transfer, recorded as ``span``, has ended."""
        if self.idle_host:
            return
        self._for_host.append(span)
        if self._host_is_waiting:
            self._host_is_waiting = False
            self._places_for_host.succeed()

    def _host(self) -> Process:
        """Work through every element, waiting while there is no place to work on; a SimPy process."""
        previous = NONE
        while self.left:
            if not self._for_host:
                self._host_is_waiting, self._places_for_host = True, self._clock.event()
                yield self._places_for_host
                cause = self._for_host.popleft()
            else:
                self._for_host.popleft()
                cause = previous
            start = self._clock.now
            work = self._clock.spend(self._worker, SpanKind.HOST, self._host_cycles)
            self._busy_until = work.cycle
            previous = self._record(self._what, NONE, start, (yield work), cause)
            self._for_ipu.append(previous)
            self.left -= 1
            if self.ipu_is_waiting:
                self.ipu_is_waiting = False
                self._places_for_ipu.succeed()


class HostPort:
    """One IPU's end of a host stream.

    Attributes:
        ipu: which one.
        track: what the host does for it.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        stream: HostStream,
        transfer: Description,
        micro_batches: Sequence[int],
        transfer_cycles: int,
        what: str,
    ) -> None:
        """Describe the copies (``transfer``, for each of ``micro_batches``), and in words the waits for the host."""
        self._clock = clock
        self._record = recorder.record
        self._stream = stream
        self._cycles, self._kind = transfer_cycles, transfer.kind
        self._what = what
        self.ipu, self.track = transfer.ipu, stream.track
        beside = transfer.kind.row.track is Track.IO_TILES
        wait = SpanKind.OVERLAPPED_WAIT if beside else SpanKind.HOST_WAIT
        self._transfers = {
            micro_batch: recorder.describe(transfer._replace(micro_batch=micro_batch)) for micro_batch in micro_batches
        }
        self._wait = recorder.describe(Description(wait, transfer.ipu, replica=transfer.replica))

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        return Wait(self._what) if ipu == self.ipu and self._stream.ipu_is_waiting else None

    def state(self) -> Hashable:
        """Return that of the stream."""
        return self._stream.state()

    def transfer(self, micro_batch: int, step: int, cause: int) -> Spans:
        """Wait for a place in the stream's buffer if the host is behind, then copy; returns the copy's span."""
        start = self._clock.now
        waiting = self._stream.waiting()
        if waiting is not None:
            yield waiting
            now = self._clock.now
            self._record(self._wait, step, start, now, cause)
            cause, start = self._stream.take(), now
        else:
            self._stream.take()
        end: int = yield self._clock.spend(self._stream.port, self._kind, self._cycles)
        cause = self._record(self._transfers[micro_batch], step, start, end, cause)
        self._stream.give_back(cause)
        return cause
