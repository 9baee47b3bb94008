"""Define Streaming Memory: DRAM of an M2000 beside four IPUs, for Poplar's remote buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from ipusim.base.errors import QuantityError
from ipusim.hardware.sourced import sourced

#: IPUs sharing a Streaming Memory, with consecutive physical numbers: the IPUs of an M2000 or Bow-2000.
SHARING_IPUS: Final = 4


@dataclass(frozen=True)
class StreamingMemory:
    """Streaming Memory of an M2000.

    Concurrent transfers share the memory's bandwidth equally. A transfer never exceeds the rate of the IPU's link.

    Attributes:
        bytes_per_s: bandwidth of the memory, shared by its IPUs, for reads and writes.
        ipu_bytes_per_s: rate of an IPU's memory link.
        capacity_bytes: size of the memory.
        sources: origin of every figure, or ``assumed``.

    Raises QuantityError for a rate or size not above zero.
    """

    bytes_per_s: Fraction
    ipu_bytes_per_s: Fraction
    capacity_bytes: int
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse rates that would never finish."""
        for name in ("bytes_per_s", "ipu_bytes_per_s", "capacity_bytes"):
            if getattr(self, name) <= 0:
                raise QuantityError(f"Streaming Memory: expected {name} above 0, got {getattr(self, name)}")

    def share(self, transfers: int) -> Fraction:
        """Return the bytes per second per transfer, for ``transfers`` concurrent transfers."""
        return min(self.ipu_bytes_per_s, self.bytes_per_s / transfers)


#: Streaming Memory of an M2000 or Bow-2000.
M2000_STREAMING: Final = sourced(
    StreamingMemory,
    bytes_per_s=(Fraction(32 * 10**9), "assumed, 8 GB/s for each of four IPUs: no sound figure is published"),
    ipu_bytes_per_s=(
        Fraction(16 * 10**9),
        "PCIe Gen4 x8 to the gateway, in each direction (a copy of Graphcore's BMC user guide)",
    ),
    capacity_bytes=(256 * 10**9, "up to 256 GB (IPU-POD datasheets)"),
)
