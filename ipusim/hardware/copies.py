"""What one merged inter-IPU copy costs, term by term.

At the end of a time-step all IPUs of a device meet and one copy moves what every
stage hands on. Its time is the sync, a fixed overhead, the latency of the longest
route, and the transfer over the busiest link direction. The sync and the reading
of the transfer as the largest over link directions follow PopLibs' IPUModel
(lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.hardware.links import GATEWAY_LATENCY_NS, HOP_LATENCY_NS, LinkDirection
from ipusim.hardware.topology import Route


def nominal_sync_ns(ipus: int, pods: int = 1) -> Fraction:
    """Return the time in which the IPUs of a device synchronise, there and back; 0 for a single IPU.

    One hop within a card and one for each pair of cards (``setGlobalSyncLatency``,
    PopLibs lib/poplibs_test/Util.cpp). Several pods do so each by itself and then
    signal half-way round their ring, which is assumed.
    """
    if ipus == 1:
        return Fraction(0)
    hops = 1 + (ipus // pods // 2) // 2
    return 2 * (hops * HOP_LATENCY_NS + pods // 2 * GATEWAY_LATENCY_NS)


#: What a superstep with a small inter-IPU exchange takes longer than one without, less its nominal
#: sync and one hop: 3.7 us in a device of 2 IPUs, 5 us in one of 4 (and hardly more in one of 16).
#: Derived from T. Louw's stencil experiments on GC2 (thorbenlouw/lbm-graphcore,
#: experiments/gaussian-blur-scaling); the same in seconds is assumed for GC200 and Bow.
PAIR_OVERHEAD_NS: Final = 3700 - nominal_sync_ns(2) - HOP_LATENCY_NS
BEYOND_PAIR_OVERHEAD_NS: Final = 5000 - nominal_sync_ns(4) - HOP_LATENCY_NS


@dataclass(frozen=True, order=True)
class LinkLoad:
    """What one merged copy puts on one link direction.

    Attributes:
        direction: the link direction.
        bytes: bytes of all routes that use it.
        cycles: time in which they pass, rounded up once.
    """

    direction: LinkDirection
    bytes: int
    cycles: int


@dataclass(frozen=True)
class CopyCost:
    """The cost of one merged inter-IPU copy.

    Attributes:
        sync_cycles: all IPUs of the device meet.
        overhead_cycles: fixed cost of a superstep that exchanges between IPUs.
        latency_cycles: hops of the longest route.
        links: load of each link direction that carries anything, in order of direction.
    """

    sync_cycles: int
    overhead_cycles: int
    latency_cycles: int
    links: tuple[LinkLoad, ...]

    @property
    def lead_cycles(self) -> int:
        """Cycles from the moment that the last IPU arrives to the first byte on the links."""
        return self.sync_cycles + self.overhead_cycles + self.latency_cycles

    @property
    def transfer_cycles(self) -> int:
        """Cycles in which the busiest link direction delivers; 0 when nothing moves."""
        return max((load.cycles for load in self.links), default=0)

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole copy, sync included."""
        return self.lead_cycles + self.transfer_cycles


def bytes_by_direction(routed: Iterable[tuple[Route, int]]) -> list[tuple[LinkDirection, int]]:
    """Return the bytes on each link direction when each route carries its bytes, in order of direction."""
    carried: Counter[LinkDirection] = Counter()
    for route, byte_count in routed:
        for direction in route:
            carried[direction] += byte_count
    return sorted(carried.items())
