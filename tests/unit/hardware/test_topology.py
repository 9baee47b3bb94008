"""Link directions, the graphs of a ladder and of a torus, and the routes over them."""

from fractions import Fraction

import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.orders import selection
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.hardware.topology import Topology


def labels(topology: Topology, source: int, target: int) -> list[str]:
    return [direction.label for direction in topology.route(source, target)]


def test_capacities_are_exact() -> None:
    one = DEFAULT_RATES.link_bytes_per_s * DEFAULT_RATES.link_efficiency
    assert one == Fraction(73_014_444_032, 5)
    assert LinkDirection(0, 1, "rung").bytes_per_s(DEFAULT_RATES) == Fraction(292_057_776_128, 5)
    assert LinkDirection(0, 1, "rung crossing").bytes_per_s(DEFAULT_RATES) == Fraction(146_028_888_064, 5)
    assert LinkDirection(0, 2, "rail").bytes_per_s(DEFAULT_RATES) == Fraction(146_028_888_064, 5)


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
    assert labels(part, 16, 22) == ["16→18 rail", "18→20 rail", "20→22 rail"]
    with pytest.raises(DeviceError, match="no IPU 15 here: expected one of IPUs 16 to 23"):
        part.route(15, 16)


@pytest.mark.parametrize("count", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("order", ["SNAKE", "HOOF"])
def test_snake_and_hoof_link_neighbours_directly(order: str, count: int) -> None:
    ladder, places = Topology(0, count), selection(order, count)
    hops = [len(ladder.route(places[index], places[index + 1])) for index in range(count - 1)]
    assert hops == [1] * (count - 1)


@pytest.mark.parametrize("count", [2, 4, 8, 16, 32, 64])
def test_hoof_ends_on_the_rung_where_it_began(count: int) -> None:
    ladder, places = Topology(0, count), selection("HOOF", count)
    assert labels(ladder, places[-1], places[0]) == ["1→0 rung"]


@pytest.mark.parametrize("count", [2, 4, 8, 16, 32, 64])
def test_zigzag_needs_two_links_between_rungs(count: int) -> None:
    ladder, places = Topology(0, count), selection("ZIGZAG", count)
    hops = [len(ladder.route(places[index], places[index + 1])) for index in range(count - 1)]
    assert hops == [2 if index % 2 else 1 for index in range(count - 1)]
