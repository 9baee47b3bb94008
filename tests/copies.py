"""The fixed parts of an exchange between IPUs, from what was measured on GC2: no code of ipusim's."""

from __future__ import annotations

import math
from fractions import Fraction

#: Code of the tiles, in cycles of whatever clock: a sync on chip, what 16 IPUs take beyond it and the signal, and the
#: copies on the tiles before and behind a global exchange (T. Louw's stencil experiments, 16 IPUs, float).
ON_CHIP, SKEW, PRE_COPY, POST_COPY = 150, 640 - 240 - 150, 1894, 954
#: Nanoseconds of a global exchange that carries next to nothing: of 2 IPUs, and of more.
PAIR_NS, BEYOND_PAIR_NS = 1350, 2400


def sync_cycles(ipus: int, clock_hz: int, across_ns: int = 0) -> int:
    """The sync of a device: the signal there and back over hops of 15 ns, and across pods; and the tiles."""
    if ipus == 1:
        return 0
    signal_ns = 2 * 15 * (1 + min(ipus, 64) // 4) + across_ns
    return math.ceil(Fraction(signal_ns * clock_hz, 10**9)) + ON_CHIP + SKEW


def exchange_cycles(ipus: int, clock_hz: int) -> int:
    """The fixed time of a global exchange."""
    return math.ceil(Fraction((PAIR_NS if ipus == 2 else BEYOND_PAIR_NS) * clock_hz, 10**9))


def fixed_cycles(ipus: int, clock_hz: int) -> int:
    """All fixed parts of a copy but sync and hops."""
    return PRE_COPY + exchange_cycles(ipus, clock_hz) + POST_COPY
