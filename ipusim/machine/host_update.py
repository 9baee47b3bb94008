"""The weight update that the host does: gradients go there, and new weights come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipusim.machine.clock import Clock, Spans
from ipusim.machine.host_meeting import HostMeeting
from ipusim.machine.resources import hosts
from ipusim.pricing.costs import HostUpdate
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class HostUpdating(HostMeeting):
    """Where all IPUs of a host meet behind the sums of their gradients, and wait for the host's weight update."""

    what = "the weight update on the host"
    kind, track = SpanKind.HOST_UPDATE, HostTrack.VARIABLES

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
        """Prepare as for any such meeting; ``update`` does the arithmetic."""
        super().__init__(clock, recorder, ipus, first_step=first_step, steps=steps)
        self._cost, self._update = cost, update
        self._gradients, self._weights = (
            recorder.describe(Description(SpanKind.HOST_UPDATE, ALL_IPUS, bytes=size, replica=NONE))
            for size in (cost.gradients, cost.weights)
        )
        self._work = recorder.describe(Description(SpanKind.HOST, link=HostTrack.VARIABLES, bytes=cost.gradients))

    def _carry_out(self, cause: int) -> Spans:
        """Take the gradients, update, and hand out the weights."""
        cause = yield from self._copy(self._gradients, self._cost.write, cause)
        done = self._clock.end(hosts(self.track), SpanKind.HOST, self._clock.now, self._cost.apply)
        cause = yield from self._wait_for_host(self._work, done, cause)
        self._update()
        return (yield from self._copy(self._weights, self._cost.read, cause))
