"""Run operations on matrices in NumPy: diagonals, inverses, decompositions and linear systems.

Packed diagonals are the rows of an array, from the highest diagonal (above the main one) to the lowest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from ipusim.api import Array
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function


def _offsets(offset: Any) -> tuple[int, int]:
    """Return the lowest and highest diagonal number."""
    numbers = int_tuple(offset)
    return numbers[0], numbers[-1]


def _padding_before(node: Node, number: int, length: int, max_length: int) -> int:
    """Return the number of padding elements before a packed diagonal."""
    side = node.attributes["align"].split("_")[0 if number >= 0 else 1]
    return max_length - length if side == "RIGHT" else 0


def _diagonal_indices(node: Node, shape: tuple[int, int], low: int, high: int) -> list[tuple[int, Array, Array, Array]]:
    """Return, per diagonal from the highest, its packed row and its elements' rows, columns and packed columns."""
    rows, columns = shape
    lengths = {number: max(min(rows + min(number, 0), columns - max(number, 0)), 0) for number in range(low, high + 1)}
    max_length = max(lengths.values())
    result = []
    for row, number in enumerate(range(high, low - 1, -1)):
        steps = np.arange(lengths[number])
        shift = _padding_before(node, number, lengths[number], max_length)
        result.append((row, steps - min(number, 0), steps + max(number, 0), steps + shift))
    return result


def _with_diagonal_axis(diagonals: Array, low: int, high: int) -> Array:
    """Return packed diagonals with an axis of diagonals, which TensorFlow leaves out for a single one."""
    return diagonals[..., None, :] if low == high else diagonals


@register("MatrixDiagV3")
def _diagonal_matrix(node: Node) -> Kernel:
    def run(diagonals: Array, offset: Array, rows: Any, columns: Any, padding: Any) -> Array:
        low, high = _offsets(offset)
        bands = _with_diagonal_axis(diagonals, low, high)
        max_length = bands.shape[-1]
        height, width = int(rows), int(columns)
        min_lengths = max_length - min(high, 0), max_length + max(low, 0)
        if height < 0 and width < 0:
            height = width = max(min_lengths)
        height, width = (
            min_length if size < 0 else size for size, min_length in zip((height, width), min_lengths, strict=True)
        )
        result = np.full((*bands.shape[:-2], height, width), padding, diagonals.dtype)
        for row, row_indices, column_indices, packed_columns in _diagonal_indices(node, (height, width), low, high):
            result[..., row_indices, column_indices] = bands[..., row, packed_columns]
        return result

    return run


@register("MatrixDiagPartV3")
def _diagonal_part(node: Node) -> Kernel:
    def run(x: Array, offset: Array, padding: Any) -> Array:
        low, high = _offsets(offset)
        parts = _diagonal_indices(node, (x.shape[-2], x.shape[-1]), low, high)
        max_length = max(len(row_indices) for _, row_indices, _, _ in parts)
        bands = np.full((*x.shape[:-2], len(parts), max_length), padding, x.dtype)
        for row, row_indices, column_indices, packed_columns in parts:
            bands[..., row, packed_columns] = x[..., row_indices, column_indices]
        return bands[..., 0, :] if low == high else bands

    return run


@register("MatrixSetDiagV3")
def _with_diagonal(node: Node) -> Kernel:
    def run(x: Array, diagonals: Array, offset: Array) -> Array:
        low, high = _offsets(offset)
        bands, result = _with_diagonal_axis(diagonals, low, high), x.copy()
        for row, row_indices, column_indices, packed_columns in _diagonal_indices(
            node, (x.shape[-2], x.shape[-1]), low, high
        ):
            result[..., row_indices, column_indices] = bands[..., row, packed_columns]
        return result

    return run


@register("MatrixInverse")
def _inverse(node: Node) -> Kernel:
    adjoint = node.attributes["adjoint"]
    return lambda x: np.linalg.inv(x.swapaxes(-1, -2) if adjoint else x)


@register("MatrixSolve")
def _solve(node: Node) -> Kernel:
    adjoint = node.attributes["adjoint"]
    return lambda matrix, right: np.linalg.solve(matrix.swapaxes(-1, -2) if adjoint else matrix, right)


@register("MatrixTriangularSolve")
def _triangular_solve(node: Node) -> Kernel:
    lower, adjoint = node.attributes["lower"], node.attributes["adjoint"]

    def run(matrix: Array, right: Array) -> Any:
        batch = np.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
        matrices = np.broadcast_to(matrix, batch + matrix.shape[-2:]).reshape(-1, *matrix.shape[-2:])
        sides = np.broadcast_to(right, batch + right.shape[-2:]).reshape(-1, *right.shape[-2:])
        solutions = [
            linalg.solve_triangular(matrix_of_batch, side, trans="T" if adjoint else "N", lower=lower)
            for matrix_of_batch, side in zip(matrices, sides, strict=True)
        ]
        return np.stack(solutions).reshape(*batch, *right.shape[-2:])

    return run


register_function("Cholesky", np.linalg.cholesky)
register_function("MatrixDeterminant", np.linalg.det)
register_function("Cross", np.cross)
