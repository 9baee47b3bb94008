"""Run image resizing, space-to-batch conversions, and local response normalisation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function


def _scale(length: int, size: int, *, corners: bool) -> float:
    """Return the distance between neighbouring result pixels, in source pixels."""
    return (length - 1) / (size - 1) if corners and size > 1 else length / size


def _centres(node: Node, length: int, size: int) -> Array:
    """Return where the result pixels lie along the source axis."""
    scale = np.float32(_scale(length, size, corners=node.attributes["align_corners"]))
    indices = np.arange(size, dtype=np.float32)
    if node.attributes["half_pixel_centers"]:
        return (indices + np.float32(0.5)) * scale - np.float32(0.5)
    return indices * scale


def _weights(node: Node, length: int, size: int) -> Array:
    """Return the linear interpolation matrix (result pixels, source pixels)."""
    centres = _centres(node, length, size)
    floor = np.floor(centres)
    low = np.clip(floor, 0, length - 1).astype(int)
    high = np.clip(floor + 1, 0, length - 1).astype(int)
    share = (centres - floor).astype(np.float32)
    rows = np.arange(size)
    matrix = np.zeros((size, length), np.float32)
    np.add.at(matrix, (rows, low), 1 - share)
    np.add.at(matrix, (rows, high), share)
    return matrix


@register("ResizeBilinear")
def _bilinear(node: Node) -> Kernel:
    def run(images: Array, size: Array) -> Any:
        height, width = int_tuple(size)
        rows, columns = _weights(node, images.shape[1], height), _weights(node, images.shape[2], width)
        return np.einsum("ph,nhwc,qw->npqc", rows, images.astype(np.float32), columns, optimize=True)

    return run


@register("ResizeBilinearGrad")
def _bilinear_gradient(node: Node) -> Kernel:
    def run(grad: Array, images: Array) -> Any:
        rows = _weights(node, images.shape[1], grad.shape[1])
        columns = _weights(node, images.shape[2], grad.shape[2])
        return np.einsum("ph,npqc,qw->nhwc", rows, grad, columns, optimize=True).astype(images.dtype)

    return run


def _nearest(node: Node, length: int, size: int) -> Any:
    """Return the index of the nearest source pixel for every result pixel."""
    scale = np.float32(_scale(length, size, corners=node.attributes["align_corners"]))
    indices = np.arange(size, dtype=np.float32)
    if node.attributes["half_pixel_centers"]:
        indices = indices + np.float32(0.5)
    positions = indices * scale
    nearest = np.floor(positions + np.float32(0.5)) if node.attributes["align_corners"] else np.floor(positions)
    return np.clip(nearest, 0, length - 1).astype(int)


@register("ResizeNearestNeighbor")
def _nearest_neighbour(node: Node) -> Kernel:
    def run(images: Array, size: Array) -> Any:
        height, width = int_tuple(size)
        rows, columns = _nearest(node, images.shape[1], height), _nearest(node, images.shape[2], width)
        return images[:, rows[:, None], columns]

    return run


@register("ResizeNearestNeighborGrad")
def _nearest_neighbour_gradient(node: Node) -> Kernel:
    def run(grad: Array, size: Array) -> Array:
        height, width = int_tuple(size)
        rows, columns = _nearest(node, height, grad.shape[1]), _nearest(node, width, grad.shape[2])
        result = np.zeros((height, width, grad.shape[0], grad.shape[3]), grad.dtype)
        np.add.at(result, (rows[:, None], columns), grad.transpose(1, 2, 0, 3))
        return result.transpose(2, 0, 1, 3)

    return run


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


register_function("SpaceToBatchND", _space_to_batch)
register_function("BatchToSpaceND", _batch_to_space)


def _neighbours(node: Node, squares: Array) -> Array:
    """Return sums of squares over neighbouring channels."""
    radius = node.attributes["depth_radius"]
    width = ((0, 0),) * (squares.ndim - 1) + ((radius, radius),)
    padded = np.pad(squares, width)
    channels = squares.shape[-1]
    return np.asarray(sum(padded[..., offset : offset + channels] for offset in range(2 * radius + 1)))


@register("LRN")
def _local_response(node: Node) -> Kernel:
    bias, alpha, beta = (node.attributes[name] for name in ("bias", "alpha", "beta"))

    def run(x: Array) -> Any:
        wide = widened(x)
        return (wide * (bias + alpha * _neighbours(node, wide * wide)) ** -beta).astype(x.dtype)

    return run


@register("LRNGrad")
def _local_response_gradient(node: Node) -> Kernel:
    bias, alpha, beta = (node.attributes[name] for name in ("bias", "alpha", "beta"))

    def run(grad: Array, x: Array, y: Array) -> Any:
        norm = bias + alpha * _neighbours(node, x * x)
        weights = _neighbours(node, grad * y / norm)
        return (grad * norm**-beta - 2 * alpha * beta * x * weights).astype(x.dtype)

    return run
