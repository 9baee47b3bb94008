"""One direction of the links between two neighbouring IPUs, and what it carries.

Ten IPU-Links leave each IPU: six along its rung, two up and two down its rail.
PopLibs models the six as two resources, four links for the traffic of the two
IPUs of the rung themselves and two for traffic that crosses the rung on its way
to another one (``addGlobalExchangeConstraints``, lib/poplibs_test/Util.cpp).

Between pods there are GW-Links, two from each machine of four IPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Channel = Literal["rung", "rung crossing", "rail", "gateway", "gateway pair"]

#: Useful rate of one IPU-Link in one direction: 128 Gibit/s at 85 % protocol
#: efficiency (linkBandwidth and linkEfficiency in PopLibs lib/poplibs_test/Util.cpp).
LINK_BYTES_PER_S: Final = Fraction(128 * 2**30, 8) * Fraction(85, 100)

#: Useful rate of one GW-Link in one direction: 100 Gbit/s (Graphcore, Switched GW-Links in large
#: scale Bow Pod systems), at the protocol efficiency of an IPU-Link, which is assumed.
GATEWAY_LINK_BYTES_PER_S: Final = Fraction(100 * 10**9, 8) * Fraction(85, 100)

#: Links of each channel. IPU-Links: numIntraIpuLinks, numCrossRoutingLinks, numUpLinks and
#: numDownLinks in PopLibs lib/poplibs_test/Util.cpp. GW-Links: one east and one west, or both to the one other pod.
LINKS: Final[dict[Channel, int]] = {"rung": 4, "rung crossing": 2, "rail": 2, "gateway": 1, "gateway pair": 2}

#: Time of a signal over one hop between IPUs (syncLatencyPerHop, PopLibs lib/poplibs_test/Util.cpp;
#: S. Knowles, Hot Chips 33). That data needs the same time per hop is assumed.
HOP_LATENCY_NS: Final = Fraction(15)

#: Time of a signal from an IPU over the gateways of two machines to one in another pod: assumed.
GATEWAY_LATENCY_NS: Final = Fraction(2000)


@dataclass(frozen=True, order=True)
class LinkDirection:
    """The IPU-Links that carry one kind of traffic from one IPU to a neighbour.

    Attributes:
        source, target: physical IPU numbers, that is, positions in the ladder;
            of the first IPUs of two machines for their GW-Links.
        channel: ``rung`` for traffic that ends on this rung, ``rung crossing`` for
            traffic that goes on to another rung, ``rail`` for a hop between rungs,
            ``gateway`` for one between pods, ``gateway pair`` between two pods alone.
    """

    source: int
    target: int
    channel: Channel

    @property
    def bytes_per_s(self) -> Fraction:
        """Exact useful rate of these links together."""
        return LINKS[self.channel] * (GATEWAY_LINK_BYTES_PER_S if self._between_pods else LINK_BYTES_PER_S)

    @property
    def latency_ns(self) -> Fraction:
        """Time of a signal over this hop."""
        return GATEWAY_LATENCY_NS if self._between_pods else HOP_LATENCY_NS

    @property
    def _between_pods(self) -> bool:
        return self.channel in {"gateway", "gateway pair"}

    @property
    def label(self) -> str:
        """The direction for people: ``0→1 rung``."""
        return f"{self.source}→{self.target} {self.channel}"

    def __str__(self) -> str:
        """Return :attr:`label`."""
        return self.label
