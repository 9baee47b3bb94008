"""Run matrix and tensor products, and the addition of a bias, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, kernel, register


@register("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def _product(node: Node) -> Kernel:
    names = ("transpose_a", "transpose_b") if node.type == "MatMul" else ("adj_x", "adj_y")
    transpose_a, transpose_b = (node.attributes[name] for name in names)
    dtype = node.output_types[0]

    def run(a: Array, b: Array) -> Any:
        a, b = widened(a), widened(b)
        left = a.swapaxes(-1, -2) if transpose_a else a
        right = b.swapaxes(-1, -2) if transpose_b else b
        return np.matmul(left, right).astype(dtype, copy=False)

    return run


@kernel("Einsum", "equation", "T")
def _einsum(equation: str, dtype: Any, *values: Array) -> Any:
    return np.asarray(np.einsum(equation, *map(widened, values), optimize=True)).astype(dtype)


@kernel("BiasAdd", "data_format")
def _bias_add(data_format: str, x: Array, bias: Array) -> Any:
    return x + (bias.reshape(-1, *(1,) * (x.ndim - 2)) if data_format.startswith("NC") else bias)
