"""Streaming Memory: the DRAM of an M2000 beside its four IPUs, which Poplar's remote buffers lie in."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.errors import QuantityError

#: IPUs that share one Streaming Memory, consecutive in physical numbers: those of one M2000 or Bow-2000.
SHARING_IPUS: Final = 4


@dataclass(frozen=True)
class StreamingMemory:
    """The Streaming Memory of one M2000.

    Each transfer that is under way gets an equal part of the memory's bandwidth, and
    no more than its IPU's own link carries.

    Attributes:
        bytes_per_s: bandwidth of the memory, for all its IPUs together, reads and writes.
        ipu_bytes_per_s: what the link of one IPU to the memory carries.
        capacity_bytes: its size.

    Raises QuantityError for a rate or a size that is not above zero.
    """

    bytes_per_s: Fraction
    ipu_bytes_per_s: Fraction
    capacity_bytes: int

    def __post_init__(self) -> None:
        """Refuse rates that would never finish."""
        for name in ("bytes_per_s", "ipu_bytes_per_s", "capacity_bytes"):
            if getattr(self, name) <= 0:
                raise QuantityError(f"Streaming Memory: expected {name} above 0, got {getattr(self, name)}")

    def share(self, transfers: int) -> Fraction:
        """Return the bytes per second of each of ``transfers`` that are under way at once."""
        return min(self.ipu_bytes_per_s, self.bytes_per_s / transfers)


#: Bandwidth: assumed, 8 GB/s for each of four IPUs; no sound figure is published. An IPU's link to the gateway is
#: PCIe Gen4 x8, 16 GB/s each way (relay of Graphcore's BMC user guide). Size: up to 256 GB (IPU-POD datasheets).
M2000_STREAMING: Final = StreamingMemory(Fraction(32 * 10**9), Fraction(16 * 10**9), 256 * 10**9)
