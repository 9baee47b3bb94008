"""Run convolutions over one to three axes, including grouped convolutions, and their gradients in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.kernels.windows import Windows, over_windows

#: Maximum bytes of copied windows, within a processor's cache.
_PATCH_BYTES: Final = 4 * 2**20


def _patches(windows: Windows, x: Array, kernel: tuple[int, ...]) -> Array:
    """Return windows as a matrix: a row per window, with columns ordered like the kernel's elements."""
    views = windows.views(x, kernel)
    axes = len(kernel)
    order = (*range(axes + 1), *range(axes + 2, 2 * axes + 2), axes + 1)
    return views.transpose(order).reshape(-1, int(np.prod(kernel)) * x.shape[-1])


def _product_of_patches(windows: Windows, x: Array, kernel: tuple[int, ...], matrix: Array) -> Array:
    """Return the product of :func:`_patches` and a matrix, computed for groups of images."""
    rows = int(np.prod(windows.window_counts(x.shape[1:-1], kernel)))
    images = max(1, _PATCH_BYTES // max(1, rows * len(matrix) * x.itemsize))
    result = np.empty((len(x) * rows, matrix.shape[1]), np.result_type(x, matrix))
    for start in range(0, len(x), images):
        end = min(start + images, len(x))
        np.matmul(_patches(windows, x[start:end], kernel), matrix, out=result[start * rows : end * rows])
    return result


def _split_channels(x: Array, groups: int) -> list[Array]:
    """Return one array per group of channels."""
    return [x] if groups == 1 else np.split(x, groups, -1)


@over_windows("Conv2D Conv3D")
def _convolution(windows: Windows, images: Array, kernel: Array) -> Array:
    x, w = windows.channels_last(widened(images)), widened(kernel)
    size, groups = w.shape[:-2], x.shape[-1] // w.shape[-2]
    positions = windows.window_counts(x.shape[1:-1], size)
    parts = [
        _product_of_patches(windows, part, size, block.reshape(-1, block.shape[-1]))
        for part, block in zip(_split_channels(x, groups), _split_channels(w, groups), strict=True)
    ]
    result = parts[0] if groups == 1 else np.concatenate(parts, -1)
    return windows.as_node_layout(result.reshape(x.shape[0], *positions, w.shape[-1])).astype(images.dtype, copy=False)


def _kernel_gradient(windows: Windows, x: Array, shape: tuple[int, ...], grad: Array) -> Array:
    """Return the gradient for a kernel of a given shape; all arrays have channels last."""
    groups = x.shape[-1] // shape[-2]
    parts = [
        _patches(windows, part, shape[:-2]).T @ block.reshape(-1, block.shape[-1])
        for part, block in zip(_split_channels(x, groups), _split_channels(grad, groups), strict=True)
    ]
    return np.concatenate(parts, -1).reshape(shape)


def _image_gradient(windows: Windows, shape: tuple[int, ...], w: Array, grad: Array) -> Array:
    """Return the gradient for images of a given shape; all arrays have channels last."""
    size, groups = w.shape[:-2], shape[-1] // w.shape[-2]
    parts = []
    for block, arriving in zip(_split_channels(w, groups), _split_channels(grad, groups), strict=True):
        rows = arriving.reshape(-1, arriving.shape[-1])
        # One product per window element: a single product writes scattered rows.
        elements = (
            (rows @ matrix.T).reshape(*grad.shape[:-1], w.shape[-2]) for matrix in block.reshape(-1, *block.shape[-2:])
        )
        parts.append(windows.put_back(elements, (*shape[:-1], w.shape[-2]), size))
    return np.concatenate(parts, -1)


@over_windows("Conv2DBackpropFilter Conv3DBackpropFilterV2")
def _convolution_kernel_gradient(windows: Windows, images: Array, shape: Array, grad: Array) -> Array:
    x, arriving = windows.channels_last(widened(images)), windows.channels_last(widened(grad))
    return _kernel_gradient(windows, x, int_tuple(shape), arriving).astype(grad.dtype, copy=False)


@over_windows("Conv2DBackpropInput Conv3DBackpropInputV2")
def _convolution_image_gradient(windows: Windows, shape: Array, kernel: Array, grad: Array) -> Array:
    result = _image_gradient(windows, windows.sizes(shape), widened(kernel), windows.channels_last(widened(grad)))
    return windows.as_node_layout(result).astype(grad.dtype, copy=False)


@over_windows("DepthwiseConv2dNative")
def _depthwise(windows: Windows, images: Array, kernel: Array) -> Array:
    x, w = windows.channels_last(widened(images)), widened(kernel)
    result = np.einsum("npqcij,ijcm->npqcm", windows.views(x, w.shape[:2]), w, optimize=True)
    return windows.as_node_layout(result.reshape(*result.shape[:3], -1)).astype(images.dtype, copy=False)


@over_windows("DepthwiseConv2dNativeBackpropFilter")
def _depthwise_kernel_gradient(windows: Windows, images: Array, shape: Array, grad: Array) -> Any:
    x, arriving = windows.channels_last(widened(images)), windows.channels_last(widened(grad))
    size = int_tuple(shape)
    blocks = arriving.reshape(*arriving.shape[:3], *size[2:])
    result = np.einsum("npqcij,npqcm->ijcm", windows.views(x, size[:2]), blocks, optimize=True)
    return result.astype(grad.dtype, copy=False)


@over_windows("DepthwiseConv2dNativeBackpropInput")
def _depthwise_image_gradient(windows: Windows, shape: Array, kernel: Array, grad: Array) -> Any:
    arriving, w = windows.channels_last(widened(grad)), widened(kernel)
    blocks = arriving.reshape(*arriving.shape[:3], *w.shape[2:])
    rows = np.einsum("npqcm,ijcm->ijnpqc", blocks, w, optimize=True)
    elements = rows.reshape(-1, *rows.shape[2:])
    images = windows.put_back(elements, windows.sizes(shape), w.shape[:2])
    return windows.as_node_layout(images).astype(grad.dtype, copy=False)
