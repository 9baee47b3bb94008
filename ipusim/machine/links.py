"""Carry tensors over IPU-Links one by one, with max-min fair shares where routes cross.

Point-to-point deliveries and moves of activations use these links. Between events every tensor moves at its max-min
fair rate over the links of its route (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). A
tensor arrives in the first whole cycle in which the last byte has passed. Arithmetic is exact.

Most tensors share no link. Such a tensor costs a single event and no fractions: when it is sent, the ends of all
earlier tensors are known, so its end is known too. If a later tensor needs one of its links, both switch to fair rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock
from ipusim.machine.flows import RouteFlow, Tensor
from ipusim.machine.resources import Workers
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

#: Kinds of spans as constants, because looking up a member of an enumeration takes as long as a function call.
_SEND, _LINK = SpanKind.SEND, SpanKind.LINK
#: Maximum number of entries in the cache of fair rates.
_MOST_CACHED_RATES: Final = 4096


class Links:
    """The link directions of a device, used for sends."""

    def __init__(self, clock: Clock, recorder: Recorder, rates: Sequence[Fraction], labels: Sequence[str]) -> None:
        """Begin idle; ``rates`` has the bytes per cycle of each link direction, ``labels`` its name, by link number."""
        self._clock = clock
        self._recorder = recorder
        self._record = recorder.record
        self._rates, self._workers = tuple(rates), resources.links(labels)
        #: Whether a link runs at full speed throughout the run, per link.
        self._steady = [clock.is_steady([worker]) for worker in self._workers]
        #: Per link: tensors that use it exclusively.
        self._exclusive: list[list[Tensor]] = [[] for _ in rates]
        #: Per link: tensors that share it.
        self._sharing: list[dict[Tensor, None]] = [{} for _ in rates]
        #: Per link: flows that move over it.
        self._moving: list[dict[RouteFlow, None]] = [{} for _ in rates]
        self._flows: dict[tuple[int, ...], RouteFlow] = {}
        #: Rates of connected flows at full speed, by the routes and numbers of tensors of the flows.
        self._fair_rates: dict[tuple[tuple[tuple[int, ...], int], ...], list[tuple[int, Fraction]]] = {}
        self._number = count()
        #: Per busy link: first cycle, and the step, cause and bytes of the span.
        self._busy: list[tuple[int, int, int, int]] = [(0, 0, NONE, 0)] * len(self._rates)
        self._descriptions: list[dict[int, int]] = [{} for _ in rates]

    def reroute(self, tensor: Tensor, send: Send, ends: Workers) -> None:
        """Move a tensor from a dead route to a new route, from the beginning."""
        self._void_end_event(tensor)
        self._take_off(tensor)
        tensor.send, tensor.is_alone = send, False
        self.carry(tensor, ends)

    def carry(self, tensor: Tensor, ends: Workers) -> None:
        """Carry a tensor along its route from now on; ``ends`` are the sending and the receiving IPU."""
        clock, send, cycle = self._clock, tensor.send, self._clock.now
        links, steady = send.links, clock.steady or all(self._steady[link] for link in send.links)
        begin = cycle + send.lead_cycles if clock.steady else clock.end(ends, _SEND, cycle, send.lead_cycles)
        if not links:
            tensor.begin = begin
            clock.call_at(begin, lambda _: tensor.callback(tensor, begin))
            return
        if not steady:
            begin += clock.delay([self._workers[link] for link in links], _LINK, begin)
        end = begin + send.cycles
        tensor.begin, tensor.end = begin, end
        # Ends over disturbed links are unknown: every change of speed sets new rates.
        is_alone = steady or not send.cycles
        for link in links:
            if self._sharing[link]:
                is_alone = False
            for neighbour in self._exclusive[link]:
                if neighbour.end > begin and end > neighbour.begin:
                    is_alone = False
        if is_alone:
            tensor.is_alone = True
            for link in links:
                self._exclusive[link].append(tensor)
            event = tensor.end_event = clock.event_at(end)
            event.callbacks.append(partial(self._end, tensor))
            return
        self._end_exclusive_use(tensor)
        for link in send.links:
            for neighbour in tuple(self._exclusive[link]):
                if neighbour.end > cycle:
                    self._end_exclusive_use(neighbour)

    def state(self) -> tuple[tuple[tuple[int, Fraction], ...], ...]:
        """Return per link the tensors' cycles until the begin, and their remaining bytes."""
        cycle = self._clock.now
        return tuple(
            tuple(
                (max(0, tensor.begin - cycle), self._remaining_bytes(tensor, cycle)) for tensor in self._tensors(link)
            )
            for link in range(len(self._rates))
        )

    def places(self, tensor: Tensor) -> tuple[int, ...]:
        """Return a tensor's position within the state of every link of its route."""
        return tuple([*self._tensors(link)].index(tensor) for link in tensor.send.links)

    def _tensors(self, link: int) -> Iterator[Tensor]:
        """Yield the tensors handed over for a link."""
        yield from self._exclusive[link]
        yield from self._sharing[link]

    def _remaining_bytes(self, tensor: Tensor, cycle: int) -> Fraction:
        """Return the remaining bytes of a tensor."""
        if cycle <= tensor.begin:
            return Fraction(tensor.send.bytes)
        if tensor.is_alone:
            rate = min(self._rates[link] for link in tensor.send.links)
            return max(Fraction(0), tensor.send.bytes - rate * (cycle - tensor.begin))
        flow = tensor.flow
        return Fraction(tensor.send.bytes) if flow is None else Fraction(flow.left_in(tensor.target, cycle), flow.parts)

    def _end_exclusive_use(self, tensor: Tensor) -> None:
        """End the exclusive use of a tensor: it shares its links from now on, or from its begin."""
        cycle = self._clock.now
        has_begun = tensor.is_alone and tensor.begin <= cycle
        rest_bytes = self._remaining_bytes(tensor, cycle) if has_begun else Fraction(tensor.send.bytes)
        for link in tensor.send.links:
            if tensor.is_alone:
                self._exclusive[link].remove(tensor)
            self._sharing[link][tensor] = None
        tensor.is_alone = False
        if not has_begun:
            self._void_end_event(tensor)
            self._clock.call_at(tensor.begin, lambda _: self._begin(tensor))
            return
        flow = self._enter_flow(tensor, rest_bytes)
        flow.rate, flow.foreseen_tensor = flow.in_parts(min(self._rates[link] for link in tensor.send.links)), tensor

    def _void_end_event(self, tensor: Tensor) -> None:
        """Drop the event of a tensor's arrival, and keep the callbacks of waiting IPUs."""
        event, tensor.end_event = tensor.end_event, None
        if event is not None and event.callbacks is not None:
            tensor.void_callbacks = (*tensor.void_callbacks, *event.callbacks[1:])
            del event.callbacks[1:]

    def _begin(self, tensor: Tensor) -> None:
        if tensor.begin == self._clock.now and tensor.flow is None:  # after a reroute, another event begins it later
            self._share_links(self._enter_flow(tensor, Fraction(tensor.send.bytes)))

    def _enter_flow(self, tensor: Tensor, rest_bytes: Fraction) -> RouteFlow:
        """Let a tensor with ``rest_bytes`` remaining bytes enter its route's flow; return that flow."""
        links, cycle = tensor.send.links, self._clock.now
        flow = self._flows.get(links)
        if flow is None:
            flow = self._flows[links] = RouteFlow(links, base_cycle=cycle)
        for link in links:
            start, step, cause, size = self._busy[link]
            if not self._moving[link]:
                start, step, cause, size = tensor.begin, tensor.step, tensor.cause, 0
            self._busy[link] = start, step, cause, size + tensor.send.bytes
            self._moving[link][flow] = None
        rest_parts = flow.in_parts(rest_bytes)
        flow.base, flow.base_cycle = flow.base + flow.rate * (cycle - flow.base_cycle), cycle
        tensor.flow, tensor.target = flow, flow.base + rest_parts
        flow.most = max(flow.most, tensor.target)
        heappush(flow.tensors, (tensor.target, next(self._number), tensor))
        return flow

    def _end(self, tensor: Tensor, event: simpy.Event) -> None:
        if event is not tensor.end_event:
            return
        if not tensor.is_alone:
            self._arrive(tensor)
            return
        send, cycle = tensor.send, self._clock.now
        for link in send.links:
            self._exclusive[link].remove(tensor)
            description = self._descriptions[link].get(send.bytes) or self._describe_link(link, send.bytes)
            self._record(description, tensor.step, tensor.begin, cycle, tensor.cause)
        tensor.callback(tensor, cycle)

    def _end_next(self, flow: RouteFlow, event: simpy.Event) -> None:
        if event is flow.next_end:
            self._arrive(flow.tensors[0][2])

    def _arrive(self, tensor: Tensor) -> None:
        """Let a tensor on shared links arrive."""
        self._take_off(tensor)
        tensor.callback(tensor, self._clock.now)

    def _take_off(self, tensor: Tensor) -> None:
        """Take a tensor off its links, and raise the rates of tensors that shared them."""
        cycle, flow = self._clock.now, tensor.flow
        for link in tensor.send.links:
            if tensor.is_alone:
                self._exclusive[link].remove(tensor)
            else:
                del self._sharing[link][tensor]
        if flow is None:
            return
        tensor.flow = None
        if flow.tensors[0][2] is tensor:
            heappop(flow.tensors)
        else:
            flow.tensors = [entry for entry in flow.tensors if entry[2] is not tensor]
            heapify(flow.tensors)
            flow.most = max(target for target, *_ in flow.tensors)
        if not flow.tensors:
            flow.next_end = flow.foreseen_tensor = None
            del self._flows[flow.links]
            for link in flow.links:
                del self._moving[link][flow]
                if not self._moving[link]:
                    start, step, cause, size = self._busy[link]
                    self._record(self._describe_link(link, size), step, start, cycle, cause)
        flows: set[RouteFlow] = set()
        for link in flow.links:
            sharer = next(iter(self._moving[link]), None)
            if sharer is not None and sharer not in flows:
                flows.update(self._share_links(sharer))

    def _describe_link(self, link: int, size: int) -> int:
        """Return the description of a link's span over ``size`` bytes."""
        descriptions = self._descriptions[link]
        if size not in descriptions:
            descriptions[size] = self._recorder.describe(
                Description(SpanKind.LINK, link=link, bytes=size, replica=NONE)
            )
        return descriptions[size]

    def _share_links(self, flow: RouteFlow) -> list[RouteFlow]:
        """Set new rates of all flows connected to ``flow``; return these flows.

        Flows are connected by shared links, directly or via other flows.
        """
        cycle = self._clock.now
        sharers = self._connected_flows(flow)
        for sharer in sharers:
            sharer.base, sharer.base_cycle = sharer.base + sharer.rate * (cycle - sharer.base_cycle), cycle
        for sharer, fair_rate in self._fair_rates_of(sharers):
            rate = sharer.rate = sharer.in_parts(fair_rate)
            if sharer.foreseen_tensor is not None:
                self._void_end_event(sharer.foreseen_tensor)
            sharer.foreseen_tensor = sharer.next_end = None
            if rate:
                parts_left = sharer.left_in(sharer.tensors[0][0], cycle)
                sharer.next_end = self._clock.call_at(cycle - -parts_left // rate, partial(self._end_next, sharer))
                last_end = cycle - -sharer.left_in(sharer.most, cycle) // rate
            for neighbour in [neighbour for link in sharer.links for neighbour in self._exclusive[link]]:
                # The neighbour needs exclusive links, but the flow now ends after the neighbour's begin.
                if neighbour.is_alone and cycle < neighbour.begin and not (rate and last_end <= neighbour.begin):
                    self._end_exclusive_use(neighbour)
        if not self._clock.steady:
            self._schedule_sharing(flow, {link for sharer in sharers for link in sharer.links})
        return sharers

    def _schedule_sharing(self, flow: RouteFlow, links: Iterable[int]) -> None:
        """Schedule a new sharing of ``links``, one of which carries ``flow``, at the next change of a speed."""
        changes = [next_change for link in links if (next_change := self._speed(link)[1]) is not None]
        if changes:
            self._clock.call_at(min(changes), partial(self._share_again, flow, flow.base_cycle))

    def _share_again(self, flow: RouteFlow, base_cycle: int, _: object) -> None:
        """Share anew, unless ``flow`` has ended, or has changed its rate since cycle ``base_cycle``."""
        if flow.base_cycle == base_cycle and flow.tensors:
            self._share_links(flow)

    def _speed(self, link: int) -> tuple[Fraction, int | None]:
        return self._clock.speed(self._workers[link], _LINK)

    def _connected_flows(self, flow: RouteFlow) -> list[RouteFlow]:
        members = {flow: None}
        queue = [flow]
        for sharer in queue:
            for link in sharer.links:
                for neighbour in self._moving[link]:
                    if neighbour not in members:
                        members[neighbour] = None
                        queue.append(neighbour)
        return queue

    def _fair_rates_of(self, flows: Sequence[RouteFlow]) -> list[tuple[RouteFlow, Fraction]]:
        """Return max-min fair rates: links with the least rate per tensor fill first."""
        key = tuple([(flow.links, len(flow.tensors)) for flow in flows])
        if not self._clock.steady or len(self._fair_rates) > _MOST_CACHED_RATES:
            self._fair_rates.clear()
        if (rates := self._fair_rates.get(key)) is None:
            rates = self._fair_rates[key] = []
            open_flows = {flow: number for number, flow in enumerate(flows)}
            free_rates = {link: self._rates[link] * self._speed(link)[0] for flow in flows for link in flow.links}
            while open_flows:
                tensor_counts = {
                    link: sum(len(flow.tensors) for flow in self._moving[link] if flow in open_flows)
                    for link in free_rates
                }
                shares = {link: free_rates[link] / number for link, number in tensor_counts.items() if number}
                least = min(shares.values())
                full_links = {link for link, share in shares.items() if share == least}
                for flow in [flow for flow in open_flows if full_links & set(flow.links)]:
                    rates.append((open_flows.pop(flow), least))
                    for link in flow.links:
                        free_rates[link] -= least * len(flow.tensors)
        return [(flows[number], rate) for number, rate in rates]
