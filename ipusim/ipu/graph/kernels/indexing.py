"""Run operations in NumPy that gather, scatter and sort elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.node import Node, Variable
from ipusim.ipu.graph.registry import Kernel, kernel, register


@kernel("Slice")
def _slice(x: Array, begin: Array, size: Array) -> Array:
    """Return an array's block; size -1 extends to the axis' end."""
    return x[
        tuple(slice(int(low), None if count < 0 else int(low + count)) for low, count in zip(begin, size, strict=True))
    ]


def _index(node: Node) -> Kernel:
    """Return a function that turns begin, end and strides into a NumPy index."""
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {name: node.attributes[f"{name}_mask"] for name in names}

    def axis_index(axis: int, begin: Any, end: Any, step: Any) -> Any:
        bit = 1 << axis
        if masks["ellipsis"] & bit:
            return Ellipsis
        if masks["new_axis"] & bit:
            return None
        if masks["shrink_axis"] & bit:
            return int(begin)
        start = None if masks["begin"] & bit else int(begin)
        return slice(start, None if masks["end"] & bit else int(end), int(step))

    return lambda begin, end, steps: tuple(
        axis_index(axis, *bounds) for axis, bounds in enumerate(zip(begin, end, steps, strict=True))
    )


@register("StridedSlice")
def _strided_slice(node: Node) -> Kernel:
    index = _index(node)
    return lambda x, begin, end, steps: x[index(begin, end, steps)]


@register("StridedSliceGrad")
def _strided_slice_gradient(node: Node) -> Kernel:
    index = _index(node)

    def run(shape: Array, begin: Array, end: Array, steps: Array, grad: Array) -> Array:
        result = np.zeros(int_tuple(shape), grad.dtype)
        result[index(begin, end, steps)] = grad
        return result

    return run


@register("ResourceStridedSliceAssign", effect=True)
def _assign_strided_slice(node: Node) -> Kernel:
    index = _index(node)

    def run(variable: Variable, begin: Array, end: Array, steps: Array, value: Array) -> None:
        result = np.array(variable.value)
        result[index(begin, end, steps)] = value
        variable.assign(result)

    return run


kernel("Gather")(lambda x, indices: np.take(x, indices, 0))
kernel("GatherNd")(
    lambda x, indices: (
        x[tuple(np.moveaxis(indices, -1, 0))] if indices.shape[-1] else np.broadcast_to(x, indices.shape[:-1] + x.shape)
    )
)


@kernel("GatherV2", "batch_dims")
def _gather(batch: int, x: Array, indices: Array, axis: Any) -> Array:
    """Take elements along an axis, with separate indices for every element of the batch axes."""
    if not batch:
        return np.take(x, indices, int(axis))
    batches = batch + np.ndim(indices) if batch < 0 else batch
    gathered_axis = int(axis) + x.ndim if axis < 0 else int(axis)
    batch_size = np.prod(x.shape[:batches], dtype=int)
    flat = x.reshape(batch_size, *x.shape[batches:])
    rows_of_batches = [
        np.take(table, rows_of_table, gathered_axis - batches)
        for table, rows_of_table in zip(flat, indices.reshape(batch_size, *indices.shape[batches:]), strict=True)
    ]
    return np.stack(rows_of_batches).reshape(*x.shape[:batches], *rows_of_batches[0].shape)


@kernel("ScatterNd")
def _scatter(indices: Array, updates: Array, shape: Array) -> Array:
    """Add updates to zeros at given indices."""
    result = np.zeros(int_tuple(shape), updates.dtype)
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return result


def _changed_copy(function: Kernel) -> Kernel:
    """Return a function that changes indexed elements in a copy of a tensor."""

    def run(x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        function(result, tuple(np.moveaxis(indices, -1, 0)), updates)
        return result

    return run


kernel("TensorScatterUpdate")(_changed_copy(lambda x, indices, updates: x.__setitem__(indices, updates)))
kernel("TensorScatterAdd")(_changed_copy(np.add.at))
kernel("TensorScatterSub")(_changed_copy(np.subtract.at))
kernel("TensorScatterMax")(_changed_copy(np.maximum.at))
kernel("TensorScatterMin")(_changed_copy(np.minimum.at))


def _segments(start: Any, add: Kernel) -> Kernel:
    """Return a function that combines the rows of each segment and skips rows of negative segments."""

    def run(x: Array, segments: Array, count: Any) -> Array:
        first = start(x.dtype) if callable(start) else start
        result = np.full((int(count), *x.shape[segments.ndim :]), first, x.dtype)
        mask = segments >= 0
        add(result, segments[mask], x[mask])
        return result

    return run


def _lowest(dtype: Any) -> Any:
    return np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max


kernel("UnsortedSegmentSum")(_segments(0, np.add.at))
kernel("UnsortedSegmentProd")(_segments(1, np.multiply.at))
kernel("UnsortedSegmentMax")(_segments(_lowest, np.maximum.at))
kernel("UnsortedSegmentMin")(_segments(_highest, np.minimum.at))


def _sorted_segments(collect: Kernel, empty: int = 0) -> Kernel:
    """Return a function that combines the rows of each segment; segments without rows are filled with ``empty``."""

    def run(x: Array, segments: Array) -> Array:
        count = int(segments[-1]) + 1 if len(segments) else 0
        result = np.full((count, *x.shape[1:]), empty, x.dtype)
        for segment in np.unique(segments):
            result[segment] = collect(x[segments == segment])
        return result

    return run


kernel("SegmentSum")(_sorted_segments(lambda rows: rows.sum(0)))
kernel("SegmentMean")(_sorted_segments(lambda rows: rows.mean(0)))
kernel("SegmentProd")(_sorted_segments(lambda rows: rows.prod(0), empty=1))
kernel("SegmentMax")(_sorted_segments(lambda rows: rows.max(0)))
kernel("SegmentMin")(_sorted_segments(lambda rows: rows.min(0)))
kernel("Roll")(lambda x, shift, axis: np.roll(x, int_tuple(shift), int_tuple(axis)))
kernel("Where")(lambda condition: np.argwhere(condition).astype(np.int64))


@kernel("ListDiff", "out_idx")
def _list_difference(dtype: Any, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the elements that are missing in a second list, and their indices."""
    mask = np.flatnonzero(~np.isin(x, y))
    return x[mask], mask.astype(dtype)


@kernel("Bincount")
def _bincount(values: Array, size: Any, weights: Array) -> Any:
    """Count equal values, or sum their weights; values of ``size`` or more are skipped."""
    mask = values < int(size)
    return np.bincount(values[mask], weights[mask] if weights.size else None, int(size)).astype(weights.dtype)


@kernel("DynamicStitch ParallelDynamicStitch", "N")
def _stitch(count: int, *values: Any) -> Array:
    """Merge rows of several arrays by index; of rows with the same index the last one stays."""
    indices, data = values[:count], values[count:]
    size = max((int(rows_of_part.max()) for rows_of_part in indices if np.size(rows_of_part)), default=-1) + 1
    result = np.zeros((size, *data[0].shape[np.ndim(indices[0]) :]), data[0].dtype)
    for row_numbers, rows in zip(indices, data, strict=True):
        result[row_numbers] = rows
    return result


@kernel("Unique", "out_idx")
def _unique(dtype: Any, x: Array) -> tuple[Array, Array]:
    """Return the distinct values in order of appearance, and for every element the index of its value among them."""
    values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return values[order], np.argsort(order)[inverse.reshape(-1)].astype(dtype)


@kernel("TopKV2", "index_type")
def _top_k(dtype: Any, x: Array, count: Any) -> tuple[Array, Array]:
    """Return the largest elements along the last axis and their indices; of equal elements the first comes first."""
    order = np.argsort(-x, axis=-1, kind="stable")[..., : int(count)]
    return np.take_along_axis(x, order, -1), order.astype(dtype)


@kernel("InTopKV2")
def _in_top_k(predictions: Array, targets: Array, count: Any) -> Any:
    """Tell for each row whether fewer than ``count`` predictions exceed the prediction for the target.

    The answer is False for a row with a prediction that is not finite.
    """
    valid = (targets >= 0) & (targets < predictions.shape[1])
    scores = predictions[np.arange(len(targets)), np.where(valid, targets, 0)]
    larger = (predictions > scores[:, None]).sum(1)
    return valid & np.isfinite(scores) & np.isfinite(predictions).all(1) & (larger < count)


kernel("InTopK", "k")(lambda count, predictions, targets: _in_top_k(predictions, targets, count))


@kernel("ReverseSequence", "seq_dim", "batch_dim")
def _reverse_sequence(axis: int, batch: int, x: Array, lengths: Array) -> Array:
    """Reverse the first elements of every sequence: as many as its length says."""
    steps = np.arange(x.shape[axis])
    sources = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    shape = [1] * x.ndim
    shape[batch], shape[axis] = sources.shape
    grid = sources if batch < axis else sources.T
    return np.take_along_axis(x, grid.reshape(shape), axis)
