"""Plans of collectives as data, within pods and across them: refusals, runs, the fastest; and routes between pods."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ipusim.base.errors import DeviceError, ModelError, PlanError, QuantityError
from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.across_pods import across_pods_all_reduce
from ipusim.hardware.collectives.choose import ALGORITHMS, fastest, fastest_all_reduce
from ipusim.hardware.collectives.collective import Collective, Transfer
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost
from ipusim.hardware.collectives.ladder import ladder_all_reduce
from ipusim.hardware.collectives.pairwise import pairwise_all_to_all
from ipusim.hardware.collectives.ring import ring_all_reduce, ring_order
from ipusim.hardware.collectives.run import run
from ipusim.hardware.copies import FixedParts
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.pods import PodRing
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.hardware.topology import Topology
from tests.effort import sampled, slowest
from tests.machine_costs import check_collective, collective_cost, replica_groups


def ladder(count=16, order="ZIGZAG", machine="c2_server"):
    return build_system(machine, mapping=range(min(count, 64)), ipus=count, selection_order=order)


def test_a_ring_in_words():
    assert str(ring_all_reduce(ladder(4), range(4), 10, 4)) == (
        "all_reduce (ring) of 10 x 4 bytes over IPUs 0 1 2 3\n"
        "round 0: 0→2 +[3:6], 2→3 +[0:3], 3→1 +[6:9], 1→0 +[9:10]\n"
        "round 1: 0→2 +[9:10], 2→3 +[3:6], 3→1 +[0:3], 1→0 +[6:9]\n"
        "round 2: 0→2 +[6:9], 2→3 +[9:10], 3→1 +[3:6], 1→0 +[0:3]\n"
        "round 3: 0→2 [0:3], 2→3 [6:9], 3→1 [9:10], 1→0 [3:6]\n"
        "round 4: 0→2 [3:6], 2→3 [0:3], 3→1 [6:9], 1→0 [9:10]\n"
        "round 5: 0→2 [9:10], 2→3 [3:6], 3→1 [0:3], 1→0 [6:9]"
    )


def test_an_all_to_all_in_words():
    assert str(pairwise_all_to_all(ladder(4), range(4), 8, 4)) == (
        "all_to_all (pairwise) of 8 x 4 bytes over IPUs 0 1 2 3\n"
        "round 0: 0→1 [2:4]@0, 1→0 [0:2]@2, 2→3 [6:8]@4, 3→2 [4:6]@6\n"
        "round 1: 0→2 [4:6]@0, 1→3 [6:8]@2, 2→0 [0:2]@4, 3→1 [2:4]@6\n"
        "round 2: 0→3 [6:8]@0, 1→2 [4:6]@2, 2→1 [2:4]@4, 3→0 [0:2]@6"
    )


def test_of_three_participants_one_pauses_in_each_round_of_an_all_to_all():
    collective = pairwise_all_to_all(ladder(4), (0, 1, 2), 7, 4)
    assert [[str(each) for each in transfers] for transfers in collective.rounds] == [
        ["1→2 [6:7]@3", "2→1 [3:6]@6"],
        ["0→1 [3:6]@0", "1→0 [0:3]@3"],
        ["0→2 [6:7]@0", "2→0 [0:3]@6"],
    ]


@pytest.mark.parametrize(
    ("system", "participants", "ring"),
    [
        (ladder(8), range(8), (0, 2, 4, 6, 7, 5, 3, 1)),
        (ladder(8, "SNAKE"), range(8), (0, 3, 4, 7, 6, 5, 2, 1)),
        (ladder(8, "HOOF"), range(8), (0, 1, 2, 3, 4, 5, 6, 7)),
        (ladder(16), (0, 4, 8, 12), (0, 8, 12, 4)),
        (ladder(16), (12, 8, 0, 4), (0, 8, 12, 4)),
        (ladder(16), (4, 5, 8, 9), (4, 8, 9, 5)),
        (ladder(16), (0, 4, 9, 13), (0, 4, 13, 9)),
        (ladder(64, machine="pod64"), range(0, 64, 16), (0, 16, 32, 48)),
        (ladder(16), (5,), (5,)),
    ],
)
def test_rings_follow_the_links(system, participants, ring):
    assert ring_order(system, participants) == ring


@pytest.mark.parametrize(("operation", "name"), [(op, name) for op, names in ALGORITHMS.items() for name in names])
def test_nothing_to_do_has_no_rounds_and_no_cost(operation, name):
    for participants, elements in (((0,), 10), (range(4), 0)):
        collective = ALGORITHMS[operation][name](ladder(), participants, elements, 4)
        assert collective.rounds == ()
        assert collective_cost(ladder(), collective) == CollectiveCost(FixedParts(), ())
    assert concurrent_cost(ladder(), []).total_cycles == 0


@pytest.mark.parametrize(
    ("participants", "elements", "itemsize", "error", "message"),
    [
        ((), 5, 4, DeviceError, "all_reduce (ring): expected one or more different IPUs from 0 up, got ()"),
        (
            (0, 1, 0),
            5,
            4,
            DeviceError,
            "all_reduce (ring): expected one or more different IPUs from 0 up, got (0, 1, 0)",
        ),
        ((0, 1), -5, 4, QuantityError, "all_reduce (ring): expected a number of elements from 0 up, got -5"),
        ((0, 1), 5, 0, QuantityError, "all_reduce (ring): expected elements of 1 byte or more, got 0"),
        ((0, 4), 5, 4, DeviceError, "c2_server: no IPU 4 in a device of 4 IPUs"),
    ],
)
def test_collectives_that_cannot_be(participants, elements, itemsize, error, message, refused):
    refused(error, message, lambda: ring_all_reduce(ladder(4), participants, elements, itemsize))


def test_a_ladder_has_no_half_rungs():
    with pytest.raises(DeviceError, match=r"all_reduce \(ladder\): expected an even number of participants, got 3"):
        ladder_all_reduce(ladder(4), (0, 1, 2), 5, 4)


def test_running_leaves_the_buffers_alone_and_keeps_shapes():
    collective = ring_all_reduce(ladder(4), range(4), 6, 8)
    buffers = [np.full((2, 3), 10.0**place) for place in range(4)]
    before = [each.copy() for each in buffers]
    results = run(collective, buffers)
    assert all(np.array_equal(one, other) for one, other in zip(buffers, before, strict=True))
    assert all(np.array_equal(each, np.full((2, 3), 1111.0)) for each in results)
    assert not any(
        np.shares_memory(one, other) for one in results for other in [*buffers, *results] if one is not other
    )


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([np.zeros(4)], "all_reduce (ring): expected 2 buffers, one per participant, got 1"),
        ([np.zeros(4), np.zeros(5)], "all_reduce (ring): expected 4 elements of 8 bytes on IPU 1, got 5 of 8"),
        ([np.zeros(4), np.zeros(4, "f4")], "all_reduce (ring): expected 4 elements of 8 bytes on IPU 1, got 4 of 4"),
        ([np.zeros(4), np.zeros(4, "i8")], "all_reduce (ring): expected float64 on IPU 1, got int64"),
    ],
)
def test_buffers_that_are_not_the_plan_s(buffers, message, refused):
    refused(ModelError, message, lambda: run(ring_all_reduce(ladder(2), (0, 1), 4, 8), buffers))


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        (Transfer(0, 1, 3, 5), "0→1 [3:5] goes beyond the 4 elements on IPU 0"),
        (Transfer(0, 1, 0, 1, shift=-1), "0→1 [0:1]@-1 goes beyond the 4 elements on IPU 1"),
        (Transfer(0, 7, 0, 1), "0→7 [0:1] is with IPU 7, which takes no part"),
    ],
)
def test_plans_that_cannot_run(transfer, message, refused):
    collective = Collective("all_reduce", "by hand", (0, 1), 4, 8, ((transfer,),))
    refused(PlanError, f"all_reduce (by hand): round 0: {message}", lambda: run(collective, [np.zeros(4), np.zeros(4)]))


def test_on_the_free_system_collectives_carry_bytes_in_no_time():
    system = build_system("free", mapping=[0], ipus=4)
    cost = collective_cost(system, ring_all_reduce(system, range(4), 10**9, 4))
    assert cost.total_cycles == 0
    assert sum(count for _, count in cost.link_bytes) == 2 * 3 * 10**9 * 4


@pytest.mark.parametrize(
    ("machine", "count", "replicas", "elements", "algorithm"),
    [
        ("c2_server", 2, 2, 10**6, "ring"),  # a rung alone: all the same
        ("c2_server", 4, 4, 10**6, "bidirectional ring"),
        ("c2_server", 4, 4, 100, "ladder"),  # 4 rounds instead of 6
        ("pod64", 64, 64, 100, "meet in the middle"),  # 64 rounds instead of 126
        ("c2_server", 16, 16, 10**6, "meet in the middle"),
        ("c2_server", 16, 4, 10**6, "meet in the middle"),  # a line is used both ways by one ring, in more rounds
        ("pod64", 64, 16, 10**6, "meet in the middle"),
        ("free", 16, 16, 10**6, "ring"),
    ],
)
def test_the_fastest_all_reduce(machine, count, replicas, elements, algorithm):
    system = build_system(machine, mapping=range(min(count, 64)), ipus=count, selection_order="SNAKE")
    groups = replica_groups(count, replicas)
    collectives, cost = fastest_all_reduce(system, groups, [elements] * len(groups), 4)
    assert [collective.algorithm for collective in collectives] == [algorithm] * len(groups)
    assert [collective.participants for collective in collectives] == list(groups)
    assert cost == concurrent_cost(system, collectives)
    others = [
        concurrent_cost(system, [make(system, group, elements, 4) for group in groups])
        for make in ALGORITHMS["all_reduce"].values()
    ]
    assert cost.total_cycles == min(each.total_cycles for each in others)


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
def test_half_of_an_all_reduce_takes_half_of_its_rounds(operation):
    (collective,), cost = fastest(operation, ladder(16), [range(16)], [16 * 10**6], 1)
    (_,), whole = fastest_all_reduce(ladder(16), [range(16)], [16 * 10**6], 1)
    assert collective.operation == operation
    assert 2 * cost.rounds_cycles == whole.rounds_cycles


def labels(pods: PodRing, source: int, target: int) -> list[str]:
    return [direction.label for direction in pods.route(source, target)]


def test_a_gateway_link_carries_100_gbit_per_second_less_protocol() -> None:
    """Graphcore, Switched GW-Links in large scale Bow Pod systems: two ports of 100 Gbit/s a machine.

    Of them 85 % carry data, as of IPU-Links (PopLibs, lib/poplibs_test/Util.cpp): that is assumed, and ResNets on
    several pods are simulated too fast (reports/fidelity.md).
    """
    assert LinkDirection(0, 64, "gateway").bytes_per_s(DEFAULT_RATES) == Fraction(10_625_000_000)
    assert LinkDirection(0, 64, "gateway pair").bytes_per_s(DEFAULT_RATES) == Fraction(21_250_000_000)
    for channel in ("gateway", "gateway pair"):
        assert LinkDirection(0, 64, channel).latency_ns(DEFAULT_RATES) == 2000
    assert LinkDirection(0, 2, "rail").latency_ns(DEFAULT_RATES) == 15


def test_two_pods_have_both_gateway_links_between_each_other() -> None:
    pods = PodRing(0, 2)
    assert labels(pods, 5, 69) == ["4→68 gateway pair"]
    assert labels(pods, 69, 5) == ["68→4 gateway pair"]
    assert labels(pods, 3, 65) == ["0→64 gateway pair", "67→65 rail"]
    assert labels(pods, 64, 65) == ["64→65 rung"]
    assert labels(pods, 64, 126) == ["64→126 rail"]
    assert labels(pods, 7, 7) == []


def test_four_pods_go_the_shorter_way_round() -> None:
    pods = PodRing(0, 4)
    assert labels(pods, 1, 65) == ["0→64 gateway"]
    assert labels(pods, 1, 193) == ["0→192 gateway"]
    assert labels(pods, 200, 8) == ["200→8 gateway"]
    assert labels(pods, 0, 128) == ["0→64 gateway", "64→128 gateway"]  # equally long: towards higher numbers
    assert labels(pods, 192, 64) == ["192→0 gateway", "0→64 gateway"]


def test_a_part_of_a_ring_of_pods_is_a_line() -> None:
    pods = PodRing(128, 2, looped=False)
    assert pods.ipus == range(128, 256)
    assert labels(pods, 128, 192) == ["128→192 gateway"]
    assert labels(pods, 255, 191) == ["252→188 gateway"]
    with pytest.raises(DeviceError, match="no IPU 127 here: expected one of IPUs 128 to 255"):
        pods.route(127, 128)
    line = PodRing(0, 4, looped=False)
    assert labels(line, 0, 192) == ["0→64 gateway", "64→128 gateway", "128→192 gateway"]
    assert labels(line, 192, 0) == ["192→128 gateway", "128→64 gateway", "64→0 gateway"]


@pytest.mark.parametrize(("first", "pods"), [(0, 1), (32, 2), (-64, 2)])
def test_parts_of_pods_are_refused(first: int, pods: int) -> None:
    with pytest.raises(DeviceError, match=f"expected two or more whole pods .*, got {pods} pods from IPU {first}"):
        PodRing(first, pods)


@pytest.mark.parametrize(
    ("machine", "count", "topology"),
    [
        ("pod128", 32, Topology(0, 32, rung="machine rung")),
        ("pod128", 64, Topology(0, 64, looped=True, rung="machine rung")),
        ("pod128", 128, PodRing(0, 2)),
        ("bow_pod256", 128, PodRing(0, 2, looped=False)),
        ("bow_pod256", 256, PodRing(0, 4)),
    ],
)
def test_devices_of_machines_with_several_pods(machine: str, count: int, topology: Topology | PodRing) -> None:
    system = build_system(machine, mapping=range(min(count, 64)), ipus=count)
    assert (system.topology, system.pods) == (topology, -(-count // 64))


def test_every_pod_has_the_selection_order_by_itself() -> None:
    system = build_system("pod128", mapping=range(64), ipus=128, selection_order="HOOF")
    one = build_system("pod64", mapping=range(64), ipus=64, selection_order="HOOF")
    assert system.ipus == one.ipus + tuple(64 + ipu for ipu in one.ipus)
    assert system.reordered("SNAKE").ipus[64:68] == (64, 65, 67, 66)


def test_a_pipeline_stays_in_its_pod(refused) -> None:
    message = "stage 1 is mapped to IPU 64, but IPU-Links join 64 IPUs at most: "
    message += "expected an IPU from 0 to 63; only replicas can be in different pods"
    refused(DeviceError, message, lambda: build_system("pod128", mapping=[0, 64]))


def test_a_sync_across_pods_goes_half_way_round_them() -> None:
    def sync(machine: str, count: int) -> int:
        return build_system(machine, mapping=range(min(count, 64)), ipus=count).sync_cycles

    # 2 x 17 hops of 15 ns within a pod, 2 x 1 or 2 x 2 of 2 us across, at 1.33 GHz; and the tiles
    assert [sync("pod256", count) - 400 for count in (64, 128, 256)] == [679, 679 + 5320, 679 + 10_640]


@sampled(2)
@pytest.mark.parametrize(("machine", "pods", "links"), [("pod128", 2, 2), ("pod256", 4, 1)])
@pytest.mark.parametrize("length", [1, pytest.param(63, marks=slowest), pytest.param(1000, marks=slowest), 10_000_019])
def test_the_all_reduce_across_pods_takes_its_closed_form(machine: str, pods: int, links: int, length: int) -> None:
    system = build_system(machine, mapping=range(min(64 * pods, 64)), ipus=64 * pods, selection_order="ZIGZAG")
    cost = collective_cost(system, across_pods_all_reduce(system, range(64 * pods), length, 1))
    chunk = math.ceil(math.ceil(length / 2) / 64)
    share = math.ceil(chunk / pods)
    link = Fraction(128 * 2**30 * 85, 800)
    # the ring goes over rails and, at its ends, over rungs, which were measured
    within = math.ceil(chunk * 1_330_000_000 / min(2 * link, Fraction(423_312_076_496, 16))) + 20  # and 15 ns
    # four IPUs share their machine's gateway; between two pods alone both ways round are the same links
    messages = 4 * share * (2 if pods == 2 else 1)
    across = math.ceil(messages * 1_330_000_000 / (links * Fraction(10_625_000_000))) + 2660
    assert cost.rounds_cycles == 2 * 63 * within + 2 * (pods - 1) * across


@pytest.mark.parametrize("replicas", [32, 8])
@pytest.mark.parametrize("length", [5, 1000])
def test_replicas_in_two_pods_hold_the_sum(replicas: int, length: int) -> None:
    system = build_system("pod128", mapping=range(64), ipus=128)
    group = replica_groups(128, replicas)[1]
    collective = across_pods_all_reduce(system, group, length, 8)
    check_collective(collective)
    buffers = [np.random.default_rng(place).integers(-99, 99, length) for place in range(replicas)]
    for result in run(collective, buffers):
        assert np.array_equal(result, sum(buffers))


def test_uneven_pods_are_refused(refused) -> None:
    system = build_system("pod128", mapping=range(64), ipus=128)
    message = "all_reduce (across pods): expected equally many participants in every pod, got 2, 1"
    refused(DeviceError, message, lambda: across_pods_all_reduce(system, (0, 1, 64), 5, 4))
    collectives, _ = fastest_all_reduce(system, [(0, 1, 64)], [5], 4)
    assert collectives[0].algorithm != "across pods"


def test_large_gradients_cross_pods_by_chunks() -> None:
    system = build_system("bow_pod256", mapping=range(64), ipus=256)
    collectives, _ = fastest_all_reduce(system, replica_groups(256, 64), [25_000_000] * 4, 4)
    assert [collective.algorithm for collective in collectives] == ["across pods"] * 4
