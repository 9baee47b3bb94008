"""Routes and copy costs of every device within a pod, against a walk that knows no graph."""

import math
from fractions import Fraction
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.build import build_system
from ipusim.hardware.copies import CopyCost
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.rounding import duration_cycles, transfer_cycles
from ipusim.hardware.system import System
from ipusim.hardware.topology import Route
from tests.machine_costs import POST_COPY, PRE_COPY, exchange_cycles, sync_cycles

#: Bytes from one logical IPU to another.
Traffic = dict[tuple[int, int], int]
#: Useful bytes per second of one IPU-Link, in one direction.
LINK = Fraction(128 * 2**30 * 85, 800)
LINKS = {"rung": 4, "rung crossing": 2, "rail": 2}
#: Useful bytes per second of each channel: what was measured both ways together in an IPU-Machine, halved.
RATES = {channel: count * LINK for channel, count in LINKS.items()} | {"machine rung": Fraction(423_312_076_496, 16)}


@st.composite
def systems(draw: st.DrawFn) -> System:
    name = draw(st.sampled_from(sorted(MACHINES)))
    count = draw(st.sampled_from([size for size in MACHINES[name].sizes if size <= 64]))
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


@given(st.integers(0, 10**15), st.fractions(min_value=Fraction(1, 1000), max_value=10**12), st.integers(1, 10**10))
def test_a_transfer_takes_the_fewest_cycles_that_suffice(byte_count: int, rate: Fraction, clock: int) -> None:
    cycles = transfer_cycles(byte_count, rate, clock)
    assert cycles * rate >= byte_count * clock
    assert cycles == 0 or (cycles - 1) * rate < byte_count * clock


@given(st.fractions(min_value=0, max_value=10**9), st.integers(1, 10**10))
def test_a_time_takes_the_fewest_cycles_that_cover_it(nanoseconds: Fraction, clock: int) -> None:
    cycles = duration_cycles(nanoseconds, clock)
    assert cycles * 10**9 >= nanoseconds * clock
    assert cycles == 0 or (cycles - 1) * 10**9 < nanoseconds * clock
