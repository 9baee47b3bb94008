"""Run operations on shapes, axes and element order in NumPy, and make constant arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.registry import kernel


def int_tuple(values: Any) -> tuple[int, ...]:
    """Return an integer array of rank 0 or 1 as a tuple."""
    return tuple(int(value) for value in np.atleast_1d(values))


kernel("Reshape")(lambda x, shape: np.reshape(x, int_tuple(shape)))
kernel("ExpandDims")(lambda x, axis: np.expand_dims(x, int(np.reshape(axis, ()))))
kernel("Transpose")(lambda x, permutation: np.transpose(x, int_tuple(permutation)))
kernel("InvertPermutation")(lambda permutation: np.argsort(permutation).astype(permutation.dtype))
kernel("Rank")(lambda x: np.int32(np.ndim(x)))
kernel("BroadcastTo")(lambda x, shape: np.broadcast_to(x, int_tuple(shape)))
kernel("Tile")(lambda x, times: np.tile(x, int_tuple(times)))
kernel("ReverseV2")(lambda x, axes: np.flip(x, int_tuple(axes)))
kernel("Fill")(lambda shape, value: np.full(int_tuple(shape), value, value.dtype))
kernel("OnesLike")(np.ones_like)
kernel("ConcatV2")(lambda *values: np.concatenate(values[:-1], int(values[-1])))
kernel("Concat")(lambda axis, *values: np.concatenate(values, int(axis)))
kernel("LinSpace")(lambda start, stop, count: np.linspace(start, stop, int(count), dtype=start.dtype))
kernel("Range", "Tidx")(lambda dtype, start, limit, delta: np.arange(start, limit, delta, dtype=dtype))
kernel("Squeeze", "squeeze_dims")(lambda axes, x: np.squeeze(x, tuple(axes) or None))
kernel("Shape", "out_type")(lambda dtype, x: np.array(np.shape(x), dtype))
kernel("ShapeN", "out_type")(lambda dtype, *values: tuple(np.array(np.shape(x), dtype) for x in values))
kernel("Size", "out_type")(lambda dtype, x: dtype.type(np.size(x)))
kernel("Pack", "axis")(lambda axis, *values: np.stack(values, axis))
kernel("Unpack", "axis")(lambda axis, x: tuple(np.moveaxis(x, axis, 0)))
kernel("Split", "num_split")(lambda count, axis, x: tuple(np.split(x, count, int(axis))))


@kernel("SplitV")
def _split_at(x: Array, sizes: Array, axis: Any) -> Any:
    """Cut an axis into pieces of given sizes; size -1 means the remaining length."""
    lengths = [int(size) for size in sizes]
    remainder = x.shape[int(axis)] - sum(size for size in lengths if size >= 0)
    ends = np.cumsum([remainder if size < 0 else size for size in lengths])[:-1]
    return tuple(np.split(x, ends, int(axis)))


@kernel("ConcatOffset")
def _offsets(axis: Any, *shapes: Array) -> Any:
    """Return the indices at which the arrays begin in their concatenation."""
    result, start = [], 0
    for shape in shapes:
        offset = np.zeros_like(shape)
        offset[int(axis)] = start
        start += int(shape[int(axis)])
        result.append(offset)
    return tuple(result)


@kernel("Pad PadV2")
def _pad(x: Array, widths: Array, value: Any = 0) -> Array:
    return np.pad(x, [int_tuple(width) for width in widths], constant_values=value)


kernel("MirrorPad", "mode")(lambda mode, x, widths: np.pad(x, [int_tuple(width) for width in widths], mode.lower()))


@kernel("BroadcastGradientArgs")
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


kernel("BroadcastArgs")(
    lambda first, second: np.array(np.broadcast_shapes(int_tuple(first), int_tuple(second)), first.dtype)
)


@kernel("OneHot", "axis")
def _one_hot(axis: int, indices: Array, depth: Any, value_on: Any, value_off: Any) -> Any:
    classes = np.arange(int(depth))
    class_axis = axis if axis >= 0 else np.ndim(indices)
    shape = [1] * (np.ndim(indices) + 1)
    shape[class_axis] = -1
    return np.where(np.expand_dims(indices, class_axis) == classes.reshape(shape), value_on, value_off)


@kernel("MatrixBandPart")
def _band(x: Array, lower: Any, upper: Any) -> Array:
    rows, columns = np.indices(x.shape[-2:])
    low, high = int(lower), int(upper)
    mask = ((rows - columns <= low) | (low < 0)) & ((columns - rows <= high) | (high < 0))
    return np.where(mask, x, x.dtype.type(0))


@kernel("SpaceToDepth", "block_size")
def _blocks_to_channels(size: int, x: Array) -> Array:
    """Move blocks of pixels into channels, in NHWC."""
    count, height, width, channels = x.shape
    blocks = x.reshape(count, height // size, size, width // size, size, channels)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(count, height // size, width // size, -1)


@kernel("DepthToSpace", "block_size")
def _channels_to_blocks(size: int, x: Array) -> Array:
    """Move channels into blocks of pixels, in NHWC."""
    count, height, width, channels = x.shape
    blocks = x.reshape(count, height, width, size, size, channels // size**2)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(count, height * size, width * size, -1)
