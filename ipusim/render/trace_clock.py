"""Cycles to the microseconds of a trace file, so that slices that meet in cycles meet in the file.

The file's resolution is 1/1024 µs. Its multiples are exact as binary
floating-point numbers, and so are their sums: start plus duration of one slice
is exactly the start of the next, in any viewer. Boundaries are rounded to it,
durations are differences of rounded boundaries.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Units = npt.NDArray[np.int64]

#: Units to a microsecond.
UNITS: Final = 1024
_UNITS_PER_S: Final = UNITS * 10**6


def to_units(cycles: Units, clock_hz: int) -> Units:
    """Return times in cycles as whole units of the file, rounded to the nearest, for clocks below 9 GHz."""
    seconds, rest = np.divmod(cycles, clock_hz)
    units: Units = seconds * _UNITS_PER_S + (rest * _UNITS_PER_S + clock_hz // 2) // clock_hz
    return units


def to_microseconds(units: Units) -> list[float]:
    """Return whole units as microseconds, exactly."""
    microseconds: list[float] = (units / UNITS).tolist()
    return microseconds
