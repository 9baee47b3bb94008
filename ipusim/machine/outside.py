"""What a pass has the host do, before the pass: its parts are as long in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipusim.machine.asked_host import AskedHost
from ipusim.machine.clock import Clock, Spans
from ipusim.pricing.costs import PassOutside
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class Outside(AskedHost):
    """What the passes of one replica have its host do: its IPUs send, wait, and read what comes of it."""

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        passes: Mapping[tuple[int, int], Sequence[PassOutside]],
        *,
        ipus: Mapping[int, int],
        micro_batches: int,
        replica: int,
    ) -> None:
        """Describe what each (pass, stage) moves; ``ipus`` are the logical IPUs of the stages."""
        super().__init__(clock, recorder, HostTrack.OUTSIDE, SpanKind.OUTSIDE, replica)
        self._passes = passes
        stages = sorted({stage for _, stage in passes})
        self._waits = {
            stage: recorder.describe(Description(SpanKind.HOST_WAIT, ipus[stage], replica=replica)) for stage in stages
        }
        sizes = {
            (stage, size)
            for (_, stage), calls in passes.items()
            for each in calls
            for size in (each.call.sent_bytes, each.call.returned_bytes)
        }
        self._moves = {
            (stage, size): recorder.describe(
                *(
                    Description(SpanKind.OUTSIDE, ipus[stage], stage, micro_batch, bytes=size, replica=replica)
                    for micro_batch in range(micro_batches)
                )
            )
            for stage, size in sorted(sizes)
        }

    def carry_out(self, kind: int, stage: int, micro_batch: int, step: int, cause: int) -> Spans:
        """Do all that a pass has the host do, one after the other; returns the last span."""
        for each in self._passes[kind, stage]:
            there, back = (
                self._moves[stage, size] + micro_batch for size in (each.call.sent_bytes, each.call.returned_bytes)
            )
            cause = yield from self._move(there, each.send, step, cause)
            cause = yield from self._wait_for(self._waits[stage], each.host, step, cause)
            cause = yield from self._move(back, each.read, step, cause)
        return cause
