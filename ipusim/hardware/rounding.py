"""Bytes and times become whole cycles here and nowhere else, rounded up in exact integer arithmetic."""

from __future__ import annotations

from fractions import Fraction

from ipusim.errors import QuantityError


def transfer_cycles(byte_count: int | Fraction, bytes_per_s: Fraction, clock_hz: int) -> int:
    """Return the cycles of a ``clock_hz`` clock in which ``byte_count`` bytes pass at ``bytes_per_s``, rounded up.

    Raises QuantityError for a negative byte count, or a rate or clock that is not positive.

    >>> transfer_cycles(100, Fraction(16), 8)
    50
    """
    if byte_count < 0:
        raise QuantityError(f"expected a number of bytes from 0 up, got {byte_count}")
    if bytes_per_s <= 0:
        raise QuantityError(f"expected a transfer rate above 0 bytes/s, got {bytes_per_s}")
    return _ceil(byte_count / bytes_per_s, clock_hz)


def duration_cycles(nanoseconds: Fraction, clock_hz: int) -> int:
    """Return the cycles of a ``clock_hz`` clock that cover ``nanoseconds``, rounded up.

    Raises QuantityError for a negative time or a clock that is not positive.

    >>> duration_cycles(Fraction(30), 1_325_000_000)
    40
    """
    if nanoseconds < 0:
        raise QuantityError(f"expected a time from 0 ns up, got {nanoseconds} ns")
    return _ceil(nanoseconds / 10**9, clock_hz)


def _ceil(seconds: Fraction, clock_hz: int) -> int:
    if clock_hz <= 0:
        raise QuantityError(f"expected a clock above 0 Hz, got {clock_hz} Hz")
    cycles = seconds * clock_hz
    return -(-cycles.numerator // cycles.denominator)
