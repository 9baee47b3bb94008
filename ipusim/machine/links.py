"""IPU-Links that carry individual tensors: crossing routes share bandwidth, max-min fair.

Between events every tensor moves at its max-min fair rate over the links that it crosses (progressive filling;
Bertsekas and Gallager, Data Networks, section 6.5.2). A tensor arrives in the first whole cycle after its last byte.
Arithmetic is exact.

Nearly every tensor has exclusive use of its links. Exclusive use is known at handover: the end of every earlier tensor
is known, and a later tensor ends the exclusive use at handover. Exclusive use costs a single event, and no fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock
from ipusim.machine.resources import Workers
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

#: Constants, as the look-up of an enumeration's member takes as long as a call.
_SEND, _LINK = SpanKind.SEND, SpanKind.LINK


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor in flight.

    Attributes:
        number: the receiver's number for the tensor.
        send: links and size.
        step, cause: time-step and cause of the spans of the tensor and of its links.
        handed_over: cycle of the handover.
        then: callback with the tensor and the cycle of arrival.
        begin, end: cycle of the first byte's departure, and cycle of the last byte's arrival if nothing changes.
        alone: whether the tensor has exclusive use of its links from begin to end.
        is_awaited: whether the receiver waits for the foreseen end.
        foreseen: event of the foreseen end; an earlier event is void.
        waiting: callbacks of void events, due after the true end.
        flow: flow of the tensor's route; None before the begin, and during exclusive use.
        target: bytes served to every tensor of the flow by the end of this tensor.
    """

    number: int
    send: Send
    step: int
    cause: int
    handed_over: int
    then: Then
    alone: bool = False
    is_awaited: bool = False
    foreseen: simpy.Event | None = None
    waiting: tuple[Callable[[simpy.Event], None], ...] = ()
    flow: Flow | None = None
    begin: int = field(init=False)
    end: int = field(init=False)
    target: Fraction = field(init=False)


@dataclass(slots=True, eq=False)
class Flow:
    """Tensors that share a route at equal rates; the least target ends first.

    Attributes:
        links: links of the route.
        tensors: heap of (target, running number, tensor).
        served: bytes per tensor passed until ``since``; from then on tensors move at ``rate`` bytes per cycle.
        most: largest target.
        next_end: event of the end of the tensor with the least target.
        foreseen: tensor whose end was foreseen during exclusive use, and stays valid until rates change.
    """

    links: tuple[int, ...]
    tensors: list[tuple[Fraction, int, Tensor]] = field(default_factory=list)
    served: Fraction = Fraction(0)
    since: int = 0
    rate: Fraction = Fraction(0)
    most: Fraction = Fraction(0)
    next_end: simpy.Event | None = None
    foreseen: Tensor | None = None

    def served_by(self, now: int) -> Fraction:
        """Return the bytes per tensor passed by a cycle."""
        return self.served + self.rate * (now - self.since)


#: Callback with an arrived tensor and the cycle of arrival.
Then = Callable[[Tensor, int], None]


class Links:
    """The link directions of a device, used for sends."""

    def __init__(self, clock: Clock, recorder: Recorder, rates: Sequence[Fraction], labels: Sequence[str]) -> None:
        """Begin idle; ``rates`` are bytes per cycle, by link number like ``labels``."""
        self._clock = clock
        self._recorder = recorder
        self._record = recorder.record
        self._rates, self._workers = tuple(rates), resources.links(labels)
        #: Whether a link runs at full speed throughout the run, per link.
        self._steady = [clock.is_steady([worker]) for worker in self._workers]
        #: Per link: tensors with exclusive use, sharing tensors, and moving flows.
        self._alone: list[list[Tensor]] = [[] for _ in rates]
        self._sharing: list[dict[Tensor, None]] = [{} for _ in rates]
        self._moving: list[dict[Flow, None]] = [{} for _ in rates]
        self._flows: dict[tuple[int, ...], Flow] = {}
        self._number = count()
        #: Per busy link: first cycle, and the step, cause and bytes of the span.
        self._busy: list[tuple[int, int, int, int]] = [(0, 0, NONE, 0)] * len(self._rates)
        self._what: list[dict[int, int]] = [{} for _ in rates]

    def reroute(self, tensor: Tensor, send: Send, ends: Workers) -> None:
        """Move a tensor from a dead route to a new route, from the beginning."""
        self._void(tensor)
        self._take_off(tensor)
        tensor.send, tensor.alone = send, False
        self.carry(tensor, ends)

    def carry(self, tensor: Tensor, ends: Workers) -> None:
        """Carry a tensor along its route; ``ends`` are both IPUs."""
        clock, send, now = self._clock, tensor.send, self._clock.now
        begin = tensor.begin = clock.end(ends, _SEND, now, send.lead_cycles)
        if not send.links:
            clock.call_at(begin, lambda _: tensor.then(tensor, begin))
            return
        steady = clock.steady or all(self._steady[link] for link in send.links)
        if not steady:
            begin = tensor.begin = begin + clock.delay([self._workers[link] for link in send.links], _LINK, begin)
        end = tensor.end = clock.end((), _LINK, begin, send.cycles)
        # A disturbed link may change speed at an unknown time: its rates are computed anew at every change.
        alone = steady or not send.cycles
        for link in send.links:
            if self._sharing[link]:
                alone = False
            for other in self._alone[link]:
                if other.end > begin and end > other.begin:
                    alone = False
        if alone:
            tensor.alone = True
            for link in send.links:
                self._alone[link].append(tensor)
            event = tensor.foreseen = clock.at(end)
            event.callbacks.append(partial(self._end, tensor))
            return
        self._watch(tensor)
        for link in send.links:
            for other in tuple(self._alone[link]):
                if other.end > now:
                    self._watch(other)

    def state(self) -> tuple[tuple[tuple[int, Fraction], ...], ...]:
        """Return per link the tensors' cycles until the begin, and their remaining bytes."""
        now = self._clock.now
        return tuple(
            tuple((max(0, tensor.begin - now), self._left(tensor, now)) for tensor in self._tensors(link))
            for link in range(len(self._rates))
        )

    def places(self, tensor: Tensor) -> tuple[int, ...]:
        """Return a tensor's position within the state of every link of its route."""
        return tuple([*self._tensors(link)].index(tensor) for link in tensor.send.links)

    def _tensors(self, link: int) -> Iterator[Tensor]:
        """Yield the tensors handed over for a link."""
        yield from self._alone[link]
        yield from self._sharing[link]

    def _left(self, tensor: Tensor, now: int) -> Fraction:
        """Return the remaining bytes of a tensor."""
        if now <= tensor.begin:
            return Fraction(tensor.send.bytes)
        if tensor.alone:
            rate = min(self._rates[link] for link in tensor.send.links)
            return max(Fraction(0), tensor.send.bytes - rate * (now - tensor.begin))
        return Fraction(tensor.send.bytes) if tensor.flow is None else _left_in(tensor.flow, tensor.target, now)

    def _watch(self, tensor: Tensor) -> None:
        """Let a tensor share its links, from now on or from its begin."""
        now = self._clock.now
        moves = tensor.alone and tensor.begin <= now
        left = self._left(tensor, now) if moves else Fraction(tensor.send.bytes)
        for link in tensor.send.links:
            if tensor.alone:
                self._alone[link].remove(tensor)
            self._sharing[link][tensor] = None
        tensor.alone = False
        if not moves:
            self._void(tensor)
            self._clock.call_at(tensor.begin, lambda _: self._begin(tensor))
            return
        flow = self._enter(tensor, left)
        flow.rate, flow.foreseen = min(self._rates[link] for link in tensor.send.links), tensor

    def _void(self, tensor: Tensor) -> None:
        """Drop the event of a tensor's arrival, and keep the callbacks of waiting IPUs."""
        event, tensor.foreseen = tensor.foreseen, None
        if event is not None and event.callbacks is not None:
            tensor.waiting = (*tensor.waiting, *event.callbacks[1:])
            del event.callbacks[1:]

    def _begin(self, tensor: Tensor) -> None:
        if tensor.begin == self._clock.now and tensor.flow is None:  # else a new route, with a later begin
            self._share(self._enter(tensor, Fraction(tensor.send.bytes)))

    def _enter(self, tensor: Tensor, left: Fraction) -> Flow:
        """Let a tensor with ``left`` remaining bytes enter its route's flow; return that flow."""
        links, now = tensor.send.links, self._clock.now
        flow = self._flows.get(links)
        if flow is None:
            flow = self._flows[links] = Flow(links, since=now)
        for link in links:
            since, step, cause, size = self._busy[link]
            if not self._moving[link]:
                since, step, cause, size = tensor.begin, tensor.step, tensor.cause, 0
            self._busy[link] = since, step, cause, size + tensor.send.bytes
            self._moving[link][flow] = None
        flow.served, flow.since = flow.served_by(now), now
        tensor.flow, tensor.target = flow, flow.served + left
        flow.most = max(flow.most, tensor.target)
        heappush(flow.tensors, (tensor.target, next(self._number), tensor))
        return flow

    def _end(self, tensor: Tensor, event: simpy.Event) -> None:
        if event is not tensor.foreseen:
            return
        if not tensor.alone:
            self._arrive(tensor)
            return
        send, now = tensor.send, self._clock.now
        for link in send.links:
            self._alone[link].remove(tensor)
            what = self._what[link].get(send.bytes) or self._carried(link, send.bytes)
            self._record(what, tensor.step, tensor.begin, now, tensor.cause)
        tensor.then(tensor, now)

    def _end_next(self, flow: Flow, event: simpy.Event) -> None:
        if event is flow.next_end:
            self._arrive(flow.tensors[0][2])

    def _arrive(self, tensor: Tensor) -> None:
        """Let a tensor on shared links arrive."""
        self._take_off(tensor)
        tensor.then(tensor, self._clock.now)

    def _take_off(self, tensor: Tensor) -> None:
        """Take a tensor off its links, and raise the rates of its neighbours."""
        now, flow = self._clock.now, tensor.flow
        for link in tensor.send.links:
            if tensor.alone:
                self._alone[link].remove(tensor)
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
            flow.next_end = flow.foreseen = None
            del self._flows[flow.links]
            for link in flow.links:
                del self._moving[link][flow]
                if not self._moving[link]:
                    since, step, cause, size = self._busy[link]
                    self._record(self._carried(link, size), step, since, now, cause)
        shared: set[Flow] = set()
        for link in flow.links:
            beside = next(iter(self._moving[link]), None)
            if beside is not None and beside not in shared:
                shared.update(self._share(beside))

    def _carried(self, link: int, size: int) -> int:
        """Return the description of a link's span over ``size`` bytes."""
        known = self._what[link]
        if size not in known:
            known[size] = self._recorder.describe(Description(SpanKind.LINK, link=link, bytes=size, replica=NONE))
        return known[size]

    def _share(self, flow: Flow) -> list[Flow]:
        """Set new rates of all flows connected to ``flow``; return these flows.

        Flows are connected by shared links, directly or via other flows.
        """
        now = self._clock.now
        together = self._together(flow)
        for sharer in together:
            sharer.served, sharer.since = sharer.served_by(now), now
        for sharer, rate in self._fair(together).items():
            sharer.rate = rate
            if sharer.foreseen is not None:
                self._void(sharer.foreseen)
            sharer.foreseen = sharer.next_end = None
            if rate:
                left = _left_in(sharer, sharer.tensors[0][0], now)
                sharer.next_end = self._clock.call_at(now + math.ceil(left / rate), partial(self._end_next, sharer))
                last_end = now + math.ceil(_left_in(sharer, sharer.most, now) / rate)
            for other in [other for link in sharer.links for other in self._alone[link]]:
                # Its exclusive use began after another tensor's arrival, which is later now.
                if other.alone and now < other.begin and not (rate and last_end <= other.begin):
                    self._watch(other)
        if not self._clock.steady:
            self._share_anew(flow, {link for sharer in together for link in sharer.links})
        return together

    def _share_anew(self, flow: Flow, links: Iterable[int]) -> None:
        """Schedule a new sharing of ``links`` at the next change of speed."""
        changes = [until for link in links if (until := self._speed(link)[1]) is not None]
        if changes:
            self._clock.call_at(min(changes), partial(self._changed, flow, flow.since))

    def _changed(self, flow: Flow, shared: int, _: object) -> None:
        """Share anew, unless ``flow`` has ended, or has changed its rate since cycle ``shared``."""
        if flow.since == shared and flow.tensors:
            self._share(flow)

    def _speed(self, link: int) -> tuple[Fraction, int | None]:
        return self._clock.speed(self._workers[link], _LINK)

    def _together(self, flow: Flow) -> list[Flow]:
        reached = {flow: None}
        queue = [flow]
        for sharer in queue:
            for link in sharer.links:
                for other in self._moving[link]:
                    if other not in reached:
                        reached[other] = None
                        queue.append(other)
        return queue

    def _fair(self, flows: Sequence[Flow]) -> dict[Flow, Fraction]:
        """Return max-min fair rates: links with the least rate per tensor fill first."""
        waiting = dict.fromkeys(flows)
        free = {link: self._rates[link] * self._speed(link)[0] for flow in flows for link in flow.links}
        rates: dict[Flow, Fraction] = {}
        while waiting:
            users = {link: sum(len(flow.tensors) for flow in self._moving[link] if flow in waiting) for link in free}
            least = min(free[link] / number for link, number in users.items() if number)
            full = {link for link, number in users.items() if number and free[link] / number == least}
            for flow in [flow for flow in waiting if full & set(flow.links)]:
                del waiting[flow]
                rates[flow] = least
                for link in flow.links:
                    free[link] -= least * len(flow.tensors)
        return rates


def _left_in(flow: Flow, target: Fraction, now: int) -> Fraction:
    """Return the remaining bytes of a tensor with a target."""
    return max(Fraction(0), target - flow.served_by(now))
