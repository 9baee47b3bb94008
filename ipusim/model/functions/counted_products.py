"""Matrix products of NumPy's calls, from the shapes of the arrays that they read and write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.model.work import Product


def product_of(read: Sequence[int], written: int) -> Product:
    """Return the product of operands of so many elements: of M*K, K*N and M*N, (M*K*N)^2 is their product."""
    macs = math.isqrt(math.prod(read) * written)
    k = macs // written if written else 0
    product = Product(read[0] // k, k, read[-1] // k) if k else Product(0, 0, 0)
    return product if product.macs == macs else Product(1, macs, 1)


def matmul_of(left: tuple[int, ...], right: tuple[int, ...], written: int) -> Product:
    """Return the products of stacks of matrices; of a stack by one matrix all rows are one product's."""
    k = left[-1]
    n = right[-1] if len(right) > 1 else 1
    by_one = len(right) <= 2
    m = written // max(n, 1) if by_one else left[-2] if len(left) > 1 else 1
    return Product(m, k, n, written // max(m * n, 1))


def einsum_of(args: Sequence[Any]) -> Product:
    """Return the product of the first operand by all others, whatever order they are contracted in."""
    inputs, output, operands = anp.parse_einsum_input(*args)
    sizes: dict[str, int] = {}
    for indices, operand in zip(inputs.split(","), operands, strict=True):
        for index, size in zip(indices, np.shape(operand), strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    first, *others = (set(indices) for indices in inputs.split(","))
    rest, free = set().union(*others), set(output)

    def of(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    return Product(
        of((first - rest) & free), of(sizes.keys() - free), of((rest - first) & free), of(first & rest & free)
    )
