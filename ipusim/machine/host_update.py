"""The weight update that the host does: gradients go there, and new weights come back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import simpy

from ipusim.machine.clock import Clock, Process
from ipusim.machine.rendezvous import Meeting
from ipusim.pricing.costs import HostUpdate
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class HostUpdating(Meeting):
    """Where all IPUs of a host meet behind the sums of their gradients, and wait for the host's weight update."""

    what = "the weight update on the host"

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        cost: HostUpdate,
        *,
        ipus: Mapping[int, int],
        update: Callable[[], object],
        first_step: int,
        steps: int,
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs that hold a stage, and the replica of each.

        ``update`` does the arithmetic. Spans carry step ``first_step`` in the first execution, and ``steps`` more in
        each further one.
        """
        super().__init__(clock, recorder, ipus)
        self._cost, self._update = cost, update
        self._step, self._steps = first_step, steps
        self._gradients, self._weights = (
            recorder.describe(Description(SpanKind.HOST_UPDATE, ALL_IPUS, bytes=size, replica=NONE))
            for size in (cost.gradients, cost.weights)
        )
        self._wait = recorder.describe(Description(SpanKind.HOST_WAIT, ALL_IPUS, replica=NONE))
        self._work = recorder.describe(Description(SpanKind.HOST, link=HostTrack.VARIABLES, bytes=cost.gradients))

    def _meet(self, cause: int) -> None:
        self._clock.process(self._hand_over(cause))

    def _hand_over(self, cause: int) -> Process:
        """Take the gradients, update, hand out the weights, and release all IPUs; a SimPy process."""
        self._record_waits(self._step)
        if self._cost.write:
            cause = yield from self._spend(self._gradients, self._cost.write, cause)
        start = self._clock.now
        yield self._clock.spend(self._cost.apply)
        self._update()
        cause = self._record(self._work, NONE, start, self._clock.now, cause)
        self._record(self._wait, self._step, start, self._clock.now, cause)
        cause = yield from self._spend(self._weights, self._cost.read, cause)
        self._step += self._steps
        self._release(cause)

    def _spend(self, what: int, cycles: int, cause: int) -> Generator[simpy.Event, Any, int]:
        start = self._clock.now
        yield self._clock.spend(cycles)
        return self._record(what, self._step, start, self._clock.now, cause)
