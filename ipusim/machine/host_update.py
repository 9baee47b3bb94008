"""The weight update that the host does: gradients go there, and new weights come back."""

from __future__ import annotations

from collections.abc import Callable

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.host_copies import HostCopies
from ipusim.pricing.costs import HostUpdate
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind


class HostUpdating:
    """The weight update of all stages, for which IPUs wait behind the sums of their gradients."""

    def __init__(self, context: Context, cost: HostUpdate, update: Callable[[], object]) -> None:
        """Describe the copies and the host's work; ``update`` does the arithmetic."""
        self._clock = context.clock
        self._cost, self._update = cost, update
        self._copies = HostCopies(context, SpanKind.HOST_UPDATE, HostTrack.VARIABLES)
        self._gradients, self._weights = self._copies.copied(cost.gradients), self._copies.copied(cost.weights)
        self._work = self._copies.worked(cost.gradients)

    def carry_out(self, step: int, cause: int) -> Spans:
        """Take the gradients, update, and hand out the weights; returns the last span."""
        cause = yield from self._copies.copy(self._gradients, self._cost.write, step, cause)
        done = self._clock.end(resources.hosts(HostTrack.VARIABLES), SpanKind.HOST, self._clock.now, self._cost.apply)
        cause = yield from self._copies.wait(self._work, done, step, cause)
        self._update()
        return (yield from self._copies.copy(self._weights, self._cost.read, step, cause))
