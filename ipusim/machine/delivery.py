"""Deliver tensors between IPUs in point-to-point, one by one; a pass waits for its inputs.

This facility of the machine carries out a Plan's send and receive instructions. Deliveries and waits are recorded as
spans (intervals of the run), each with its cause, the span that let it begin.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from functools import partial
from itertools import groupby

import numpy as np
import simpy

from ipusim.machine.activation_moves import activation_moves
from ipusim.machine.executor import NullExecutor
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.flows import Tensor
from ipusim.machine.links import Links
from ipusim.machine.tensor_ways import SendKey, TensorWay, lanes_of, tensor_numbers, tensor_ways
from ipusim.pipeline.instructions import NONE, Code, any_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description


class Delivery(Facility):
    """Tensors in flight or arrived within a replica, by number."""

    def __init__(self, context: Context, links: Links, replica: int, lanes: Container[SendKey]) -> None:
        """Prepare for sends between a replica's stages; tensors of ``lanes`` never share a link."""
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
        #: Arrival cycle and span of tensors, by tensor number. On a lane the cycle is known before the arrival.
        self._arrivals: dict[int, tuple[int, int]] = {}
        #: Events of waiting receivers, by tensor number.
        self._wait_events: dict[int, simpy.Event] = {}
        #: Tensors in flight, by tensor number.
        self._on_way: dict[int, Tensor] = {}
        #: Events of blocked senders, by tensor number.
        self._blocking: dict[int, simpy.Event] = {}
        self._ways = tensor_ways(context, context.costs.sends, replica, lanes)
        for rerouted in context.rerouted:
            ways = tensor_ways(context, rerouted.sends, replica)
            context.clock.call_at(rerouted.cycle, partial(self._reroute, ways, rerouted.dead))
        self._wait_descriptions = context.describe_ipus(SpanKind.RECEIVE_WAIT, self.ipus)
        self._descriptions = self._describe_tensors(context, replica)

    def _reroute(self, ways: list[TensorWay], dead: frozenset[int], _: object) -> None:
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
        for tensor_way, spans in zip(self._ways, descriptions.reshape(len(self._ways), -1), strict=True):
            if tensor_way.is_lane:
                size, lead_cycles, links, _ = tensor_way.send
                link_spans = [Description(SpanKind.LINK, link=link, bytes=size, replica=NONE) for link in links]
                context.recorder.accompany(spans[spans != NONE], lead_cycles, link_spans)
        return descriptions.tolist()

    def _send(self, _ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, step: int, cause: int) -> int:
        """Hand a tensor from the pass with span ``cause`` to the links."""
        way = self._ways[tensor // self._count]
        if way.is_lane:
            self._send_on_lane(tensor, way, step, cause)
        elif way.at_once:
            self._arrive(tensor, way, cause)
        else:
            transfer = self._on_way[tensor] = Tensor(tensor, way.send, step, cause, self._clock.now, self._deliver)
            self._links.carry(transfer, way.ends)
        return cause

    def _send_on_lane(self, tensor: int, way: TensorWay, step: int, cause: int) -> tuple[int, int]:
        """Record the send of a tensor that shares no link; return the arrival cycle and the span.

        The recorder adds the spans of the links.
        """
        start, (_, lead_cycles, _, cycles) = self._clock.now, way.send
        end = start + lead_cycles + cycles
        span = self._record(self._descriptions[tensor], step, start, end, cause)
        if self._hand_to_executor is not None:
            self._hand_to_executor(way.shard, way.made_in, tensor % self._count)
        wait_event = self._wait_events.pop(tensor, None)
        if wait_event is None:
            self._arrivals[tensor] = end, span
        else:
            self._clock.happen_at(end, span, wait_event)
        return end, span

    def _send_blocking(
        self, ipu: IpuId, stage: int, micro_batch: int, tensor: int, step: int, cause: int
    ) -> simpy.Event:
        """Hand a tensor to the links; return the event of its delivery."""
        way = self._ways[tensor // self._count]
        if way.is_lane:
            return self._clock.happen_at(*self._send_on_lane(tensor, way, step, cause))
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
                self._arrivals[tensor] = cycle, span
        elif sender_event is None:
            self._clock.happen(arrival_event, span)
        else:
            arrival_event.succeed(span)
        if sender_event is not None:
            sender_event.succeed(span)

    def _arrive(self, tensor: int, way: TensorWay, span: int) -> None:
        if self._hand_to_executor is not None:
            self._hand_to_executor(way.shard, way.made_in, tensor % self._count)
        if not way.is_local:
            if tensor in self._wait_events:
                self._wait_events.pop(tensor).succeed(span)
            else:
                self._arrivals[tensor] = self._clock.now, span

    def _receive(
        self, ipu: IpuId, _stage: int, _micro_batch: int, tensor: int, _step: int, cause: int
    ) -> int | tuple[simpy.Event, int]:
        """Receive a tensor; return ``cause`` after its arrival, else the event of arrival."""
        arrival = self._arrivals.pop(tensor, None)
        if arrival is not None:
            end, span = arrival
            if end <= self._clock.now:
                return cause
            return self._clock.happen_at(end, span), self._wait_descriptions[ipu.number]
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

        cycle = self._clock.now
        arrived, on_lanes = list[int](), list[int]()
        for tensor, (end, _) in sorted(self._arrivals.items()):
            (arrived if end <= cycle else on_lanes).append(tensor)
        arrivals: Hashable = relative(arrived) if self._sent_ends is None else self._piles(arrived, first_micro_batch)
        return (
            arrivals,
            tuple(self._arrivals[tensor][0] - cycle for tensor in on_lanes),
            *map(relative, (on_lanes, self._on_way, sorted(self._wait_events), sorted(self._blocking))),
            self._links.state(),
        )

    def _piles(self, arrived: Iterable[int], first_micro_batch: int) -> Hashable:
        """Return the arrived tensors per way: a list, or, for a pile (micro-batches without gaps), its two ends.

        An end is "first" or "last" if it is the first or last tensor ever sent this way; otherwise it is a micro-batch
        relative to ``first_micro_batch``. So a growing pile, which always begins with the first tensor, and a shrinking
        pile, which always ends with the last, have equal states at equal distances.
        """
        assert self._sent_ends is not None
        piles = []
        for way, tensors in groupby(arrived, lambda tensor: tensor // self._count):
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
    lanes = lanes_of(context)
    return [*(Delivery(context, links, replica, lanes) for replica in context.replicas), *moves]
