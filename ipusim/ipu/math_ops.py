"""Multiply matrices in consecutive parts: Graphcore's ``math_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.api import layers
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SerializedProduct
from ipusim.ipu.traced.operations import operate

tf = load()


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Any:
    """Return a @ b for matrices or stacks of matrices, in consecutive parts; gradients use the same parts.

    Args:
        a, b: matrices, or stacks with the same number of matrices.
        serialization_factor: number of parts.
        serialization_dimension: dimension to divide into parts.
        transpose_a, transpose_b: whether the last two axes are swapped first.
        name: name of the operation.

    Raises:
        ProgramError: if shapes or types do not match.
        ModelError: if the parts are not possible.
    """
    left, right = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    shapes = tuple(left.shape.as_list()), tuple(right.shape.as_list())
    if len(shapes[0]) < 2 or len(shapes[1]) != len(shapes[0]) or shapes[0][:-2] != shapes[1][:-2]:
        checks.wrong_value("a and b", "stacks of as many matrices, of one rank of at least 2", shapes)
    left = tf.linalg.matrix_transpose(left) if checks.truth("transpose_a", transpose_a) else left
    right = tf.linalg.matrix_transpose(right) if checks.truth("transpose_b", transpose_b) else right
    if left.shape[-1] != right.shape[-2] or left.dtype != right.dtype:
        forms = tuple(f"{tensor.dtype.name}{tensor.shape.as_list()}" for tensor in (left, right))
        checks.wrong_value("a and b", "as many columns as rows, and one type", forms)
    factor = checks.whole("serialization_factor", serialization_factor, 1)
    parts = layers.SerializedMatmul(factor, checks.text("serialization_dimension", serialization_dimension))  # type: ignore[arg-type]
    (*groups, rows, columns), last = left.shape.as_list(), right.shape.as_list()[-1]
    parts.check(rows, columns, last)
    form = (left.dtype, [*groups, rows, last])
    (result,) = operate(SerializedProduct(parts), [left, right], [form], name or "serialized_matmul")
    return result
