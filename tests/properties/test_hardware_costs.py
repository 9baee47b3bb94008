"""Routes, copies and collectives of random devices, against a walk that knows no graph and the times of links."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.choose import ALGORITHMS, fastest
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.cost import concurrent_cost
from ipusim.hardware.collectives.run import run
from ipusim.hardware.copies import CopyCost
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.system import System
from ipusim.hardware.topology import Route
from tests.machine_costs import POST_COPY, PRE_COPY, check_collective, collective_cost, exchange_cycles, sync_cycles

#: Bytes from one logical IPU to another.
Traffic = dict[tuple[int, int], int]
#: Useful bytes per second of one IPU-Link, in one direction.
LINK = Fraction(128 * 2**30 * 85, 800)
LINKS = {"rung": 4, "rung crossing": 2, "rail": 2}
#: Useful bytes per second of each channel: what was measured both ways together in an IPU-Machine, halved.
RATES = {channel: count * LINK for channel, count in LINKS.items()} | {
    "machine rung": Fraction(423_312_076_496, 16),
    "gateway pair": Fraction(200 * 10**9 * 85, 800),
}
#: IPUs of the devices that are drawn of each machine, for routes and for collectives.
WITHIN_A_POD = {name: [size for size in machine.sizes if size <= 64] for name, machine in MACHINES.items()}
WITH_PODS = {"c2_server": (2, 4, 16), "pod64": (8, 64), "pod128": (128,)}
KINDS = [(operation, name) for operation, algorithms in ALGORITHMS.items() for name in algorithms]


@st.composite
def systems(draw: st.DrawFn, sizes: Mapping[str, Sequence[int]] = WITHIN_A_POD) -> System:
    name = draw(st.sampled_from(sorted(sizes)))
    count = draw(st.sampled_from(sizes[name]))
    order = draw(st.sampled_from(sorted(ORDERS)))
    return build_system(name, mapping=range(min(count, 64)), ipus=count, selection_order=order)


@st.composite
def systems_with_traffic(draw: st.DrawFn) -> tuple[System, Traffic]:
    system = draw(systems().filter(lambda system: system.count > 1))
    ipu = st.integers(0, system.count - 1)
    pairs = st.tuples(ipu, ipu).filter(lambda pair: pair[0] != pair[1])
    return system, draw(st.dictionaries(pairs, st.integers(0, 10**9), max_size=8))


def walk(source: int, target: int, first: int, count: int, looped: bool, rung: str) -> list[tuple[int, int, str]]:
    """Cross the rung if the rails differ, then step along the rail, on a loop the shorter way round."""
    hops = []
    here = source
    if (source - target) % 2:
        here = source ^ 1
        hops.append((source, here, rung if here == target else "rung crossing"))
    up = (target - here) % count if looped else target - here
    down = count - up if looped else -up
    if looped and up == down:
        # equally long: the way whose first IPU has the lower number
        above, below = first + (here - first + 2) % count, first + (here - first - 2) % count
        up, down = (up, count) if above < below else (count, down)
    step = 2 if (up <= down if looped else up > 0) else -2
    while here != target:
        there = first + (here - first + step) % count
        hops.append((here, there, "rail"))
        here = there
    return hops


def expected_route(system: System, source: int, target: int) -> list[tuple[int, int, str]]:
    topology = system.topology
    rung = "rung" if system.name in {"c2_server", "free"} else "machine rung"
    return walk(system.ipus[source], system.ipus[target], topology.first, topology.count, topology.looped, rung)


@given(systems().filter(lambda system: system.count > 2), st.data())
def test_a_dead_cable_makes_no_route_faster(system: System, data: st.DataObject) -> None:
    """Every route that is left has as many hops or more, and no more of a rate by itself; others stay as they are."""
    joined = [(ipu, other) for ipu, others in system.topology.neighbours.items() for other in others if ipu < other]
    cable = data.draw(st.sampled_from(joined))
    cut = system.topology.drop([cable])
    for source, target in permutations(system.ipus, 2) if not cut.unreachable_ipus else ():
        before, after = system.topology.route(source, target), cut.route(source, target)
        assert sum(not link.is_limit for link in after) >= len(before)
        assert rate_of(after) <= rate_of(before)
        if cable not in {(min(link.source, link.target), max(link.source, link.target)) for link in before}:
            assert after == before


def rate_of(route: Route) -> Fraction:
    return min(RATES[link.channel.removesuffix(" detour")] for link in route)


@given(systems_with_traffic(), st.randoms(use_true_random=False))
def test_a_merged_copy_costs_what_its_parts_add_up_to_in_any_order(
    system_and_traffic: tuple[System, Traffic], random: Random
) -> None:
    system, traffic = system_and_traffic
    cost = system.merged_copy(traffic)
    check_parts(system, traffic, cost)
    check_balance(system, traffic, cost)
    entries = list(traffic.items())
    random.shuffle(entries)
    assert system.merged_copy(dict(entries)) == cost, "copies named in another order"
    reordered = system.reordered(system.selection_order)
    assert reordered.merged_copy(traffic) == cost, "reordered into its own order"


def check_parts(system: System, traffic: Traffic, cost: CopyCost) -> None:
    """Hold that a copy costs what its parts add up to."""
    clock = 0 if system.free else system.clock_hz
    routes = {pair: expected_route(system, *pair) for pair, size in traffic.items() if size}
    bytes_on: dict[tuple[int, int, str], int] = {}
    for pair, route in routes.items():
        for hop in route:
            bytes_on[hop] = bytes_on.get(hop, 0) + traffic[pair]
    cycles_on = {hop: math.ceil(Fraction(size) / RATES[hop[2]] * clock) for hop, size in bytes_on.items()}

    sync = 0 if system.free else sync_cycles(system.count, clock)
    parts = [PRE_COPY, exchange_cycles(system.count, clock), POST_COPY]
    before, exchange, after = parts if routes and not system.free else [0, 0, 0]
    latency = math.ceil(Fraction(15, 10**9) * max(map(len, routes.values()), default=0) * clock)

    assert cost.fixed == (sync, before, exchange, latency, after)
    assert [
        ((load.direction.source, load.direction.target, load.direction.channel), load.bytes, load.cycles)
        for load in cost.links
    ] == [(hop, bytes_on[hop], cycles_on[hop]) for hop in sorted(bytes_on)]
    assert cost.transfer_cycles == max(cycles_on.values(), default=0)
    assert cost.total_cycles == sync + before + exchange + latency + max(cycles_on.values(), default=0) + after


def check_balance(system: System, traffic: Traffic, cost: CopyCost) -> None:
    """Hold that every byte enters and leaves where it should."""
    balance = dict.fromkeys(system.ipus, 0)
    for (source, target), size in traffic.items():
        balance[system.ipus[source]] += size
        balance[system.ipus[target]] -= size
    for load in cost.links:
        balance[load.direction.source] -= load.bytes
        balance[load.direction.target] += load.bytes
    assert set(balance.values()) == {0}


@st.composite
def collectives(draw: st.DrawFn) -> tuple[System, Collective]:
    system = draw(systems(WITH_PODS))
    operation, name = draw(st.sampled_from(KINDS))
    participants = draw(
        st.lists(st.integers(0, system.count - 1), min_size=1, max_size=min(system.count, 12), unique=True)
    )
    if name == "ladder" and len(participants) % 2:
        participants = [*participants, draw(st.sampled_from(sorted(set(range(system.count)) - set(participants))))]
    if name == "across pods":
        participants = [ipu % 64 for ipu in participants]
        participants = list(dict.fromkeys(participants))
        if system.pods == 2:
            participants += [64 + ipu for ipu in participants]
    elements = draw(st.integers(0, 70) | st.sampled_from([97, 1000, 1023]))
    return system, ALGORITHMS[operation][name](system, participants, elements, 8)


@given(collectives(), collectives(), st.integers(0, 2**32 - 1))
def test_every_plan_computes_what_it_says_in_the_time_of_its_links(
    one: tuple[System, Collective], other: tuple[System, Collective], seed: int
) -> None:
    system, collective = one
    check_collective(collective)
    check_results(collective, seed)
    check_bits(system, collective, seed)
    check_cost(system, collective)
    check_together(system, collective, collective if max(other[1].participants) >= system.count else other[1])
    check_fastest(system, collective)


def check_results(collective: Collective, seed: int) -> None:
    """Hold that a plan computes what it says."""
    row = math.ceil(collective.elements / collective.count)
    whole = np.random.default_rng(seed).integers(-1000, 1000, (collective.count, collective.elements))
    cut = [slice(rank * row, (rank + 1) * row) for rank in range(collective.count)]
    own = [whole[rank, cut[rank]] for rank in range(collective.count)]
    right: Any
    match collective.operation:
        case "all_reduce":
            right = [whole.sum(axis=0)] * collective.count
        case "reduce_scatter":
            right = [whole.sum(axis=0)[each] for each in cut]
        case "all_gather":
            right = [np.concatenate(own)] * collective.count
        case "all_to_all":
            right = [whole[:, each].ravel() for each in cut]
    results = run(collective, own if collective.operation == "all_gather" else list(whole))
    for result, expected in zip(results, right, strict=True):
        assert np.array_equal(result, expected)


def check_bits(system: System, collective: Collective, seed: int) -> None:
    """Hold that after an all-reduce of floats everybody holds the same bits."""
    if collective.operation != "all_reduce":
        collective = ALGORITHMS["all_reduce"]["ring"](system, collective.participants, collective.elements, 8)
    buffers = list(np.random.default_rng(seed).standard_normal((collective.count, collective.elements)))
    results = run(collective, buffers)
    assert len({each.tobytes() for each in results}) == 1
    np.testing.assert_allclose(results[0], np.sum(buffers, axis=0), rtol=0, atol=1e-12)
    again = run(collective, buffers)
    assert [each.tobytes() for each in again] == [each.tobytes() for each in results]


def check_cost(system: System, collective: Collective) -> None:
    """Hold that a cost is that of the busiest link of each round."""
    cost = collective_cost(system, collective)
    assert len(cost.rounds) == len(collective.rounds)
    for transfers, got in zip(collective.rounds, cost.rounds, strict=True):
        longest = 8 * max((each.stop - each.start for each in transfers), default=0)
        on: dict[tuple[int, int, str], int] = {}
        far = Fraction(0)
        for each in transfers:
            route = system.topology.route(system.ipus[each.source], system.ipus[each.target])
            far = max(far, Fraction(sum(2000 if hop.channel == "gateway pair" else 15 for hop in route)))
            for hop in route:
                on[hop.source, hop.target, hop.channel] = on.get((hop.source, hop.target, hop.channel), 0) + longest
        busiest = max((math.ceil(size * system.clock_hz / RATES[hop[2]]) for hop, size in on.items()), default=0)
        assert got.total_cycles == busiest + math.ceil(far * system.clock_hz / 10**9)
        assert {
            (load.direction.source, load.direction.target, load.direction.channel): load.bytes for load in got.links
        } == on


def check_together(system: System, one: Collective, other: Collective) -> None:
    """Hold that together they take no less than each, and no more than one after the other."""
    alone = [collective_cost(system, each).rounds_cycles for each in (one, other)]
    together = concurrent_cost(system, [one, other]).rounds_cycles
    assert max(alone) <= together <= sum(alone)
    assert concurrent_cost(system, [other, one]).rounds_cycles == together


def check_fastest(system: System, collective: Collective) -> None:
    """Hold that the fastest algorithm is never slower."""
    (best,), cost = fastest(
        collective.operation, system, [collective.participants], [collective.elements], collective.itemsize
    )
    assert best.operation == collective.operation
    assert cost.total_cycles <= collective_cost(system, collective).total_cycles
