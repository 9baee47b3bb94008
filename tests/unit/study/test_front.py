"""The trade-off front against every pair."""

from hypothesis import given
from hypothesis import strategies as st

from ipusim.app.compare.comparison import front

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


def test_equal_ones_are_on_it_together():
    assert front([(2, 1), (1, 2), (1, 2), (2, 2), (1, 3)]) == (0, 1, 2)
    assert front([]) == ()
