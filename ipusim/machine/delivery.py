"""Point-to-point: tensors go from IPU to IPU by themselves, and whoever needs one waits until it is there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock
from ipusim.machine.executor import Executor, NullExecutor
from ipusim.machine.links import Links, Tensor
from ipusim.machine.rendezvous import Wait
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.program import PlanShape
from ipusim.pricing.costs import Send
from ipusim.timeline.recorder import Recorder

Numbers = npt.NDArray[np.int64]
#: What is sent within an IPU, or carries no bytes.
_NO_WAY = Send()


def tensor_numbers(source: Numbers, target: Numbers, micro_batch: Numbers, count: int) -> Numbers:
    """Return a number for each tensor that a stage makes for its neighbour, or the last stage for itself.

    ``count`` is that of the micro-batches of an execution.
    """
    return (2 * source + (target < source)) * count + micro_batch


class Delivery:
    """What is on its way, or has come, within one replica; tensors go by their numbers."""

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
        self._count = shape.micro_batches
        self._deliver = None if isinstance(executor, NullExecutor) else executor.deliver
        self._shape = shape
        self._first = first_ipu
        #: By the numbers of tensors: the spans that have brought those that are here, events for those who wait for
        #: them, and those that are on their way.
        self._here: dict[int, int] = {}
        self._waiting: dict[int, simpy.Event] = {}
        self._on_way: dict[int, Tensor | None] = {}
        #: What is on its way while its sender waits for its delivery.
        self._blocking: set[int] = set()
        #: The IPUs at the two ends of each way.
        self._ends = [
            resources.ipus(first_ipu + shape.mapping[stage] for stage in (source, target))
            for source in range(shape.stages)
            for target in (min(source + 1, shape.stages - 1), max(source - 1, 0))
        ]
        #: Of each way: where the tensor is made and in which step, whether it stays there, and what sending it costs.
        self._ways = [
            (
                shape.mapping[source],
                shape.step_of(Pass.BACKWARD if back else Pass.FORWARD, source),
                shape.mapping[source] == shape.mapping[target],
                sends.get((source, target), _NO_WAY),
            )
            for source in range(shape.stages)
            for back in (False, True)
            for target in [max(source - 1, 0) if back else min(source + 1, shape.stages - 1)]
        ]

    def send(self, tensor: int, what: int, step: int, cause: int, now: int, done: simpy.Event | None = None) -> None:
        """Hand a tensor to the links, ``cause`` being the pass that made it and ``what`` the description of its way.

        It is the cycle ``now``. ``done`` happens with its delivery; its value is the span that is behind it.
        """
        way = tensor // self._count
        send = self._ways[way][3]
        if not (send.lead_cycles or send.links):
            self._arrive(tensor, way, cause)
            if done is not None:
                done.succeed(cause)
            return
        if done is not None:
            self._blocking.add(tensor)

        def arrive(then: int) -> None:
            span = self._record(what, step, now, then, cause) if then > now else cause
            del self._on_way[tensor]
            self._arrive(tensor, way, span)
            if done is not None:
                self._blocking.remove(tensor)
                done.succeed(span)

        self._on_way[tensor] = self._links.carry(send, self._ends[way], step, cause, now, arrive)

    def _arrive(self, tensor: int, way: int, span: int) -> None:
        ipu, made_in, stays, _ = self._ways[way]
        if self._deliver is not None:
            self._deliver(ipu, made_in, tensor % self._count)
        if not stays:
            self._here[tensor] = span
            if tensor in self._waiting:
                self._waiting.pop(tensor).succeed()

    def take(self, tensor: int) -> int | None:
        """Take a tensor and return the span that has brought it; None where it has not come."""
        return self._here.pop(tensor, None)

    def expect(self, tensor: int) -> simpy.Event:
        """Return an event after which a tensor may have come; before it has not.

        That of its end on the links will do while it has them to itself, as sharing them makes it later only.
        """
        coming = self._on_way.get(tensor)
        if coming is not None and coming.alone and coming.foreseen is not None:
            return coming.foreseen
        event = self._waiting[tensor] = self._clock.event()
        return event

    @property
    def state(self) -> tuple[int, ...]:
        """What has come and not been taken."""
        return tuple(sorted(self._here))

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        for tensor in self._blocking:
            source, target, made = self._told(tensor)
            if source == ipu:
                return Wait(f"the delivery of what {made} has made to IPU {target}")
        for tensor in self._waiting:
            source, target, made = self._told(tensor)
            if target == ipu:
                return Wait(f"what {made} makes on IPU {source}", (source,))
        return None

    def _told(self, tensor: int) -> tuple[int, int, Op]:
        """Return the logical IPUs that a tensor comes from and goes to, and the pass that makes it."""
        way, micro_batch = divmod(tensor, self._count)
        source, back = divmod(way, 2)
        mapping, kind = self._shape.mapping, Pass.BACKWARD if back else Pass.FORWARD
        target = source - 1 if back else source + 1
        return self._first + mapping[source], self._first + mapping[target], Op(kind, source, micro_batch)
