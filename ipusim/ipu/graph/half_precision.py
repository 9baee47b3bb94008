"""Compute half precision in float32, like TensorFlow's sums and products on CPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.registry import Kernel


def widened(x: Array) -> Array:
    """Return half-precision arrays as float32, other arrays unchanged."""
    is_half = x.dtype.itemsize == 2 and x.dtype.kind in "fV"  # NumPy gives bfloat16 the kind V
    return x.astype(np.float32) if is_half else x


def in_float32(function: Kernel) -> Kernel:
    """Return a function that computes half precision in float32 and returns the first argument's dtype."""

    def run(*values: Array) -> Any:
        if values[0].dtype.itemsize != 2:
            return function(*values)
        return np.asarray(function(*map(widened, values))).astype(values[0].dtype)

    return run
