"""Numbers at which formulas of gradients differ that agree everywhere else, and gradients by differences there."""

from __future__ import annotations

import numpy as np

STEP = 1e-6
#: Zeros of both signs and ties of them, bounds, and corners of piecewise functions.
SPECIAL = (0.0, -0.0, 0.0, 0.0, 1.0, -1.0, 2.5, -2.5)
#: By how much the differences on both sides of a corner are apart at least.
CORNER = 1e-3


def with_special_points(array):
    """Return a copy whose first numbers are special, of each half of it; at least a half of all stays as it is."""
    found = np.array(array)
    first, second = np.array_split(found.reshape(-1), 2)
    for part in (first, second):
        count = min(len(SPECIAL), len(part) // 2)
        part[:count] = SPECIAL[:count]
    return found


def one_sided_differences(function, array, places=None):
    """Return the slopes of a function of an array, which it reads anew, below and above each of its elements.

    Or of those at some ``places``; others are NaN.
    """
    sides = np.full((2, *array.shape), np.nan)
    here = function()
    for at in np.ndindex(array.shape) if places is None else places:
        kept = array[at]
        for side, step in enumerate((-STEP, STEP)):
            array[at] = kept + step
            sides[(side, *at)] = (function() - here) / step
        array[at] = kept
    return sides


def assert_gradient(found, function, array, rtol=2e-6, atol=1e-8, label="", places=None):
    """Hold a gradient to central differences; at a corner, where these tell nothing, it lies between both slopes.

    A function that has a slope at a special point has it as its gradient there, and not half of it.
    Of an array of many elements some ``places`` may be looked at.
    """
    below, above = one_sided_differences(function, array, places)
    if places is not None:
        looked_at = np.zeros(array.shape, bool)
        for at in places:
            looked_at[at] = True
        found, below, above = found[looked_at], below[looked_at], above[looked_at]
    central = (below + above) / 2
    corner = np.abs(above - below) > CORNER * (1 + np.abs(central))
    np.testing.assert_allclose(found[~corner], central[~corner], rtol, atol, err_msg=label)
    least, most = np.minimum(below, above), np.maximum(below, above)
    assert np.all((found >= least - CORNER)[corner] & (found <= most + CORNER)[corner]), label
