"""Pool images: maximum or mean per window and channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.model.layers.layer import Array, InnerSizes, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.layers.windows import Extents, Padding, Windows
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class _Pool(Parameterless):
    """Common parts of pools: names and defaults of Keras, padding from :mod:`ipusim.model.layers.windows`."""

    pool_size: Annotated[Extents, Doc("height and width of the windows")] = (2, 2)
    strides: Annotated[Extents | None, Doc("steps from one window to the next; default: the windows' size")] = None
    padding: Annotated[Padding, Doc("whether the image is padded for windows at its edges")] = "valid"

    #: Work per position of a window in the forward pass, then in the backward pass.
    work_of_places: ClassVar[tuple[VectorWork, VectorWork]]
    #: Work per window, in either pass.
    work_of_windows: ClassVar[VectorWork]

    def __post_init__(self) -> None:
        """Raise ModelError for impossible windows."""
        _ = self._windows

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.pool_size, self.strides or self.pool_size, self.padding)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (windows down, windows right, channels); raises ModelError if no window fits."""
        return (*self._windows.field(input_shape), input_shape[-1])

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work, proportional to window positions and to windows."""
        x = batch * math.prod(input_shape)
        y = batch * math.prod(self.output_shape(input_shape))
        position_count = y * math.prod(self.pool_size)
        forward = Work(
            vector=position_count * self.work_of_places[0] + y * self.work_of_windows,
            sram_bytes=(x + y) * itemsize,
            exchange_bytes=x * itemsize,
            itemsize=itemsize,
            units=self._worker_units(batch, self.output_shape(input_shape), itemsize),
        )
        if not need_input_gradient:
            return LayerCost(forward, Work(itemsize=itemsize))
        backward = Work(
            vector=position_count * self.work_of_places[1] + y * self.work_of_windows,
            sram_bytes=(x + 2 * y + x) * itemsize,
            exchange_bytes=(y + x) * itemsize,
            itemsize=itemsize,
            units=self._worker_units(batch, input_shape, itemsize),
        )
        return LayerCost(forward, backward)

    @staticmethod
    def _worker_units(batch: int, shape: Shape, itemsize: int) -> int:
        """Return the number of parts that workers share: groups of channels that fill 8 bytes, at every position."""
        *positions, channels = shape
        return batch * math.prod(positions) * -(-channels * itemsize // 8)


@dataclass(frozen=True)
class MaxPool2D(_Pool):
    """The largest element of each window of an image, channel by channel.

    Padding elements are smaller than any element.
    """

    kind: ClassVar = "max_pool2d"
    #: A comparison forward; backward a comparison, a product and a sum.
    work_of_places: ClassVar = VectorWork(reductions=1), VectorWork(3)
    work_of_windows: ClassVar = VectorWork(1)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the maxima of the images ``x`` (batch, height, width, channels)."""
        views = self._windows.offsets(self._windows.pad(x, -np.inf), x.shape[1:])
        y = next(views).copy()
        for view in views:
            np.maximum(y, view, out=y)
        return y, (x, y)

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return the gradients at the windows' maxima; ties go to the first maximum in reading order."""
        x, y = saved_values
        padded = self._windows.pad(x, -np.inf)
        result = np.zeros_like(padded)
        remainder = grad.copy()
        view_pairs = zip(*(self._windows.offsets(array, x.shape[1:]) for array in (padded, result)), strict=True)
        for view, target in view_pairs:
            is_maximum = view == y
            np.add(target, remainder * is_maximum, out=target)
            remainder *= ~is_maximum
        return self._windows.crop(result, x.shape[1:])

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the size of the padded image."""
        return InnerSizes(0, math.prod(self._windows.padded_shape(input_shape)))


@dataclass(frozen=True)
class AveragePool2D(_Pool):
    """The mean of each window of an image, channel by channel.

    The mean covers elements inside the image, since TensorFlow excludes the padding.
    """

    kind: ClassVar = "average_pool2d"
    #: A sum per position, in either pass, and a quotient per window.
    work_of_places: ClassVar = VectorWork(reductions=1), VectorWork(1)
    work_of_windows: ClassVar = VectorWork(quotients=1)

    def _element_counts(self, input_shape: Shape) -> Array:
        """Return the number of elements inside the image per window: (windows down, windows right, 1)."""
        inside = self._windows.pad(np.ones((1, *input_shape[:2], 1)))
        total: Array = sum(self._windows.offsets(inside, (*input_shape[:2], 1)), np.zeros(()))[0]
        return total

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the means of the images ``x`` (batch, height, width, channels)."""
        views = self._windows.offsets(self._windows.pad(x), x.shape[1:])
        y = next(views).copy()
        for view in views:
            y += view
        y /= self._element_counts(x.shape[1:]).astype(x.dtype)
        return y, x.shape[1:]

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return the windows' gradients, shared equally among elements."""
        share = grad / self._element_counts(saved_values).astype(grad.dtype)
        result = np.zeros_like(grad, order="C", shape=(len(grad), *self._windows.padded_shape(saved_values)))
        for target in self._windows.offsets(result, saved_values):
            np.add(target, share, out=target)
        return self._windows.crop(result, saved_values)
