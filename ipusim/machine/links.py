"""IPU-Links that carry tensors one by one: those whose routes meet share the links' bandwidth, max-min fair.

Between two events every tensor moves at the largest rate that leaves none with less than its fair share of a
link that it crosses (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). It has come in
the first whole cycle in which its last byte has passed. All arithmetic is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from ipusim.machine.clock import Clock
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE


class _Tensor:
    """A tensor on the links.

    Attributes:
        send: its links and its size.
        then: called when it has come.
        left: bytes that had not passed at ``since``, moving at ``rate`` bytes per cycle from then on.
        changes: how often its rate has changed, by which the end that was foreseen before is known to be void.
    """

    __slots__ = ("changes", "left", "rate", "send", "since", "then")

    def __init__(self, send: Send, then: Callable[[], None], since: int) -> None:
        self.send, self.then, self.since = send, then, since
        self.left = self.rate = Fraction(0)
        self.changes = 0


class Links:
    """All link directions of a device at work for sends."""

    def __init__(self, clock: Clock, recorder: Recorder, rates: Sequence[Fraction]) -> None:
        """Begin idle; ``rates`` are the bytes per cycle of each link direction, by its number."""
        self._clock = clock
        self._recorder = recorder
        self._rates = tuple(rates)
        self._on: list[list[_Tensor]] = [[] for _ in rates]
        #: Of each busy link: since when, the step and the cause of what made it so, and the bytes since.
        self._busy: list[tuple[int, int, int]] = [(0, 0, NONE)] * len(self._rates)
        self._bytes = [0] * len(self._rates)
        self._what: dict[tuple[int, int], int] = {}

    def carry(self, send: Send, step: int, cause: int, then: Callable[[], None]) -> None:
        """Carry a tensor along its route, and call ``then`` when it is there."""
        if send.lead_cycles:
            self._clock.call(send.lead_cycles, lambda: self._begin(send, step, cause, then))
        elif send.links:
            self._begin(send, step, cause, then)
        else:
            then()

    @property
    def state(self) -> tuple[tuple[Fraction, ...], ...]:
        """The bytes that are left of each tensor on each link."""
        now = self._clock.now
        return tuple(tuple(each.left - each.rate * (now - each.since) for each in tensors) for tensors in self._on)

    def _begin(self, send: Send, step: int, cause: int, then: Callable[[], None]) -> None:
        now = self._clock.now
        tensor = _Tensor(send, then, now)
        alone = True
        for link in send.links:
            here = self._on[link]
            if here:
                alone = False
            else:
                self._busy[link] = (now, step, cause)
                self._bytes[link] = 0
            here.append(tensor)
            self._bytes[link] += send.bytes
        if alone:  # which is what nearly all are: no fractions for them
            self._foresee(tensor, send.cycles)
        else:
            tensor.left = Fraction(send.bytes)
            self._share(tensor)

    def _foresee(self, tensor: _Tensor, cycles: int) -> None:
        tensor.changes += 1
        changes = tensor.changes

        def end() -> None:
            if tensor.changes == changes:
                self._end(tensor)

        self._clock.call(cycles, end)

    def _end(self, tensor: _Tensor) -> None:
        now, shared = self._clock.now, None
        for link in tensor.send.links:
            here = self._on[link]
            here.remove(tensor)
            if here:
                shared = here[0]
                continue
            since, step, cause = self._busy[link]
            size = self._bytes[link]
            what = self._what.get((link, size))
            if what is None:
                described = Description(SpanKind.LINK, link=link, bytes=size, replica=NONE)
                what = self._what[link, size] = self._recorder.describe(described)
            self._recorder.record(what, step, since, now, cause)
        if shared is not None:
            for link in tensor.send.links:
                for other in self._on[link][:1]:
                    self._share(other)
        tensor.then()

    def _share(self, tensor: _Tensor) -> None:
        """Give new rates to ``tensor`` and all that share links with it, or with those that do."""
        now = self._clock.now
        together = self._together(tensor)
        for each in together:
            if not each.rate and each.changes:  # it was alone until now
                each.left = Fraction(each.send.bytes)
                each.rate = min(self._rates[link] for link in each.send.links)
            each.left = max(Fraction(0), each.left - each.rate * (now - each.since))
            each.since = now
        for each, rate in self._fair(together).items():
            each.rate = rate
            self._foresee(each, math.ceil(each.left / rate))

    def _together(self, tensor: _Tensor) -> list[_Tensor]:
        found = {tensor: None}
        queue = [tensor]
        for each in queue:
            for link in each.send.links:
                for other in self._on[link]:
                    if other not in found:
                        found[other] = None
                        queue.append(other)
        return queue

    def _fair(self, tensors: Sequence[_Tensor]) -> dict[_Tensor, Fraction]:
        """Return the max-min fair rates: the links that give least to each are filled first."""
        waiting = dict.fromkeys(tensors)
        free = {link: self._rates[link] for each in tensors for link in each.send.links}
        rates: dict[_Tensor, Fraction] = {}
        while waiting:
            users = {link: sum(each in waiting for each in self._on[link]) for link in free}
            least = min(free[link] / count for link, count in users.items() if count)
            full = {link for link, count in users.items() if count and free[link] / count == least}
            for each in [each for each in waiting if full & set(each.send.links)]:
                del waiting[each]
                rates[each] = least
                for link in each.send.links:
                    free[link] -= least
        return rates
