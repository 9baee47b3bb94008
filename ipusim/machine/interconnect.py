"""Lock-step: where all IPUs meet after each time-step, and the IPU-Links that carry the merged copy."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from ipusim.machine.durations import Durations
from ipusim.machine.executor import Executor
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, SpanKind

Process = Generator[simpy.Event, Any, None]


class Interconnect:
    """The meeting point of a pipeline's IPUs, with one process for itself and one for each link direction.

    An IPU that has finished its part of a time-step calls :meth:`arrive` and
    yields the event that it returns; the event's value is the number of the span
    that released it. When the last has arrived they synchronise, every link
    direction carries its share of the bytes, and the copy ends when the last
    link has delivered.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ipus: Sequence[int],
        durations: Durations,
        executor: Executor,
        recorder: Recorder,
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs that hold a stage."""
        self._env = env
        self._ipus = tuple(ipus)
        self._durations = durations
        self._executor = executor
        self._record = recorder.record
        self._arrived: dict[int, tuple[int, int]] = {}
        self._all_arrived = env.event()
        self._done = env.event()
        self._delivered = env.event()
        self._carrying = 0
        self._wait_of = {ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu)) for ipu in self._ipus}
        self._sync = recorder.describe(Description(SpanKind.SYNC, ALL_IPUS))
        self._exchange = [
            recorder.describe(Description(SpanKind.EXCHANGE, ALL_IPUS, bytes=copy.bytes)) for copy in durations.copies
        ]
        # Link directions that always carry together wake by one event: with one merged copy, all of them.
        members: dict[tuple[int, ...], list[int]] = {}
        for link in range(len(durations.links)):
            copies = tuple(
                index for index, copy in enumerate(durations.copies) if any(share.link == link for share in copy.links)
            )
            members.setdefault(copies, []).append(link)
        self._wake = [env.event() for _ in members]
        self._groups_of_copy = [
            [group for group, copies in enumerate(members) if which in copies] for which in range(len(durations.copies))
        ]
        for group, links in enumerate(members.values()):
            for link in links:
                env.process(self._link(group, self._shares(link, recorder)))

    def _shares(self, link: int, recorder: Recorder) -> dict[int, tuple[int, int]]:
        """Return what the link carries in each copy: its description for the recorder, and cycles."""
        return {
            which: (recorder.describe(Description(SpanKind.LINK, link=link, bytes=share.bytes)), share.cycles)
            for which, copy in enumerate(self._durations.copies)
            for share in copy.links
            if share.link == link
        }

    def arrive(self, ipu: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` has finished, its last span being ``cause``, and return what it must wait for."""
        self._arrived[ipu] = (self._env.now, cause)  # type: ignore[assignment]  # time is an integer here
        if len(self._arrived) == len(self._ipus):
            self._all_arrived.succeed(cause)
        return self._done

    def missing(self) -> list[int]:
        """Return the IPUs that have not arrived at the current meeting."""
        return [ipu for ipu in self._ipus if ipu not in self._arrived]

    def meet(self, executions: int, training: bool, finished: Callable[[int], object]) -> Process:
        """Run every meeting of ``executions`` executions of the pipeline; a SimPy process.

        After each time-step: synchronise, copy, release. After the weight update
        the IPUs only wait for the slowest, then the next execution begins.
        ``finished`` is told the number of time-steps that are behind.
        """
        copies, copy_of = self._durations.copies, self._durations.copy_of
        step = 0
        for execution in range(executions):
            for which in copy_of:
                cause = yield self._all_arrived
                self._record_waits(step)
                copy = copies[which]
                if copy.lead_cycles:
                    start = self._now()
                    yield self._env.timeout(copy.lead_cycles)
                    cause = self._record(self._sync, step, start, self._now(), cause)
                if copy.links:
                    start = self._now()
                    self._carrying = len(copy.links)
                    for group in self._groups_of_copy[which]:
                        woken, self._wake[group] = self._wake[group], self._env.event()
                        woken.succeed((which, step, start, cause))
                    yield self._delivered
                    cause = self._record(self._exchange[which], step, start, self._now(), cause)
                self._executor.copy(copy.edges)
                step += 1
                self._release(cause)
                finished(step)
            if training:
                cause = yield self._all_arrived
                self._record_waits(step)
                self._begin(execution + 1, executions)
                self._release(cause)
            else:
                self._begin(execution + 1, executions)
            step += 1

    def _begin(self, execution: int, executions: int) -> None:
        if execution < executions:
            self._executor.begin(execution)

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _record_waits(self, step: int) -> None:
        now = self._now()
        for ipu in self._ipus:
            arrival, cause = self._arrived[ipu]
            if arrival < now:
                self._record(self._wait_of[ipu], step, arrival, now, cause)
        self._arrived.clear()
        self._all_arrived = self._env.event()

    def _release(self, cause: int) -> None:
        done, self._done = self._done, self._env.event()
        done.succeed(cause)

    def _link(self, group: int, shares: dict[int, tuple[int, int]]) -> Process:
        """Carry one link direction's share of each merged copy that uses it; a SimPy process."""
        wake, timeout, record = self._wake, self._env.timeout, self._record
        while True:
            which, step, start, cause = yield wake[group]
            what, cycles = shares[which]
            yield timeout(cycles)
            record(what, step, start, start + cycles, cause)
            self._carrying -= 1
            if not self._carrying:
                delivered, self._delivered = self._delivered, self._env.event()
                delivered.succeed()
