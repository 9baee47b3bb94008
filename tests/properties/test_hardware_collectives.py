"""Every algorithm on random devices, participants and lengths: it computes what it says, in the time of its links."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.choose import ALGORITHMS, fastest
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.cost import concurrent_cost
from ipusim.hardware.collectives.run import run
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.system import System
from tests.machine_costs import check_collective, collective_cost
from tests.properties.test_hardware_routes import RATES as BY_CHANNEL

#: Useful bytes per second of the links of each channel, in one direction.
RATES = BY_CHANNEL | {"gateway pair": Fraction(200 * 10**9 * 85, 800)}

KINDS = [(operation, name) for operation, algorithms in ALGORITHMS.items() for name in algorithms]


@st.composite
def systems(draw: st.DrawFn) -> System:
    name, sizes = draw(st.sampled_from([("c2_server", (2, 4, 16)), ("pod64", (8, 64)), ("pod128", (128,))]))
    count = draw(st.sampled_from(sizes))
    order = draw(st.sampled_from(sorted(ORDERS)))
    return build_system(name, mapping=range(min(count, 64)), ipus=count, selection_order=order)


@st.composite
def collectives(draw: st.DrawFn) -> tuple[System, Collective]:
    system = draw(systems())
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
