"""Tables on the host at work: an IPU asks for rows and waits for them, and sends back what they are to learn."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import simpy

from ipusim.machine.clock import Clock
from ipusim.machine.host import TABLE_TRACK
from ipusim.pricing.costs import TableCosts
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

Spans = Generator[simpy.Event, Any, int]


class Tables:
    """The tables of one replica, which its host works one request after the other, beside its feeds (assumed).

    An IPU writes the ids, waits while the host gathers their rows, and reads these. Gradients it writes and goes on;
    a look-up that comes before the host has applied them waits for that, so that it finds the rows as they then are.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        costs: Mapping[int, TableCosts],
        *,
        ipus: Mapping[int, int],
        micro_batches: int,
        replica: int,
    ) -> None:
        """Describe what each stage moves; ``ipus`` are the logical IPUs of the stages."""
        self._clock = clock
        self._record = recorder.record
        self._costs = costs
        self._busy_until, self._last = 0, NONE
        self._work = recorder.describe(Description(SpanKind.HOST, link=TABLE_TRACK, replica=replica))
        self._waits = {
            stage: recorder.describe(Description(SpanKind.HOST_WAIT, ipus[stage], replica=replica)) for stage in costs
        }
        self._moves = {
            (stage, size): recorder.describe(
                *(
                    Description(SpanKind.HOST_ROWS, ipus[stage], stage, micro_batch, bytes=size, replica=replica)
                    for micro_batch in range(micro_batches)
                )
            )
            for stage, cost in costs.items()
            for size in {cost.bytes.ids, cost.bytes.rows, cost.bytes.back}
        }

    @property
    def state(self) -> int:
        """The cycles for which the host is still busy."""
        return max(0, self._busy_until - self._clock.now)

    def look_up(self, stage: int, micro_batch: int, step: int, cause: int) -> Spans:
        """Bring the rows that the next forward pass of a stage asks for; returns the last span."""
        cost = self._costs[stage]
        cause = yield from self._move(stage, micro_batch, cost.bytes.ids, cost.ids, step, cause)
        asked = self._clock.now
        ready, found = self._host(cost.gather, cause)
        if ready > asked:
            yield self._clock.spend(ready - asked)
            self._record(self._waits[stage], step, asked, ready, cause)
        return (yield from self._move(stage, micro_batch, cost.bytes.rows, cost.rows, step, found))

    def update(self, stage: int, micro_batch: int, step: int, cause: int) -> Spans:
        """Send the gradients of rows to the host, which applies them while the IPU goes on; returns the last span."""
        cost = self._costs[stage]
        cause = yield from self._move(stage, micro_batch, cost.bytes.back, cost.gradients, step, cause)
        self._host(cost.apply, cause)
        return cause

    def _move(self, stage: int, micro_batch: int, size: int, cycles: int, step: int, cause: int) -> Spans:
        if not cycles:
            return cause
        start = self._clock.now
        yield self._clock.spend(cycles)
        return self._record(self._moves[stage, size] + micro_batch, step, start, start + cycles, cause)

    def _host(self, cycles: int, cause: int) -> tuple[int, int]:
        """Have the host work so long, as soon as it can; returns when that is done, and its span."""
        start = self._clock.now
        if self._busy_until > start:
            start, cause = self._busy_until, self._last
        if cycles:
            self._busy_until = start + cycles
            self._last = cause = self._record(self._work, NONE, start, self._busy_until, cause)
        return start + cycles, cause
