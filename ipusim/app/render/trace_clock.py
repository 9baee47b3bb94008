"""Cycles to the whole nanoseconds of a trace file, so that slices that meet in cycles meet in the file.

Boundaries are rounded, never durations: a viewer that gets start and duration of
each slice as whole nanoseconds finds no two neighbours overlapping.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.app.render.arrays import Integers

_NS_PER_S: Final = 10**9


def to_nanoseconds(cycles: Integers, clock_hz: int) -> Integers:
    """Return times in cycles as whole nanoseconds, rounded to the nearest, for clocks below 9 GHz."""
    seconds, rest = np.divmod(cycles, clock_hz)
    nanoseconds: Integers = seconds * _NS_PER_S + (rest * _NS_PER_S + clock_hz // 2) // clock_hz
    return nanoseconds
