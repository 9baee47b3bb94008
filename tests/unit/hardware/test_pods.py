"""Pods joined by GW-Links: routes, rates, what a device of several pods is, and the all-reduce across pods."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.across_pods import across_pods_all_reduce
from ipusim.hardware.collectives.choose import fastest_all_reduce
from ipusim.hardware.collectives.run import run
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.pods import PodRing
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.hardware.topology import Topology
from tests.effort import sampled, slowest
from tests.machine_costs import check_collective, collective_cost, replica_groups


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
