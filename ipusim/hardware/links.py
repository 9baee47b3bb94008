"""Describe the links from an IPU to a neighbour, one direction at a time, with rate and latency.

IPUs form a ladder: a rung is a pair of linked IPUs, and two rails join the rungs. Ten IPU-Links leave an IPU: six along
the rung, two up and two down the rail. PopLibs models the six as two resources: four links for traffic between the
rung's two IPUs, and two links for traffic that crosses the rung on the way to another rung
(``addGlobalExchangeConstraints``, lib/poplibs_test/Util.cpp). The model describes a C2 card; the rate of a rung in an
IPU-Machine was measured. GW-Links join pods, two from every machine of four IPUs.
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
#: Suffix of the channels that limit the rate of a detour.
_DETOUR: Final = " detour"


@dataclass(frozen=True, order=True)
class LinkDirection:
    """The IPU-Links from an IPU to a neighbour that serve one kind of traffic.

    Attributes:
        source: physical number (ladder position) of the sending IPU; for GW-Links, first IPU of the machine.
        target: physical number of the receiving IPU; for GW-Links, first IPU of the machine.
        channel: ``rung`` for traffic that ends on this rung, ``machine rung`` for the same in an IPU-Machine,
            ``rung crossing`` for traffic to another rung, ``rail`` for a hop between rungs, ``gateway`` for a hop
            between pods, ``gateway pair`` for a device of two pods; ``rung detour`` and ``machine rung detour`` for the
            joint limit of a detour round a rung's dead cable.
    """

    source: int
    target: int
    channel: Channel

    def bytes_per_s(self, rates: Rates) -> Fraction:
        """Return the exact useful rate of these links together."""
        return _bytes_per_s(self.channel, rates)

    def latency_ns(self, rates: Rates) -> Fraction:
        """Return the time of a signal over this hop; 0 for a detour's limit."""
        if self.is_limit:
            return Fraction(0)
        return rates.gateway_latency_ns if self.channel.startswith("gateway") else rates.hop_latency_ns

    @property
    def is_limit(self) -> bool:
        """Whether the direction is not a link but the joint rate limit of a detour."""
        return self.channel.endswith(_DETOUR)

    @property
    def label(self) -> str:
        """Direction for people: ``0→1 rung``, for any kind of machine."""
        return f"{self.source}→{self.target} {self.channel.removeprefix('machine ')}"

    def __str__(self) -> str:
        """Return :attr:`label`."""
        return self.label


@lru_cache(maxsize=256)  # called for every link of every route
def _bytes_per_s(channel: Channel, rates: Rates) -> Fraction:
    link = rates.link_bytes_per_s * rates.link_efficiency
    gateway_link = rates.gateway_link_bytes_per_s * rates.link_efficiency
    rate_of_channel = {
        "rung": rates.rung_links * link,
        "machine rung": rates.machine_rung_bytes_per_s,
        "rung crossing": rates.rung_crossing_links * link,
        "rail": rates.rail_links * link,
        "gateway": rates.gateway_links * gateway_link,
        "gateway pair": 2 * rates.gateway_links * gateway_link,
    }
    return rate_of_channel[channel.removesuffix(_DETOUR)]


def with_detour_limit(route: tuple[LinkDirection, ...], rung: Channel) -> tuple[LinkDirection, ...]:
    """Return a rung's route; detours get an additional rate limit.

    A detour is no faster than the rung's direct links. In an IPU-Machine the direct links were measured slower than the
    nominal rate of two rail links (26.5 and 29.2 GB/s); no measurement shows the nominal rate between any two IPUs.

    Args:
        route: link directions from one IPU of a rung to the other.
        rung: channel of the traffic between both.

    Returns:
        The route. A detour ends with the limit, a rate shared by the traffic between the two IPUs.

    Example:
        >>> direct = (LinkDirection(0, 1, "machine rung"),)
        >>> with_detour_limit(direct, "machine rung") == direct
        True
    """
    if len(route) == 1:
        return route
    channel: Channel = "rung detour" if rung == "rung" else "machine rung detour"
    return (*route, LinkDirection(route[0].source, route[-1].target, channel))
