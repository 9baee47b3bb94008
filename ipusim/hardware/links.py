"""One direction of the links between two neighbouring IPUs, and what it carries.

Ten IPU-Links leave each IPU: six along its rung, two up and two down its rail.
PopLibs models the six as two resources, four links for the traffic of the two
IPUs of the rung themselves and two for traffic that crosses the rung on its way
to another one (``addGlobalExchangeConstraints``, lib/poplibs_test/Util.cpp). That
is a C2 card; what the two IPUs of a rung reach in an IPU-Machine was measured.

Between pods there are GW-Links, two from each machine of four IPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from ipusim.hardware.rates import Rates

Channel = Literal[
    "rung", "machine rung", "rung crossing", "rail", "gateway", "gateway pair", "rung detour", "machine rung detour"
]
#: End of the channels that limit a detour.
_DETOUR: Final = " detour"


@dataclass(frozen=True, order=True)
class LinkDirection:
    """The IPU-Links that carry one kind of traffic from one IPU to a neighbour.

    Attributes:
        source, target: physical IPU numbers, that is, positions in the ladder;
            of the first IPUs of two machines for their GW-Links.
        channel: ``rung`` for traffic that ends on this rung, ``machine rung`` for the same in
            an IPU-Machine, ``rung crossing`` for traffic that goes on to another rung, ``rail`` for a hop
            between rungs, ``gateway`` for one between pods, ``gateway pair`` between two pods alone; ``rung detour``
            and ``machine rung detour`` for the limit of all links of a detour round the dead cable of a rung.
    """

    source: int
    target: int
    channel: Channel

    def bytes_per_s(self, rates: Rates) -> Fraction:
        """Return the exact useful rate of these links together."""
        return _bytes_per_s(self.channel, rates)

    def latency_ns(self, rates: Rates) -> Fraction:
        """Return the time of a signal over this hop; 0 for a limit, which is no hop."""
        if self.is_limit:
            return Fraction(0)
        return rates.gateway_latency_ns if self.channel.startswith("gateway") else rates.hop_latency_ns

    @property
    def is_limit(self) -> bool:
        """Whether it limits a detour, and is no link."""
        return self.channel.endswith(_DETOUR)

    @property
    def label(self) -> str:
        """The direction for people: ``0→1 rung``, of whatever machine."""
        return f"{self.source}→{self.target} {self.channel.removeprefix('machine ')}"

    def __str__(self) -> str:
        """Return :attr:`label`."""
        return self.label


@lru_cache(maxsize=256)  # asked for of every link of every route
def _bytes_per_s(channel: Channel, rates: Rates) -> Fraction:
    link = rates.link_bytes_per_s * rates.link_efficiency
    gateway_link = rates.gateway_link_bytes_per_s * rates.link_efficiency
    of_channel = {
        "rung": rates.rung_links * link,
        "machine rung": rates.machine_rung_bytes_per_s,
        "rung crossing": rates.rung_crossing_links * link,
        "rail": rates.rail_links * link,
        "gateway": rates.gateway_links * gateway_link,
        "gateway pair": 2 * rates.gateway_links * gateway_link,
    }
    return of_channel[channel.removesuffix(_DETOUR)]


def limited(route: tuple[LinkDirection, ...], rung: Channel) -> tuple[LinkDirection, ...]:
    """Return the route between the two IPUs of a rung, with a limit to its rate if it is a detour.

    A detour carries no more than the rung's own links would. In an IPU-Machine those were measured at less than the
    nominal rate of two rail links (26.5 and 29.2 GB/s), which no measurement has shown for any two IPUs.

    Args:
        route: link directions from one IPU of a rung to the other.
        rung: channel of the traffic between both.

    Returns:
        The route; behind the links of a detour the limit, in which all traffic between the two IPUs shares the rate.

    Example:
        >>> direct = (LinkDirection(0, 1, "machine rung"),)
        >>> limited(direct, "machine rung") == direct
        True
    """
    if len(route) == 1:
        return route
    channel: Channel = "rung detour" if rung == "rung" else "machine rung detour"
    return (*route, LinkDirection(route[0].source, route[-1].target, channel))
