"""IPU-Links that carry tensors one by one: those whose routes meet share the links' bandwidth, max-min fair.

Between two events every tensor moves at the largest rate that leaves none with less than its fair share of a
link that it crosses (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). It has come in
the first whole cycle in which its last byte has passed. All arithmetic is exact.

Nearly all tensors have their links to themselves. Whether one has is known when it is handed over, as whatever
else will be on its links then has been handed over before or will notice; so it costs one event, and no fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import simpy

from ipusim.machine import resources
from ipusim.machine.clock import Clock
from ipusim.machine.resources import Workers
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE

#: Looked up once: a member of an enumeration takes as long as a call.
_SEND, _LINK = SpanKind.SEND, SpanKind.LINK


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor in flight.

    Attributes:
        number: by which its receiver knows it.
        send: its links and its size.
        step, cause: of the spans of its way and of its links.
        handed_over: when it was.
        then: called with it and the cycle in which it has come.
        begin, end: when its first byte leaves, and when its last one comes if nothing changes.
        alone: whether it has all of its links to itself from begin to end.
        is_awaited: whether its receiver waits for what was foreseen.
        foreseen: the event of its end; one that was foreseen before is void.
        waiting: what was to be called behind an end that is void, and is so behind the true one.
        left: bytes that had not passed at ``since``, moving at ``rate`` bytes per cycle; where it is not alone.
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
    begin: int = field(init=False)
    end: int = field(init=False)
    since: int = field(init=False)
    left: Fraction = field(init=False)
    rate: Fraction = field(init=False)


#: What is called with a tensor and the cycle in which it has come.
Then = Callable[[Tensor, int], None]


class Links:
    """All link directions of a device at work for sends."""

    def __init__(self, clock: Clock, recorder: Recorder, rates: Sequence[Fraction], labels: Sequence[str]) -> None:
        """Begin idle; ``rates`` are the bytes per cycle of each link direction, by its number; ``labels`` name them."""
        self._clock = clock
        self._recorder = recorder
        self._record = recorder.record
        self._rates, self._workers = tuple(rates), resources.links(labels)
        #: Of each link whether it is as fast as ever for the whole run.
        self._steady = [clock.is_steady([worker]) for worker in self._workers]
        #: Of each link what has been handed over for it, and what moves on it with others beside it.
        self._on: list[list[Tensor]] = [[] for _ in rates]
        self._moving: list[list[Tensor]] = [[] for _ in rates]
        #: Of each link with something moving: since when, and the step, cause and bytes of its span.
        self._busy: list[tuple[int, int, int, int]] = [(0, 0, NONE, 0)] * len(self._rates)
        self._what: list[dict[int, int]] = [{} for _ in rates]

    def reroute(self, tensor: Tensor, send: Send, ends: Workers) -> None:
        """Take a tensor off its route, of which a link is dead, and carry it along another one from the beginning."""
        self._void(tensor)
        for link in tensor.send.links:
            self._on[link].remove(tensor)
        if tensor.send.links and tensor in self._moving[tensor.send.links[0]]:
            self._leave(tensor)
        tensor.send, tensor.alone = send, False
        self.carry(tensor, ends)

    def carry(self, tensor: Tensor, ends: Workers) -> None:
        """Carry a tensor along its route from now on; ``ends`` are the IPUs that send and receive it."""
        clock, send, now = self._clock, tensor.send, self._clock.now
        begin = tensor.begin = clock.end(ends, _SEND, now, send.lead_cycles)
        if not send.links:
            clock.call_at(begin, lambda _: tensor.then(tensor, begin))
            return
        steady = clock.steady or all(self._steady[link] for link in send.links)
        if not steady:
            begin = tensor.begin = begin + clock.delay([self._workers[link] for link in send.links], _LINK, begin)
        end = tensor.end = clock.end((), _LINK, begin, send.cycles)
        # Whether links stay as fast as they are is not known where anything touches them: rates are found anew then.
        alone = steady or not send.cycles
        for link in send.links:
            here = self._on[link]
            for other in here:
                if not other.alone or (other.end > begin and end > other.begin):
                    alone = False
            here.append(tensor)
        if alone:
            tensor.alone = True
            event = tensor.foreseen = clock.at(end)
            event.callbacks.append(partial(self._end, tensor))
            return
        self._watch(tensor)
        for link in send.links:
            for other in tuple(self._on[link]):
                if other.alone and other.end > now:
                    self._watch(other)

    def state(self) -> tuple[tuple[tuple[int, Fraction], ...], ...]:
        """Of each link the cycles until each tensor begins, and the bytes that are left of it."""
        now = self._clock.now
        return tuple(tuple((max(0, tensor.begin - now), self._left(tensor, now)) for tensor in on) for on in self._on)

    def places(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the place of a tensor among those handed over for each link of its route."""
        return tuple(self._on[link].index(tensor) for link in tensor.send.links)

    def _left(self, tensor: Tensor, now: int) -> Fraction:
        """Return the bytes of a tensor that have not passed."""
        if now <= tensor.begin:
            return Fraction(tensor.send.bytes)
        if tensor.alone:
            rate = min(self._rates[link] for link in tensor.send.links)
            return max(Fraction(0), tensor.send.bytes - rate * (now - tensor.begin))
        return max(Fraction(0), tensor.left - tensor.rate * (now - tensor.since))

    def _watch(self, tensor: Tensor) -> None:
        """Let a tensor share its links with others, from now on or from when it begins."""
        now = self._clock.now
        if tensor.begin > now or not tensor.alone:
            tensor.alone = False
            self._void(tensor)
            self._clock.call_at(tensor.begin, lambda _: self._begin(tensor))
            return
        left = self._left(tensor, now)
        tensor.alone = False
        tensor.left, tensor.since = left, now
        tensor.rate = min(self._rates[link] for link in tensor.send.links)
        self._enter(tensor)

    def _void(self, tensor: Tensor) -> None:
        """Drop the event of a tensor's arrival, and keep the callbacks of the IPUs that wait for it."""
        event, tensor.foreseen = tensor.foreseen, None
        if event is not None and event.callbacks is not None:
            tensor.waiting = (*tensor.waiting, *event.callbacks[1:])
            del event.callbacks[1:]

    def _begin(self, tensor: Tensor) -> None:
        if tensor.begin != self._clock.now or tensor in self._moving[tensor.send.links[0]]:
            return  # it takes another route meanwhile, which it begins later
        tensor.left, tensor.since = Fraction(tensor.send.bytes), tensor.begin
        self._enter(tensor)
        self._share(tensor)

    def _enter(self, tensor: Tensor) -> None:
        for link in tensor.send.links:
            since, step, cause, size = self._busy[link]
            if not self._moving[link]:
                since, step, cause, size = tensor.begin, tensor.step, tensor.cause, 0
            self._busy[link] = since, step, cause, size + tensor.send.bytes
            self._moving[link].append(tensor)

    def _end(self, tensor: Tensor, event: simpy.Event) -> None:
        if event is not tensor.foreseen:
            return
        send, now = tensor.send, self._clock.now
        for link in send.links:
            self._on[link].remove(tensor)
            if tensor.alone:
                what = self._what[link].get(send.bytes) or self._carried(link, send.bytes)
                self._record(what, tensor.step, tensor.begin, now, tensor.cause)
        if not tensor.alone:
            self._leave(tensor)
        tensor.then(tensor, now)

    def _leave(self, tensor: Tensor) -> None:
        """Take a tensor off its links, and let those beside it move on faster."""
        now = self._clock.now
        for link in tensor.send.links:
            self._moving[link].remove(tensor)
            if not self._moving[link]:
                since, step, cause, size = self._busy[link]
                self._record(self._carried(link, size), step, since, now, cause)
        for link in tensor.send.links:
            for other in self._moving[link][:1]:
                self._share(other)

    def _carried(self, link: int, size: int) -> int:
        """Return the description of a link that carries so many bytes."""
        known = self._what[link]
        if size not in known:
            known[size] = self._recorder.describe(Description(SpanKind.LINK, link=link, bytes=size, replica=NONE))
        return known[size]

    def _share(self, tensor: Tensor) -> None:
        """Set new rates of ``tensor`` and of all that share links with it, directly or by way of others."""
        now = self._clock.now
        together = self._together(tensor)
        for sharer in together:
            sharer.left = self._left(sharer, now)
            sharer.since = now
        for sharer, rate in self._fair(together).items():
            sharer.rate = rate
            self._void(sharer)
            if rate:
                end = self._clock.end((), _LINK, now, math.ceil(sharer.left / rate))
                sharer.foreseen = self._clock.call_at(end, partial(self._end, sharer))
            for other in (other for link in sharer.send.links for other in self._on[link]):
                # It was to begin when the sharer has come, which comes later now.
                if other.alone and now < other.begin and not (rate and end <= other.begin):
                    self._watch(other)
        if not self._clock.steady:
            self._share_anew(tensor, {link for sharer in together for link in sharer.send.links})

    def _share_anew(self, tensor: Tensor, links: Iterable[int]) -> None:
        """Schedule a new sharing of ``links``, one of which carries ``tensor``, at the next change of a speed."""
        changes = [until for link in links if (until := self._speed(link)[1]) is not None]
        if changes:
            self._clock.call_at(min(changes), partial(self._changed, tensor, tensor.since))

    def _changed(self, tensor: Tensor, shared: int, _: object) -> None:
        """Share anew, unless ``tensor`` has arrived, or has another rate since the cycle in which it ``shared``."""
        if tensor.since == shared and tensor in self._moving[tensor.send.links[0]]:
            self._share(tensor)

    def _speed(self, link: int) -> tuple[Fraction, int | None]:
        return self._clock.speed(self._workers[link], _LINK)

    def _together(self, tensor: Tensor) -> list[Tensor]:
        reached = {tensor: None}
        queue = [tensor]
        for sharer in queue:
            for link in sharer.send.links:
                for other in self._moving[link]:
                    if other not in reached:
                        reached[other] = None
                        queue.append(other)
        return queue

    def _fair(self, tensors: Sequence[Tensor]) -> dict[Tensor, Fraction]:
        """Return the max-min fair rates: the links that give least to each are filled first."""
        waiting = dict.fromkeys(tensors)
        free = {link: self._rates[link] * self._speed(link)[0] for tensor in tensors for link in tensor.send.links}
        rates: dict[Tensor, Fraction] = {}
        while waiting:
            users = {link: sum(tensor in waiting for tensor in self._moving[link]) for link in free}
            least = min(free[link] / count for link, count in users.items() if count)
            full = {link for link, count in users.items() if count and free[link] / count == least}
            for tensor in [tensor for tensor in waiting if full & set(tensor.send.links)]:
                del waiting[tensor]
                rates[tensor] = least
                for link in tensor.send.links:
                    free[link] -= least
        return rates
