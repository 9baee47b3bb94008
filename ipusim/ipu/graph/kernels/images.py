"""Run image resizing, space-to-batch conversions, and local response normalisation in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.registry import kernel

#: Attributes for the positions of resized pixels.
_PLACING: Final = ("align_corners", "half_pixel_centers")


def _positions(corners: bool, half: bool, length: int, size: int) -> Array:
    """Return where the result pixels, or with ``half`` their centres, lie along the source axis."""
    scale = (length - 1) / (size - 1) if corners and size > 1 else length / size
    return (np.arange(size, dtype=np.float32) + np.float32(half / 2)) * np.float32(scale)


def _weights(corners: bool, half: bool, length: int, size: int) -> Array:
    """Return the linear interpolation matrix (result pixels, source pixels)."""
    centres = _positions(corners, half, length, size) - np.float32(half / 2)
    floor = np.floor(centres)
    low = np.clip(floor, 0, length - 1).astype(int)
    high = np.clip(floor + 1, 0, length - 1).astype(int)
    share = (centres - floor).astype(np.float32)
    rows = np.arange(size)
    matrix = np.zeros((size, length), np.float32)
    np.add.at(matrix, (rows, low), 1 - share)
    np.add.at(matrix, (rows, high), share)
    return matrix


@kernel("ResizeBilinear", *_PLACING)
def _bilinear(corners: bool, half: bool, images: Array, size: Array) -> Any:
    rows, columns = (_weights(corners, half, *pair) for pair in zip(images.shape[1:3], int_tuple(size), strict=True))
    return np.einsum("ph,nhwc,qw->npqc", rows, images.astype(np.float32), columns, optimize=True)


@kernel("ResizeBilinearGrad", *_PLACING)
def _bilinear_gradient(corners: bool, half: bool, grad: Array, images: Array) -> Any:
    rows, columns = (_weights(corners, half, *pair) for pair in zip(images.shape[1:3], grad.shape[1:3], strict=True))
    return np.einsum("ph,npqc,qw->nhwc", rows, grad, columns, optimize=True).astype(images.dtype)


def _nearest(corners: bool, half: bool, length: int, size: int) -> Any:
    """Return the index of the nearest source pixel for every result pixel."""
    nearest = np.floor(_positions(corners, half, length, size) + np.float32(corners / 2))
    return np.clip(nearest, 0, length - 1).astype(int)


@kernel("ResizeNearestNeighbor", *_PLACING)
def _nearest_neighbour(corners: bool, half: bool, images: Array, size: Array) -> Any:
    rows, columns = (_nearest(corners, half, *pair) for pair in zip(images.shape[1:3], int_tuple(size), strict=True))
    return images[:, rows[:, None], columns]


@kernel("ResizeNearestNeighborGrad", *_PLACING)
def _nearest_neighbour_gradient(corners: bool, half: bool, grad: Array, size: Array) -> Array:
    height, width = int_tuple(size)
    rows, columns = _nearest(corners, half, height, grad.shape[1]), _nearest(corners, half, width, grad.shape[2])
    result = np.zeros((height, width, grad.shape[0], grad.shape[3]), grad.dtype)
    np.add.at(result, (rows[:, None], columns), grad.transpose(1, 2, 0, 3))
    return result.transpose(2, 0, 1, 3)


@kernel("SpaceToBatchND")
def _space_to_batch(x: Array, block: Array, pads: Array) -> Array:
    """Pad with zeros, then move blocks of pixels into the batch axis."""
    sizes = int_tuple(block)
    count = len(sizes)
    widths = [(0, 0), *(int_tuple(pad) for pad in pads), *[(0, 0)] * (x.ndim - count - 1)]
    padded = np.pad(x, widths)
    lengths = [length // size for length, size in zip(padded.shape[1:], sizes, strict=False)]
    shape = [part for pair in zip(lengths, sizes, strict=True) for part in pair]
    tail = padded.shape[count + 1 :]
    parts = padded.reshape(x.shape[0], *shape, *tail)
    order = (
        *range(2, 2 * count + 1, 2),
        0,
        *range(1, 2 * count, 2),
        *range(2 * count + 1, parts.ndim),
    )
    return parts.transpose(order).reshape(-1, *lengths, *tail)


@kernel("BatchToSpaceND")
def _batch_to_space(x: Array, block: Array, crops: Array) -> Array:
    """Move blocks of pixels out of the batch axis, then crop borders."""
    sizes = int_tuple(block)
    count = len(sizes)
    batch = x.shape[0] // int(np.prod(sizes))
    lengths, tail = x.shape[1 : count + 1], x.shape[count + 1 :]
    parts = x.reshape(*sizes, batch, *lengths, *tail)
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    grid = parts.transpose(*order, *range(2 * count + 1, parts.ndim))
    images = grid.reshape(batch, *(length * size for length, size in zip(lengths, sizes, strict=True)), *tail)
    cuts = tuple(
        slice(int(start), length - int(end)) for (start, end), length in zip(crops, images.shape[1:], strict=False)
    )
    return images[(slice(None), *cuts)]


def _neighbours(radius: int, squares: Array) -> Array:
    """Return sums of squares over neighbouring channels."""
    padded = np.pad(squares, ((0, 0),) * (squares.ndim - 1) + ((radius, radius),))
    channels = squares.shape[-1]
    return np.asarray(sum(padded[..., offset : offset + channels] for offset in range(2 * radius + 1)))


@kernel("LRN", "bias", "alpha", "beta", "depth_radius")
def _local_response(bias: float, alpha: float, beta: float, radius: int, x: Array) -> Any:
    wide = widened(x)
    return (wide * (bias + alpha * _neighbours(radius, wide * wide)) ** -beta).astype(x.dtype)


@kernel("LRNGrad", "bias", "alpha", "beta", "depth_radius")
def _local_response_gradient(
    bias: float, alpha: float, beta: float, radius: int, grad: Array, x: Array, y: Array
) -> Any:
    norm = bias + alpha * _neighbours(radius, x * x)
    weights = _neighbours(radius, grad * y / norm)
    return (grad * norm**-beta - 2 * alpha * beta * x * weights).astype(x.dtype)
