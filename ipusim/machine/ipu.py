"""One IPU: it takes its infeed, runs its operations in order, meets the others, and hands out its results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import simpy

from ipusim.machine.executor import Executor
from ipusim.machine.gathering import Gathering
from ipusim.machine.host import HostStream
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.reduction import Reduction
from ipusim.machine.remote import RemotePort
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import OutfeedElements
from ipusim.pricing.costs import Costs, Stream
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Agenda:
    """What one IPU does in one execution, as columns: building an object for each operation would cost as much as it.

    Attributes:
        tasks: number of operations in each emitted time-step.
        what, cycles, kind, stage, micro_batch: of each operation, in order: the
            recorder's description, its duration, and what it is.
        infeed, outfeed: micro-batches taken before and handed out after a time-step.
        outfeed_period: results are handed out in every execution whose number this divides, counted from 1.
        overlapped_io: whether they are taken and handed out during the time-step instead.
        accumulated: whether results are summed up instead of handed out, and the sum at the end of an execution.
    """

    tasks: list[int]
    what: list[int]
    cycles: list[int]
    kind: list[int]
    stage: list[int]
    micro_batch: list[int]
    infeed: dict[int, int]
    outfeed: dict[int, int]
    outfeed_period: int
    overlapped_io: bool
    accumulated: bool


class HostPort:
    """One IPU's end of a host stream."""

    def __init__(
        self,
        stream: HostStream,
        recorder: Recorder,
        transfer: Description,
        micro_batches: Sequence[int],
        transfer_cycles: int,
        wait: SpanKind = SpanKind.HOST_WAIT,
    ) -> None:
        """Describe the copies (``transfer``, for each of ``micro_batches``) and the waits for the host."""
        self.stream = stream
        self.transfer_cycles = transfer_cycles
        self.transfer = {
            micro_batch: recorder.describe(transfer._replace(micro_batch=micro_batch)) for micro_batch in micro_batches
        }
        self.wait = recorder.describe(Description(wait, transfer.ipu, replica=transfer.replica))


def agendas(
    plan: Plan, costs: Costs, recorder: Recorder, sent: OutfeedElements, replica: int = 0, first_ipu: int = 0
) -> dict[int, Agenda]:
    """Return what each IPU that holds a stage does, by its number within the replica.

    The replica's IPUs begin at ``first_ipu`` of the device. Results go to the outfeed
    right after the copy that follows the last stage's forward; with overlapped I/O during
    the next time-step, and an element of the infeed comes during the one before its pass.
    """
    size = len(plan.table)
    none, zero = np.full(size, NONE), np.zeros(size)
    rows = [plan.kind, plan.ipu + first_ipu, plan.stage, plan.micro_batch, none, zero, np.full(size, replica)]
    what = np.arange(size) + recorder.describe_rows(np.stack(rows, axis=1).astype(np.int64))
    price = np.array(
        [[costs.passes.get((kind, stage), 0) for stage in range(plan.shape.stages)] for kind in Pass],
        dtype=np.int64,
    )
    cycles = price[plan.kind, plan.stage]
    forward = plan.kind == Pass.FORWARD
    fed = forward & (plan.stage == 0)
    handed_out = forward & (plan.stage == plan.shape.stages - 1) & np.isin(plan.micro_batch, sent.micro_batches)
    agenda = {}
    by_ipu = np.argsort(plan.ipu, kind="stable")
    for own in np.split(by_ipu, np.flatnonzero(np.diff(plan.ipu[by_ipu])) + 1):
        at = plan.time_step[own]
        ahead = int(plan.shape.overlapped_io)
        infeed, outfeed = (
            dict(zip((at + shift)[chosen[own]].tolist(), plan.micro_batch[own][chosen[own]].tolist(), strict=True))
            for chosen, shift in ((fed, -ahead), (handed_out, ahead))
        )
        agenda[int(plan.ipu[own[0]])] = Agenda(
            tasks=np.bincount(at, minlength=plan.emitted).tolist(),
            what=what[own].tolist(),
            cycles=cycles[own].tolist(),
            kind=plan.kind[own].tolist(),
            stage=plan.stage[own].tolist(),
            micro_batch=plan.micro_batch[own].tolist(),
            infeed=infeed,
            outfeed=outfeed,
            outfeed_period=sent.period,
            overlapped_io=plan.shape.overlapped_io,
            accumulated=sent.accumulated and bool(outfeed),
        )
    return agenda


class Ipu:
    """The process of one IPU, and where it stands."""

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        *,
        number: int,
        place: int,
        replica: int,
        agenda: Agenda,
        interconnect: Interconnect,
        executor: Executor,
        infeed: HostPort | None,
        outfeed: HostPort | None,
        reduction: Reduction | None,
        remote: RemotePort | None,
        gathering: Gathering | None = None,
        let_go: Callable[[int, int, int | None], object] = lambda replica, place, stage: None,  # noqa: ARG005
    ) -> None:
        """Prepare logical IPU ``number``, which is IPU ``place`` of its replica, to run ``agenda`` in every execution.

        ``reduction`` comes before each weight update, where there are several replicas; ``remote`` is
        there where anything of this IPU lies in Streaming Memory, ``gathering`` where replicas store
        parts of its variables, which it lets go of by ``let_go`` (see Replicas).
        """
        self.number = number
        self.place = place
        self._reduction = reduction
        self._remote = remote
        self._gathering = gathering
        self._let_go = let_go
        self._replica = replica
        self._env = env
        self._agenda = agenda
        self._interconnect = interconnect
        self._executor = executor
        self._record = recorder.record
        self._infeed = infeed
        self._outfeed = outfeed
        self._wait = recorder.describe(Description(SpanKind.SYNC_WAIT, number, replica=replica))
        self._update = recorder.describe(Description(SpanKind.WEIGHT_UPDATE, number, replica=replica))

    def run(self, executions: int, update_cycles: int | None) -> Process:
        """Run every time-step of every execution; a SimPy process.

        ``update_cycles`` is the time of this IPU's weight update, None in inference.
        """
        # Names bound once: this loop runs for every operation of every simulated IPU.
        env, number, place, record, agenda = self._env, self.number, self.place, self._record, self._agenda
        timeout, run, arrive = env.timeout, self._executor.run, self._interconnect.arrive
        infeed, outfeed = ({}, {}) if agenda.overlapped_io else (agenda.infeed, agenda.outfeed)
        step, cause = 0, NONE
        for execution in range(executions):
            ops = zip(agenda.what, agenda.cycles, agenda.kind, agenda.stage, agenda.micro_batch, strict=True)
            for time_step, tasks in enumerate(agenda.tasks):
                beside = self._io_tiles(execution, time_step, step, cause) if agenda.overlapped_io else None
                if time_step in infeed:
                    cause = yield from self._take_infeed(infeed[time_step], step, cause)
                if tasks and self._remote is not None:
                    cause = yield from self._run_streamed(list(islice(ops, tasks)), step, cause)
                elif tasks:
                    now = self._now()
                    for what, cycles, kind, stage, micro_batch in islice(ops, tasks):
                        run(place, kind, stage, micro_batch)
                        yield timeout(cycles)
                        cause = record(what, step, now, now + cycles, cause)
                        now += cycles
                if beside is not None:
                    cause = yield from self._join(beside, step, cause)
                cause = yield arrive(number, cause)
                if time_step in outfeed and (execution + 1) % agenda.outfeed_period == 0:
                    cause = yield from self._give_outfeed(outfeed[time_step], step, cause)
                step += 1
            cause = yield from self._end(update_cycles, step, cause)
            cause = yield arrive(number, cause)
            # Not before all are there: an optimizer may update all variables at once, when the last IPU comes.
            if update_cycles is not None and self._gathering is not None and self._gathering.wanted(None):
                self._let_go(self._replica, place, None)
            step += 1

    def waits_for(self) -> str:
        """Return in words what this IPU waits for, where nothing is left to happen."""
        for what, meeting in (("the sum over replicas", self._reduction), ("the all-gather", self._gathering)):
            if meeting is not None and (late := meeting.missing(self.number)):
                return f"{what}, which waits for IPU {', '.join(map(str, late))}"
        if self._remote is not None and self._remote.under_way:
            return self._remote.under_way
        for what, port in (
            ("the next element of the infeed", self._infeed),
            ("room in the outfeed's buffer", self._outfeed),
        ):
            if port is not None and port.stream.ipu_is_waiting:
                return what
        return self._interconnect.waits_for(self.number)

    def _end(self, update_cycles: int | None, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        """End an execution: update the weights, and hand out what was accumulated; returns the last span."""
        if update_cycles is None:  # without a weight update the sum goes out in the last time-step
            return (yield from self._give_total(step - 1, cause)) if self._agenda.accumulated else cause
        if self._reduction is not None:
            cause = yield self._reduction.arrive(self.number, cause)
        if self._remote is not None:
            cause = yield from self._remote.load(self._remote.update, step, cause)
            cause = yield from self._put_together(None, step, cause)
        now = self._now()
        self._executor.update(self.place)
        yield self._env.timeout(update_cycles)
        cause = self._record(self._update, step, now, now + update_cycles, cause)
        if self._remote is not None:
            cause = yield from self._remote.store(self._remote.update, step, cause)
        return (yield from self._give_total(step, cause)) if self._agenda.accumulated else cause

    def _io_tiles(self, execution: int, time_step: int, step: int, cause: int) -> simpy.Process | None:
        """Begin the host copies that this IPU's I/O tiles make during a time-step; None without any."""
        taken = self._agenda.infeed.get(time_step)
        given = self._agenda.outfeed.get(time_step)
        if (execution + 1) % self._agenda.outfeed_period:
            given = None
        if taken is None and given is None:
            return None
        return self._env.process(self._copy_beside(given, taken, step, cause))

    def _copy_beside(
        self, given: int | None, taken: int | None, step: int, cause: int
    ) -> Generator[simpy.Event, Any, int]:
        """Hand out, then take in, as Graphcore's overlapped visitor does; returns the last span. A SimPy process."""
        if given is not None:
            cause = yield from self._give_outfeed(given, step, cause)
        if taken is not None:
            cause = yield from self._take_infeed(taken, step, cause)
        return cause

    def _join(self, beside: simpy.Process, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        """Wait for the I/O tiles if they are behind, and return what this IPU's time-step ended with."""
        start = self._now()
        last: int = yield beside
        if self._now() == start:
            return cause
        self._record(self._wait, step, start, self._now(), cause)
        return last

    def _run_streamed(
        self, ops: Sequence[tuple[int, int, int, int, int]], step: int, cause: int
    ) -> Generator[simpy.Event, Any, int]:
        """Run the operations of a time-step, each between what it loads and what it stores."""
        assert self._remote is not None
        for what, cycles, kind, stage, micro_batch in ops:
            stream = self._remote.passes.get((kind, stage), Stream())
            cause = yield from self._remote.load(stream, step, cause)
            cause = yield from self._put_together(stage, step, cause)
            now = self._now()
            self._executor.run(self.place, kind, stage, micro_batch)
            if self._gathering is not None and self._gathering.wanted(stage):
                self._let_go(self._replica, self.place, stage)
            yield self._env.timeout(cycles)
            cause = self._record(what, step, now, now + cycles, cause)
            cause = yield from self._remote.store(stream, step, cause)
        return cause

    def _put_together(self, stage: int | None, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        """Wait until the replicas have put together what a pass of ``stage``, or (None) the weight update, needs."""
        if self._gathering is None or not self._gathering.wanted(stage):
            return cause
        spans = yield self._gathering.arrive(self.number, stage, step, cause)
        span: int = spans[self.number]
        return span

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _take_infeed(self, micro_batch: int, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        if self._infeed is not None:
            cause = yield from self._transfer(self._infeed, micro_batch, step, cause)
        self._executor.infeed(self.place, micro_batch)
        return cause

    def _give_outfeed(self, micro_batch: int, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        self._executor.outfeed(micro_batch)
        if self._outfeed is not None and not self._agenda.accumulated:
            cause = yield from self._transfer(self._outfeed, micro_batch, step, cause)
        return cause

    def _give_total(self, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        self._executor.outfeed_total()
        if self._outfeed is not None:
            cause = yield from self._transfer(self._outfeed, NONE, step, cause)
        return cause

    def _transfer(self, port: HostPort, micro_batch: int, step: int, cause: int) -> Generator[simpy.Event, Any, int]:
        """Wait for a place in the stream's buffer if the host is behind, then copy; returns the copy's span."""
        start = self._now()
        waiting = port.stream.waiting()
        if waiting is not None:
            yield waiting
            now = self._now()
            self._record(port.wait, step, start, now, cause)
            cause, start = port.stream.take(), now
        else:
            port.stream.take()
        yield self._env.timeout(port.transfer_cycles)
        cause = self._record(port.transfer[micro_batch], step, start, start + port.transfer_cycles, cause)
        port.stream.give_back(cause)
        return cause
