"""Run pooling over windows, and its gradients, in NumPy."""

from __future__ import annotations

from functools import reduce
from itertools import repeat
from math import prod

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.selection import select_gradient
from ipusim.ipu.graph.kernels.windows import Windows
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register


def _size(node: Node, windows: Windows) -> tuple[int, ...]:
    """Return the window length per axis."""
    return tuple(node.attributes["ksize"][slice(2, None) if windows.channels_first else slice(1, -1)])


def _inner_axes(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes along a window's elements, the last axes of :meth:`Windows.views`."""
    return tuple(range(-len(size), 0))


@register("MaxPool MaxPool3D")
def _largest(node: Node) -> Kernel:
    windows = Windows.of_node(node)
    size = _size(node, windows)

    def run(x: Array) -> Array:
        images = windows.channels_last(x)
        indices = windows.element_indices(size, windows.window_counts(images.shape[1:-1], size))
        padded = windows.padded(images, size, -np.inf)
        return windows.as_node_layout(reduce(np.maximum, (padded[index] for index in indices)))

    return run


@register("MaxPoolGrad MaxPool3DGrad")
def _largest_gradient(node: Node) -> Kernel:
    """Give the gradient of a window's maximum to the first element that equals the maximum."""
    windows = Windows.of_node(node)
    size = _size(node, windows)

    def run(x: Array, y: Array, grad: Array) -> Array:
        images, largest, arriving = windows.channels_last(x), windows.channels_last(y), windows.channels_last(grad)
        padded = windows.padded(images, size, -np.inf)
        has_nan = bool(np.isnan(largest).any())  # a window with NaN has NaN as maximum, and NaN is unequal to itself
        total, awaits_maximum = np.zeros(padded.shape, grad.dtype), np.ones(largest.shape, np.bool_)
        for index in windows.element_indices(size, largest.shape[1:-1]):
            elements = padded[index]
            selection = awaits_maximum & (
                (elements == largest) | np.isnan(elements) if has_nan else elements == largest
            )
            total[index] += select_gradient(selection, arriving)
            awaits_maximum ^= selection
        return windows.as_node_layout(windows.without_pads(total, images.shape[1:-1], size))

    return run


def _counts(windows: Windows, lengths: tuple[int, ...], size: tuple[int, ...]) -> Array:
    """Return the number of image elements per window, shape (1, *positions, 1)."""
    counts = np.ones((1, *lengths, 1), np.float32)
    return np.asarray(windows.views(counts, size).sum(_inner_axes(size)))


@register("AvgPool AvgPool3D")
def _mean(node: Node) -> Kernel:
    windows = Windows.of_node(node)
    size = _size(node, windows)

    def run(x: Array) -> Array:
        images = windows.channels_last(widened(x))
        total = windows.views(images, size).sum(_inner_axes(size))
        counts = _counts(windows, images.shape[1:-1], size).astype(total.dtype)
        return windows.as_node_layout(total / counts).astype(x.dtype, copy=False)

    return run


@register("AvgPoolGrad AvgPool3DGrad")
def _mean_gradient(node: Node) -> Kernel:
    windows = Windows.of_node(node)
    size = _size(node, windows)

    def run(shape: Array, grad: Array) -> Array:
        sizes = windows.sizes(shape)
        arriving = windows.channels_last(widened(grad))
        shares = arriving / _counts(windows, sizes[1:-1], size).astype(arriving.dtype)
        images = windows.put_back(repeat(shares, prod(size)), sizes, size)
        return windows.as_node_layout(images).astype(grad.dtype, copy=False)

    return run
