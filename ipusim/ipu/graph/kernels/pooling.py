"""Run pooling over windows, and its gradients, in NumPy."""

from __future__ import annotations

from functools import reduce
from itertools import repeat
from math import prod

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.selection import select_gradient
from ipusim.ipu.graph.kernels.windows import Windows, over_windows


def _inner_axes(windows: Windows) -> tuple[int, ...]:
    """Return the axes along a window's elements, the last axes of :meth:`Windows.views`."""
    return tuple(range(-len(windows.size), 0))


@over_windows("MaxPool MaxPool3D")
def _largest(windows: Windows, x: Array) -> Array:
    images = windows.channels_last(x)
    indices = windows.element_indices(windows.size, windows.window_counts(images.shape[1:-1], windows.size))
    padded = windows.padded(images, windows.size, -np.inf)
    return windows.as_node_layout(reduce(np.maximum, (padded[index] for index in indices)))


@over_windows("MaxPoolGrad MaxPool3DGrad")
def _largest_gradient(windows: Windows, x: Array, y: Array, grad: Array) -> Array:
    """Give the gradient of a window's maximum to the first element that equals the maximum."""
    images, largest, arriving = windows.channels_last(x), windows.channels_last(y), windows.channels_last(grad)
    padded = windows.padded(images, windows.size, -np.inf)
    has_nan = bool(np.isnan(largest).any())  # a window with NaN has NaN as maximum, and NaN is unequal to itself
    total, awaits_maximum = np.zeros(padded.shape, grad.dtype), np.ones(largest.shape, np.bool_)
    for index in windows.element_indices(windows.size, largest.shape[1:-1]):
        elements = padded[index]
        selection = awaits_maximum & ((elements == largest) | np.isnan(elements) if has_nan else elements == largest)
        total[index] += select_gradient(selection, arriving)
        awaits_maximum ^= selection
    return windows.as_node_layout(windows.without_pads(total, images.shape[1:-1], windows.size))


def _counts(windows: Windows, lengths: tuple[int, ...]) -> Array:
    """Return the number of image elements per window, shape (1, *positions, 1)."""
    counts = np.ones((1, *lengths, 1), np.float32)
    return np.asarray(windows.views(counts, windows.size).sum(_inner_axes(windows)))


@over_windows("AvgPool AvgPool3D")
def _mean(windows: Windows, x: Array) -> Array:
    images = windows.channels_last(widened(x))
    total = windows.views(images, windows.size).sum(_inner_axes(windows))
    counts = _counts(windows, images.shape[1:-1]).astype(total.dtype)
    return windows.as_node_layout(total / counts).astype(x.dtype, copy=False)


@over_windows("AvgPoolGrad AvgPool3DGrad")
def _mean_gradient(windows: Windows, shape: Array, grad: Array) -> Array:
    sizes = windows.sizes(shape)
    arriving = windows.channels_last(widened(grad))
    shares = arriving / _counts(windows, sizes[1:-1]).astype(arriving.dtype)
    images = windows.put_back(repeat(shares, prod(windows.size)), sizes, windows.size)
    return windows.as_node_layout(images).astype(grad.dtype, copy=False)
