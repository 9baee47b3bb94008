"""Point-to-point: tensors go from IPU to IPU by themselves, and whoever needs one waits until it is there."""

from __future__ import annotations

from collections.abc import Mapping

import simpy

from ipusim.machine.clock import Clock
from ipusim.machine.executor import Executor
from ipusim.machine.links import Links
from ipusim.machine.rendezvous import Wait
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.program import PlanShape
from ipusim.pricing.costs import Send
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import NONE

#: A tensor on its way: from which stage to which, and of which micro-batch.
Key = tuple[int, int, int]
#: What is sent within an IPU, or carries no bytes.
_NO_WAY = Send()


class Delivery:
    """What is on its way, or has come, within one replica."""

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        links: Links,
        sends: Mapping[tuple[int, int], Send],
        executor: Executor,
        shape: PlanShape,
        first_ipu: int,
    ) -> None:
        """Prepare for the ``sends`` between stages of a replica whose IPUs begin at ``first_ipu`` of the device."""
        self._clock = clock
        self._record = recorder.record
        self._links = links
        self._sends = sends
        self._deliver = executor.deliver
        self._shape = shape
        self._first = first_ipu
        #: The spans that have brought what nobody has waited for, and what is waited for.
        self._here: dict[Key, int] = {}
        self._waiting: dict[Key, simpy.Event] = {}
        #: What is on its way while its sender waits for its delivery.
        self._blocking: set[Key] = set()
        self._passes = {
            (source, target): (
                shape.mapping[source],
                shape.step_of(Pass.FORWARD if target >= source else Pass.BACKWARD, source),
                shape.mapping[source] == shape.mapping[target],
            )
            for source in range(shape.stages)
            for target in (source - 1, source, source + 1)
            if 0 <= target < shape.stages
        }

    def send(self, key: Key, what: int, step: int, cause: int, done: simpy.Event | None = None) -> None:
        """Hand a tensor to the links, ``cause`` being the pass that made it and ``what`` the description of its way.

        ``done`` happens with its delivery; its value is the span that is behind it.
        """
        send = self._sends.get(key[:2], _NO_WAY)
        start = self._clock.now

        def arrive() -> None:
            now = self._clock.now
            span = self._record(what, step, start, now, cause) if now > start else cause
            self._arrive(key, span)
            if done is not None:
                self._blocking.remove(key)
                done.succeed(span)

        if done is not None:
            self._blocking.add(key)
        if send.lead_cycles or send.links:
            self._links.carry(send, step, cause, arrive)
        else:
            arrive()

    def _arrive(self, key: Key, span: int) -> None:
        ipu, made_in, stays = self._passes[key[:2]]
        self._deliver(ipu, made_in, key[2])
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.succeed(span)
        elif not stays:
            self._here[key] = span

    def take(self, key: Key) -> bool:
        """Take a tensor; False where it has not come."""
        return self._here.pop(key, NONE) != NONE

    def expect(self, key: Key) -> simpy.Event:
        """Return the event of a tensor's coming, whose value is the span that brings it."""
        event = self._waiting[key] = self._clock.event()
        return event

    @property
    def state(self) -> tuple[Key, ...]:
        """What has come and not been taken."""
        return tuple(sorted(self._here))

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        for key in self._blocking:
            if self._ipu_of(key[0]) == ipu:
                return Wait(f"the delivery of what {_made(key)} has made to IPU {self._ipu_of(key[1])}")
        for key in self._waiting:
            if self._ipu_of(key[1]) == ipu:
                sender = self._ipu_of(key[0])
                return Wait(f"what {_made(key)} makes on IPU {sender}", (sender,))
        return None

    def _ipu_of(self, stage: int) -> int:
        return self._shape.mapping[stage] + self._first


def _made(key: Key) -> Op:
    """Return the pass that makes a tensor; a backward pass in halves goes by its whole."""
    source, target, micro_batch = key
    return Op(Pass.FORWARD if target > source else Pass.BACKWARD, source, micro_batch)
