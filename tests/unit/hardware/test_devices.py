"""Device listings, selection of a device by id or by size, orders of its IPUs, and the graph of its links."""

import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.devices import device_listing, devices_of, first_device, select_device
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.machines import MACHINES, Machine, find_machine
from ipusim.hardware.orders import ORDERS, resolve_order, selection
from ipusim.hardware.topology import Topology

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


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_orders_go_along_the_rungs_to_and_fro_or_up_one_rail_and_down_the_other(count):
    assert selection("ZIGZAG", count) == tuple(range(count))
    assert selection("SNAKE", count) == tuple(ipu ^ (ipu >> 1 & 1) for ipu in range(count))
    assert selection("HOOF", count) == (*range(0, count, 2), *range(count - 1, 0, -2))


@pytest.mark.parametrize("count", [-2, 0, 3, 6])
def test_counts_that_no_device_has(count):
    with pytest.raises(DeviceError, match=f"expected a device of 1, 2, 4, 8, ... IPUs, got {count}"):
        selection("SNAKE", count)


@pytest.mark.parametrize(
    ("mapping", "pipelined", "order", "reason"),
    [
        ([0, 1, 2], True, "SNAKE", "every stage of the pipeline sits on the IPU of its own number"),
        ([0, 1, 3], True, "ZIGZAG", "stage 2 of the pipeline sits on IPU 3"),
        ([2, 0, 1], True, "ZIGZAG", "stage 0 of the pipeline sits on IPU 2"),
        ([0, 0], True, "ZIGZAG", "stage 1 of the pipeline sits on IPU 0"),
        ([0, 1], False, "ZIGZAG", "the program is not a pipeline"),
    ],
)
def test_auto(mapping, pipelined, order, reason):
    assert resolve_order("AUTO", mapping, pipelined) == (order, f"AUTO takes {order} because {reason}.")


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_that_is_asked_for_is_taken(order):
    assert resolve_order(order, [1, 0], False) == (order, f"{order} was asked for.")


def test_an_unknown_order_names_the_known_ones(refused):
    message = "unknown selection order 'snak': expected one of AUTO, ZIGZAG, SNAKE, HOOF; did you mean SNAKE?"
    refused(DeviceError, message, lambda: resolve_order("snak", [0], True))


def test_auto_is_no_order_of_its_own():
    with pytest.raises(DeviceError, match=r"unknown selection order 'AUTO': expected one of ZIGZAG, SNAKE, HOOF$"):
        selection("AUTO", 4)


def test_directions_sort_by_source_target_and_channel() -> None:
    directions = [
        LinkDirection(0, 1, "rung crossing"),
        LinkDirection(0, 2, "rail"),
        LinkDirection(1, 0, "rung"),
        LinkDirection(0, 1, "rung"),
    ]
    assert [str(each) for each in sorted(directions)] == ["0→1 rung", "0→1 rung crossing", "0→2 rail", "1→0 rung"]


@pytest.mark.parametrize(("first", "count"), [(1, 2), (0, 3), (-2, 2), (0, 0)])
def test_half_rungs_are_refused(first: int, count: int) -> None:
    with pytest.raises(DeviceError, match=f"expected one IPU or whole rungs .*, got {count} IPUs from IPU {first}"):
        Topology(first, count)


def test_a_part_of_a_torus_keeps_its_numbers_and_has_no_loop() -> None:
    part = Topology(16, 8)
    assert [direction.label for direction in part.route(16, 22)] == ["16→18 rail", "18→20 rail", "20→22 rail"]
    with pytest.raises(DeviceError, match="no IPU 15 here: expected one of IPUs 16 to 23"):
        part.route(15, 16)
