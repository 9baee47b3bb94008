"""Of how many micro-batches a run is simulated that stands for a longer one which repeats itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.schedule import Schedule

#: Periods of a schedule, and micro-batches, that a short run has at least, beside its ramps: two that are equal, and
#: some to settle in.
_PERIODS = 3
_MICRO_BATCHES = 16
#: What loops of up to four neighbours take in micro-batches: a multiple of each.
_LOOPS = math.lcm(2, 3, 4)
#: How many times as long the next short run is, where one has not come to repeat itself.
_LONGER = 2


def short_counts(schedule: Schedule, shape: PlanShape) -> Iterator[int]:
    """Yield the numbers of micro-batches of shorter runs to try for one of ``shape``, rising; none where it is short.

    Each differs from that of ``shape`` by a multiple of the schedule's period and of what its counts are multiples of,
    and if possible of those that 1F1B's state takes to recur: as many as go round the slowest loop of neighbours, which
    are all IPUs where tensors take time on their way, and mostly few where stages differ.
    """
    if schedule.period is None:
        return
    whole = shape.micro_batches
    multiple = schedule.step(shape)
    if whole % math.lcm(schedule.multiple(shape), shape.serialization):
        return  # which the schedule refuses
    ipus = len(set(shape.mapping))
    least = schedule.ramps(shape) + max(_PERIODS * schedule.period(shape) + _MICRO_BATCHES, 2 * ipus)
    steps = (math.lcm(multiple, ipus, _LOOPS), math.lcm(multiple, ipus), multiple)
    while least * 2 <= whole:
        step = next((candidate for candidate in steps if candidate <= least), multiple)
        count = whole - (whole - least) // step * step
        if count * 2 > whole:
            return
        yield count
        least = count * _LONGER


def nearest_count(count: int, whole: int, multiple: int) -> int:
    """Return the least number of micro-batches from ``count`` up that is a multiple away from ``whole``."""
    return whole - (whole - count) // multiple * multiple
