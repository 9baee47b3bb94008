"""Point-to-point: tensors go from IPU to IPU by themselves, and whoever needs one waits until it is there."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Spans
from ipusim.machine.context import Context
from ipusim.machine.executor import NullExecutor
from ipusim.machine.facility import Handler, IpuId, Wait
from ipusim.machine.links import Links, Tensor
from ipusim.pipeline.instructions import NONE, Code
from ipusim.pipeline.ops import Op, Pass
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description

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

    def __init__(self, context: Context, links: Links, replica: int) -> None:
        """Prepare for the sends between the stages of a replica."""
        shape, executor = context.plan.shape, context.executor(replica)
        self.ipus = tuple(context.ipus([replica]))
        self.handlers: Mapping[Code, Handler] = {
            Code.SEND: self._send,
            Code.BLOCKING_SEND: self._send_blocking,
            Code.RECEIVE: self._receive,
        }
        self._clock, self._record, self._links = context.clock, context.recorder.record, links
        self._count = shape.micro_batches
        self._deliver = None if isinstance(executor, NullExecutor) else executor.deliver
        self._shape = shape
        self._ipu_of = [context.ipu_of(replica, stage).number for stage in range(shape.stages)]
        #: By the numbers of tensors: the spans that have brought those that are here, events for those who wait for
        #: them, and those that are on their way.
        self._here: dict[int, int] = {}
        self._waiting: dict[int, simpy.Event] = {}
        self._on_way: dict[int, Tensor | None] = {}
        #: What is on its way while its sender waits for its delivery.
        self._blocking: set[int] = set()
        sends = {key[1:]: send for key, send in context.costs.sends.items() if key[0] == replica}
        #: Of each way: where the tensor is made and in which step, whether it stays there, what sending it costs, and
        #: the IPUs at its ends.
        self._ways = [
            (
                shape.mapping[source],
                shape.step_of(Pass.BACKWARD if back else Pass.FORWARD, source),
                shape.mapping[source] == shape.mapping[target],
                sends.get((source, target), _NO_WAY),
                resources.ipus([self._ipu_of[source], self._ipu_of[target]]),
            )
            for source in range(shape.stages)
            for back in (False, True)
            for target in [max(source - 1, 0) if back else min(source + 1, shape.stages - 1)]
        ]
        self._wait_of = {
            ipu: context.recorder.describe(Description(SpanKind.RECEIVE_WAIT, ipu.number, replica=replica))
            for ipu in self.ipus
        }
        self._what = self._described(context, replica)

    def _described(self, context: Context, replica: int) -> dict[int, int]:
        """Return the description of the way of each tensor that an IPU sends."""
        table = context.plan.instructions
        _, code, stage, micro_batch, number = table[np.isin(table[:, 1], (Code.SEND, Code.BLOCKING_SEND))].T
        tensor = tensor_numbers(stage, number, micro_batch, self._count)
        sizes = np.array([send.bytes for *_, send, _ in self._ways], np.int64)
        rows = np.empty((len(tensor), len(Description._fields)), np.int64)
        fields = {
            "kind": np.where(code == Code.SEND, SpanKind.SEND, SpanKind.BLOCKING_SEND),
            "ipu": np.array(self._ipu_of)[stage],
            "stage": stage,
            "micro_batch": micro_batch,
            "link": NONE,
            "bytes": sizes[tensor // self._count],
            "replica": replica,
        }
        for column, name in enumerate(Description._fields):
            rows[:, column] = fields[name]
        first = context.recorder.describe_rows(rows)
        return dict(zip(tensor.tolist(), range(first, first + len(rows)), strict=True))

    def _send(self, _ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, step: int, cause: int) -> int:
        self._hand_over(tensor, step, cause, None)
        return cause

    def _send_blocking(
        self, _ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, step: int, cause: int
    ) -> simpy.Event:
        done = self._clock.event()
        self._hand_over(tensor, step, cause, done)
        return done

    def _receive(self, ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, step: int, cause: int) -> int | Spans:
        """Take a tensor; returns the span that has brought it where the IPU has waited for that."""
        return self._wait(ipu, tensor, step, cause) if self._here.pop(tensor, None) is None else cause

    def _wait(self, ipu: IpuId, tensor: int, step: int, cause: int) -> Spans:
        """Wait until a tensor has come; returns the span that has brought it."""
        start, span = self._clock.now, None
        while span is None:
            yield self._expect(tensor)
            span = self._here.pop(tensor, None)
        if self._clock.now > start:
            self._record(self._wait_of[ipu], step, start, self._clock.now, cause)
        return span

    def _hand_over(self, tensor: int, step: int, cause: int, done: simpy.Event | None) -> None:
        """Hand a tensor to the links, ``cause`` being the pass that made it.

        ``done`` happens with its delivery; its value is the span that is behind it.
        """
        way, now, what = tensor // self._count, self._clock.now, self._what[tensor]
        *_, send, ends = self._ways[way]
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

        self._on_way[tensor] = self._links.carry(send, ends, step, cause, now, arrive)

    def _arrive(self, tensor: int, way: int, span: int) -> None:
        shard, made_in, stays, *_ = self._ways[way]
        if self._deliver is not None:
            self._deliver(shard, made_in, tensor % self._count)
        if not stays:
            self._here[tensor] = span
            if tensor in self._waiting:
                self._waiting.pop(tensor).succeed()

    def _expect(self, tensor: int) -> simpy.Event:
        """Return an event after which a tensor may have come; before it has not.

        That of its end on the links will do while it has them to itself, as sharing them makes it later only.
        """
        coming = self._on_way.get(tensor)
        if coming is not None and coming.alone and coming.foreseen is not None:
            return coming.foreseen
        event = self._waiting[tensor] = self._clock.event()
        return event

    def state(self, first_micro_batch: int) -> Hashable:
        """Return what has come and is not taken, what is on its way, who waits for it, and all that is on the links."""

        def told(tensors: Iterable[int]) -> tuple[tuple[int, int], ...]:
            ways = (divmod(tensor, self._count) for tensor in tensors)
            return tuple((way, micro_batch - first_micro_batch) for way, micro_batch in ways)

        here, blocking = told(sorted(self._here)), told(sorted(self._blocking))
        return here, told(self._on_way), told(sorted(self._waiting)), blocking, self._links.state

    def waits_for(self, ipu: int) -> Wait | None:
        """Return what ``ipu`` waits for here; None where it does not."""
        for tensor in self._blocking:
            source, target, made = self._way_of(tensor)
            if source == ipu:
                return Wait(f"the delivery of what {made} has made to IPU {target}")
        for tensor in self._waiting:
            source, target, made = self._way_of(tensor)
            if target == ipu:
                return Wait(f"what {made} makes on IPU {source}", (source,))
        return None

    def _way_of(self, tensor: int) -> tuple[int, int, Op]:
        """Return the logical IPUs that a tensor comes from and goes to, and the pass that makes it."""
        way, micro_batch = divmod(tensor, self._count)
        source, back = divmod(way, 2)
        kind, target = (Pass.BACKWARD, source - 1) if back else (Pass.FORWARD, source + 1)
        return self._ipu_of[source], self._ipu_of[target], Op(kind, source, micro_batch)


def build(context: Context) -> list[Delivery]:
    """Return what each replica sends, over the links that all of them share; nothing where IPUs meet instead."""
    if context.plan.sync.meets:
        return []
    system, directions = context.system, context.costs.links
    rates = [direction.bytes_per_s(system.rates) / system.clock_hz for direction in directions]
    links = Links(context.clock, context.recorder, rates, [direction.label for direction in directions])
    return [Delivery(context, links, replica) for replica in context.replicas]
