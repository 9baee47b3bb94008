"""Convert cycles to whole nanoseconds; spans that meet in cycles meet in the file.

Starts and ends are rounded, and durations follow from them. Neighbours therefore never overlap in a viewer that reads
starts and durations.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.app.render.arrays import Integers

_NS_PER_S: Final = 10**9


def to_nanoseconds(cycles: Integers, clock_hz: int) -> Integers:
    """Convert cycles to whole nanoseconds, rounded to the nearest, for clocks below 9 GHz."""
    seconds, remainder = np.divmod(cycles, clock_hz)
    nanoseconds: Integers = seconds * _NS_PER_S + (remainder * _NS_PER_S + clock_hz // 2) // clock_hz
    return nanoseconds
