"""Lock-step: where all IPUs meet after each time-step, and the IPU-Links that carry the merged copy."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import simpy

from ipusim.machine.executor import Executor
from ipusim.pricing.costs import StepCopy
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE

Process = Generator[simpy.Event, Any, None]


class Interconnect:
    """The meeting point of a pipeline's IPUs, with one process for each link direction.

    An IPU that has finished its part of a time-step calls :meth:`arrive` and
    yields the event that it returns; the event's value is the number of the span
    that released it. When the last has arrived they synchronise, every link
    direction carries its share of the bytes, and the copy ends when the last
    link has delivered.

    Attributes:
        finished: is told the number of time-steps that are behind, after each.
    """

    finished: Callable[[int], object] | None = None

    def __init__(
        self,
        env: simpy.Environment,
        ipus: Mapping[int, int],
        copies: Sequence[StepCopy],
        copy_of: Sequence[int],
        executors: Sequence[Executor],
        recorder: Recorder,
        executions: int,
        replica: int = NONE,
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs that hold a stage, with the replica of each, and that many executions.

        ``copies`` are the distinct ones of those who meet here, ``copy_of`` says which of them follows
        each time-step. ``executors`` are those of the replicas that meet here: of all of them, or of ``replica``
        alone where replicas do not wait for each other.
        """
        self._env = env
        self._ipus = tuple(ipus)
        self._copies, self._copy_of = tuple(copies), tuple(copy_of)
        self._executors = tuple(executors)
        self._record = recorder.record
        self._arrived: dict[int, tuple[int, int]] = {}
        self._done = env.event()
        self._carrying = 0
        self._copy = self._copies[0]
        self._execution, self._time_step, self._step = 0, 0, 0
        self._executions = executions
        self._wait_of = {
            ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu, replica=of)) for ipu, of in ipus.items()
        }
        self._sync = recorder.describe(Description(SpanKind.SYNC, ALL_IPUS, replica=replica))
        self._exchange = [
            recorder.describe(Description(SpanKind.EXCHANGE, ALL_IPUS, bytes=copy.bytes, replica=replica))
            for copy in copies
        ]
        # Link directions that always carry together wake by one event: with one merged copy, all of them.
        members: dict[tuple[int, ...], list[int]] = {}
        for link in sorted({share.link for copy in copies for share in copy.links}):
            among = tuple(index for index, copy in enumerate(copies) if any(share.link == link for share in copy.links))
            members.setdefault(among, []).append(link)
        self._wake = [env.event() for _ in members]
        self._groups_of_copy = [
            [group for group, among in enumerate(members) if which in among] for which in range(len(copies))
        ]
        for group, links in enumerate(members.values()):
            for link in links:
                env.process(self._link(group, self._shares(link, recorder)))

    def _shares(self, link: int, recorder: Recorder) -> dict[int, tuple[int, int]]:
        """Return what the link carries in each copy: its description for the recorder, and cycles."""
        return {
            which: (
                recorder.describe(Description(SpanKind.LINK, link=link, bytes=share.bytes, replica=NONE)),
                share.cycles,
            )
            for which, copy in enumerate(self._copies)
            for share in copy.links
            if share.link == link
        }

    def arrive(self, ipu: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` has finished, its last span being ``cause``, and return what it must wait for."""
        done = self._done
        self._arrived[ipu] = (self._now(), cause)
        if len(self._arrived) == len(self._ipus):
            self._meet(cause)
        return done

    def waits_for(self, ipu: int) -> str:
        """Return in words what ``ipu`` waits for here, where nothing is left to happen."""
        if self._carrying:
            return f"the inter-IPU copy, which {self._carrying} of its links have not delivered"
        if ipu not in self._arrived:
            return "an event of its own time-step"
        late = [other for other in self._ipus if other not in self._arrived]
        return f"the inter-IPU copy, which waits for IPU {', '.join(map(str, late))}"

    def _meet(self, cause: int) -> None:
        """Begin what follows the last arrival: synchronise if there is anything to copy, else release all at once.

        The meeting is a chain of event callbacks and no process: every step of it
        would otherwise cost an event more.
        """
        self._record_waits()
        if self._time_step == len(self._copy_of):
            # The update, or an inference's last outfeed, is done: executions never overlap.
            self._execution += 1
            self._step += 1
            self._time_step = 0
            if self._execution < self._executions:
                for executor in self._executors:
                    executor.begin(self._execution)
            self._release(cause)
            return
        copy = self._copies[self._copy_of[self._time_step]]
        if copy.lead_cycles:
            start = self._now()
            lead = self._env.timeout(copy.lead_cycles)
            lead.callbacks.append(
                lambda _: self._transfer(copy, self._record(self._sync, self._step, start, self._now(), cause))
            )
        else:
            self._transfer(copy, cause)

    def _transfer(self, copy: StepCopy, cause: int) -> None:
        """Wake the link directions that carry ``copy``; without any, the copy is done."""
        self._copy = copy
        if not copy.links:
            self._finish(cause)
            return
        which = self._copy_of[self._time_step]
        start = self._now()
        self._carrying = len(copy.links)
        for group in self._groups_of_copy[which]:
            woken, self._wake[group] = self._wake[group], self._env.event()
            woken.succeed((which, start, cause))

    def _finish(self, cause: int) -> None:
        """End a time-step: the tensors are where they go, and the IPUs go on."""
        for executor in self._executors:
            executor.copy(self._copy.edges)
        self._time_step += 1
        self._step += 1
        self._release(cause)
        if self.finished is not None:
            self.finished(self._step)

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _record_waits(self) -> None:
        now, step = self._now(), self._step
        for ipu in self._ipus:
            arrival, cause = self._arrived[ipu]
            if arrival < now:
                self._record(self._wait_of[ipu], step, arrival, now, cause)
        self._arrived.clear()

    def _release(self, cause: int) -> None:
        done, self._done = self._done, self._env.event()
        done.succeed(cause)

    def _link(self, group: int, shares: dict[int, tuple[int, int]]) -> Process:
        """Carry one link direction's share of each merged copy that uses it; a SimPy process."""
        wake, timeout, record = self._wake, self._env.timeout, self._record
        while True:
            which, start, cause = yield wake[group]
            what, cycles = shares[which]
            yield timeout(cycles)
            record(what, self._step, start, start + cycles, cause)
            self._carrying -= 1
            if not self._carrying:
                # The copy ends when the last link has delivered.
                self._finish(record(self._exchange[which], self._step, start, start + cycles, cause))
