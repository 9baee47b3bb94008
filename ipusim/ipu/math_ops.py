"""Functions of Graphcore's ``math_ops``."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from ipusim.api import functions, layers
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SerializedProduct
from ipusim.ipu.tensorflow.array_functions import tensor


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Any:
    """Return a @ b for matrices, or stacks of as many, in parts one after another; so are its gradients.

    Raises ProgramError for operands that do not fit, and ModelError for parts that cannot be.
    """
    left, right = tensor(a), tensor(b)
    if left.ndim < 2 or right.ndim != left.ndim or left.shape[:-2] != right.shape[:-2]:
        checks.wrong_value(
            "a and b", "stacks of as many matrices, of one rank of at least 2", (left.shape, right.shape)
        )
    left = anp.swapaxes(left, -1, -2) if checks.truth("transpose_a", transpose_a) else left
    right = anp.swapaxes(right, -1, -2) if checks.truth("transpose_b", transpose_b) else right
    if left.shape[-1] != right.shape[-2] or left.dtype != right.dtype:
        result = f"{left.dtype}{list(left.shape)}", f"{right.dtype}{list(right.shape)}"
        checks.wrong_value("a and b", "as many columns as rows, and one type", result)
    factor = checks.whole("serialization_factor", serialization_factor, 1)
    parts = layers.SerializedMatmul(factor, checks.text("serialization_dimension", serialization_dimension))  # type: ignore[arg-type]
    parts.check(left.shape[-2], left.shape[-1], right.shape[-1])
    return functions.operate(SerializedProduct(parts), left, right)[0]
