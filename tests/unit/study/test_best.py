"""The one rule by which comparisons and sweeps rank what they ran."""

from itertools import pairwise, permutations, product

import pytest

from ipusim.api import analysis
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


def test_each_is_no_worse_than_those_behind_it():
    for costs in product((1, 2), repeat=4):
        for peaks in permutations((1, 2, 3, 4)):
            outcomes = [(cost, YES, peak) for cost, peak in zip(costs, peaks, strict=True)]
            found = [outcomes[number] for number in ranked(*outcomes)]
            assert sorted(found) == sorted(outcomes)
            assert all((one[0], one[2]) < (two[0], two[2]) for one, two in pairwise(found))
