"""Slide windows over images with any number of axes, for TensorFlow's convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ipusim.api import Array
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Windows:
    """Strides, dilations and padding of windows over the axes between batch and channels.

    Attributes:
        strides, dilations: values per axis.
        size: window length per axis of a pool; empty for a convolution, whose kernel has the lengths.
        padding: ``SAME``, ``VALID`` or ``EXPLICIT``.
        explicit: elements added before and after every axis, if ``padding`` is ``EXPLICIT``.
        channels_first: whether the channels stand before these axes in the node's arrays.
    """

    strides: Sizes
    dilations: Sizes
    padding: str
    explicit: Pads = ()
    channels_first: bool = False
    size: Sizes = ()

    @classmethod
    def of_node(cls, node: Node) -> Windows:
        """Read the windows from a node's attributes."""
        attributes = node.attributes
        channels_first = attributes.get("data_format", "NHWC").startswith("NC")
        inner = slice(2, None) if channels_first else slice(1, -1)
        strides = tuple(attributes["strides"][inner])
        dilations = tuple(attributes.get("dilations") or [1] * (len(strides) + 2))[inner]
        pads = list(attributes.get("explicit_paddings") or [])
        pairs = tuple(zip(pads[::2], pads[1::2], strict=True))[inner]
        size = tuple(attributes.get("ksize", ()))[inner]
        return cls(strides, dilations, attributes["padding"], pairs, channels_first, size)

    def channels_last(self, x: Array) -> Array:
        """Return images with channels last."""
        return np.moveaxis(x, 1, -1) if self.channels_first else x

    def as_node_layout(self, x: Array) -> Array:
        """Return images with channels in the node's position."""
        return np.moveaxis(x, -1, 1) if self.channels_first else x

    def sizes(self, shape: Iterable[int]) -> Sizes:
        """Return the axis lengths of a shape, ordered with channels last."""
        lengths = tuple(int(length) for length in shape)
        return (lengths[0], *lengths[2:], lengths[1]) if self.channels_first else lengths

    def pads(self, lengths: Sequence[int], kernel: Sequence[int]) -> Pads:
        """Return the padding before and after every axis for images of given lengths."""
        if self.padding == "EXPLICIT":
            return self.explicit
        if self.padding == "VALID":
            return ((0, 0),) * len(self.strides)
        result = []
        for length, size, stride, dilation in zip(lengths, kernel, self.strides, self.dilations, strict=True):
            padding_size = max((-(-length // stride) - 1) * stride + (size - 1) * dilation + 1 - length, 0)
            result.append((padding_size // 2, padding_size - padding_size // 2))
        return tuple(result)

    def window_counts(self, lengths: Sequence[int], kernel: Sequence[int]) -> Sizes:
        """Return the number of windows along every axis of images with given lengths."""
        axes = zip(lengths, self.pads(lengths, kernel), kernel, self.strides, self.dilations, strict=True)
        return tuple(
            (start + length + end - (size - 1) * dilation - 1) // stride + 1
            for length, (start, end), size, stride, dilation in axes
        )

    def padded(self, x: Array, kernel: Sequence[int], fill: float = 0.0) -> Array:
        """Pad channels-last images with a value."""
        pads = self.pads(x.shape[1:-1], kernel)
        return np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill) if any(map(any, pads)) else x

    def element_indices(self, kernel: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """Yield, for each element of a window, the index of this element of all windows in padded images."""
        for element in np.ndindex(*kernel):
            yield (
                slice(None),
                *(
                    slice(offset * dilation, offset * dilation + (count - 1) * stride + 1, stride)
                    for offset, dilation, count, stride in zip(
                        element, self.dilations, counts, self.strides, strict=True
                    )
                ),
            )

    def views(self, x: Array, kernel: Sequence[int]) -> Array:
        """Return all windows of channels-last images.

        Args:
            x: (batch, *axes, channels).
            kernel: window length per axis.

        Returns:
            View (batch, *positions, channels, *kernel).
        """
        axes = len(kernel)
        extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, self.dilations, strict=True)]
        patches = sliding_window_view(self.padded(x, kernel), extents, tuple(range(1, axes + 1)))
        positions = tuple(slice(None, None, stride) for stride in self.strides)
        inside = tuple(slice(None, None, dilation) for dilation in self.dilations)
        return patches[(slice(None), *positions, slice(None), *inside)]

    def put_back(self, parts: Iterable[Array], shape: Sequence[int], kernel: Sequence[int]) -> Array:
        """Sum windows into images: the transpose of :meth:`views`.

        Args:
            parts: values per window element, (batch, *positions, channels).
            shape: shape of the images, (batch, *axes, channels).
            kernel: window length per axis.

        Returns:
            The images.
        """
        batch, *lengths, channels = shape
        axes = zip(lengths, self.pads(lengths, kernel), strict=True)
        sizes = (batch, *(start + length + end for length, (start, end) in axes), channels)
        first, *regions = self.element_indices(kernel, self.window_counts(lengths, kernel))
        arriving = iter(parts)
        values = next(arriving)
        total = np.zeros(sizes, values.dtype)
        total[first] = values
        for region, values in zip(regions, arriving, strict=True):
            total[region] += values
        return self.without_pads(total, lengths, kernel)

    def without_pads(self, x: Array, lengths: Sequence[int], kernel: Sequence[int]) -> Array:
        """Remove padding from images of given lengths: the inverse of :meth:`padded`."""
        pads = self.pads(lengths, kernel)
        inner = tuple(slice(start, start + length) for length, (start, _) in zip(lengths, pads, strict=True))
        return x[(slice(None), *inner)]


def over_windows(types: str) -> Callable[[Kernel], Kernel]:
    """Return a decorator that registers a function of a node's windows and arrays for operation types."""

    def keep(function: Kernel) -> Kernel:
        register(types)(lambda node: partial(function, Windows.of_node(node)))
        return function

    return keep
