"""Run operations on matrices in NumPy: diagonals, inverses, decompositions and linear systems.

Packed diagonals are the rows of an array, from the highest diagonal (above the main one) to the lowest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from ipusim.api import Array
from ipusim.ipu.graph.registry import kernel


def _places(align: str, shape: tuple[int, ...], offset: Any) -> tuple[tuple[int, int], Any, Any]:
    """Return where the elements of diagonals lie.

    Args:
        align: sides at which diagonals above and below the main diagonal are packed, such as ``RIGHT_LEFT``.
        shape: rows and columns of the matrix.
        offset: number of the lowest and of the highest diagonal, or of the only one.

    Returns:
        Shape of the packed diagonals, and the elements' indices (rows, columns) in the matrix and in the packed array.
    """
    (height, width), low, high = shape, int(np.min(offset)), int(np.max(offset))
    rows, columns = np.nonzero(np.tri(height, width, high, bool) & ~np.tri(height, width, low - 1, bool))
    numbers, steps = columns - rows, np.minimum(rows, columns)
    max_length = max(min(height + min(high, 0), width - max(low, 0)), 0)
    lengths = np.minimum(height + np.minimum(numbers, 0), width - np.maximum(numbers, 0))
    above, below = (side == "RIGHT" for side in align.split("_"))
    packed = high - numbers, steps + np.where(numbers >= 0, above, below) * (max_length - lengths)
    return (high - low + 1, max_length), (rows, columns), packed


def _with_diagonal_axis(diagonals: Array, offset: Any) -> Array:
    """Return packed diagonals with their own axis; TensorFlow omits the axis for a single diagonal."""
    return diagonals[..., None, :] if np.min(offset) == np.max(offset) else diagonals


@kernel("MatrixDiagV3", "align")
def _diagonal_matrix(align: str, diagonals: Array, offset: Array, rows: Any, columns: Any, padding: Any) -> Array:
    bands = _with_diagonal_axis(diagonals, offset)
    max_length = bands.shape[-1]
    min_lengths = max_length - min(int(np.max(offset)), 0), max_length + max(int(np.min(offset)), 0)
    if rows < 0 and columns < 0:
        rows = columns = max(min_lengths)
    sizes = zip((int(rows), int(columns)), min_lengths, strict=True)
    shape = tuple(min_length if size < 0 else size for size, min_length in sizes)
    result = np.full((*bands.shape[:-2], *shape), padding, diagonals.dtype)
    _, places, packed = _places(align, shape, offset)
    result[(..., *places)] = bands[(..., *packed)]
    return result


@kernel("MatrixDiagPartV3", "align")
def _diagonal_part(align: str, x: Array, offset: Array, padding: Any) -> Array:
    shape, places, packed = _places(align, x.shape[-2:], offset)
    bands = np.full((*x.shape[:-2], *shape), padding, x.dtype)
    bands[(..., *packed)] = x[(..., *places)]
    return bands[..., 0, :] if shape[0] == 1 else bands


@kernel("MatrixSetDiagV3", "align")
def _with_diagonal(align: str, x: Array, diagonals: Array, offset: Array) -> Array:
    result = x.copy()
    _, places, packed = _places(align, x.shape[-2:], offset)
    result[(..., *places)] = _with_diagonal_axis(diagonals, offset)[(..., *packed)]
    return result


kernel("MatrixInverse", "adjoint")(lambda adjoint, x: np.linalg.inv(x.swapaxes(-1, -2) if adjoint else x))
kernel("MatrixSolve", "adjoint")(
    lambda adjoint, matrix, right: np.linalg.solve(matrix.swapaxes(-1, -2) if adjoint else matrix, right)
)


@kernel("MatrixTriangularSolve", "lower", "adjoint")
def _triangular_solve(lower: bool, adjoint: bool, matrix: Array, right: Array) -> Any:
    batch = np.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    matrices = np.broadcast_to(matrix, batch + matrix.shape[-2:]).reshape(-1, *matrix.shape[-2:])
    sides = np.broadcast_to(right, batch + right.shape[-2:]).reshape(-1, *right.shape[-2:])
    solutions = [
        linalg.solve_triangular(matrix_of_batch, side, trans="T" if adjoint else "N", lower=lower)
        for matrix_of_batch, side in zip(matrices, sides, strict=True)
    ]
    return np.stack(solutions).reshape(*batch, *right.shape[-2:])


kernel("Cholesky")(np.linalg.cholesky)
kernel("MatrixDeterminant")(np.linalg.det)
kernel("Cross")(np.cross)
