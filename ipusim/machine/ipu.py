"""One IPU: a process that carries out a list of instructions, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import simpy

from ipusim.lowering.streams import Stream
from ipusim.machine.agenda import Agenda
from ipusim.machine.between_runs import BetweenRuns
from ipusim.machine.clock import Clock, Process, Spans
from ipusim.machine.collectives import Collectives
from ipusim.machine.delivery import Delivery
from ipusim.machine.executor import Executor, NullExecutor
from ipusim.machine.gathering import Gathering
from ipusim.machine.host import HostPort
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.outside import Outside
from ipusim.machine.remote import RemotePort
from ipusim.machine.rendezvous import ExecutionEnd, Meeting, Rendezvous, Wait
from ipusim.machine.resources import HOST_PROGRAM, ipus
from ipusim.machine.tables import Tables
from ipusim.pipeline.instructions import NONE, PASSES, Code
from ipusim.timeline.kinds import KIND_OF_PASS, SpanKind
from ipusim.timeline.recorder import Description, Recorder

#: What belongs to the end of an execution where it is no stage's.
_ENDING: Final = frozenset(
    map(
        int,
        (
            Code.OUTFEED_TOTAL,
            Code.LOAD,
            Code.STORE,
            Code.GATHER,
            Code.ALL_REDUCE,
            Code.HOST_SUM,
            Code.UPDATE,
            Code.HOST_UPDATE,
        ),
    )
)
#: The kind of the span of each pass.
_KINDS: Final = tuple(KIND_OF_PASS)


@dataclass(frozen=True, kw_only=True)
class Connections:
    """What an IPU meets; None for what there is not.

    Attributes:
        interconnect: where IPUs meet after time-steps.
        delivery: what is sent, where they do not.
        end: where they meet at the end of an execution.
        executor: the arithmetic of its replica.
        infeed, outfeed: its ends of the host's streams.
        before_update: where all meet by an instruction's code, as replicas and hosts sum up their gradients, and the
            host updates weights.
        tables: what its stages look up on the host.
        remote: its end of the Streaming Memory.
        gathering: where replicas put its variables together.
        collectives: where they meet for what passes have them do together.
        outside: what its passes have the host do.
        let_go: lets go of what of them is no part of its own; see Replicas.
        between: what hosts do together before executions.
    """

    interconnect: Interconnect | None
    delivery: Delivery | None
    end: ExecutionEnd
    executor: Executor
    infeed: HostPort | None
    outfeed: HostPort | None
    tables: Tables | None
    before_update: Mapping[Code, Meeting]
    remote: RemotePort | None
    gathering: Gathering | None
    collectives: Collectives | None
    outside: Outside | None
    let_go: Callable[[int, int, int | None], object]
    between: BetweenRuns

    @property
    def rendezvous(self) -> tuple[Rendezvous, ...]:
        """Where it may wait, in the order in which it is asked."""
        together = *self.before_update.values(), self.gathering, self.collectives
        all_of = *together, self.remote, self.infeed, self.outfeed, self.interconnect, self.delivery, self.end
        return tuple(each for each in all_of if each is not None)


def _nothing(*_: object) -> Any:
    """Stand for what an IPU does not meet in its sync mode."""
    raise AssertionError("an instruction of another sync mode")


class Ipu:
    """The process of one IPU, and where it stands.

    Attributes:
        number: logical IPU of the device.
        place: IPU of its replica.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        *,
        number: int,
        place: int,
        replica: int,
        agenda: Agenda,
        connections: Connections,
        time_steps: int,
        update_cycles: int | None,
        call: tuple[int, int] = (0, 1),
    ) -> None:
        """Prepare to carry out ``agenda`` in every execution, which has that many ``time_steps`` and a weight update.

        ``update_cycles`` is the time of the weight update, None in inference; ``call`` the time of the host behind a
        session run, and the executions in that.
        """
        self.number = number
        self.place = place
        self._replica = replica
        self._workers = ipus([number])
        self._clock = clock
        self._agenda = agenda
        self._connections = connections
        self._steps = time_steps + 1
        self._update_cycles = update_cycles
        self._call_cycles, self._executions_in_run = call
        self._record = recorder.record
        self._beside: simpy.Process | None = None
        self._execution = 0
        self._wait = recorder.describe(Description(SpanKind.SYNC_WAIT, number, replica=replica))
        self._receive_wait = recorder.describe(Description(SpanKind.RECEIVE_WAIT, number, replica=replica))
        self._call_span = recorder.describe(Description(SpanKind.HOST_CALL, number, replica=replica))
        self._update_span = recorder.describe(Description(SpanKind.WEIGHT_UPDATE, number, replica=replica))
        # Where results leave behind a meeting, they belong to the time-step before it.
        self._behind = 0 if connections.interconnect is None else 1

    def run(self, executions: int) -> Process:  # noqa: PLR0912, PLR0915 - one dispatch, on the hot path
        """Carry out every instruction of every execution; a SimPy process."""
        # Names bound once: this loop runs for every instruction of every simulated IPU.
        clock, number, place, record, agenda = self._clock, self.number, self.place, self._record, self._agenda
        spend, receive_wait, executor = clock.spend, self._receive_wait, self._connections.executor
        run = None if isinstance(executor, NullExecutor) else executor.run
        interconnect, delivery = self._connections.interconnect, self._connections.delivery
        arrive = _nothing if interconnect is None else interconnect.arrive
        take, expect, hand_over = (
            (_nothing,) * 3 if delivery is None else (delivery.take, delivery.expect, delivery.send)
        )
        steps, workers, kinds = self._steps, self._workers, _KINDS
        do, do_now = self._do(), self._do_now()
        codes = Code.MEET, Code.RECEIVE, Code.END, Code.SEND, Code.BLOCKING_SEND
        meet, receive, end_of_execution, send, blocking_send = map(int, codes)
        cause, now = (yield from self._exchange(0, 0, NONE)), clock.now
        for execution in range(executions):
            self._execution = execution
            step = execution * steps
            last = step + steps - 1
            for what, cycles, code, stage, micro_batch, other in agenda.rows():
                if code < PASSES:
                    if run is not None:
                        run(place, code, stage, micro_batch)
                    end = yield spend(workers, kinds[code], cycles)
                    cause = record(what, step, now, end, cause)
                    now = end
                elif code == meet:
                    cause = yield arrive(number, cause, other)
                    step += other
                    now = clock.now
                elif code == receive:
                    if (span := take(other)) is None:
                        while span is None:
                            yield expect(other)
                            span = take(other)
                        start, now = now, clock.now
                        if now > start:
                            record(receive_wait, step, start, now, cause)
                        cause = span
                elif code == send:
                    hand_over(other, what, step, cause, now)
                elif code == blocking_send:
                    done = clock.event()
                    hand_over(other, what, step, cause, now, done)
                    cause = yield done
                    now = clock.now
                elif code == end_of_execution:
                    cause = yield self._connections.end.arrive(number, cause)
                    now = clock.now
                elif code in do_now:
                    cause = do_now[code](stage, micro_batch, other, step, cause)
                else:
                    at = last if stage == NONE and code in _ENDING else step
                    cause = yield from do[code](stage, micro_batch, other, at, cause)
                    now = clock.now
            if (execution + 1) % self._executions_in_run == 0:
                cause = yield from self._call(last, execution + 1, cause)
                now = clock.now

    def _call(self, step: int, execution: int, cause: int) -> Spans:
        """Wait for the host, which has ended a session run and begins the next, that with ``execution``."""
        if self._call_cycles:
            end = self._clock.end(HOST_PROGRAM, SpanKind.HOST_CALL, self._clock.now, self._call_cycles)
            cause = yield from self._wait_for_host(step, end, cause)
        return (yield from self._exchange(step, execution, cause))

    def _exchange(self, step: int, execution: int, cause: int) -> Spans:
        """Wait for what hosts do together before an execution."""
        end = self._connections.between.end(execution, cause)
        if end == self._clock.now:
            return cause
        return (yield from self._wait_for_host(step, end, cause))

    def _wait_for_host(self, step: int, end: int, cause: int) -> Spans:
        start = self._clock.now
        yield self._clock.at(end)
        return self._record(self._call_span, step, start, end, cause)

    def waits_for(self) -> Wait:
        """Return what this IPU waits for, where nothing is left to happen."""
        found = (each.waits_for(self.number) for each in self._connections.rendezvous)
        return next((wait for wait in found if wait is not None), Wait("an event of its own"))

    def _do_now(self) -> dict[int, Callable[..., int]]:
        """Return what carries out each code that takes no time, with the arguments of the others."""
        return {
            Code.ADD_RESULTS: self._add_results,
            Code.BEGIN_IO: self._begin_io,
            Code.LET_GO: self._let_go,
        }

    def _do(self) -> dict[int, Callable[..., Spans]]:
        """Return what carries out each other code: (stage, micro-batch, number, step, cause) to the last span."""
        return {
            Code.INFEED: self._take_infeed,
            Code.OUTFEED: self._give_outfeed,
            Code.OUTFEED_TOTAL: self._give_total,
            Code.END_IO: self._end_io,
            Code.LOAD: self._load,
            Code.STORE: self._store,
            Code.GATHER: self._gather,
            Code.COLLECTIVE: self._meet_replicas,
            Code.OUTSIDE: self._ask_host,
            Code.UPDATE: self._update,
            Code.LOOK_UP: self._look_up,
            Code.UPDATE_ROWS: self._update_rows,
            **{code: partial(self._meet_all, meeting) for code, meeting in self._connections.before_update.items()},
        }

    def _take_infeed(self, _stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        if self._connections.infeed is not None:
            cause = yield from self._connections.infeed.transfer(micro_batch, step, cause)
        self._connections.executor.infeed(self.place, micro_batch)
        return cause

    def _give_outfeed(self, _stage: int, micro_batch: int, period: int, step: int, cause: int) -> Spans:
        if (self._execution + 1) % period:
            return cause
        if self._connections.outfeed is not None:
            cause = yield from self._connections.outfeed.transfer(micro_batch, step - self._behind, cause)
        self._connections.executor.outfeed(micro_batch)  # it is with the host when its copy has ended
        return cause

    def _add_results(self, _stage: int, micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._connections.executor.outfeed(micro_batch)
        return cause

    def _give_total(self, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        outfeed, before, start = self._connections.outfeed, cause, self._clock.now
        if outfeed is not None:
            # Without a weight update the sum goes out in the last time-step.
            step -= self._update_cycles is None
            cause = yield from outfeed.transfer(NONE, step, cause)
            if outfeed.on_io_tiles and self._clock.now > start:
                self._record(self._wait, step, start, self._clock.now, before)
        self._connections.executor.outfeed_total()
        return cause

    def _begin_io(self, period: int, taken: int, given: int, step: int, cause: int) -> int:
        """Begin the host copies that this IPU's I/O tiles make during a time-step."""
        if (self._execution + 1) % period:
            given = NONE
        if (taken, given) != (NONE, NONE):
            self._beside = self._clock.process(self._copy_beside(given, taken, step, cause))
        return cause

    def _copy_beside(self, given: int, taken: int, step: int, cause: int) -> Spans:
        """Hand out, then take in, as Graphcore's overlapped visitor does; returns the last span. A SimPy process."""
        if given != NONE:
            cause = yield from self._give_outfeed(NONE, given, 1, step + self._behind, cause)
        if taken != NONE:
            cause = yield from self._take_infeed(NONE, taken, NONE, step, cause)
        return cause

    def _end_io(self, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Wait for the I/O tiles if they are behind, and return what this IPU's time-step ended with."""
        if self._beside is None:
            return cause
        start = self._clock.now
        last: int = yield self._beside
        self._beside = None
        if self._clock.now == start:
            return cause
        self._record(self._wait, step, start, self._clock.now, cause)
        return last

    def _look_up(self, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        assert self._connections.tables is not None
        return (yield from self._connections.tables.look_up(stage, micro_batch, step, cause))

    def _update_rows(self, stage: int, micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        assert self._connections.tables is not None
        return (yield from self._connections.tables.update(stage, micro_batch, step, cause))

    def _stream(self, stage: int, kind: int) -> Stream:
        assert self._connections.remote is not None
        remote = self._connections.remote
        return remote.update if stage == NONE else remote.passes[kind, stage]

    def _load(self, stage: int, _micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        assert self._connections.remote is not None
        return (yield from self._connections.remote.load(self._stream(stage, kind), step, cause))

    def _store(self, stage: int, _micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        assert self._connections.remote is not None
        return (yield from self._connections.remote.store(self._stream(stage, kind), step, cause))

    def _gather(self, stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        """Wait until the replicas have put together what a pass of ``stage``, or the weight update, needs."""
        assert self._connections.gathering is not None
        spans = yield self._connections.gathering.gather(self.number, None if stage == NONE else stage, step, cause)
        span: int = spans[self.number]
        return span

    def _meet_replicas(self, stage: int, micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        """Wait until the replicas have done what a pass has them do together."""
        assert self._connections.collectives is not None
        spans = yield self._connections.collectives.join(self.number, kind, stage, micro_batch, step, cause)
        span: int = spans[self.number]
        return span

    def _ask_host(self, stage: int, micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        """Wait until the host has done what a pass has it do."""
        assert self._connections.outside is not None
        return (yield from self._connections.outside.carry_out(kind, stage, micro_batch, step, cause))

    def _let_go(self, stage: int, _micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._connections.let_go(self._replica, self.place, None if stage == NONE else stage)
        return cause

    def _meet_all(
        self, meeting: Meeting, _stage: int, _micro_batch: int, _number: int, _step: int, cause: int
    ) -> Spans:
        """Wait for what all IPUs do together before a weight update, or for the host's."""
        span: int = yield meeting.arrive(self.number, cause)
        return span

    def _update(self, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        assert self._update_cycles is not None
        start = self._clock.now
        self._connections.executor.update(self.place)
        end: int = yield self._clock.spend(self._workers, SpanKind.WEIGHT_UPDATE, self._update_cycles)
        return self._record(self._update_span, step, start, end, cause)
