"""Price a merged inter-IPU copy, term by term.

At the end of a time-step the IPUs of a device meet, and a copy moves the stages' tensors. The IPUs synchronise, tiles
arrange outgoing data (pre-copy), the global exchange moves the data, and tiles store received data (post-copy). The
exchange takes a fixed time, the latency of the longest route, and the transfer over the busiest link direction. Tile
code takes equal cycles on every generation, links take equal time. PopVision shows these phases of a superstep on GC2
(T. Louw's stencil experiments). A pre-copy after the sync is assumed; a pre-copy before every IPU's arrival would end
at the same time. The nominal sync, and the transfer as maximum over link directions, follow PopLibs' IPUModel
(lib/poplibs_test/Util.cpp).
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
    """Return the round-trip time of a sync signal among IPUs; 0 for a single IPU.

    The signal takes one hop within a card and one hop per pair of cards (``setGlobalSyncLatency``, PopLibs
    lib/poplibs_test/Util.cpp). Several pods signal internally first, then half-way round the ring of pods (assumed).
    """
    if ipus == 1:
        return Fraction(0)
    hops = 1 + (ipus // pods // 2) // 2
    return 2 * (hops * rates.hop_latency_ns + pods // 2 * rates.gateway_latency_ns)


@dataclass(frozen=True, order=True)
class LinkLoad:
    """Load of a merged copy on a single link direction.

    Attributes:
        direction: the link direction.
        bytes: total bytes of the routes over the direction.
        cycles: transfer time, rounded up once.
    """

    direction: LinkDirection
    bytes: int
    cycles: int


class FixedParts(NamedTuple):
    """Fixed parts of a merged inter-IPU copy, independent of the payload, in chronological order.

    Attributes:
        sync_cycles: meeting of the device's IPUs.
        pre_copy_cycles: arrangement of outgoing data by the tiles.
        exchange_cycles: fixed time of the global exchange.
        latency_cycles: hops of the longest route; the bytes follow.
        post_copy_cycles: storage of received data by the tiles, after the bytes.
    """

    sync_cycles: int = 0
    pre_copy_cycles: int = 0
    exchange_cycles: int = 0
    latency_cycles: int = 0
    post_copy_cycles: int = 0

    @property
    def lead_cycles(self) -> int:
        """Cycles from the last IPU's arrival to the first byte on the links."""
        return self.total_cycles - self.post_copy_cycles

    @property
    def total_cycles(self) -> int:
        """Cycles of a copy with negligible payload."""
        return sum(self)


#: Fixed parts without a meeting of IPUs.
NOTHING_FIXED: Final = FixedParts()


@dataclass(frozen=True)
class CopyCost:
    """Cost of a merged inter-IPU copy.

    Attributes:
        fixed: parts independent of the payload.
        links: loads of the link directions with traffic, ordered by direction.
    """

    fixed: FixedParts
    links: tuple[LinkLoad, ...]

    @property
    def transfer_cycles(self) -> int:
        """Transfer cycles of the busiest link direction; 0 without traffic."""
        return max((load.cycles for load in self.links), default=0)

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole copy, sync included."""
        return self.fixed.total_cycles + self.transfer_cycles


def bytes_by_direction(routed: Iterable[tuple[Route, int]]) -> list[tuple[LinkDirection, int]]:
    """Return the bytes per link direction for routes with their bytes, ordered by direction."""
    carried: Counter[LinkDirection] = Counter()
    for route, byte_count in routed:
        for direction in route:
            carried[direction] += byte_count
    return sorted(carried.items())
