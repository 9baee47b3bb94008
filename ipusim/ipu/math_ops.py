"""Functions of Graphcore's ``math_ops``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.api import Array, LayerCost, Work, functions, layers, models
from ipusim.ipu.runtime import checks
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


@dataclass(frozen=True)
class SerializedProduct:
    """The products of (a, b), stacks of matrices, in parts as the core's dense layer has them."""

    parts: layers.SerializedMatmul

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return a @ b for each of the stack."""
        a, b = arrays
        made = [self.parts.product(*pair) for pair in zip(_matrices(a), _matrices(b), strict=True)]
        return (np.stack(made).reshape(*a.shape[:-1], b.shape[-1]),), (a, b)

    def backward(self, saved: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return grad @ b.T and a.T @ grad, in parts too."""
        a, b = saved
        of = self.parts.left_gradient, self.parts.right_gradient
        stacked = list(zip(_matrices(a), _matrices(b), _matrices(grads[0]), strict=True))
        return [np.stack([of[at](*item) for item in stacked]).reshape((a, b)[at].shape) for at in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: one product there, and one back for each gradient; operands are read and written once.

        Parts read or write once more what :meth:`SerializedMatmul.repeated` says, in each of the products.
        """
        a, b = arrays
        (m, k), n, groups = a.shape[-2:], b.shape[-1], math.prod(a.shape[:-2])
        size, y = a.dtype.itemsize, groups * m * n
        once = a.size + b.size + y + self.parts.repeated(a.size, b.size, y)
        whole = models.Product(m, k, n, groups), (models.Product(m, n, k, groups), models.Product(k, m, n, groups))
        back = tuple(self.parts.parts(whole[1][at], ("mnk", "kmn")[at]) for at in argnums)
        return LayerCost(
            Work((self.parts.parts(whole[0], "mkn"),), sram_bytes=once * size, itemsize=size, compute_sets=0),
            Work(back, sram_bytes=len(back) * once * size, itemsize=size, compute_sets=0),
        )


def _matrices(stack: Array) -> Array:
    return stack.reshape(-1, *stack.shape[-2:])
