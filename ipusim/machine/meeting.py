"""Let IPUs meet: each waits for the others, the last arrival begins joint work, and all continue after the work."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import simpy

from ipusim.hardware.collectives.cost import CollectiveCost, RoundCost
from ipusim.hardware.copies import LinkLoad
from ipusim.machine import resources
from ipusim.machine.clock import Clock, Process
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.timeline.kinds import SpanKind


class Meeting(Facility):
    """A meeting of IPUs. Subclasses implement ``_meet``, which finally calls ``_release``.

    Attributes:
        subject: name of the meeting, for messages about waiting IPUs.
    """

    subject: str

    def __init__(self, context: Context, ipus: Iterable[IpuId]) -> None:
        """Prepare for ``ipus``."""
        self.ipus = tuple(ipus)
        self._context, self._clock, self._record = context, context.clock, context.recorder.record
        self._numbers = tuple(ipu.number for ipu in self.ipus)
        self._workers = resources.ipus(self._numbers)
        self._arrived: dict[int, tuple[int, int]] = {}
        self._is_working = False
        self._event = self._clock.event()
        self._wait_descriptions = context.describe_ipus(SpanKind.SYNC_WAIT, self.ipus)

    def arrive(self, ipu: int, cause: int) -> simpy.Event:
        """Note the arrival of ``ipu`` after span ``cause``; return the event of release."""
        event = self._event
        self._arrived[ipu] = (self._clock.now, cause)
        if len(self._arrived) == len(self.ipus):
            self._meet(cause)
        return event

    def _handle_arrival(
        self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, _step: int, cause: int
    ) -> simpy.Event:
        """Register the arrival of ``ipu`` by an instruction without operands."""
        return self.arrive(ipu.number, cause)

    def absent_ipus(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu`` waits for; empty if ``ipu`` has not arrived."""
        return [number for number in self._numbers if number not in self._arrived] if ipu in self._arrived else []

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits in this meeting; None if the IPU does not wait."""
        absent = self.absent_ipus(ipu)
        return (
            Wait(f"{self.subject}, which waits for IPU {', '.join(map(str, absent))}", tuple(absent))
            if absent
            else None
        )

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - meetings do not depend on micro-batches
        """Return the waiting IPUs, their waiting times, and whether joint work has begun.

        The progress of the joint work is not included: it is in the state of the event queue.
        """
        time = self._clock.now
        waits = tuple(sorted((ipu, time - arrival) for ipu, (arrival, _) in self._arrived.items()))
        return waits, self._is_working

    def _meet(self, cause: int) -> None:
        """Run the joint work after the last arrival; ``cause`` is the span of the last IPU before it arrived."""
        raise NotImplementedError

    def _start_joint_work(self, process: Process) -> None:
        """Begin the joint work."""
        self._is_working = True
        self._clock.process(process)

    def _record_waits(self, step: int) -> dict[int, int]:
        """Record the waits of all IPUs but the last, open the next meeting, and return the waits' spans by IPU."""
        time = self._clock.now
        spans = {}
        for ipu in self._numbers:
            arrival, cause = self._arrived[ipu]
            if arrival < time:
                spans[ipu] = self._record(self._wait_descriptions[ipu], step, arrival, time, cause)
        self._arrived.clear()
        return spans

    def _release(self, value: object) -> None:
        """Release the IPUs."""
        event, self._event = self._event, self._clock.event()
        self._is_working = False
        event.succeed(value)


def load_spans(clock: Clock, kind: SpanKind, round_cost: RoundCost, start: int) -> Iterator[tuple[LinkLoad, int, int]]:
    """Yield every load of a round that begins in cycle ``start``, with the load's first and last cycle."""
    if clock.steady:  # a fast path, because rings over many IPUs have a hundred thousand loads
        first_byte = start + round_cost.latency_cycles
        yield from ((load, first_byte, first_byte + load.cycles) for load in round_cost.links)
        return
    for load in round_cost.links:
        link = resources.link(load.direction)
        first_byte = clock.end(link, kind, start, round_cost.latency_cycles)
        yield load, first_byte, clock.end(link, SpanKind.LINK, first_byte, load.cycles)


def end_of_collective(clock: Clock, workers: resources.Workers, kind: SpanKind, cost: CollectiveCost) -> int:
    """Return the end of a collective that ``workers`` begin now. A round ends when its last link has finished."""
    if clock.steady:  # a fast path, because rings over many IPUs have a hundred thousand loads
        return clock.now + int(cost.total_cycles)
    time = clock.now
    for round_cost in cost.rounds:
        time = clock.end(workers, kind, time, cost.lead_cycles)
        hops = clock.end(workers, kind, time, round_cost.latency_cycles)
        time = max((end for *_, end in load_spans(clock, kind, round_cost, time)), default=hops)
    return time
