"""Deliver tensors between IPUs in point-to-point, one by one; a pass waits for its inputs.

This facility of the machine carries out a Plan's send and receive instructions. Deliveries and waits are recorded as
spans (intervals of the run), each with its cause, the span that let it begin.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import simpy

from ipusim.machine import resources
from ipusim.machine.activation_moves import activation_moves
from ipusim.machine.executor import NullExecutor
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.flows import Tensor
from ipusim.machine.links import Links
from ipusim.machine.resources import Workers
from ipusim.pipeline.instructions import NONE, Code, any_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.shape import Column, PlanShape
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind


def tensor_numbers(source: Column, target: Column, micro_batch: Column, shape: PlanShape) -> Column:
    """Return a number per tensor between neighbouring stages. The last stage may also send to itself."""
    pipeline_copy = micro_batch % len(shape.copies)
    return (2 * (pipeline_copy * shape.stages + source) + (target < source)) * shape.micro_batches + micro_batch


class _TensorWay(NamedTuple):
    """The route of a stage's tensors from forward or from backward passes.

    Attributes:
        shard: number of the producing IPU within the replica.
        made_in: number of the producing pass among the passes of a micro-batch.
        is_local: whether producing and consuming IPU are equal, without receive instruction.
        send: cost of a send.
        at_once: whether a send takes no time.
        ends: sending and receiving IPU.
    """

    shard: int
    made_in: int
    is_local: bool
    send: Send
    at_once: bool
    ends: Workers


class Delivery(Facility):
    """Tensors in flight or arrived within a replica, by number."""

    def __init__(self, context: Context, links: Links, replica: int) -> None:
        """Prepare for sends between a replica's stages."""
        shape, executor = context.plan.shape, context.executor(replica)
        self.ipus = tuple(context.ipus([replica]))
        self.handlers = {
            Code.SEND: self._send,
            Code.BLOCKING_SEND: self._send_blocking,
            Code.RECEIVE: self._receive,
        }
        self._clock, self._record, self._links = context.clock, context.recorder.record, links
        self._count = shape.micro_batches
        self._hand_to_executor = None if isinstance(executor, NullExecutor) else executor.deliver
        self._shape = shape
        self._first_ipu = context.ipu(replica, 0).number
        #: First and last micro-batch sent each way, for schedules whose tensors pile up.
        self._sent_ends: dict[int, tuple[int, int]] | None = {} if context.in_phases else None
        #: Spans of arrived tensors, by tensor number.
        self._arrivals: dict[int, int] = {}
        #: Events of waiting receivers, by tensor number.
        self._wait_events: dict[int, simpy.Event] = {}
        #: Tensors in flight, by tensor number.
        self._on_way: dict[int, Tensor] = {}
        #: Events of blocked senders, by tensor number.
        self._blocking: dict[int, simpy.Event] = {}
        self._ways = self._tensor_ways(context.costs.sends, replica)
        for rerouted in context.rerouted:
            ways = self._tensor_ways(rerouted.sends, replica)
            context.clock.call_at(rerouted.cycle, partial(self._reroute, ways, rerouted.dead))
        self._wait_descriptions = context.describe_ipus(SpanKind.RECEIVE_WAIT, self.ipus)
        self._descriptions = self._describe_tensors(context, replica)

    def _tensor_ways(self, sends: Mapping[tuple[int, int, int, int], Send], replica: int) -> list[_TensorWay]:
        """Return the routes of every stage's forward and backward tensors."""
        shape = self._shape
        return [
            _TensorWay(
                mapping[source],
                shape.step_of(Pass.BACKWARD if is_backward else Pass.FORWARD, source),
                mapping[source] == mapping[target],
                send := sends.get((replica, pipeline_copy, source, target), Send()).plain(),
                not (send.lead_cycles or send.links),
                resources.ipus([self._first_ipu + mapping[source], self._first_ipu + mapping[target]]),
            )
            for pipeline_copy, mapping in enumerate(shape.copies)
            for source in range(shape.stages)
            for is_backward in (False, True)
            for target in [max(source - 1, 0) if is_backward else min(source + 1, shape.stages - 1)]
        ]

    def _reroute(self, ways: list[_TensorWay], dead: frozenset[int], _: object) -> None:
        """Switch routes, and resend tensors in flight over dead links."""
        self._ways = ways
        for tensor, transfer in [*self._on_way.items()]:
            if dead.intersection(transfer.send.links):
                way = ways[tensor // self._count]
                self._links.reroute(transfer, way.send, way.ends)

    def _describe_tensors(self, context: Context, replica: int) -> list[int]:
        """Return the span description of every sent tensor, by tensor number."""
        table = context.plan.instructions
        ipu, code, stage, micro_batch, number = table[any_of(table[:, 1], (Code.SEND, Code.BLOCKING_SEND))].T
        tensor = tensor_numbers(stage, number, micro_batch, self._shape)
        sizes = np.array([way.send.bytes for way in self._ways], np.int64)
        if self._sent_ends is not None:
            way, batch = np.divmod(tensor, self._count)
            begins, ends = (dict(zip(way[::step].tolist(), batch[::step].tolist(), strict=True)) for step in (-1, 1))
            self._sent_ends.update({sent_way: (begins[sent_way], ends[sent_way]) for sent_way in begins})
        first = context.recorder.describe_columns(
            len(tensor),
            kind=np.where(code == Code.SEND, SpanKind.SEND, SpanKind.BLOCKING_SEND),
            ipu=self._first_ipu + ipu,
            stage=stage,
            micro_batch=micro_batch,
            bytes=sizes[tensor // self._count],
            replica=replica,
        )
        descriptions = np.full(len(self._ways) * self._count, NONE)
        descriptions[tensor] = np.arange(first, first + len(tensor))
        return descriptions.tolist()

    def _send(self, _ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, step: int, cause: int) -> int:
        """Hand a tensor from the pass with span ``cause`` to the links."""
        way = self._ways[tensor // self._count]
        if way.at_once:
            self._arrive(tensor, way, cause)
        else:
            transfer = self._on_way[tensor] = Tensor(tensor, way.send, step, cause, self._clock.now, self._deliver)
            self._links.carry(transfer, way.ends)
        return cause

    def _send_blocking(
        self, ipu: IpuId, stage: int, micro_batch: int, tensor: int, step: int, cause: int
    ) -> simpy.Event:
        """Hand a tensor to the links; return the event of its delivery."""
        self._send(ipu, stage, micro_batch, tensor, step, cause)
        delivered = self._clock.event()
        if tensor in self._on_way:
            self._blocking[tensor] = delivered
        else:
            delivered.succeed(cause)
        return delivered

    def _deliver(self, transfer: Tensor, cycle: int) -> None:
        """Record the arrival of a tensor, and wake the IPU that waits for it."""
        tensor, start, span = transfer.number, transfer.handed_over, transfer.cause
        if cycle > start:
            span = self._record(self._descriptions[tensor], transfer.step, start, cycle, span)
        del self._on_way[tensor]
        if self._hand_to_executor is not None:
            way = self._ways[tensor // self._count]
            self._hand_to_executor(way.shard, way.made_in, tensor % self._count)
        arrival_event = self._wait_events.pop(tensor, None)
        sender_event = self._blocking.pop(tensor, None) if self._blocking else None
        if transfer.void_callbacks:
            arrival_event = self._clock.event()
            arrival_event.callbacks.extend(transfer.void_callbacks)
        if arrival_event is None:
            if transfer.is_awaited and transfer.end_event is not None:
                transfer.end_event._value = span
            else:
                self._arrivals[tensor] = span
        elif sender_event is None:
            self._clock.happen(arrival_event, span)
        else:
            arrival_event.succeed(span)
        if sender_event is not None:
            sender_event.succeed(span)

    def _arrive(self, tensor: int, way: _TensorWay, span: int) -> None:
        if self._hand_to_executor is not None:
            self._hand_to_executor(way.shard, way.made_in, tensor % self._count)
        if not way.is_local:
            if tensor in self._wait_events:
                self._wait_events.pop(tensor).succeed(span)
            else:
                self._arrivals[tensor] = span

    def _receive(
        self, ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, _step: int, cause: int
    ) -> int | tuple[simpy.Event, int]:
        """Receive a tensor; return ``cause`` after its arrival, else the event of arrival."""
        if tensor in self._arrivals:
            del self._arrivals[tensor]
            return cause
        transfer = self._on_way.get(tensor)
        if transfer is not None and transfer.is_alone and transfer.end_event is not None:
            event = transfer.end_event  # if another tensor shares the links later, the links call the waiting IPU
            transfer.is_awaited = True
        else:
            event = self._wait_events[tensor] = simpy.Event(self._clock)
        return event, self._wait_descriptions[ipu.number]

    def state(self, first_micro_batch: int) -> Hashable:
        """Return arrived tensors, tensors in flight, waiting IPUs, and loads of links."""

        def relative(tensors: Iterable[int]) -> tuple[tuple[int, int], ...]:
            ways = (divmod(tensor, self._count) for tensor in tensors)
            return tuple((way, micro_batch - first_micro_batch) for way, micro_batch in ways)

        arrivals: Hashable = (
            relative(sorted(self._arrivals)) if self._sent_ends is None else self._piles(first_micro_batch)
        )
        blocking = relative(sorted(self._blocking))
        return arrivals, relative(self._on_way), relative(sorted(self._wait_events)), blocking, self._links.state()

    def _piles(self, first_micro_batch: int) -> Hashable:
        """Return the arrived tensors per way: a list, or, for a pile (micro-batches without gaps), its two ends.

        An end is "first" or "last" if it is the first or last tensor ever sent this way; otherwise it is a micro-batch
        relative to ``first_micro_batch``. So a growing pile, which always begins with the first tensor, and a shrinking
        pile, which always ends with the last, have equal states at equal distances.
        """
        assert self._sent_ends is not None
        piles = []
        for way, tensors in groupby(sorted(self._arrivals), lambda tensor: tensor // self._count):
            micro_batches = [tensor % self._count for tensor in tensors]
            ends = micro_batches[0], micro_batches[-1]
            if ends[1] - ends[0] == len(micro_batches) - 1:
                end_names = dict(zip(self._sent_ends[way], ("first", "last"), strict=True))
                piles.append((way, "pile", *(end_names.get(end, end - first_micro_batch) for end in ends)))
            else:
                piles.append((way, *(micro_batch - first_micro_batch for micro_batch in micro_batches)))
        return tuple(piles)

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits for a tensor; None if the IPU does not wait."""
        for tensor in self._blocking:
            source, target, op = self._ends_of_tensor(tensor)
            if source == ipu:
                return Wait(f"the delivery of the output of {op} to IPU {target}")
        for tensor in self._wait_events:
            source, target, op = self._ends_of_tensor(tensor)
            if target == ipu:
                return Wait(f"the output of {op} on IPU {source}", (source,))
        return None

    def _ends_of_tensor(self, tensor: int) -> tuple[int, int, Op]:
        """Return a tensor's sending and receiving IPU, and the producing pass."""
        way, micro_batch = divmod(tensor, self._count)
        pipeline_copy, source = divmod(way // 2, self._shape.stages)
        kind, target = (Pass.BACKWARD, source - 1) if way % 2 else (Pass.FORWARD, source + 1)
        mapping = self._shape.copies[pipeline_copy]
        return self._first_ipu + mapping[source], self._first_ipu + mapping[target], Op(kind, source, micro_batch)


def build(context: Context) -> list[Facility]:
    """Return the Delivery of every replica, with shared links; lock-step has no Delivery.

    Moves of activations to other IPUs use the same links; in lock-step the merged copies carry them.
    """
    options = context.program.moved_activations
    to_ipus = options is not None and options.to == "partner"
    if context.plan.sync.has_time_steps:
        return [*activation_moves(context)] if to_ipus else []
    system, directions = context.system, context.costs.links
    rates = [direction.bytes_per_s(system.rates) / system.clock_hz for direction in directions]
    links = Links(context.clock, context.recorder, rates, [direction.label for direction in directions])
    moves = activation_moves(context, lambda _: lambda: links) if to_ipus else ()
    return [*(Delivery(context, links, replica) for replica in context.replicas), *moves]
