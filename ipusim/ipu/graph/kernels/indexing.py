"""Run operations in NumPy that gather, scatter and sort elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.kernels.shaping import whole
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function


def _slice(x: Array, begin: Array, size: Array) -> Array:
    """Return a block; size -1 extends to the end of the axis."""
    return x[
        tuple(slice(int(low), None if count < 0 else int(low + count)) for low, count in zip(begin, size, strict=True))
    ]


register_function("Slice", _slice)


def _index(node: Node) -> Kernel:
    """Return a function from begin, end and strides to a NumPy index."""
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {name: node.attributes[f"{name}_mask"] for name in names}

    def part(place: int, begin: Any, end: Any, step: Any) -> Any:
        bit = 1 << place
        if masks["ellipsis"] & bit:
            return Ellipsis
        if masks["new_axis"] & bit:
            return None
        if masks["shrink_axis"] & bit:
            return int(begin)
        start = None if masks["begin"] & bit else int(begin)
        return slice(start, None if masks["end"] & bit else int(end), int(step))

    return lambda begin, end, steps: tuple(
        part(place, *bounds) for place, bounds in enumerate(zip(begin, end, steps, strict=True))
    )


@register("StridedSlice")
def _strided_slice(node: Node) -> Kernel:
    index = _index(node)
    return lambda x, begin, end, steps: x[index(begin, end, steps)]


@register("StridedSliceGrad")
def _strided_slice_gradient(node: Node) -> Kernel:
    index = _index(node)

    def run(shape: Array, begin: Array, end: Array, steps: Array, grad: Array) -> Array:
        result = np.zeros(whole(shape), grad.dtype)
        result[index(begin, end, steps)] = grad
        return result

    return run


register_function("Gather", lambda x, indices: np.take(x, indices, 0))
register_function(
    "GatherNd",
    lambda x, indices: (
        x[tuple(np.moveaxis(indices, -1, 0))] if indices.shape[-1] else np.broadcast_to(x, indices.shape[:-1] + x.shape)
    ),
)


@register("GatherV2")
def _gather(node: Node) -> Kernel:
    """Take elements along an axis, paired along batch axes."""
    batch = node.attributes["batch_dims"]

    def run(x: Array, indices: Array, axis: Any) -> Array:
        if not batch:
            return np.take(x, indices, int(axis))
        batches = batch + np.ndim(indices) if batch < 0 else batch
        place = int(axis) + x.ndim if axis < 0 else int(axis)
        rows = np.prod(x.shape[:batches], dtype=int)
        flat = x.reshape(rows, *x.shape[batches:])
        rows_of_batches = [
            np.take(table, rows_of_table, place - batches)
            for table, rows_of_table in zip(flat, indices.reshape(rows, *indices.shape[batches:]), strict=True)
        ]
        return np.stack(rows_of_batches).reshape(*x.shape[:batches], *rows_of_batches[0].shape)

    return run


def _scatter(indices: Array, updates: Array, shape: Array) -> Array:
    """Add updates to zeros at given indices."""
    result = np.zeros(whole(shape), updates.dtype)
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return result


register_function("ScatterNd", _scatter)


def _with_change(function: Kernel) -> Kernel:
    """Return a function that changes indexed elements in a copy of a tensor."""

    def run(x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        function(result, tuple(np.moveaxis(indices, -1, 0)), updates)
        return result

    return run


register_function("TensorScatterUpdate", _with_change(lambda x, places, updates: x.__setitem__(places, updates)))
register_function("TensorScatterAdd", _with_change(np.add.at))
register_function("TensorScatterSub", _with_change(np.subtract.at))
register_function("TensorScatterMax", _with_change(np.maximum.at))
register_function("TensorScatterMin", _with_change(np.minimum.at))


def _segments(start: Any, add: Kernel) -> Kernel:
    """Return a function that collects rows by segment, skipping negative segments."""

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


register_function("UnsortedSegmentSum", _segments(0, np.add.at))
register_function("UnsortedSegmentProd", _segments(1, np.multiply.at))
register_function("UnsortedSegmentMax", _segments(_lowest, np.maximum.at))
register_function("UnsortedSegmentMin", _segments(_highest, np.minimum.at))


def _sorted_segments(collect: Kernel, empty: int = 0) -> Kernel:
    """Return a function that collects rows by ascending segment; empty segments are constant."""

    def run(x: Array, segments: Array) -> Array:
        count = int(segments[-1]) + 1 if len(segments) else 0
        result = np.full((count, *x.shape[1:]), empty, x.dtype)
        for segment in np.unique(segments):
            result[segment] = collect(x[segments == segment])
        return result

    return run


register_function("SegmentSum", _sorted_segments(lambda rows: rows.sum(0)))
register_function("SegmentMean", _sorted_segments(lambda rows: rows.mean(0)))
register_function("SegmentProd", _sorted_segments(lambda rows: rows.prod(0), empty=1))
register_function("SegmentMax", _sorted_segments(lambda rows: rows.max(0)))
register_function("SegmentMin", _sorted_segments(lambda rows: rows.min(0)))
register_function("Roll", lambda x, shift, axis: np.roll(x, whole(shift), whole(axis)))


@register("ListDiff")
def _list_difference(node: Node) -> Kernel:
    """Elements missing in a second list, and their positions."""
    dtype = node.output_types[1]

    def run(x: Array, y: Array) -> tuple[Array, Array]:
        mask = np.flatnonzero(~np.isin(x, y))
        return x[mask], mask.astype(dtype)

    return run


def _bincount(values: Array, size: Any, weights: Array) -> Any:
    """Count elements, or sum weights, by value; skip values beyond the size."""
    mask = values < int(size)
    return np.bincount(values[mask], weights[mask] if weights.size else None, int(size)).astype(weights.dtype)


register_function("Bincount", _bincount)


@register("DynamicStitch ParallelDynamicStitch")
def _stitch(node: Node) -> Kernel:
    """Merge rows of several arrays by index; later rows win."""
    count = node.attributes["N"]

    def run(*values: Any) -> Array:
        indices, data = values[:count], values[count:]
        size = max((int(rows_of_part.max()) for rows_of_part in indices if np.size(rows_of_part)), default=-1) + 1
        result = np.zeros((size, *data[0].shape[np.ndim(indices[0]) :]), data[0].dtype)
        for places, rows in zip(indices, data, strict=True):
            result[places] = rows
        return result

    return run


@register("Unique")
def _unique(node: Node) -> Kernel:
    """Distinct values in order of first appearance, and the position of every element's value."""
    dtype = node.output_types[1]

    def run(x: Array) -> tuple[Array, Array]:
        values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return values[order], rank[inverse.reshape(-1)].astype(dtype)

    return run


register_function("Where", lambda condition: np.argwhere(condition).astype(np.int64))


@register("TopKV2")
def _top_k(node: Node) -> Kernel:
    """Largest elements along the last axis and their positions; ties go to the first element."""
    dtype = node.output_types[1]

    def run(x: Array, count: Any) -> tuple[Array, Array]:
        order = np.argsort(-x, axis=-1, kind="stable")[..., : int(count)]
        return np.take_along_axis(x, order, -1), order.astype(dtype)

    return run


def _in_top_k(predictions: Array, targets: Array, count: Any) -> Any:
    """Tell whether fewer than ``count`` predictions exceed the target's.

    False if predictions are not finite.
    """
    valid = (targets >= 0) & (targets < predictions.shape[1])
    scores = predictions[np.arange(len(targets)), np.where(valid, targets, 0)]
    larger = (predictions > scores[:, None]).sum(1)
    return valid & np.isfinite(scores) & np.isfinite(predictions).all(1) & (larger < count)


register_function("InTopKV2", _in_top_k)


@register("InTopK")
def _in_top_fixed(node: Node) -> Kernel:
    count = node.attributes["k"]
    return lambda predictions, targets: _in_top_k(predictions, targets, count)


@register("ReverseSequence")
def _reverse_sequence(node: Node) -> Kernel:
    """Reverse the first elements per sequence."""
    axis, batch = node.attributes["seq_dim"], node.attributes["batch_dim"]

    def run(x: Array, lengths: Array) -> Array:
        steps = np.arange(x.shape[axis])
        places = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
        shape = [1] * x.ndim
        shape[batch], shape[axis] = places.shape
        grid = places if batch < axis else places.T
        return np.take_along_axis(x, grid.reshape(shape), axis)

    return run
