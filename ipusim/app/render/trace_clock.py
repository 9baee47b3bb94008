"""Cycles to the whole nanoseconds of a trace file, so that slices that meet in cycles meet in the file.

Boundaries are rounded, never durations: a viewer that gets start and duration of
each slice as whole nanoseconds finds no two neighbours overlapping.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.app.render.arrays import Integers

_NS_PER_S: Final = 10**9
_NS_PER_US: Final = 1000


def to_nanoseconds(cycles: Integers, clock_hz: int) -> Integers:
    """Return times in cycles as whole nanoseconds, rounded to the nearest, for clocks below 9 GHz."""
    seconds, rest = np.divmod(cycles, clock_hz)
    nanoseconds: Integers = seconds * _NS_PER_S + (rest * _NS_PER_S + clock_hz // 2) // clock_hz
    return nanoseconds


def to_microseconds(nanoseconds: Integers) -> list[float]:
    """Return whole nanoseconds as microseconds that give them back, whether a viewer rounds or truncates.

    Of most nanoseconds the nearest number of microseconds is a little less than they are, and where a viewer
    truncates its product with 1000, a nanosecond would be lost; the next larger number is taken for those.
    """
    nearest = nanoseconds / _NS_PER_US
    short = nearest * _NS_PER_US < nanoseconds
    microseconds: list[float] = np.where(short, np.nextafter(nearest, np.inf), nearest).tolist()
    return microseconds
