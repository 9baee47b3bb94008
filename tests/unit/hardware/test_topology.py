"""Link directions, the graphs of a ladder and of a torus, and the routes over them."""

import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.topology import Topology


def labels(topology: Topology, source: int, target: int) -> list[str]:
    return [direction.label for direction in topology.route(source, target)]


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
