"""Which devices of a machine are the TensorFlow devices of a configuration: /device:IPU:0, /device:IPU:1 and so on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ipusim.errors import DeviceError
from ipusim.hardware.devices import Device, devices_of, first_device, select_device
from ipusim.hardware.machines import MACHINES, Machine, find_machine

#: Machines that a program runs on when none is named: the first with enough IPUs.
_USUAL_MACHINES: Final = ("m2000", "pod16", "pod64", "pod128", "pod256")


class ChosenDevice(NamedTuple):
    """A device of a machine as a request asks for it.

    Attributes:
        machine: that has it.
        ipus: its size, where it is the first of that size; None where ``device`` says it, or nothing does.
        device: its id in the machine's listing.
    """

    machine: Machine
    ipus: int | None = None
    device: int | None = None


def device_count(config: Any) -> int:
    """Return the number of TensorFlow devices that an IPUConfig asks for; 0 where it names none."""
    return max(len(_numbers(config.auto_select_ipus)), len(_numbers(config.select_ipus)))


def chosen_device(config: Any, ordinal: int, least: int) -> ChosenDevice:
    """Return the device with a number of those that an IPUConfig asks for.

    Args:
        config: the configuration. Its devices lie on one machine, the smallest that has them, and share no IPU: each
            is the first one of its size whose IPUs are free.
        ordinal: the number behind ``/device:IPU:``.
        least: the IPUs of the machine where the configuration asks for no device.

    Raises:
        DeviceError: in Graphcore's words, where there is no such device.
    """
    sizes, ids = _numbers(config.auto_select_ipus), _numbers(config.select_ipus)
    names = (config.machine,) if config.machine else _USUAL_MACHINES
    count = device_count(config)
    if not count:
        large = [name for name in names if config.machine or MACHINES[name].count >= least]
        return ChosenDevice(find_machine((large or names)[0 if large else -1]))
    if ordinal >= count:
        argument = "auto_select_ipus" if sizes else "select_ipus"
        raise DeviceError(
            f"Device ordinal {ordinal} not in device configuration list. Expected a device from /device:IPU:0 to "
            f"/device:IPU:{count - 1}, as IPUConfig.{argument} has {count}"
        )
    machine = next((each for each in map(find_machine, names) if _has_all(each, sizes, ids)), find_machine(names[-1]))
    found = list(_attached(machine, sizes, ids))[ordinal]
    if ids:
        return ChosenDevice(machine, device=found.id)
    if found == first_device(machine, found.count):
        return ChosenDevice(machine, ipus=found.count)
    return ChosenDevice(machine, device=found.id)


def _has_all(machine: Machine, sizes: Sequence[int], ids: Sequence[int]) -> bool:
    """Tell whether a machine has devices of these sizes beside each other, or of these ids."""
    if ids:
        return max(ids) < len(devices_of(machine))
    try:
        return bool(list(_attached(machine, sizes, ())))
    except DeviceError:
        return False


def _attached(machine: Machine, sizes: Sequence[int], ids: Sequence[int]) -> Iterator[Device]:
    """Yield the devices in the order in which they are attached to, which is that of their numbers."""
    taken: set[int] = set()
    for ordinal, wanted in enumerate(ids or sizes):
        device = _free(machine, wanted, ordinal, taken) if sizes else select_device(machine, wanted)
        if device is None or not taken.isdisjoint(device.positions):
            size = wanted if device is None else device.count
            raise DeviceError(
                f"Could not find an available device for TensorFlow virtual device /device:IPU:{ordinal}. This device "
                f"was expected to have {size} IPU(s). Common causes of this error include: incorrect configuration of "
                "your V-IPU partition, requesting more IPUs than are available on your system, or IPUs being used by "
                "another program. Use `gc-info -l` and `gc-monitor` to check your configuration. The devices before "
                f"it have {len(taken)} of the {machine.count} IPUs of {machine.name}, and each IPU is of one device"
            )
        taken.update(device.positions)
        yield device


def _free(machine: Machine, size: int, ordinal: int, taken: set[int]) -> Device | None:
    """Return the first device of a size whose IPUs are free; None where there is none. Raises DeviceError."""
    if size not in machine.sizes:
        raise DeviceError(
            f"Unsupported number of IPUs requested - could not find an IPU device with {size} IPUs for the TensorFlow "
            f"virtual device /device:IPU:{ordinal}. Use `gc-info -l` to view the available device configurations."
        )
    fitting = (each for each in devices_of(machine) if each.count == size)
    return next((each for each in fitting if taken.isdisjoint(each.positions)), None)


def _numbers(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)
