"""Run operations on matrices in NumPy: diagonals, inverses, decompositions and linear systems.

Packed diagonals are rows of an array, from the highest diagonal to the lowest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from ipusim.api import Array
from ipusim.ipu.graph.kernels.shaping import whole
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function


def _offsets(offset: Any) -> tuple[int, int]:
    """Return the lowest and highest diagonal number."""
    numbers = whole(offset)
    return numbers[0], numbers[-1]


def _of_alignment(node: Node, number: int, length: int, longest: int) -> int:
    """Return the right shift of a diagonal within a packed row."""
    side = node.attributes["align"].split("_")[0 if number >= 0 else 1]
    return longest - length if side == "RIGHT" else 0


def _places(node: Node, shape: tuple[int, int], low: int, high: int) -> list[tuple[int, Array, Array, Array]]:
    """Return packed row, rows, columns and packed columns per diagonal, from highest to lowest diagonal."""
    rows, columns = shape
    lengths = {number: max(min(rows + min(number, 0), columns - max(number, 0)), 0) for number in range(low, high + 1)}
    longest = max(lengths.values())
    result = []
    for row, number in enumerate(range(high, low - 1, -1)):
        steps = np.arange(lengths[number])
        shift = _of_alignment(node, number, lengths[number], longest)
        result.append((row, steps - min(number, 0), steps + max(number, 0), steps + shift))
    return result


def _unpack(diagonals: Array, low: int, high: int) -> Array:
    """Return packed diagonals with an explicit axis of diagonals."""
    return diagonals[..., None, :] if low == high else diagonals


@register("MatrixDiagV3")
def _diagonal_matrix(node: Node) -> Kernel:
    def run(diagonals: Array, offset: Array, rows: Any, columns: Any, padding: Any) -> Array:
        low, high = _offsets(offset)
        bands = _unpack(diagonals, low, high)
        longest = bands.shape[-1]
        height, width = int(rows), int(columns)
        least = longest - min(high, 0), longest + max(low, 0)
        if height < 0 and width < 0:
            height = width = max(least)
        height, width = (smallest if size < 0 else size for size, smallest in zip((height, width), least, strict=True))
        result = np.full((*bands.shape[:-2], height, width), padding, diagonals.dtype)
        for row, down, right, place in _places(node, (height, width), low, high):
            result[..., down, right] = bands[..., row, place]
        return result

    return run


@register("MatrixDiagPartV3")
def _diagonal_part(node: Node) -> Kernel:
    def run(x: Array, offset: Array, padding: Any) -> Array:
        low, high = _offsets(offset)
        parts = _places(node, (x.shape[-2], x.shape[-1]), low, high)
        longest = max(len(down) for _, down, _, _ in parts)
        bands = np.full((*x.shape[:-2], len(parts), longest), padding, x.dtype)
        for row, down, right, place in parts:
            bands[..., row, place] = x[..., down, right]
        return bands[..., 0, :] if low == high else bands

    return run


@register("MatrixSetDiagV3")
def _with_diagonal(node: Node) -> Kernel:
    def run(x: Array, diagonals: Array, offset: Array) -> Array:
        low, high = _offsets(offset)
        bands, result = _unpack(diagonals, low, high), x.copy()
        for row, down, right, place in _places(node, (x.shape[-2], x.shape[-1]), low, high):
            result[..., down, right] = bands[..., row, place]
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
