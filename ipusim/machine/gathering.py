"""Where replicas put together what each of them stores a part of: all-gathers before passes and weight updates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from ipusim.pricing.costs import Gather
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder

Process = Generator[simpy.Event, Any, None]


class Gathering:
    """One place of the pipeline in all replicas: where its IPUs meet for an all-gather."""

    def __init__(
        self,
        env: simpy.Environment,
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
        self._env = env
        self._record = recorder.record
        self._ipus = tuple(ipus)
        self._passes, self._update = passes, update
        self._gather = gather
        self._arrived: dict[int, int] = {}
        self._done = env.event()
        sizes = {each.bytes for each in passes.values()} | ({update.bytes} if update else set())
        self._what = {
            (ipu, size): recorder.describe(Description(SpanKind.ALL_GATHER, ipu, bytes=size, replica=replica))
            for replica, ipu in enumerate(ipus)
            for size in sorted(sizes)
        }
        self._wait = {
            ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu, replica=replica))
            for replica, ipu in enumerate(ipus)
        }
        self._since: dict[int, int] = {}

    def wanted(self, stage: int | None) -> bool:
        """Whether anything is put together before a pass of ``stage``, or (None) before a weight update."""
        return self._update is not None if stage is None else stage in self._passes

    def arrive(self, ipu: int, stage: int | None, step: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` needs the weights of ``stage``, or (None) those and the state of its weight update.

        Returns the event of their being there; its value is a mapping of each IPU to the span behind it.
        """
        done = self._done
        self._arrived[ipu] = cause
        self._since[ipu] = self._now()
        if len(self._arrived) == len(self._ipus):
            self._env.process(self._put_together(stage, step))
        return done

    def missing(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu``, which has arrived, waits for; none where it has not arrived."""
        return [other for other in self._ipus if other not in self._arrived] if ipu in self._arrived else []

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _put_together(self, stage: int | None, step: int) -> Process:
        """Synchronise, carry out every round, and release the IPUs; a SimPy process."""
        found = self._update if stage is None else self._passes[stage]
        assert found is not None
        start, causes = self._now(), dict(self._arrived)
        for ipu, since in self._since.items():
            if since < start:
                causes[ipu] = self._record(self._wait[ipu], step, since, start, causes[ipu])
        self._arrived.clear()
        self._since.clear()
        yield self._env.timeout(found.cost.total_cycles)
        self._gather(stage)
        spans = {
            ipu: self._record(self._what[ipu, found.bytes], step, start, self._now(), causes[ipu]) for ipu in self._ipus
        }
        done, self._done = self._done, self._env.event()
        done.succeed(spans)
