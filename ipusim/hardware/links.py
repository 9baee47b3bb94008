"""One direction of the IPU-Links between two neighbouring IPUs, and what it carries.

Ten IPU-Links leave each IPU: six along its rung, two up and two down its rail.
PopLibs models the six as two resources, four links for the traffic of the two
IPUs of the rung themselves and two for traffic that crosses the rung on its way
to another one (``addGlobalExchangeConstraints``, lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Channel = Literal["rung", "rung crossing", "rail"]

#: Useful rate of one IPU-Link in one direction: 128 Gibit/s at 85 % protocol
#: efficiency (linkBandwidth and linkEfficiency in PopLibs lib/poplibs_test/Util.cpp).
LINK_BYTES_PER_S: Final = Fraction(128 * 2**30, 8) * Fraction(85, 100)

#: IPU-Links of each channel (numIntraIpuLinks, numCrossRoutingLinks, numUpLinks and
#: numDownLinks in PopLibs lib/poplibs_test/Util.cpp).
LINKS: Final[dict[Channel, int]] = {"rung": 4, "rung crossing": 2, "rail": 2}


@dataclass(frozen=True, order=True)
class LinkDirection:
    """The IPU-Links that carry one kind of traffic from one IPU to a neighbour.

    Attributes:
        source, target: physical IPU numbers, that is, positions in the ladder.
        channel: ``rung`` for traffic that ends on this rung, ``rung crossing`` for
            traffic that goes on to another rung, ``rail`` for a hop between rungs.
    """

    source: int
    target: int
    channel: Channel

    @property
    def bytes_per_s(self) -> Fraction:
        """Exact useful rate of these links together."""
        return LINKS[self.channel] * LINK_BYTES_PER_S

    @property
    def label(self) -> str:
        """The direction for people: ``0→1 rung``."""
        return f"{self.source}→{self.target} {self.channel}"

    def __str__(self) -> str:
        """Return :attr:`label`."""
        return self.label
