"""The machines that have a name: which IPUs, how many, how linked, behind which host."""

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
    """A machine whose IPUs are linked with each other.

    Attributes:
        name: what scenarios call it.
        description: one line for people.
        ipu: generation of its IPUs.
        count: number of IPUs, a power of two; their physical numbers are positions in the ladder.
        source: where its topology is from, or ``assumed``.
        looped: whether the ladder of the whole machine, or of each of its pods, is closed to a torus.
        connection: how a host reaches one IPU.
        host: rates of the host.
        pcie_ids: the id of the IPU at each ladder position in a device listing; natural order when empty.
        pci_domains: the PCI domain of each of these ids, where known.
        free: whether sync, links, host and weight updates counted from layers cost nothing; given cycles hold.
        streaming: the Streaming Memory beside every four of its IPUs; None where there is none.

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
        """Numbers of IPUs that a device of this machine can have: the powers of two up to all."""
        return tuple(1 << power for power in range(self.count.bit_length()))

    @property
    def rung(self) -> Channel:
        """The channel of a rung's own two IPUs: links of a card, or of an IPU-Machine."""
        return "machine rung" if self.connection == "Fabric" else "rung"

    def id_at(self, position: int) -> int:
        """Return the single-IPU id of the IPU at a ladder position.

        Args:
            position: on the ladder, counted from 0.

        Returns:
            The id, as Graphcore's tools number the IPUs of a machine.
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

#: Every named machine, by name.
MACHINES: Final = {machine.name: machine for machine in _CATALOGUE}


def find_machine(name: str) -> Machine:
    """Return the machine of that name, in any case. Raises DeviceError with the known names when there is none."""
    machine = MACHINES.get(name.lower())
    if machine is None:
        hint = did_you_mean(name, MACHINES, quoted=True)
        raise DeviceError(expected_last(f"unknown system {name!r}", hint, f"one of {', '.join(MACHINES)}"))
    return machine
