"""Python's own numbers in the dtypes that TensorFlow gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array


def as_tensor(value: Any) -> Array:
    """Return an array; Python's own numbers become float32 and int32, as in TensorFlow."""
    array = np.asarray(value)
    return array if isinstance(value, np.ndarray | np.generic) else narrowed(array)


def narrowed(array: Array) -> Array:
    """Return Python's own numbers in float32, and in int32 where all fit, which TensorFlow has in int64 elsewhere."""
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    small = array.astype(np.int32) if array.dtype.kind == "i" else array
    return small if np.array_equal(small, array) else array
