"""Devices, their orders and links, and Systems as built: what copies, syncs and host transfers cost, in cycles."""

from dataclasses import replace
from fractions import Fraction

import pytest

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.hardware.build import build_system
from ipusim.hardware.copies import FixedParts
from ipusim.hardware.devices import device_listing, devices_of, first_device, select_device
from ipusim.hardware.generations import BOW, GC2, GC200
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.machines import MACHINES, Machine, find_machine
from ipusim.hardware.orders import resolve_order, selection
from ipusim.hardware.rounding import duration_cycles, transfer_cycles
from ipusim.hardware.topology import Topology


@pytest.mark.parametrize("name", MACHINES)
def test_whole_machines(name):
    """Pods of 64 IPUs are tori; the free system is a ladder of as many."""
    machine = MACHINES[name]
    system = build_system(name, mapping=[0], ipus=machine.count)
    ipu = BOW if name.startswith("bow") else GC2 if name == "c2_server" else GC200
    assert (system.ipu, system.count, system.free) == (ipu, machine.count, name == "free")
    assert system.topology.looped is (machine.count >= 64 and name != "free")


@pytest.mark.parametrize(
    ("mapping", "count"), [([0], 1), ([0, 0], 1), ([0, 1], 2), ([0, 1, 2], 4), ([3, 0], 4), ([4], 8)]
)
def test_the_default_device_is_the_smallest_that_holds_the_mapping(mapping, count):
    assert build_system("pod16", mapping=mapping).count == count


def test_a_device_selected_by_id_keeps_its_places_in_the_machine():
    system = build_system("c2_server", mapping=[0, 1, 2, 3], select=25)
    assert system.ipus == (4, 5, 7, 6)
    assert [str(direction) for direction in system.route(0, 3)] == ["4→6 rail"]
    assert build_system("c2_server", mapping=[0], select=0).ipus == (7,)


def built(machine="m2000", mapping=(0, 1), **more):
    return build_system(machine, mapping=mapping, **more)


OF_DEVICES = [
    (
        "unknown host rate 'infeed_byte_per_s': expected one of infeed_bytes_per_s, host_fill_bytes_per_s, "
        "outfeed_bytes_per_s, host_drain_bytes_per_s, network_bytes_per_s, data_rate_bytes_per_s; did you mean "
        "infeed_bytes_per_s?",
        lambda: built(host_rates={"infeed_byte_per_s": Fraction(1)}),
    ),
    (
        "stage 1 is mapped to IPU 2, but the device of m2000 has 2 IPUs: expected an IPU from 0 to 1, or a larger "
        "device",
        lambda: built(mapping=[0, 2], ipus=2),
    ),
    ("stage 1 is mapped to IPU -1: expected an IPU from 0 up", lambda: built(mapping=[0, -1])),
    ("the device mapping is empty: expected the IPU of at least one stage", lambda: built(mapping=[])),
    (
        "copies and the host cost nothing on free: expected no overhead_ns and no host_rates",
        lambda: built("free", overhead_ns=Fraction(5)),
    ),
    (
        "m2000: an inter-IPU copy must leave its IPU, got one from 1 to itself",
        lambda: built(ipus=4).merged_copy({(1, 1): 5}),
    ),
    *(
        ("m2000: no IPU 4 in a device of 4 IPUs", lambda size=size: built(ipus=4).merged_copy({(0, 4): size}))
        for size in (5, 0)
    ),
    ("m2000: expected IPUs [0, 1] in some order, got (0, 2)", lambda: replace(built(), ipus=(0, 2))),
    (
        "c2_server has no device with id -1: ids go from 0 to 30",
        lambda: select_device(find_machine("c2_server"), -1),
    ),
    (
        f"unknown system 'M200'; did you mean 'm2000'? Expected one of {', '.join(MACHINES)}",
        lambda: device_listing("M200"),
    ),
    *(
        (f"expected a device of 1, 2, 4, 8, ... IPUs, got {count}", lambda count=count: selection("SNAKE", count))
        for count in (-2, 0, 3, 6)
    ),
    (
        "unknown selection order 'snak': expected one of AUTO, ZIGZAG, SNAKE, HOOF; did you mean SNAKE?",
        lambda: resolve_order("snak", [0], True),
    ),
    ("unknown selection order 'AUTO': expected one of ZIGZAG, SNAKE, HOOF", lambda: selection("AUTO", 4)),
    *(
        (
            f"expected one IPU or whole rungs (IPUs 2r and 2r + 1) from IPU 0 up, got {count} IPUs from IPU {first}",
            lambda first=first, count=count: Topology(first, count),
        )
        for first, count in ((1, 2), (0, 3), (-2, 2), (0, 0))
    ),
]
OF_QUANTITIES = [
    ("GC200: expected clock_hz above 0, got 0", lambda: built(clock_hz=0)),
    ("m2000: expected a copy overhead from 0 ns up, got -1 ns", lambda: built(overhead_ns=Fraction(-1))),
    (
        "host: expected infeed_bytes_per_s above 0 bytes/s, got 0",
        lambda: built(host_rates={"infeed_bytes_per_s": Fraction(0)}),
    ),
    ("m2000: expected bytes from 0 up from 0 to 1, got -5", lambda: built(ipus=4).merged_copy({(0, 1): -5})),
    ("expected a number of bytes from 0 up, got -1", lambda: transfer_cycles(-1, Fraction(1), 1)),
    ("expected a transfer rate above 0 bytes/s, got 0", lambda: transfer_cycles(1, Fraction(0), 1)),
    ("expected a clock above 0 Hz, got 0 Hz", lambda: transfer_cycles(1, Fraction(1), 0)),
    ("expected a time from 0 ns up, got -1 ns", lambda: duration_cycles(Fraction(-1), 10**9)),
]


@pytest.mark.parametrize(
    ("kind", "text", "action"),
    [(kind, *row) for kind, rows in ((DeviceError, OF_DEVICES), (QuantityError, OF_QUANTITIES)) for row in rows],
)
def test_what_cannot_be_is_refused(kind, text, action, refused):
    refused(kind, text, action)


@pytest.mark.parametrize("name", ["c2_server", "m2000", "bow2000"])
def test_unknown_ipus_have_no_route(name):
    system = build_system(name, mapping=[0, 1])
    for source, target in ((0, 2), (-1, 0)):
        with pytest.raises(DeviceError, match=f"{name}: no IPU -?[12] in a device of 2 IPUs"):
            system.route(source, target)


def test_a_small_copy_has_the_parts_that_were_measured():
    pair = build_system("c2_server", mapping=[0, 1]).merged_copy({(0, 1): 1})
    four = build_system("c2_server", mapping=[0, 1, 2]).merged_copy({(0, 1): 1})
    assert pair.fixed == (48 + 400, 1894, 2160, 24, 954)
    assert four.fixed == (96 + 400, 1894, 3840, 24, 954)
    for cost in (pair, four):
        assert (cost.fixed.lead_cycles, cost.total_cycles) == (sum(cost.fixed[:4]), sum(cost.fixed) + 1)


def test_a_chosen_overhead_replaces_the_measured_one():
    for mapping in ([0, 1], [0, 1, 2]):
        system = build_system("m2000", mapping=mapping, overhead_ns=Fraction(1000))
        assert system.exchanging == (0, 0, 1330, 0, 0)
    assert build_system("m2000", mapping=[0], overhead_ns=Fraction(1000)).exchanging == FixedParts()


def test_host_transfers():
    system = build_system("m2000", mapping=[0], clock_hz=10**9)
    assert (system.infeed_cycles(3300), system.host_fill_cycles(7060)) == (1000, 1000)
    assert (system.outfeed_cycles(3760), system.host_drain_cycles(2931)) == (1000, 1001)
    assert system.host_sync_cycles == 243
    rates = {"infeed_bytes_per_s": Fraction(16 * 10**9)}
    faster = build_system("m2000", mapping=[0], clock_hz=10**9, host_rates=rates)
    assert (faster.infeed_cycles(3200), faster.host.sources["infeed_bytes_per_s"]) == (200, "chosen by the user")
    assert faster.outfeed_cycles(3760) == 1000


def test_the_host_of_the_free_system_takes_no_time():
    free = build_system("free", mapping=[0])
    costs = (free.infeed_cycles, free.host_fill_cycles, free.outfeed_cycles, free.host_drain_cycles)
    assert [cost(10**9) for cost in costs] == [0, 0, 0, 0]
    assert free.host_sync_cycles == 0


def test_orders_compare_on_the_selected_device():
    system = build_system("c2_server", mapping=range(4), select=27)
    assert system.reordered("HOOF").ipus == (12, 14, 15, 13)
    assert system.reordered("SNAKE").ipus == system.ipus


every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))


@every_machine
def test_every_machine_lists_each_device_once(machine: Machine) -> None:
    assert device_listing(machine.name.upper()) == device_listing(machine.name)
    devices = devices_of(machine)
    assert [device.id for device in devices] == list(range(2 * machine.count - 1))
    assert len({device.positions for device in devices}) == len(devices)
    for size in machine.sizes:
        positions = [position for device in devices if device.count == size for position in device.positions]
        assert sorted(positions) == list(range(machine.count))


@pytest.mark.parametrize(("count", "device_id"), [(1, 0), (2, 16), (4, 24), (8, 28), (16, 30)])
def test_the_first_device_of_a_size(count: int, device_id: int) -> None:
    assert first_device(find_machine("c2_server"), count).id == device_id


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_orders_go_along_the_rungs_to_and_fro_or_up_one_rail_and_down_the_other(count):
    assert selection("ZIGZAG", count) == tuple(range(count))
    assert selection("SNAKE", count) == tuple(ipu ^ (ipu >> 1 & 1) for ipu in range(count))
    assert selection("HOOF", count) == (*range(0, count, 2), *range(count - 1, 0, -2))


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


def test_directions_sort_by_source_target_and_channel() -> None:
    directions = [
        LinkDirection(0, 1, "rung crossing"),
        LinkDirection(0, 2, "rail"),
        LinkDirection(1, 0, "rung"),
        LinkDirection(0, 1, "rung"),
    ]
    assert [str(each) for each in sorted(directions)] == ["0→1 rung", "0→1 rung crossing", "0→2 rail", "1→0 rung"]


def test_a_part_of_a_torus_keeps_its_numbers_and_has_no_loop() -> None:
    part = Topology(16, 8)
    assert [direction.label for direction in part.route(16, 22)] == ["16→18 rail", "18→20 rail", "20→22 rail"]
    with pytest.raises(DeviceError, match="no IPU 15 here: expected one of IPUs 16 to 23"):
        part.route(15, 16)
