"""Price the host's work between session runs: collectives of hosts, and copies of updated weights to IPUs."""

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
    """Collective of all hosts, or a copy of weights from the host to an IPU.

    Attributes:
        law: formula of the duration: sum, gather or broadcast over the hosts' network; host's write of weights into the
            buffer; IPU's read of the buffer.
        bytes: bytes of each host, or of the largest host in a gather; bytes of an IPU's weights in a copy.
    """

    law: Law
    bytes: int

    def cycles(self, system: System) -> int:
        """Return the exchange's cycles on ``system``."""
        return _CYCLES[self.law](system, self.bytes)


_CYCLES: Final[Mapping[Law, Callable[[System, int], int]]] = {
    laws.NETWORK_SUM: host_network.sum_cycles,
    laws.NETWORK_GATHER: host_network.gather_cycles,
    laws.NETWORK_BROADCAST: host_network.broadcast_cycles,
    laws.FILL: System.host_fill_cycles,
    laws.WEIGHTS_IN: System.infeed_cycles,
}


def weight_copies(size: int) -> tuple[HostExchange, ...]:
    """Return the exchanges that copy weights updated by the host to an IPU.

    Args:
        size: bytes of the weights.

    Returns:
        The host's write into the buffer, during which the host also computes (assumed), then the IPU's read.
    """
    return HostExchange(laws.FILL, size), HostExchange(laws.WEIGHTS_IN, size)
