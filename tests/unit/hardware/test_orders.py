"""Selection orders against the lists that Graphcore documents, and AUTO's choice."""

import pytest

from ipusim.base.errors import DeviceError
from ipusim.hardware.orders import ORDERS, resolve_order, selection


@pytest.mark.parametrize(
    ("order", "places"),
    [
        ("ZIGZAG", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"),
        ("SNAKE", "0 1 3 2 4 5 7 6 8 9 11 10 12 13 15 14"),
        ("HOOF", "0 2 4 6 8 10 12 14 15 13 11 9 7 5 3 1"),
    ],
)
def test_sixteen_ipus(order, places):
    assert selection(order, 16) == tuple(map(int, places.split()))


@pytest.mark.parametrize(
    ("order", "count", "places"),
    [
        ("ZIGZAG", 1, (0,)),
        ("SNAKE", 1, (0,)),
        ("HOOF", 1, (0,)),
        ("ZIGZAG", 2, (0, 1)),
        ("SNAKE", 2, (0, 1)),
        ("HOOF", 2, (0, 1)),
        ("SNAKE", 4, (0, 1, 3, 2)),
        ("HOOF", 4, (0, 2, 3, 1)),
        ("HOOF", 8, (0, 2, 4, 6, 7, 5, 3, 1)),
    ],
)
def test_small_devices(order, count, places):
    assert selection(order, count) == places


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
