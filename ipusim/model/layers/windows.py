"""Slide windows over images, for convolution and pooling.

Images are (batch, height, width, channels). With padding ``valid`` windows stay inside the image. With ``same`` either
direction has ceil(size / stride) windows, and the image gets even padding, with an odd element at the end (TensorFlow's
definitions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array, Shape

Padding = Literal["valid", "same"]
#: Height and width.
Pair = tuple[int, int]
#: Size of a window along an axis, or steps along the axis.
Extent = Annotated[int, Ge(1), Le(128)]
#: Height and width of a window, or steps down and right.
Extents = tuple[Extent, Extent]


@dataclass(frozen=True)
class Windows:
    """Windows of a fixed size over images of any size.

    Attributes:
        size: height and width of a window.
        strides: steps between neighbouring windows, down and right.
        padding: valid or same.
    """

    size: Pair
    strides: Pair
    padding: Padding

    def __post_init__(self) -> None:
        """Raise ModelError for sizes or strides below 1, or an unknown padding."""
        if any(len(pair) != 2 or min(pair) < 1 for pair in (self.size, self.strides)):
            raise ModelError(f"expected two sizes and two strides of at least 1, got {self.size} and {self.strides}")
        if self.padding not in get_args(Padding):
            raise ModelError(f"unknown padding {self.padding!r}: expected valid or same")

    def field(self, input_shape: Shape) -> Pair:
        """Return the numbers of windows, down and right.

        Raises ModelError unless samples are (height, width, channels) and hold a window.
        """
        if len(input_shape) != 3:
            raise ModelError(f"expected images of height, width and channels, got an input of shape {input_shape}")
        if self.padding == "same":
            height, width = (-(-size // stride) for size, stride in zip(input_shape, self.strides, strict=False))
        else:
            height, width = (
                (size - window) // stride + 1
                for size, window, stride in zip(input_shape, self.size, self.strides, strict=False)
            )
            if height < 1 or width < 1:
                raise ModelError(f"expected images no smaller than the window {self.size}, got {input_shape[:2]}")
        return height, width

    def pads(self, input_shape: Shape) -> tuple[Pair, Pair]:
        """Return the padding rows before and after the image, and the padding columns."""
        down, right = (
            max((count - 1) * stride + window - size, 0)
            for count, stride, window, size in zip(
                self.field(input_shape), self.strides, self.size, input_shape, strict=False
            )
        )
        return (down // 2, down - down // 2), (right // 2, right - right // 2)

    def padded_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of an image padded by :meth:`pad`."""
        (top, bottom), (left, right) = self.pads(input_shape)
        height, width, channels = input_shape
        return top + height + bottom, left + width + right, channels

    def pad(self, x: Array, value: float = 0.0) -> Array:
        """Return the images ``x`` padded with ``value``."""
        rows, columns = self.pads(x.shape[1:])
        if not any((*rows, *columns)):
            return x
        return np.pad(x, ((0, 0), rows, columns, (0, 0)), constant_values=value)

    def crop(self, padded: Array, input_shape: Shape) -> Array:
        """Return the images without the padding of :meth:`pad`."""
        (top, _), (left, _) = self.pads(input_shape)
        return padded[:, top : top + input_shape[0], left : left + input_shape[1]]

    def offsets(self, padded: Array, input_shape: Shape) -> Iterator[Array]:
        """Yield views of ``padded``, one per position within a window.

        A view is (batch, windows down, windows right, channels); writing to a view writes to ``padded``.
        """
        height, width = self.field(input_shape)
        down, right = self.strides
        for row in range(self.size[0]):
            for column in range(self.size[1]):
                yield padded[:, row : row + down * height : down, column : column + right * width : right]
