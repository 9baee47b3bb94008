"""Compute a matrix product in consecutive parts, like Graphcore's ``math_ops.serialized_matmul``.

With a of shape (m, k) and b of shape (k, n), the product and both gradients are split along a dimension:

- ``a_columns``: m, the rows of the result; every part reads ``b`` again;
- ``a_rows_b_columns``: k, the sums; every part reads and writes the result again;
- ``b_rows``: n, the columns of the result; every part reads ``a`` again.

Temporary arrays of a part take 1 / factor of the memory. Each part is a separate superstep. Sums over k run in
another order than in a single product, and BLAS may also reorder sums in smaller matrices: results are equal up to
rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array
from ipusim.model.work import Product

#: Graphcore's names of the dimensions m, k and n.
Dimension = Literal["a_columns", "a_rows_b_columns", "b_rows"]


@dataclass(frozen=True)
class SerializedMatmul:
    """Split of a product.

    Attributes:
        factor: number of parts.
        dimension: split dimension, divisible by the factor.
    """

    factor: int = 1
    dimension: Dimension = "a_columns"

    def __post_init__(self) -> None:
        """Raise ModelError for zero parts or an unknown dimension."""
        if self.factor < 1:
            raise ModelError(f"expected a serialization factor of at least 1, got {self.factor}")
        if self.dimension not in get_args(Dimension):
            raise ModelError(
                f"unknown serialization dimension {self.dimension!r}: expected one of {', '.join(get_args(Dimension))}"
            )

    def check(self, m: int, k: int, n: int) -> None:
        """Raise ModelError unless the factor divides the split dimension of (m, k) @ (k, n)."""
        size = dict(zip(get_args(Dimension), (m, k, n), strict=True))[self.dimension]
        if size % self.factor:
            raise ModelError(
                f"expected a serialization factor that divides {self.dimension}, which is {size}, got {self.factor}"
            )

    def product(self, a: Array, b: Array) -> Array:
        """Return a @ b of shape (m, n); parts have nearly equal size if the factor does not divide the dimension."""
        y = np.zeros_like(a, np.result_type(a, b), "C", shape=(len(a), b.shape[1]))
        for m, k, n in self._parts(len(a), *b.shape):
            y[m, n] += a[m, k] @ b[k, n]
        return y

    def left_gradient(self, a: Array, b: Array, grad: Array) -> Array:
        """Return the gradient of ``a``, grad @ b.T."""
        da = np.zeros_like(a)
        for m, k, n in self._parts(len(a), *b.shape):
            da[m, k] += grad[m, n] @ b[k, n].T
        return da

    def right_gradient(self, a: Array, b: Array, grad: Array) -> Array:
        """Return the gradient of ``b``, a.T @ grad."""
        db = np.zeros_like(b)
        for m, k, n in self._parts(len(a), *b.shape):
            db[k, n] += a[m, k].T @ grad[m, n]
        return db

    def parts(self, product: Product, order: str) -> Product:
        """Return a product as consecutive parts.

        ``order`` names the dimensions of the forward product (m, k or n) that are the rows, the sums and the columns
        of ``product``: the products of the gradients permute the dimensions.
        """
        if self.factor == 1:
            return product
        axis = order.index(dict(zip(get_args(Dimension), "mkn", strict=True))[self.dimension])
        sizes = [product.m, product.k, product.n]
        sizes[axis] = -(-sizes[axis] // self.factor)
        m, k, n = sizes
        return replace(product, m=m, k=k, n=n, times=self.factor)

    def repeated_elements(self, a: int, b: int, y: int) -> int:
        """Return the elements read or written in addition to an unsplit product."""
        elements = {"a_columns": b, "a_rows_b_columns": 2 * y, "b_rows": a}[self.dimension]
        return (self.factor - 1) * elements

    def _parts(self, m: int, k: int, n: int) -> Iterator[tuple[slice, slice, slice]]:
        sizes = {"a_columns": m, "a_rows_b_columns": k, "b_rows": n}
        size = sizes[self.dimension]
        parts = min(self.factor, size)  # further parts would be empty
        for part in range(parts):
            slices = dict.fromkeys(sizes, slice(None))
            slices[self.dimension] = slice(part * size // parts, (part + 1) * size // parts)
            yield slices["a_columns"], slices["a_rows_b_columns"], slices["b_rows"]
