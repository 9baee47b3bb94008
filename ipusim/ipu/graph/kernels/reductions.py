"""Run reductions and running sums in NumPy: sums, means, products, extremes."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.registry import Kernel, kernel

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


def _reduce(function: Kernel, keep: bool, x: Array, axes: Array) -> Array:
    return np.asarray(function(widened(x), axis=int_tuple(axes), keepdims=keep)).astype(x.dtype, copy=False)


for _type, _function in _FUNCTIONS.items():
    kernel(_type, "keep_dims")(partial(_reduce, _function))


@kernel("Max", "keep_dims")
def _largest(keep: Any, x: Array, axes: Array) -> Any:
    """Return the maximum over axes; an empty maximum is the lowest number."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return np.maximum.reduce(x, axis=int_tuple(axes), keepdims=keep, initial=lowest)


@kernel("Min", "keep_dims")
def _smallest(keep: Any, x: Array, axes: Array) -> Any:
    """Return the minimum over axes; an empty minimum is the highest number."""
    highest = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    return np.minimum.reduce(x, axis=int_tuple(axes), keepdims=keep, initial=highest)


kernel("ArgMax", "output_type")(lambda dtype, x, axis: np.asarray(np.argmax(x, int(axis))).astype(dtype))
kernel("ArgMin", "output_type")(lambda dtype, x, axis: np.asarray(np.argmin(x, int(axis))).astype(dtype))
kernel("L2Loss")(lambda x: np.asarray(np.sum(np.square(widened(x))) / 2).astype(x.dtype))


def _scan(function: Kernel, neutral: int, exclusive: bool, backwards: bool, x: Array, axis: Array) -> Array:
    """Return running sums or products along an axis."""
    scanned_axis = int(axis)
    sequence = np.flip(x, scanned_axis) if backwards else x
    if exclusive:
        sequence = np.moveaxis(sequence, scanned_axis, 0)
        sequence = np.concatenate([np.full_like(sequence[:1], neutral), sequence[:-1]])
        sequence = np.moveaxis(sequence, 0, scanned_axis)
    result: Array = function(sequence, scanned_axis, dtype=x.dtype)
    return np.flip(result, scanned_axis) if backwards else result


kernel("Cumsum", "exclusive", "reverse")(partial(_scan, np.cumsum, 0))
kernel("Cumprod", "exclusive", "reverse")(partial(_scan, np.cumprod, 1))
kernel("EuclideanNorm", "keep_dims")(lambda keep, x, axes: np.sqrt(np.sum(x * x, axis=int_tuple(axes), keepdims=keep)))


@kernel("BiasAddGrad", "data_format")
def _bias_gradient(data_format: str, grad: Array) -> Array:
    channel_axis = 1 if data_format.startswith("NC") else grad.ndim - 1
    axis = tuple(number for number in range(grad.ndim) if number != channel_axis)
    return np.asarray(np.add.reduce(widened(grad), axis=axis)).astype(grad.dtype, copy=False)
