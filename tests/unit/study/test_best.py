"""The one rule by which comparisons and sweeps rank what they ran."""

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
