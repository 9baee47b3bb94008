"""Where processes wait for each other: IPUs that meet, and what is done when all of them are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock, Process, Spans
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class Wait(NamedTuple):
    """What an IPU waits for.

    Attributes:
        text: in words.
        ipus: the logical IPUs that keep it waiting; none where it is something else.
    """

    text: str
    ipus: tuple[int, ...] = ()


class Rendezvous(Protocol):
    """Where a process may wait for others; it can say for what, and for whom."""

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what logical IPU ``ipu`` waits for here; None where it does not."""


class Meeting:
    """A place where IPUs meet. A kind of meeting is a subclass with ``_meet``, which in the end calls ``_release``.

    Attributes:
        what: what those who wait here wait for, in words.
    """

    what: ClassVar[str]

    def __init__(self, clock: Clock, recorder: Recorder, ipus: Mapping[int, int]) -> None:
        """Prepare for ``ipus``, logical ones, with the replica of each."""
        self._clock = clock
        self._record = recorder.record
        self._ipus = tuple(ipus)
        self._workers = resources.ipus(ipus)
        self._arrived: dict[int, tuple[int, int]] = {}
        self._done = clock.event()
        self._wait_of = {
            ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu, replica=replica))
            for ipu, replica in ipus.items()
        }

    def arrive(self, ipu: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` is here, its last span being ``cause``; return what it waits for, whose value is a span."""
        done = self._done
        self._arrived[ipu] = (self._clock.now, cause)
        if len(self._arrived) == len(self._ipus):
            self._meet(cause)
        return done

    def missing(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu``, which has arrived, waits for; none where it has not arrived."""
        return [other for other in self._ipus if other not in self._arrived] if ipu in self._arrived else []

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        late = self.missing(ipu)
        return Wait(f"{self.what}, which waits for IPU {', '.join(map(str, late))}", tuple(late)) if late else None

    def _meet(self, cause: int) -> None:
        """Do what is done when all are here, ``cause`` being the last span of the last one."""
        raise NotImplementedError

    def _record_waits(self, step: int) -> dict[int, int]:
        """Record the waits of those who were here before now, let the next ones arrive, and return each one's span."""
        now = self._clock.now
        spans = {}
        for ipu in self._ipus:
            since, cause = self._arrived[ipu]
            if since < now:
                spans[ipu] = self._record(self._wait_of[ipu], step, since, now, cause)
        self._arrived.clear()
        return spans

    def _release(self, value: object) -> None:
        """Let all go on."""
        done, self._done = self._done, self._clock.event()
        done.succeed(value)


class BeforeUpdate(Meeting):
    """Where all IPUs of a host meet before each weight update, or for it; a kind of it has ``_carry_out``."""

    def __init__(
        self, clock: Clock, recorder: Recorder, ipus: Mapping[int, int], *, first_step: int, steps: int
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs that hold a stage, and the replica of each.

        Spans carry step ``first_step`` in the first execution, and ``steps`` more in each further one.
        """
        super().__init__(clock, recorder, ipus)
        self._step, self._steps = first_step, steps

    def _meet(self, cause: int) -> None:
        self._clock.process(self._take_turn(cause))

    def _take_turn(self, cause: int) -> Process:
        """Do what is to be done, and release all IPUs; a SimPy process."""
        self._record_waits(self._step)
        span = yield from self._carry_out(cause)
        self._step += self._steps
        self._release(span)

    def _carry_out(self, cause: int) -> Spans:
        """Do it, ``cause`` being the last span of the last one; returns the last span."""
        raise NotImplementedError


class ExecutionEnd(Meeting):
    """Where the IPUs meet at the end of an execution of the pipeline: executions never overlap."""

    what = "the end of the execution"

    def __init__(
        self, clock: Clock, recorder: Recorder, ipus: Mapping[int, int], *, steps: int, begin: Callable[[int], object]
    ) -> None:
        """Call ``begin`` with the number of each further execution; each has ``steps`` time-steps."""
        super().__init__(clock, recorder, ipus)
        self._steps, self._begin = steps, begin
        self._ended = 0

    def _meet(self, cause: int) -> None:
        self._ended += 1
        self._record_waits(self._ended * self._steps - 1)
        self._begin(self._ended)
        self._release(cause)
