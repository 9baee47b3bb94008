"""Run operations on shapes, axes and element order in NumPy, and make constant arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function


def int_tuple(values: Any) -> tuple[int, ...]:
    """Return an integer array of rank 0 or 1 as a tuple."""
    return tuple(int(value) for value in np.atleast_1d(values))


register_function("Reshape", lambda x, shape: np.reshape(x, int_tuple(shape)))
register_function("ExpandDims", lambda x, axis: np.expand_dims(x, int(np.reshape(axis, ()))))
register_function("Transpose", lambda x, permutation: np.transpose(x, int_tuple(permutation)))
register_function("InvertPermutation", lambda permutation: np.argsort(permutation).astype(permutation.dtype))
register_function("Rank", lambda x: np.int32(np.ndim(x)))
register_function("BroadcastTo", lambda x, shape: np.broadcast_to(x, int_tuple(shape)))
register_function("Tile", lambda x, times: np.tile(x, int_tuple(times)))
register_function("ReverseV2", lambda x, axes: np.flip(x, int_tuple(axes)))
register_function("Fill", lambda shape, value: np.full(int_tuple(shape), value, value.dtype))
register_function("OnesLike", np.ones_like)
register_function("ConcatV2", lambda *values: np.concatenate(values[:-1], int(values[-1])))
register_function("Concat", lambda axis, *values: np.concatenate(values, int(axis)))
register_function("LinSpace", lambda start, stop, count: np.linspace(start, stop, int(count), dtype=start.dtype))


@register("Squeeze")
def _squeeze(node: Node) -> Kernel:
    axes = tuple(node.attributes["squeeze_dims"]) or None
    return lambda x: np.squeeze(x, axes)


@register("Shape")
def _shape(node: Node) -> Kernel:
    dtype = node.output_types[0]
    return lambda x: np.array(np.shape(x), dtype)


@register("ShapeN")
def _shape_n(node: Node) -> Kernel:
    dtype = node.output_types[0]
    has_one_result = len(node.output_types) == 1
    return lambda *values: (
        np.array(np.shape(values[0]), dtype) if has_one_result else tuple(np.array(np.shape(x), dtype) for x in values)
    )


@register("Size")
def _size(node: Node) -> Kernel:
    dtype = node.output_types[0]
    return lambda x: dtype.type(np.size(x))


@register("Range")
def _range(node: Node) -> Kernel:
    dtype = node.output_types[0]
    return lambda start, limit, delta: np.arange(start, limit, delta, dtype=dtype)


@register("Pack")
def _pack(node: Node) -> Kernel:
    axis = node.attributes["axis"]
    return lambda *values: np.stack(values, axis)


@register("Unpack")
def _unpack(node: Node) -> Kernel:
    axis, has_one_result = node.attributes["axis"], len(node.output_types) == 1
    return lambda x: np.take(x, 0, axis) if has_one_result else tuple(np.moveaxis(x, axis, 0))


def _pieces(x: Array, ends: Any, axis: int) -> Any:
    """Cut an array along an axis; return the pieces as a tuple, or a single piece itself."""
    pieces = np.split(x, ends, axis)
    return pieces[0] if len(pieces) == 1 else tuple(pieces)


@register("Split")
def _split_evenly(node: Node) -> Kernel:
    count = node.attributes["num_split"]
    return lambda axis, x: _pieces(x, count, int(axis))


def _split_at(x: Array, sizes: Array, axis: Any) -> Any:
    """Cut an axis into pieces of given sizes; size -1 means the remaining length."""
    lengths = [int(size) for size in sizes]
    remainder = x.shape[int(axis)] - sum(size for size in lengths if size >= 0)
    return _pieces(x, np.cumsum([remainder if size < 0 else size for size in lengths])[:-1], int(axis))


register_function("SplitV", _split_at)


def _offsets(axis: Any, *shapes: Array) -> Any:
    """Return the indices at which the arrays begin in their concatenation."""
    result, start = [], 0
    for shape in shapes:
        offset = np.zeros_like(shape)
        offset[int(axis)] = start
        start += int(shape[int(axis)])
        result.append(offset)
    return result[0] if len(result) == 1 else tuple(result)


register_function("ConcatOffset", _offsets)


def _pad(x: Array, widths: Array, value: Any = 0) -> Array:
    return np.pad(x, [int_tuple(width) for width in widths], constant_values=value)


register_function("Pad PadV2", _pad)


@register("MirrorPad")
def _mirror_pad(node: Node) -> Kernel:
    mode = node.attributes["mode"].lower()
    return lambda x, widths: np.pad(x, [int_tuple(width) for width in widths], mode)


def _reduced_axes(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the axes over which gradients of two broadcast arrays are summed."""
    if np.array_equal(first, second):
        return np.zeros(0, first.dtype), np.zeros(0, first.dtype)
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + int_tuple(shape) for shape in (first, second)]
    first_shape, second_shape = padded
    shared_axes = [axis for axis in range(rank) if first_shape[axis] == 1 and second_shape[axis] == 1]
    axes = (
        [axis for axis in range(rank) if shape[axis] == 1 and (opposite_shape[axis] != 1 or axis in shared_axes)]
        for shape, opposite_shape in ((first_shape, second_shape), (second_shape, first_shape))
    )
    return tuple(np.array(axis_list, first.dtype) for axis_list in axes)  # type: ignore[return-value]


register_function("BroadcastGradientArgs", _reduced_axes)


register_function(
    "BroadcastArgs",
    lambda first, second: np.array(np.broadcast_shapes(int_tuple(first), int_tuple(second)), first.dtype),
)


@register("OneHot")
def _one_hot(node: Node) -> Kernel:
    axis = node.attributes["axis"]

    def run(indices: Array, depth: Any, value_on: Any, value_off: Any) -> Any:
        classes = np.arange(int(depth))
        class_axis = axis if axis >= 0 else np.ndim(indices)
        shape = [1] * (np.ndim(indices) + 1)
        shape[class_axis] = -1
        return np.where(np.expand_dims(indices, class_axis) == classes.reshape(shape), value_on, value_off)

    return run


@register("MatrixBandPart")
def _band(node: Node) -> Kernel:
    def run(x: Array, lower: Any, upper: Any) -> Array:
        rows, columns = np.indices(x.shape[-2:])
        low, high = int(lower), int(upper)
        mask = ((rows - columns <= low) | (low < 0)) & ((columns - rows <= high) | (high < 0))
        return np.where(mask, x, x.dtype.type(0))

    return run


@register("SpaceToDepth DepthToSpace")
def _blocks(node: Node) -> Kernel:
    """Move blocks of pixels into channels, or back, in NHWC."""
    size, to_channels = node.attributes["block_size"], node.type == "SpaceToDepth"

    def run(x: Array) -> Array:
        count, height, width, channels = x.shape
        if to_channels:
            blocks = x.reshape(count, height // size, size, width // size, size, channels)
            return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(count, height // size, width // size, -1)
        blocks = x.reshape(count, height, width, size, size, channels // size**2)
        return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(count, height * size, width * size, -1)

    return run
