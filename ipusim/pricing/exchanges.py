"""Collectives of hosts between session runs, such as a mean of losses: their law, and their bytes."""

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
    """One collective of all hosts.

    Attributes:
        law: how long it takes: that of a sum, a gather or a broadcast over the hosts' network.
        bytes: of each host, for a gather of the one that has most.
    """

    law: Law
    bytes: int

    def cycles(self, system: System) -> int:
        """Return the cycles that it takes between hosts of ``system``."""
        return _CYCLES[self.law](system, self.bytes)


_CYCLES: Final[Mapping[Law, Callable[[System, int], int]]] = {
    laws.NETWORK_SUM: host_network.sum_cycles,
    laws.NETWORK_GATHER: host_network.gather_cycles,
    laws.NETWORK_BROADCAST: host_network.broadcast_cycles,
}
