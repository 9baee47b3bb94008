"""Half precision, which kernels compute in float32 as TensorFlow's CPU does in sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.registry import Kernel


def widened(x: Array) -> Array:
    """Return an array of half precision in float32, any other as it is."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def in_float32(function: Kernel) -> Kernel:
    """Return a function of arrays that computes half precision in float32, with a result of the first one's dtype."""

    def run(*values: Array) -> Any:
        if values[0].dtype.itemsize != 2:
            return function(*values)
        return np.asarray(function(*map(widened, values))).astype(values[0].dtype)

    return run
