"""Divide images into square windows, and turn each window into one position.

The windows tile the image without gaps or overlaps. In the layer's output, a position has the channels of all positions
of a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.work import Work, work_of


def check_windows(input_shape: Shape, size: int) -> None:
    """Raise ModelError unless samples are images whose height and width are multiples of ``size``."""
    if len(input_shape) != 3 or input_shape[0] % size or input_shape[1] % size:
        raise ModelError(
            f"expected images of height, width and channels whose height and width {size} divides, got {input_shape}"
        )


def in_windows(x: Array, size: int, shift: int = 0) -> Array:
    """Return the windows of images, each as a row of positions.

    Args:
        x: images (batch, height, width, channels).
        size: height and width of a window.
        shift: rows and columns by which images are rolled up and to the left first.

    Returns:
        Array (batch * windows, size * size, channels): windows and their positions in reading order.
    """
    batch, height, width, channels = x.shape
    positions = window_places(height, width, size, shift)
    return x.reshape(batch, height * width, channels).take(positions.reshape(-1), axis=1).reshape(-1, size**2, channels)


def from_windows(windows: Array, image: Shape, size: int, shift: int = 0) -> Array:
    """Return the images of shape ``image`` with these windows: the inverse of :func:`in_windows`."""
    height, width, channels = image
    positions = _places_in_windows(height, width, size, shift)
    return windows.reshape(-1, height * width, channels).take(positions, axis=1).reshape(-1, *image)


@lru_cache(maxsize=64)
def window_places(height: int, width: int, size: int, shift: int) -> npt.NDArray[np.int64]:
    """Return the positions of an image, numbered in reading order, by window: (windows, size * size)."""
    rolled = np.roll(np.arange(height * width).reshape(height, width), (-shift, -shift), (0, 1))
    blocks = rolled.reshape(height // size, size, width // size, size).swapaxes(1, 2)
    return blocks.reshape(-1, size**2)


@lru_cache(maxsize=64)
def _places_in_windows(height: int, width: int, size: int, shift: int) -> npt.NDArray[np.int64]:
    """Return the index in the windows of each position of an image: the inverse of :func:`window_places`."""
    return np.argsort(window_places(height, width, size, shift), axis=None)


def moving(elements: int, itemsize: int) -> Work:
    """Return the work of moving ``elements`` from the layout of an image to the layout of its windows, or back."""
    return work_of(itemsize, accesses=2 * elements, exchanged=elements)


@dataclass(frozen=True)
class SpaceToDepth(Parameterless):
    """Turns each square block of an image into one position with more channels.

    TensorFlow's ``space_to_depth``, in its order: rows of a block, columns, channels. Blocks of two, and a ``dense``
    layer of half as many channels after them, merge the patches of a Swin Transformer.
    """

    kind: ClassVar = "space_to_depth"

    block_size: Annotated[Axis, Doc("height and width of a block, which divide those of the image")] = 2

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (blocks down, blocks right, channels of a block); raises ModelError unless blocks tile the image."""
        size = self.block_size
        check_windows(input_shape, size)
        height, width, channels = input_shape
        return height // size, width // size, size**2 * channels

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the blocks of images ``x`` (batch, height, width, channels)."""
        shape = x.shape[1:]
        return in_windows(x, self.block_size).reshape(-1, *self.output_shape(shape)), shape

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return ``grad`` with each element at its position in the image."""
        return from_windows(grad, saved_values, self.block_size)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of a pass, which reads each element, sends it over the exchange, and writes it."""
        work = moving(batch * math.prod(input_shape), itemsize)
        return LayerCost(work, work if need_input_gradient else Work(itemsize=itemsize))
