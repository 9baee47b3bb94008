"""Where replicas put together what each of them stores a part of: all-gathers before passes and weight updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from ipusim.machine.carrying import carried_until
from ipusim.machine.clock import Clock, Process
from ipusim.machine.rendezvous import Meeting
from ipusim.pricing.costs import Gather
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class Gathering(Meeting):
    """One place of the pipeline in all replicas: where its IPUs meet for an all-gather."""

    what = "the all-gather"

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        *,
        ipus: Sequence[int],
        passes: dict[int, Gather],
        update: Gather | None,
        gather: Callable[[int | None], object],
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs of the place in the order of the replicas.

        ``passes`` are the all-gathers by stage, ``update`` the one before weight updates; ``gather``
        does the arithmetic, for a stage or (None) for the update.
        """
        super().__init__(clock, recorder, {ipu: replica for replica, ipu in enumerate(ipus)})
        self._passes, self._update = passes, update
        self._gather = gather
        self._wanted: tuple[int | None, int] = (None, 0)
        sizes = {each.bytes for each in passes.values()} | ({update.bytes} if update else set())
        self._what = {
            (ipu, size): recorder.describe(Description(SpanKind.ALL_GATHER, ipu, bytes=size, replica=replica))
            for replica, ipu in enumerate(ipus)
            for size in sorted(sizes)
        }

    def gather(self, ipu: int, stage: int | None, step: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` needs the weights of ``stage``, or (None) those and the state of its weight update.

        Returns the event of their being there; its value is a mapping of each IPU to the span behind it.
        """
        self._wanted = stage, step
        return self.arrive(ipu, cause)

    def _meet(self, cause: int) -> None:  # noqa: ARG002 - each IPU's own span is behind its part
        self._clock.process(self._put_together(*self._wanted))

    def _put_together(self, stage: int | None, step: int) -> Process:
        """Synchronise, carry out every round, and release the IPUs; a SimPy process."""
        found = self._update if stage is None else self._passes[stage]
        assert found is not None
        start = self._clock.now
        causes = {ipu: before for ipu, (_, before) in self._arrived.items()}
        causes |= self._record_waits(step)
        end: int = yield self._clock.at(carried_until(self._clock, self._workers, SpanKind.ALL_GATHER, found.cost))
        self._gather(stage)
        spans = {ipu: self._record(self._what[ipu, found.bytes], step, start, end, causes[ipu]) for ipu in self._ipus}
        self._release(spans)
