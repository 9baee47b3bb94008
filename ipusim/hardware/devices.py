"""List and select the devices of a machine, single IPUs and groups, like Graphcore's ``gc-info -l``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ipusim.base.errors import DeviceError
from ipusim.hardware.machines import Machine, find_machine


@dataclass(frozen=True)
class Device:
    """A device that a program can attach to.

    Attributes:
        id: number in the machine's listing.
        positions: physical numbers (positions in the ladder of links) of the IPUs, ascending; an IPU's rank is its DNC
            id in the listing.
    """

    id: int
    positions: range

    @property
    def count(self) -> int:
        """Number of IPUs."""
        return len(self.positions)


@lru_cache(maxsize=32)  # a pod has hundreds of devices, and every scenario asks for one
def devices_of(machine: Machine) -> tuple[Device, ...]:
    """Return the devices of ``machine`` ordered by id: single IPUs, then pairs, fours, ..."""
    singles = sorted((machine.id_at(position), position) for position in range(machine.count))
    groups = [range(position, position + 1) for _, position in singles]
    for size in machine.sizes[1:]:
        groups += [range(first, first + size) for first in range(0, machine.count, size)]
    return tuple(Device(number, positions) for number, positions in enumerate(groups))


def select_device(machine: Machine, device_id: int) -> Device:
    """Return the device with the given id. Raises DeviceError for an id outside the machine's listing."""
    devices = devices_of(machine)
    if not 0 <= device_id < len(devices):
        raise DeviceError(f"{machine.name} has no device with id {device_id}: ids go from 0 to {len(devices) - 1}")
    return devices[device_id]


def first_device(machine: Machine, count: int) -> Device:
    """Return the device of ``count`` IPUs with the lowest id.

    Raises DeviceError, in Graphcore's words, if the machine has no device of ``count`` IPUs.
    """
    for device in devices_of(machine):
        if device.count == count:
            return device
    *small_sizes, largest = machine.sizes
    raise DeviceError(
        f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs "
        f"({machine.name} has devices with {', '.join(map(str, small_sizes))} or {largest} IPUs)"
    )


def device_listing(name: str) -> str:
    """Return the device listing of the machine called ``name``, formatted like ``gc-info -l``.

    Raises DeviceError for an unknown machine.
    """
    machine = find_machine(name)
    devices = devices_of(machine)
    id_width = len(f"[{devices[-1].id}]")
    pcie_width = len(f"[{machine.count - 1}]")
    kind_width = len("[Multi IPU]")
    lines = ["Graphcore device listing:", ""]
    for device in devices:
        head = f"-+- Id: {f'[{device.id}]':>{id_width}}, type: "
        if device.count == 1:
            lines.append(f"{head}{f'[{machine.connection}]':>{kind_width}}{_domain(machine, device.id)}")
            continue
        lines.append(f"{head}[Multi IPU]")
        for rank, position in enumerate(device.positions):
            pcie_id = machine.id_at(position)
            pcie = f"{f'[{pcie_id}]':>{pcie_width}}"
            lines.append(f"|--- PCIe Id: {pcie}, DNC Id: [{rank}]{_domain(machine, pcie_id)}")
    return "\n".join(lines)


def _domain(machine: Machine, pcie_id: int) -> str:
    return f", PCI Domain: [{machine.pci_domains[pcie_id]}]" if machine.pci_domains else ""
