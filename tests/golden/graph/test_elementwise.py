"""Kernels of elementwise operations, against eager TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.graph.eager import Case, check

A = np.array([[-1.5, 0.0, 2.0], [np.inf, -0.0, np.nan]], np.float32)
ROW = np.array([0.5, -0.0, np.inf], np.float32)
WHOLE = np.array([[7, -7, 0], [2**31 - 1, -(2**31), 3]], np.int32)

CASES = [
    *(Case(kind, {"x": A, "y": ROW}) for kind in ("Add", "AddV2", "Sub", "Mul")),
    *(Case(kind, {"x": WHOLE, "y": WHOLE[:, ::-1].copy()}) for kind in ("Add", "AddV2", "Sub", "Mul")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_gives_tensorflows_values(case):
    check(case)
