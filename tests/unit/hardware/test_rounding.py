"""Rounding to cycles at and around whole cycles."""

from fractions import Fraction

import pytest

from ipusim.base.errors import QuantityError
from ipusim.hardware.rounding import duration_cycles, transfer_cycles


@pytest.mark.parametrize(
    ("byte_count", "cycles"),
    [(0, 0), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (3 * 10**30, 10**30), (3 * 10**30 + 1, 10**30 + 1)],
)
def test_three_bytes_a_cycle(byte_count: int, cycles: int) -> None:
    assert transfer_cycles(byte_count, Fraction(3 * 10**9), 10**9) == cycles


@pytest.mark.parametrize(("nanoseconds", "cycles"), [(0, 0), (15, 20), (30, 40), (40, 53)])
def test_times_at_the_clock_of_gc200(nanoseconds: int, cycles: int) -> None:
    assert duration_cycles(Fraction(nanoseconds), 1_325_000_000) == cycles


def test_a_whole_cycle_is_not_rounded_up() -> None:
    assert duration_cycles(Fraction(10**9, 1_325_000_000), 1_325_000_000) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, Fraction(1), 1), "expected a number of bytes from 0 up, got -1"),
        ((1, Fraction(0), 1), "expected a transfer rate above 0 bytes/s, got 0"),
        ((1, Fraction(1), 0), "expected a clock above 0 Hz, got 0 Hz"),
    ],
)
def test_impossible_transfers_are_refused(arguments: tuple[int, Fraction, int], message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        transfer_cycles(*arguments)


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(QuantityError, match="expected a time from 0 ns up, got -1 ns"):
        duration_cycles(Fraction(-1), 10**9)
