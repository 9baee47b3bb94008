"""Collectives against NumPy's own sums, concatenations and transposes, and their times against the closed forms."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.ring import ring_order
from ipusim.hardware.collectives.run import run
from tests.effort import sampled
from tests.machine_costs import collective_cost

Array = NDArray[Any]
REPLICAS = (2, 4, 8, 16)


def buffers(count: int, length: int, dtype: Any, seed: int = 7) -> list[Array]:
    generator = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return [generator.integers(-50, 50, length).astype(dtype) for _ in range(count)]
    return [generator.standard_normal(length).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 7, 16, 37])
def test_a_ring_adds_from_the_place_behind_the_owner_and_rounds_each_time(dtype: Any, length: int) -> None:
    system = build_system("c2_server", mapping=range(8))
    whole = buffers(8, length, dtype)
    collective = ALGORITHMS["all_reduce"]["ring"](system, range(8), length, np.dtype(dtype).itemsize)
    ring = ring_order(system, range(8))
    row = math.ceil(length / 8)
    right = np.zeros(length, dtype)
    for element in range(length):
        owner = ring.index(element // row)
        order = [ring[(owner + 1 + step) % 8] for step in range(8)]
        right[element] = reduce(lambda one, other: dtype(one + other), (whole[ipu][element] for ipu in order))
    for result in run(collective, whole):
        assert result.tobytes() == right.tobytes()


@pytest.mark.parametrize("length", [1, 7, 16, 37])
def test_the_ladder_adds_within_the_rungs_first(length: int) -> None:
    system = build_system("c2_server", mapping=range(4), selection_order="ZIGZAG")
    whole = buffers(4, length, np.float16)
    collective = ALGORITHMS["all_reduce"]["ladder"](system, range(4), length, 2)
    right = (whole[0] + whole[1]) + (whole[2] + whole[3])
    for result in run(collective, whole):
        assert result.tobytes() == right.tobytes()


LINK = Fraction(128 * 2**30 * 85, 800)
CLOCK = 1_600_000_000


def passing(byte_count: int, links: int) -> int:
    return math.ceil(byte_count * CLOCK / (links * LINK))


def hops(count: int) -> int:
    return count * 24  # 15 ns at 1.6 GHz


def cost(name: str, participants: Sequence[int], length: int, order: str = "ZIGZAG") -> int:
    system = build_system("c2_server", mapping=range(16), ipus=16, selection_order=order)
    collective = ALGORITHMS["all_reduce"][name](system, participants, length, 1)
    whole = collective_cost(system, collective)
    if length and len(participants) > 1:
        # In each round 16 IPUs meet in 640 cycles; an exchange among them takes 2400 ns, and 1894 and 954 cycles on the
        # tiles.
        assert whole.fixed == (640, 1894, 3840, 0, 954)
        assert whole.total_cycles == len(collective.rounds) * (640 + 1894 + 3840 + 954) + whole.rounds_cycles
    else:
        assert whole.total_cycles == 0
    return whole.rounds_cycles


SIZES = (0, 1, 3, 16, 17, 1001, 65_537, 1_000_003)


@sampled(3)
@pytest.mark.parametrize("order", ["ZIGZAG", "SNAKE", "HOOF"])
@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize("replicas", REPLICAS)
def test_the_ring_takes_its_closed_form_on_an_idle_ladder(replicas: int, length: int, order: str) -> None:
    """Neighbours on the ladder: every hop of the ring is one link, the slowest a rail of two IPU-Links."""
    places = {"ZIGZAG": range(16), "SNAKE": range(16), "HOOF": [*range(replicas // 2), *range(16 - replicas // 2, 16)]}
    links = 4 if replicas == 2 else 2
    rounds = 2 * (replicas - 1) if length else 0
    right = rounds * (passing(math.ceil(length / replicas), links) + hops(1))
    assert cost("ring", tuple(places[order])[:replicas], length, order) == right


@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize(("spread", "longest"), [((0, 8), 4), ((0, 4, 8, 12), 4), (range(0, 16, 2), 2)])
def test_the_ring_along_one_rail_goes_out_by_every_other_place_and_back(
    spread: Sequence[int], longest: int, length: int
) -> None:
    rounds = 2 * (len(spread) - 1) if length else 0
    right = rounds * (passing(math.ceil(length / len(spread)), 2) + hops(longest))
    assert cost("ring", tuple(spread), length) == right


def both_ways(replicas: int, length: int) -> int:
    share = math.ceil(length / (2 * replicas))
    # on a rung alone both rings go the same way, so that the halves add up again
    return 2 * (replicas - 1) * (hops(1) + (passing(2 * share, 4) if replicas == 2 else passing(share, 2)))


def half_way_round(replicas: int, length: int) -> int:
    """Half of the rounds, as chunks go in both directions."""
    return replicas * (hops(1) + passing(math.ceil(length / replicas), 4 if replicas == 2 else 2))


def rungs_first(replicas: int, length: int) -> int:
    half, longest = math.ceil(length / 2), {2: 0, 4: 1}.get(replicas, 2)
    along = passing(math.ceil(half / (replicas // 2)), 2) + hops(longest)
    return 2 * (passing(half, 4) + hops(1)) + 2 * (replicas // 2 - 1) * along


@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize(
    ("name", "form"),
    [("bidirectional ring", both_ways), ("meet in the middle", half_way_round), ("ladder", rungs_first)],
)
def test_other_algorithms_take_their_closed_forms(
    name: str, form: Callable[[int, int], int], replicas: int, length: int
) -> None:
    assert cost(name, tuple(range(replicas)), length) == (form(replicas, length) if length else 0)
