"""The host's exchanges between session runs: collectives of hosts, and weights that the host has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ipusim.hardware import host_network
from ipusim.hardware.system import System
from ipusim.pricing import laws
from ipusim.pricing.laws import Law


@dataclass(frozen=True)
class HostExchange:
    """A collective of all hosts, or a copy of weights from the host to an IPU.

    Attributes:
        law: how long it takes: a sum, a gather or a broadcast over the hosts' network; the host's writes of weights
            into its buffer, and an IPU's reads of them there.
        bytes: of each host, for a gather of the one that has most; of weights, those of an IPU.
    """

    law: Law
    bytes: int

    def cycles(self, system: System) -> int:
        """Return the cycles that the exchange takes on ``system``."""
        return _CYCLES[self.law](system, self.bytes)


_CYCLES: Final[Mapping[Law, Callable[[System, int], int]]] = {
    laws.NETWORK_SUM: host_network.sum_cycles,
    laws.NETWORK_GATHER: host_network.gather_cycles,
    laws.NETWORK_BROADCAST: host_network.broadcast_cycles,
    laws.FILL: System.host_fill_cycles,
    laws.WEIGHTS_IN: System.infeed_cycles,
}


def handed_out(size: int) -> tuple[HostExchange, ...]:
    """Return the ways of weights that the host has updated to an IPU.

    Args:
        size: bytes of the weights.

    Returns:
        The host's writes into its buffer, under which its arithmetic hides (assumed), and the IPU's reads.
    """
    return HostExchange(laws.FILL, size), HostExchange(laws.WEIGHTS_IN, size)
