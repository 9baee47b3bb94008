"""A host that IPUs call in the middle of their work: they send to it, wait for it, and read what it has for them."""

from __future__ import annotations

from collections.abc import Hashable

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.facility import Wait
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class HostServer:
    """The host of one replica, which serves one call after the other, beside all else that it does (assumed).

    Attributes:
        ipus: who calls it.
    """

    def __init__(self, context: Context, replica: int, stages: list[int], track: HostTrack, kind: SpanKind) -> None:
        """Take the track of the host's work in the Timeline; copies of ``stages`` there and back are of ``kind``."""
        self._clock, self._record, self._describe = context.clock, context.recorder.record, context.recorder.describe
        self._replica, self._micro_batches = replica, context.plan.shape.micro_batches
        self._port, self._kind = resources.host_ports(track, [replica]), kind
        self._worker = resources.hosts(track, [replica])
        self._busy_until, self._last = 0, NONE
        self._ipu_of = {stage: context.ipu_of(replica, stage) for stage in stages}
        self.ipus = tuple(dict.fromkeys(self._ipu_of.values()))
        self._work = self._describe(Description(SpanKind.HOST, link=track, replica=replica))
        self._waits = {
            stage: self._describe(Description(SpanKind.HOST_WAIT, ipu.number, replica=replica))
            for stage, ipu in self._ipu_of.items()
        }
        self._copies: dict[tuple[int, int], int] = {}

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - it serves every call
        """Return None: whoever waits here is served in time."""
        return None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - it serves calls, of whatever micro-batch
        """Return the cycles for which the host is still busy."""
        return max(0, self._busy_until - self._clock.now)

    def _copy(self, size: int, cycles: int, of: tuple[int, int], step: int, cause: int) -> Spans:
        """Copy to the host, or from there, for a stage and a micro-batch; returns the last span."""
        if not cycles:
            return cause
        stage, micro_batch = of
        if (stage, size) not in self._copies:
            self._copies[stage, size] = self._described(stage, size)
        start = self._clock.now
        end: int = yield self._clock.spend(self._port, self._kind, cycles)
        return self._record(self._copies[stage, size] + micro_batch, step, start, end, cause)

    def _described(self, stage: int, size: int) -> int:
        """Return the description of a copy for the first micro-batch; those of the others follow."""
        ipu = self._ipu_of[stage]
        return self._describe(
            *(
                Description(self._kind, ipu.number, stage, micro_batch, bytes=size, replica=self._replica)
                for micro_batch in range(self._micro_batches)
            )
        )

    def _call(self, stage: int, cycles: int, step: int, cause: int) -> Spans:
        """Wait until the host has worked so long on a call; returns the span of that."""
        called = self._clock.now
        ready, work = self._serve(cycles, cause)
        if ready > called:
            yield self._clock.at(ready)
            self._record(self._waits[stage], step, called, ready, cause)
        return work

    def _serve(self, cycles: int, cause: int) -> tuple[int, int]:
        """Have the host work so long, as soon as it can; returns when that is done, and its span."""
        start = self._clock.now
        if self._busy_until > start:
            start, cause = self._busy_until, self._last
        if not cycles:
            return start, cause
        self._busy_until = self._clock.end(self._worker, SpanKind.HOST, start, cycles)
        self._last = cause = self._record(self._work, NONE, start, self._busy_until, cause)
        return self._busy_until, cause
