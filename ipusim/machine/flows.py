"""Hold tensors in flight over IPU-Links, and flows of tensors that share a route.

:mod:`ipusim.machine.links` moves the flows, and tells the sender's facility of every arrival.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import simpy

from ipusim.pricing.costs import Send


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor in flight.

    Attributes:
        number: the receiver's number for the tensor.
        send: links and size.
        step: time-step of tensor and link spans.
        cause: number of the causing span.
        handed_over: cycle of the handover.
        callback: callback with tensor and arrival cycle.
        begin: cycle of the first byte's departure.
        end: cycle of the last byte's arrival if rates stay.
        is_alone: whether the tensor has exclusive use of its links from begin to end.
        is_awaited: whether the receiver waits for the expected end.
        end_event: event of the expected end. If the expected end changes, the old event becomes void.
        void_callbacks: callbacks of void events, called after the true end.
        flow: flow of the tensor's route; None before the begin, and during exclusive use.
        target: parts (of bytes) served per tensor of the flow until the tensor's end.
    """

    number: int
    send: Send
    step: int
    cause: int
    handed_over: int
    callback: Callback
    is_alone: bool = False
    is_awaited: bool = False
    end_event: simpy.Event | None = None
    void_callbacks: tuple[Callable[[simpy.Event], None], ...] = ()
    flow: RouteFlow | None = None
    begin: int = field(init=False)
    end: int = field(init=False)
    target: int = field(init=False)


@dataclass(slots=True, eq=False)
class RouteFlow:
    """Tensors that share a route at equal rates; the tensor with the least target ends first.

    Bytes are counted in whole parts of a byte, as integers are faster than fractions; the parts are small enough to
    express every rate so far.

    Attributes:
        links: links of the route.
        tensors: heap of (target, running number, tensor).
        parts: number of parts per byte.
        base: parts served per tensor until ``base_cycle``.
        base_cycle: cycle of the last change of ``rate``, or later.
        rate: parts per tensor and cycle from ``base_cycle`` on.
        most: largest target.
        next_end: end event of the tensor with the least target.
        foreseen_tensor: tensor that began with exclusive use; its ``end_event`` stays valid until rates change.
    """

    links: tuple[int, ...]
    tensors: list[tuple[int, int, Tensor]] = field(default_factory=list)
    parts: int = 1
    base: int = 0
    base_cycle: int = 0
    rate: int = 0
    most: int = 0
    next_end: simpy.Event | None = None
    foreseen_tensor: Tensor | None = None

    def left_in(self, target: int, cycle: int) -> int:
        """Return the remaining parts of a tensor with a target."""
        return max(0, target - self.base - self.rate * (cycle - self.base_cycle))

    def in_parts(self, size: Fraction) -> int:
        """Return bytes, or bytes per cycle, as a number of parts; divide parts further if necessary."""
        if self.parts % size.denominator:
            factor = size.denominator // math.gcd(self.parts, size.denominator)
            self.parts, self.base, self.rate, self.most = (
                factor * number for number in (self.parts, self.base, self.rate, self.most)
            )
            self.tensors = [(factor * target, number, tensor) for target, number, tensor in self.tensors]
            for target, _, tensor in self.tensors:
                tensor.target = target
        return size.numerator * (self.parts // size.denominator)


#: Callback with an arrived tensor and the arrival cycle.
Callback = Callable[[Tensor, int], None]
