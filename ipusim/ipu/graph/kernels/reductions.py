"""Run reductions and running sums in NumPy: sums, means, products, extremes."""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register, register_function

#: ``np.sum`` without the typing stub's overloads for ``keepdims``.
_SUM: Final[Kernel] = np.sum


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the mean; for integers it is rounded down. The mean of no elements is NaN, or 0 for integers.

    This is not NumPy's ``mean``, which warns of empty arrays.
    """
    total = np.asarray(_SUM(x, axis=axis, keepdims=keepdims))
    count = np.prod([x.shape[number] for number in axis], dtype=int)
    return np.asarray(total / total.dtype.type(count)) if x.dtype.kind in "fc" else total // max(count, 1)


_FUNCTIONS: Final[dict[str, Kernel]] = {
    "Sum": np.sum,
    "Mean": _mean,
    "Prod": np.prod,
    "All": np.all,
    "Any": np.any,
}


@register(" ".join(_FUNCTIONS))
def _reduction(node: Node) -> Kernel:
    function, keep, dtype = _FUNCTIONS[node.type], node.attributes["keep_dims"], node.output_types[0]

    def run(x: Array, axes: Array) -> Array:
        axis = int_tuple(axes)
        return np.asarray(function(widened(x), axis=axis, keepdims=keep)).astype(dtype, copy=False)

    return run


@register("Max Min")
def _extreme(node: Node) -> Kernel:
    """Return the extreme over axes; the maximum of no elements is the lowest number, their minimum the highest."""
    largest, keep, dtype = node.type == "Max", node.attributes["keep_dims"], node.output_types[0]
    function = np.maximum if largest else np.minimum
    if dtype.kind == "f":
        start = -np.inf if largest else np.inf
    else:
        start = np.iinfo(dtype).min if largest else np.iinfo(dtype).max

    def run(x: Array, axes: Array) -> Array:
        axis = int_tuple(axes)
        return np.asarray(function.reduce(x, axis=axis, keepdims=keep, initial=start)).astype(dtype, copy=False)

    return run


@register("ArgMax ArgMin")
def _index_of_extreme(node: Node) -> Kernel:
    function, dtype = (np.argmax if node.type == "ArgMax" else np.argmin), node.output_types[0]
    return lambda x, axis: np.asarray(function(x, int(axis))).astype(dtype)


register_function("L2Loss", lambda x: np.asarray(np.sum(np.square(widened(x))) / 2).astype(x.dtype))


@register("Cumsum Cumprod")
def _scan_of(node: Node) -> Kernel:
    exclusive, backwards = node.attributes["exclusive"], node.attributes["reverse"]
    function, neutral = (np.cumsum, 0) if node.type == "Cumsum" else (np.cumprod, 1)

    def run(x: Array, axis: Array) -> Array:
        scanned_axis = int(axis)
        sequence = np.flip(x, scanned_axis) if backwards else x
        if exclusive:
            sequence = np.moveaxis(sequence, scanned_axis, 0)
            sequence = np.concatenate([np.full_like(sequence[:1], neutral), sequence[:-1]])
            sequence = np.moveaxis(sequence, 0, scanned_axis)
        result = function(sequence, scanned_axis, dtype=x.dtype)
        return np.flip(result, scanned_axis) if backwards else result

    return run


@register("EuclideanNorm")
def _norm(node: Node) -> Kernel:
    keep = node.attributes["keep_dims"]
    return lambda x, axes: np.sqrt(np.sum(x * x, axis=int_tuple(axes), keepdims=keep))


@register("BiasAddGrad")
def _bias_gradient(node: Node) -> Kernel:
    channels_first = node.attributes["data_format"].startswith("NC")

    def run(grad: Array) -> Array:
        channel_axis = 1 if channels_first else grad.ndim - 1
        axis = tuple(number for number in range(grad.ndim) if number != channel_axis)
        return np.asarray(np.add.reduce(widened(grad), axis=axis)).astype(grad.dtype, copy=False)

    return run
