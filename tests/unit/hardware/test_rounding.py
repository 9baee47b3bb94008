"""Rounding to cycles at and around whole cycles."""

from fractions import Fraction

import pytest

from ipusim.base.errors import QuantityError
from ipusim.hardware.rounding import duration_cycles, transfer_cycles


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
