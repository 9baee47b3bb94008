"""Choose the number of micro-batches of a short run that stands for a longer, repeating run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.schedule import Schedule

#: Minimum number of a schedule's periods in a short run besides its ramps (fill and drain): a period to settle, and two
#: equal periods.
_PERIODS = 3
#: Number of micro-batches added to these periods, so that a run with short periods has time to settle.
_FURTHER_MICRO_BATCHES = 16
#: Micro-batches after which any loop of two to four neighbouring IPUs has the same state again.
_LOOP_PERIOD = math.lcm(2, 3, 4)
#: Growth factor of the next short run if no state repeats.
_GROWTH = 2


def short_counts(schedule: Schedule, shape: PlanShape) -> Iterator[int]:
    """Yield the numbers of micro-batches of short runs for ``shape``, ascending.

    Yields nothing if ``shape`` has too few micro-batches, if the schedule refuses their number, or if the schedule has
    no period. The difference to the number in ``shape`` is a multiple of the schedule's step. If possible it is also a
    multiple of the number of micro-batches after which the state of 1F1B repeats: the number of IPUs in the slowest
    loop of neighbours that wait for each other. If copies take time, the loop has all IPUs; if stages are unequal, the
    loop mostly has few IPUs.
    """
    if schedule.period is None:
        return
    whole_count = shape.micro_batches
    multiple = schedule.step(shape)
    if whole_count % math.lcm(schedule.multiple(shape), shape.serialization):
        return  # the schedule refuses such a count
    ipus = len(set(shape.mapping))
    least_count = schedule.ramps(shape) + max(_PERIODS * schedule.period(shape) + _FURTHER_MICRO_BATCHES, 2 * ipus)
    steps = (math.lcm(multiple, ipus, _LOOP_PERIOD), math.lcm(multiple, ipus), multiple)
    while least_count * 2 <= whole_count:
        step = next((candidate for candidate in steps if candidate <= least_count), multiple)
        count = whole_count - (whole_count - least_count) // step * step
        if count * 2 > whole_count:
            return
        yield count
        least_count = count * _GROWTH


def nearest_count(count: int, whole: int, multiple: int) -> int:
    """Return the least number from ``count`` up whose difference to ``whole`` is a multiple of ``multiple``."""
    return whole - (whole - count) // multiple * multiple
