"""Speed of a resource over time: the product over all windows that a cycle is in."""

import random
from fractions import Fraction
from math import prod

import pytest

from ipusim.machine.disturbances import SlowPeriod
from ipusim.machine.speeds import Course


@pytest.mark.parametrize("seed", range(8))
def test_a_course_has_the_product_of_speeds_and_the_sum_of_delays_of_all_windows_that_a_cycle_is_in(seed: int) -> None:
    rng, windows = random.Random(seed), []
    for _ in range(rng.randint(1, 12)):
        first = rng.randrange(60)
        until = rng.choice((None, first + rng.randint(1, 30)))
        windows.append(SlowPeriod(first, until, Fraction(rng.choice((0, 1, 2, 3)), 3), rng.choice((0, 7))))
    course, ends = Course(windows), {cycle for window in windows for cycle in (window.first, window.until)}
    for cycle in range(100):
        inside = [window for window in windows if window.first <= cycle < (window.until or 1000)]
        speed, late, until = course.stretch_at(cycle)
        assert speed == prod(window.speed for window in inside)
        assert late == sum(window.late for window in inside)
        assert until == min((end for end in ends if end is not None and end > cycle), default=None)
