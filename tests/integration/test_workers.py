"""Worker processes that are left before they are done."""

import time
import warnings

from ipusim.base.workers import side_by_side


def test_calls_that_an_interrupt_leaves_undone_are_left_without_a_warning():
    """An interrupt comes where results are used, and the generator of them is closed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = side_by_side(time.sleep, [(0.001,), *[(0.2,)] * 20], 2, 1)
        assert next(results) is None
        results.close()
    assert [str(warning.message) for warning in told] == []
