"""Device listings, and selection of a device by id or by size."""

import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.devices import device_listing, devices_of, first_device, select_device
from ipusim.hardware.machines import MACHINES, Machine, find_machine

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))


@every_machine
def test_every_machine_lists_each_device_once(machine: Machine) -> None:
    devices = devices_of(machine)
    assert [device.id for device in devices] == list(range(2 * machine.count - 1))
    assert len({device.positions for device in devices}) == len(devices)
    for size in machine.sizes:
        positions = [position for device in devices if device.count == size for position in device.positions]
        assert sorted(positions) == list(range(machine.count))


@pytest.mark.parametrize(
    ("device_id", "positions"),
    [(0, [7]), (5, [0]), (16, [0, 1]), (18, [4, 5]), (25, [4, 5, 6, 7]), (29, list(range(8, 16)))],
)
def test_ids_of_the_c2_server(device_id: int, positions: list[int]) -> None:
    assert list(select_device(find_machine("c2_server"), device_id).positions) == positions


@pytest.mark.parametrize("device_id", [-1, 31])
def test_an_id_that_is_not_listed(device_id: int) -> None:
    with pytest.raises(DeviceError, match=f"c2_server has no device with id {device_id}: ids go from 0 to 30"):
        select_device(find_machine("c2_server"), device_id)


@pytest.mark.parametrize(("count", "device_id"), [(1, 0), (2, 16), (4, 24), (8, 28), (16, 30)])
def test_the_first_device_of_a_size(count: int, device_id: int) -> None:
    assert first_device(find_machine("c2_server"), count).id == device_id


@pytest.mark.parametrize("count", [-1, 0, 3, 8])
def test_a_size_that_no_device_has(count, refused) -> None:
    message = f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs "
    message += "(m2000 has devices with 1, 2 or 4 IPUs)"
    refused(DeviceError, message, lambda: first_device(find_machine("m2000"), count))


def test_a_machine_that_does_not_exist(refused) -> None:
    message = f"unknown system 'M200'; did you mean 'm2000'? Expected one of {', '.join(MACHINES)}"
    refused(DeviceError, message, lambda: device_listing("M200"))
    assert device_listing("POD16") == device_listing("pod16")
