"""List the named machines: kind and number of IPUs, links, and host.

IPUs lie in a ladder: rungs of two linked IPUs, joined by two rails. In a torus, the ends of the rails are joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ipusim.base.errors import DeviceError
from ipusim.base.near_names import did_you_mean, expected_last
from ipusim.hardware.generations import BOW, GC2, GC200, IpuSpec
from ipusim.hardware.host import ASSUMED_HOST, M2000_HOST, HostSpec
from ipusim.hardware.links import Channel
from ipusim.hardware.streaming import M2000_STREAMING, StreamingMemory

Connection = Literal["PCIe", "Fabric", "Model"]


@dataclass(frozen=True)
class Machine:
    """A machine of linked IPUs.

    Attributes:
        name: name in scenarios.
        description: one line for people.
        ipu: generation of the IPUs.
        count: number of IPUs, a power of two; physical numbers are ladder positions.
        source: the topology's origin, or ``assumed``.
        looped: whether the ladder of the whole machine, or of every pod, is closed to a torus.
        connection: connection between a host and an IPU.
        host: rates of the host.
        pcie_ids: device listing ids of the IPUs by ladder position; natural order if empty.
        pci_domains: PCI domains of these ids; empty if unknown.
        free: whether sync, links, host and weight updates cost nothing; updates with given cycles keep these cycles.
        streaming: Streaming Memory per group of four IPUs; None if absent.

    Example:
        >>> from ipusim.api import hardware
        >>> machine = hardware.MACHINES["pod16"]
        >>> machine.description, machine.sizes
        ('IPU-POD16, 4 IPU-M2000 in a ladder', (1, 2, 4, 8, 16))
    """

    name: str
    description: str
    ipu: IpuSpec
    count: int
    source: str
    looped: bool = False
    connection: Connection = "Fabric"
    host: HostSpec = M2000_HOST
    pcie_ids: tuple[int, ...] = ()
    pci_domains: tuple[str, ...] = ()
    free: bool = False
    streaming: StreamingMemory | None = M2000_STREAMING

    @property
    def sizes(self) -> tuple[int, ...]:
        """Possible numbers of IPUs per device: powers of two up to the machine's count."""
        return tuple(1 << power for power in range(self.count.bit_length()))

    @property
    def rung(self) -> Channel:
        """Channel between a rung's two IPUs: links of a card, or of an IPU-Machine."""
        return "machine rung" if self.connection == "Fabric" else "rung"

    def id_at(self, position: int) -> int:
        """Return the single-IPU device id at a ladder position.

        Args:
            position: ladder position, counted from 0.

        Returns:
            The id, numbered like Graphcore's tools number a machine's IPUs.
        """
        return self.pcie_ids[position] if self.pcie_ids else position


_POD_DATASHEET: Final = "Graphcore IPU-POD and Bow Pod datasheets; Graphcore GCL user guide"

_GATEWAYS: Final = f"{_POD_DATASHEET}; Graphcore, Switched GW-Links in large scale Bow Pod systems"

_CATALOGUE: Final = (
    Machine(
        name="c2_server",
        description="8 C2 cards of 2 GC2 in one server, a ladder",
        ipu=GC2,
        count=16,
        source="Graphcore TensorFlow API documentation, select_ipus (listing) and SelectionOrder (ladder of 8 cards)",
        connection="PCIe",
        host=ASSUMED_HOST,
        streaming=None,
        pcie_ids=(5, 7, 4, 6, 3, 1, 2, 0, 13, 15, 12, 14, 9, 11, 10, 8),
        pci_domains=tuple(
            f"0000:{bus}:00.0"
            for bus in ("1a", "1b", "23", "24", "3d", "3e", "43", "44", "8b", "8c", "8e", "8f", "b8", "b9", "ba", "bb")
        ),
    ),
    Machine("m2000", "one IPU-M2000, 4 GC200", GC200, 4, "Graphcore BMC user guide: two pairs; ladder assumed"),
    Machine("pod16", "IPU-POD16, 4 IPU-M2000 in a ladder", GC200, 16, _POD_DATASHEET),
    Machine("pod64", "IPU-POD64, 16 IPU-M2000 in a torus", GC200, 64, _POD_DATASHEET, looped=True),
    Machine("pod128", "IPU-POD128, 2 IPU-POD64 joined by GW-Links", GC200, 128, _GATEWAYS, looped=True),
    Machine("pod256", "IPU-POD256, 4 IPU-POD64 joined by GW-Links", GC200, 256, _GATEWAYS, looped=True),
    Machine("bow2000", "one Bow-2000, 4 Bow", BOW, 4, "assumed to be linked as an IPU-M2000", host=ASSUMED_HOST),
    Machine("bow_pod16", "Bow Pod16, 4 Bow-2000 in a ladder", BOW, 16, _POD_DATASHEET, host=ASSUMED_HOST),
    Machine("bow_pod64", "Bow Pod64, 16 Bow-2000 in a torus", BOW, 64, _POD_DATASHEET, looped=True, host=ASSUMED_HOST),
    Machine("bow_pod128", "Bow Pod128, 2 Bow Pod64 joined by GW-Links", BOW, 128, _GATEWAYS, True, host=ASSUMED_HOST),
    Machine("bow_pod256", "Bow Pod256, 4 Bow Pod64 joined by GW-Links", BOW, 256, _GATEWAYS, True, host=ASSUMED_HOST),
    Machine(
        name="free",
        description="no machine: GC200 in a ladder where sync, links and host cost nothing",
        ipu=GC200,
        count=64,
        source="assumed, for checks and teaching",
        connection="Model",
        host=ASSUMED_HOST,
        free=True,
        streaming=None,
    ),
)

#: Named machines, by name.
MACHINES: Final = {machine.name: machine for machine in _CATALOGUE}


def find_machine(name: str) -> Machine:
    """Return a machine by name, ignoring case; raises DeviceError, with the known names, for an unknown name."""
    machine = MACHINES.get(name.lower())
    if machine is None:
        hint = did_you_mean(name, MACHINES, quoted=True)
        raise DeviceError(expected_last(f"unknown system {name!r}", hint, f"one of {', '.join(MACHINES)}"))
    return machine
