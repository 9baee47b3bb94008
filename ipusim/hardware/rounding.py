"""Convert bytes and times to whole cycles, rounded up in exact arithmetic; no other module rounds."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any, Final

from ipusim.base.errors import QuantityError
from ipusim.hardware.formulas import Cycles

#: Nanoseconds per second.
_NANOSECONDS: Final = 10**9


def transfer_cycles(byte_count: int | Fraction, bytes_per_s: Fraction, clock_hz: int) -> Cycles:
    """Return the cycles of a ``clock_hz`` clock for ``byte_count`` bytes at ``bytes_per_s``, rounded up.

    Raises QuantityError for a negative byte count, or a non-positive rate or clock.

    >>> transfer_cycles(100, Fraction(16), 8)
    50
    """
    if byte_count < 0:
        raise QuantityError(f"expected a number of bytes from 0 up, got {byte_count}")
    if bytes_per_s <= 0:
        raise QuantityError(f"expected a transfer rate above 0 bytes/s, got {bytes_per_s}")
    return Cycles(_transfer_formula, byte_count, _positive(clock_hz), bytes_per_s)


def duration_cycles(nanoseconds: Fraction, clock_hz: int) -> Cycles:
    """Return the cycles of a ``clock_hz`` clock that cover ``nanoseconds``, rounded up.

    Raises QuantityError for a negative time or a non-positive clock.

    >>> duration_cycles(Fraction(30), 1_325_000_000)
    40
    """
    if nanoseconds < 0:
        raise QuantityError(f"expected a time from 0 ns up, got {nanoseconds} ns")
    return Cycles(_duration_formula, nanoseconds, Fraction(_positive(clock_hz), _NANOSECONDS))


def _positive(clock_hz: int) -> int:
    if clock_hz <= 0:
        raise QuantityError(f"expected a clock above 0 Hz, got {clock_hz} Hz")
    return clock_hz


def _transfer_formula(amount: Any, clock_hz: Any, per_s: Any) -> Any:
    return ceil(amount * clock_hz / per_s)


def _duration_formula(nanoseconds: Any, per_ns: Any) -> Any:
    return ceil(nanoseconds * per_ns)
