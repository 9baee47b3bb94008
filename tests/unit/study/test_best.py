"""Ranks of comparisons and sweeps: the one rule of the best, and the trade-off front against every pair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.api import analysis
from ipusim.app.compare.comparison import front
from ipusim.app.study.best import best_first

YES, NO, UNKNOWN = analysis.Fits.YES, analysis.Fits.NO, analysis.Fits.UNKNOWN


def ranked(*outcomes):
    """Rank outcomes of a cost, an answer and a peak, and return their positions."""
    numbered = list(enumerate(outcomes))
    found = best_first(numbered, lambda one: one[1][0], lambda one: one[1][1], lambda one: one[1][2])
    return [number for number, _ in found]


@pytest.mark.parametrize(
    ("outcomes", "order"),
    [
        ([(3, YES, 1), (1, YES, 9), (2, YES, 5)], [1, 2, 0]),
        ([(1, YES, 5), (1, YES, 4), (1, YES, 5)], [1, 0, 2]),
        # Of equals one whose memory is not known is neither better nor worse.
        ([(1, YES, 5), (1, UNKNOWN, None), (1, YES, 4)], [0, 1, 2]),
        ([(1, NO, 5), (2, YES, 4), (1, None, None)], [1]),
        ([(1, NO, 5)], []),
        ([], []),
    ],
)
def test_the_least_cost_then_the_least_memory_then_the_order(outcomes, order):
    assert ranked(*outcomes) == order


COSTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def by_all_pairs(costs):
    """Those that no other is at least as good as in both, and better in one."""
    return tuple(
        position
        for position, (first, second) in enumerate(costs)
        if not any(a <= first and b <= second and (a, b) != (first, second) for a, b in costs)
    )


@given(COSTS)
def test_the_front_is_what_nothing_beats(costs):
    assert front(costs) == by_all_pairs(costs)
