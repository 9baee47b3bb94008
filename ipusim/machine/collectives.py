"""Where replicas meet for what a pass has them do together, before the pass: its parts are as long in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import simpy

from ipusim.machine.carrying import carried_until
from ipusim.machine.clock import Clock, Process
from ipusim.machine.rendezvous import Meeting
from ipusim.pricing.costs import PassCollective
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class Collectives(Meeting):
    """One place of the pipeline in all replicas: where its IPUs meet for the collectives of a pass."""

    what = "a collective of its stage"

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        *,
        ipus: Sequence[int],
        passes: Mapping[tuple[int, int], Sequence[PassCollective]],
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs of the place in the order of the replicas.

        ``passes`` are the collectives of each (pass, stage), one after the other.
        """
        super().__init__(clock, recorder, {ipu: replica for replica, ipu in enumerate(ipus)})
        self._describe = recorder.describe
        self._passes = passes
        self._wanted: tuple[int, int, int, int] = (0, 0, 0, 0)
        #: Of each (pass, stage, micro-batch), the description of the first replica's span of each collective.
        self._what: dict[tuple[int, int, int], list[int]] = {}

    def join(self, ipu: int, kind: int, stage: int, micro_batch: int, step: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` is at a pass, which counts to ``step``.

        Returns the event of the end of its collectives; its value is a mapping of each IPU to the span behind it.
        """
        self._wanted = kind, stage, micro_batch, step
        return self.arrive(ipu, cause)

    def _meet(self, cause: int) -> None:  # noqa: ARG002 - each IPU's own span is behind its part
        self._clock.process(self._carry_out(*self._wanted))

    def _carry_out(self, kind: int, stage: int, micro_batch: int, step: int) -> Process:
        """Synchronise and carry out every round of each collective, and release the IPUs; a SimPy process."""
        spans = {ipu: before for ipu, (_, before) in self._arrived.items()}
        spans |= self._record_waits(step)
        found, described = self._passes[kind, stage], self._described(kind, stage, micro_batch)
        for each, first in zip(found, described, strict=True):
            start = self._clock.now
            end: int = yield self._clock.at(carried_until(self._clock, self._workers, SpanKind.COLLECTIVE, each.cost))
            for what, ipu in enumerate(self._ipus, first):
                spans[ipu] = self._record(what, step, start, end, spans[ipu])
        self._release(spans)

    def _described(self, kind: int, stage: int, micro_batch: int) -> list[int]:
        key = kind, stage, micro_batch
        if key not in self._what:  # described once: every execution has them again
            self._what[key] = [
                self._describe(
                    *(
                        Description(SpanKind.COLLECTIVE, ipu, stage, micro_batch, bytes=each.bytes, replica=replica)
                        for replica, ipu in enumerate(self._ipus)
                    )
                )
                for each in self._passes[kind, stage]
            ]
        return self._what[key]
