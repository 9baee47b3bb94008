"""Choose how many micro-batches a short run has that stands for a longer, repeating run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.schedule import Schedule

#: Minimum number of a schedule's periods, and of micro-batches, in a short run besides its ramps: two equal periods,
#: and some to settle.
_PERIODS = 3
_MICRO_BATCHES = 16
#: Micro-batches after which any loop of two to four neighbouring IPUs has the same state again.
_LOOP_PERIOD = math.lcm(2, 3, 4)
#: Growth factor of the next short run if no state recurs.
_GROWTH = 2


def short_counts(schedule: Schedule, shape: PlanShape) -> Iterator[int]:
    """Yield the numbers of micro-batches of short runs for ``shape``, rising.

    Yields nothing if ``shape`` has few micro-batches or a refused number, or if the schedule has no period. A short run
    has fewer micro-batches than ``shape``, by a multiple of the schedule's step. If possible the difference is also a
    multiple of the number of micro-batches after which 1F1B's state recurs. That number is the length of the slowest
    loop of neighbouring IPUs that wait for each other: all IPUs if copies take time, mostly few for unequal stages.
    """
    if schedule.period is None:
        return
    whole = shape.micro_batches
    multiple = schedule.step(shape)
    if whole % math.lcm(schedule.multiple(shape), shape.serialization):
        return  # the schedule refuses such a count
    ipus = len(set(shape.mapping))
    least = schedule.ramps(shape) + max(_PERIODS * schedule.period(shape) + _MICRO_BATCHES, 2 * ipus)
    steps = (math.lcm(multiple, ipus, _LOOP_PERIOD), math.lcm(multiple, ipus), multiple)
    while least * 2 <= whole:
        step = next((candidate for candidate in steps if candidate <= least), multiple)
        count = whole - (whole - least) // step * step
        if count * 2 > whole:
            return
        yield count
        least = count * _GROWTH


def nearest_count(count: int, whole: int, multiple: int) -> int:
    """Return the least number of micro-batches from ``count`` up that differs from ``whole`` by a multiple."""
    return whole - (whole - count) // multiple * multiple
