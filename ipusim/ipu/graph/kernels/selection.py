"""Select elements by bit masks, faster than ``np.where`` under irregular conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array

#: Kinds of dtypes, by NumPy's letters, with integers of the same size.
_KINDS = "fiu"


def select(condition: Any, x: Any, y: Any) -> Any:
    """Select from two arrays, like ``np.where``.

    ``np.where`` branches per element: signs of random numbers take six times longer. Here all conditions take equal
    time.
    """
    if not (x.dtype == y.dtype and x.dtype.kind in _KINDS):
        return np.where(condition, x, y)
    bits = np.dtype(f"i{x.itemsize}")
    x_bits, y_bits = x.view(bits), y.view(bits)
    mask = -np.asarray(condition).astype(bits)
    result = ((x_bits ^ y_bits) & mask) ^ y_bits
    return result.view(x.dtype)


def select_gradient(condition: Array, gradient: Array) -> Array:
    """Return the gradient where a condition of the same shape holds, 0 elsewhere."""
    bits = np.dtype(f"i{gradient.itemsize}")
    return np.asarray((gradient.view(bits) & -condition.astype(bits)).view(gradient.dtype))
