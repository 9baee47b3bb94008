"""Define the part of a System that does not change during a run: IPUs with positions and links, host, and rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

from ipusim.base.errors import DeviceError
from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.host import HostSpec
from ipusim.hardware.pods import PodRing
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.hardware.streaming import SHARING_IPUS, StreamingMemory
from ipusim.hardware.topology import Topology

#: Number of optimizer values that Graphcore's BERT in PyTorch sends per variable: learning rate, epsilon, scale of
#: gradients.
_OPTIMIZER_VALUES: Final = 3


@dataclass(frozen=True)
class Placement:
    """A System without disturbances; :class:`ipusim.hardware.system.System` documents the attributes."""

    name: str
    ipu: IpuSpec
    ipus: tuple[int, ...]
    selection_order: str
    order_reason: str
    topology: Topology | PodRing
    host: HostSpec
    rates: Rates = DEFAULT_RATES
    free: bool = False
    replicas: int = 1
    streaming: StreamingMemory | None = None
    io_tiles: int = 0
    framework: str | None = None
    optimizer_update_interval: int | None = None
    optimizer_values: int | None = None
    hosts: int = 1

    def __post_init__(self) -> None:
        """Check IPUs and replicas against the topology."""
        if sorted(self.ipus) != list(self.topology.ipus):
            raise DeviceError(f"{self.name}: expected IPUs {list(self.topology.ipus)} in some order, got {self.ipus}")
        if self.replicas < 1 or self.count % self.replicas:
            raise DeviceError(f"{self.name}: expected replicas that divide {self.count} IPUs, got {self.replicas}")

    @property
    def optimizer_interval(self) -> int:
        """Number of session runs after which the program sends its optimizer's values again; 0: never."""
        stated_interval = self.optimizer_update_interval
        return int(bool(self.framework)) if stated_interval is None else stated_interval

    def session_ns(self, variables: int, rates: Rates | None = None) -> Fraction:
        """Return the time of the framework's host between two session runs.

        The time for optimizer state in Streaming Memory is not included.

        Args:
            variables: number of variables that the optimizer updates.
            rates: rates of the host; default: the System's.

        Returns:
            Nanoseconds, the mean over session runs.
        """
        rates = rates or self.rates
        value_ns = rates.optimizer_value_ns
        if self.framework == "pytorch":
            values = _OPTIMIZER_VALUES if self.optimizer_values is None else self.optimizer_values
            value_ns = values * rates.pytorch_optimizer_value_ns
        interval = self.optimizer_interval
        return rates.session_run_ns + (Fraction(variables, interval) * value_ns if interval else 0)

    @cached_property
    def cables(self) -> Mapping[int, tuple[int, ...]]:
        """Neighbours over cables in ascending order, by logical IPU."""
        logical = {physical: number for number, physical in enumerate(self.ipus)}
        neighbours = self.topology.neighbours
        return {
            ipu: tuple(sorted(logical[neighbour] for neighbour in neighbours[self.ipus[ipu]]))
            for ipu in range(self.count)
        }

    def cable(self, link: tuple[int, int]) -> tuple[int, int]:
        """Return the ends of a cable between two logical IPUs.

        Args:
            link: the two logical IPUs.

        Returns:
            The two physical numbers, smaller first.
        """
        lower, upper = sorted(self.ipus[ipu] for ipu in link)
        return lower, upper

    @property
    def count(self) -> int:
        """The device's number of IPUs."""
        return len(self.ipus)

    def streaming_memory_of(self, ipu: int) -> int:
        """Return the number of the IPU-Machine whose Streaming Memory a logical IPU uses.

        Args:
            ipu: a logical IPU.

        Returns:
            An IPU-Machine's number.
        """
        return self.ipus[ipu] // SHARING_IPUS
