"""The cost of one merged inter-IPU copy, term by term.

At the end of a time-step all IPUs of a device meet and one copy moves what every
stage hands on: they synchronise, their tiles lay out what they send (the
pre-copy), the global exchange moves it, and their tiles put away what they have
received (the post-copy). The exchange takes a fixed time, the latency of the
longest route, and the transfer over the busiest link direction. A tile's code
takes the same cycles on every generation; links take the same time. These are
the phases that PopVision shows of such a superstep on GC2 (T. Louw's stencil
experiments); that the pre-copy follows the sync is assumed, for each IPU to do
its own before it arrives would end at the same time. The nominal sync and the
reading of the transfer as the largest over link directions follow PopLibs'
IPUModel (lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from ipusim.hardware.links import LinkDirection
from ipusim.hardware.rates import Rates
from ipusim.hardware.topology import Route


def nominal_sync_ns(rates: Rates, ipus: int, pods: int = 1) -> Fraction:
    """Return the time of a signal among the IPUs of a device that synchronise, there and back; 0 for a single IPU.

    One hop within a card and one for each pair of cards (``setGlobalSyncLatency``,
    PopLibs lib/poplibs_test/Util.cpp). Several pods do so each by itself and then
    signal half-way round their ring, which is assumed.
    """
    if ipus == 1:
        return Fraction(0)
    hops = 1 + (ipus // pods // 2) // 2
    return 2 * (hops * rates.hop_latency_ns + pods // 2 * rates.gateway_latency_ns)


@dataclass(frozen=True, order=True)
class LinkLoad:
    """The load of one merged copy on one link direction.

    Attributes:
        direction: the link direction.
        bytes: bytes of all routes that use it.
        cycles: time in which they pass, rounded up once.
    """

    direction: LinkDirection
    bytes: int
    cycles: int


class FixedParts(NamedTuple):
    """The parts of a merged inter-IPU copy that are as long whatever it carries, in the order in which they happen.

    Attributes:
        sync_cycles: all IPUs of the device meet.
        pre_copy_cycles: their tiles lay out what they send.
        exchange_cycles: fixed time of the global exchange.
        latency_cycles: hops of the longest route; the bytes follow.
        post_copy_cycles: behind the bytes, their tiles put away what they have received.
    """

    sync_cycles: int = 0
    pre_copy_cycles: int = 0
    exchange_cycles: int = 0
    latency_cycles: int = 0
    post_copy_cycles: int = 0

    @property
    def lead_cycles(self) -> int:
        """Cycles from the moment that the last IPU arrives to the first byte on the links."""
        return self.total_cycles - self.post_copy_cycles

    @property
    def total_cycles(self) -> int:
        """Cycles of a copy that carries next to nothing."""
        return sum(self)


#: Where IPUs do not meet.
NOTHING_FIXED: Final = FixedParts()


@dataclass(frozen=True)
class CopyCost:
    """The cost of one merged inter-IPU copy.

    Attributes:
        fixed: the parts that are as long whatever it carries.
        links: load of each link direction that carries anything, in order of direction.
    """

    fixed: FixedParts
    links: tuple[LinkLoad, ...]

    @property
    def transfer_cycles(self) -> int:
        """Cycles in which the busiest link direction delivers; 0 when nothing moves."""
        return max((load.cycles for load in self.links), default=0)

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole copy, sync included."""
        return self.fixed.total_cycles + self.transfer_cycles


def bytes_by_direction(routed: Iterable[tuple[Route, int]]) -> list[tuple[LinkDirection, int]]:
    """Return the bytes on each link direction when each route carries its bytes, in order of direction."""
    carried: Counter[LinkDirection] = Counter()
    for route, byte_count in routed:
        for direction in route:
            carried[direction] += byte_count
    return sorted(carried.items())
