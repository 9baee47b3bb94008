"""What replicas do together before a weight update: their gradients are summed up over the IPU-Links."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import simpy

from ipusim.hardware.links import LinkDirection
from ipusim.pricing.costs import GradientSum
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE

Process = Generator[simpy.Event, Any, None]


class Reduction:
    """Where all IPUs of all replicas meet between a pipeline and its weight update."""

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        total: GradientSum,
        *,
        ipus: Mapping[int, int],
        links: Mapping[LinkDirection, int],
        reduce: Callable[[], object],
        first_step: int,
        steps: int,
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs that hold a stage, and the replica of each.

        ``links`` numbers the link directions. ``reduce`` does the arithmetic. Spans carry step
        ``first_step`` in the first execution, and ``steps`` more in each further one.
        """
        self._env = env
        self._record = recorder.record
        self._cost = total.cost
        self._reduce = reduce
        self._ipus = dict(ipus)
        self._step, self._steps = first_step, steps
        self._arrived: dict[int, tuple[int, int]] = {}
        self._done = env.event()
        self._wait_of = {
            ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu, replica=replica))
            for ipu, replica in ipus.items()
        }
        whole = Description(SpanKind.ALL_REDUCE, ALL_IPUS, bytes=total.bytes, replica=NONE)
        self._what = recorder.describe(whole)
        self._loads = [
            [
                (
                    recorder.describe(
                        Description(SpanKind.LINK, link=links[load.direction], bytes=load.bytes, replica=NONE)
                    ),
                    load.cycles,
                )
                for load in each.links
            ]
            for each in total.cost.rounds
        ]

    def arrive(self, ipu: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` has finished its pipeline, its last span being ``cause``, and return what it waits for."""
        done = self._done
        self._arrived[ipu] = (self._now(), cause)
        if len(self._arrived) == len(self._ipus):
            self._env.process(self._sum_up(cause))
        return done

    def missing(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu``, which has arrived, waits for; none where it has not arrived."""
        return [other for other in self._ipus if other not in self._arrived] if ipu in self._arrived else []

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _sum_up(self, cause: int) -> Process:
        """Synchronise, carry out every round, and release all IPUs; a SimPy process."""
        start = self._now()
        for ipu, (arrival, before) in sorted(self._arrived.items()):
            if arrival < start:
                self._record(self._wait_of[ipu], self._step, arrival, start, before)
        self._arrived.clear()
        yield self._env.timeout(self._cost.lead_cycles)
        for each, loads in zip(self._cost.rounds, self._loads, strict=True):
            first_byte = self._now() + each.latency_cycles
            yield self._env.timeout(each.total_cycles)
            for what, cycles in loads:
                self._record(what, self._step, first_byte, first_byte + cycles, cause)
        self._reduce()
        span = self._record(self._what, self._step, start, self._now(), cause)
        self._step += self._steps
        done, self._done = self._done, self._env.event()
        done.succeed(span)
