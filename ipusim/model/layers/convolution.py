"""Compute convolutions as matrix products over windows of images or sequences (im2col), a product per group.

A sequence is an image with a single row: both kinds share arithmetic and cost.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activate, activation, pull_back
from ipusim.model.layers.kernel_cost import KernelElements, KernelProducts, kernel_cost
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, InHalves, InnerSizes, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.windows import Extent, Extents, Padding, Pair, Windows
from ipusim.model.work import Convolution, Product

_GROUPS = Doc(
    "number of groups into which channels and filters are divided; the filters of a group read only the channels of "
    "their group; with one channel per group: a depthwise convolution"
)


class _Convolution(InHalves, ABC):
    """Common parts of the convolutions, independent of the number of axes."""

    filters: int
    padding: Padding
    activation: str
    use_bias: bool
    groups: int

    @property
    @abstractmethod
    def _windows(self) -> Windows:
        """Windows over images."""

    @abstractmethod
    def _image(self, input_shape: Shape) -> Shape:
        """Return the input's shape as an image shape; raises ModelError for an unsuitable input."""

    @abstractmethod
    def _kernel_shape(self) -> Shape:
        """Return the sizes of the kernel's axes, without channels and filters."""

    def __post_init__(self) -> None:
        """Raise ModelError for filters or groups below 1, an unknown activation, or impossible windows."""
        if self.filters < 1:
            raise ModelError(f"a convolution needs at least 1 filter, got {self.filters}")
        if self.groups < 1 or self.filters % self.groups:
            raise ModelError(f"expected a number of groups that divides the {self.filters} filters, got {self.groups}")
        activation(self.activation)
        _ = self._windows

    def _field(self, input_shape: Shape) -> Shape:
        """Return the number of windows per axis; raises ModelError if no window fits."""
        image = self._image(input_shape)
        field = self._windows.field(image)
        groups, _ = self._grouping(image[-1])
        if image[-1] % groups:
            raise ModelError(f"expected a number of groups that divides the {image[-1]} channels, got {groups}")
        return field[-len(self._kernel_shape()) :]

    def _grouping(self, channels: int) -> tuple[int, int]:
        """Return the number of groups, and the filters per group."""
        return self.groups, self.filters // self.groups

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the numbers of windows per axis, and the filters; raises ModelError if no window fits."""
        return (*self._field(input_shape), math.prod(self._grouping(input_shape[-1])))

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        groups, filters = self._grouping(input_shape[-1])
        kernel = (*self._kernel_shape(), input_shape[-1] // groups, groups * filters)
        return {"W": kernel, "b": (groups * filters,)} if self.use_bias else {"W": kernel}

    def _join_groups(self, groups: Array) -> Array:
        """Return results (groups, rows, filters of a group) as (rows, filters)."""
        return groups.transpose(1, 0, 2).reshape(groups.shape[1], -1)

    def _kernel_matrices(self, W: Array, channels: int) -> Array:
        """Return ``W`` as a matrix per group: (groups, window x channels, filters)."""
        return W.reshape(-1, *self._grouping(channels)).transpose(1, 0, 2)

    def _window_rows(self, image: Array) -> Array:
        """Return the windows as matrix rows per group: (groups, batch x windows, window x channels)."""
        window_views = list(self._windows.offsets(self._windows.pad(image), image.shape[1:]))
        groups, _ = self._grouping(image.shape[-1])
        rows = np.stack(window_views, axis=3).reshape(-1, len(window_views), groups, image.shape[-1] // groups)
        return rows.transpose(2, 0, 1, 3).reshape(groups, len(rows), -1)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ..., channels) convolved, in the output's shape."""
        window_rows = self._window_rows(x.reshape(len(x), *self._image(x.shape[1:])))
        y = self._join_groups(window_rows @ self._kernel_matrices(parameters["W"], x.shape[-1]))
        if self.use_bias:
            y += parameters["b"]
        y, saved_array = activate(self.activation, y.reshape(len(x), *self._field(x.shape[1:]), y.shape[-1]))
        return y, (x, saved_array)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, the sum of overlapping window gradients, and the rest: x and the rows of g.

        g is the gradient before the activation.
        """
        x, saved_array = saved_values
        rows = pull_back(self.activation, saved_array, grad).reshape(-1, grad.shape[-1])
        if not need_input_gradient:
            return None, (x, rows)
        shape = self._image(x.shape[1:])
        groups, _ = self._grouping(shape[-1])
        columns = self._split_groups(rows, groups) @ self._kernel_matrices(parameters["W"], shape[-1]).swapaxes(1, 2)
        windows = columns.reshape(groups, len(rows), -1, shape[-1] // groups).transpose(1, 2, 0, 3)
        columns = windows.reshape(len(x), *self._windows.field(shape), -1, shape[-1])
        padded = np.zeros_like(self._windows.pad(x.reshape(len(x), *shape)))
        for offset, view in enumerate(self._windows.offsets(padded, shape)):
            np.add(view, columns[..., offset, :], out=view)
        return self._windows.crop(padded, shape).reshape(x.shape), (x, rows)

    def _split_groups(self, rows: Array, groups: int) -> Array:
        """Return ``rows`` (rows, filters) as (groups, rows, filters of a group)."""
        return rows.reshape(len(rows), groups, -1).transpose(1, 0, 2)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return dW = windows.T @ g and db = sum of g."""
        x, rows = rest_values
        window_rows = self._window_rows(x.reshape(len(x), *self._image(x.shape[1:])))
        kernels = window_rows.swapaxes(1, 2) @ self._split_groups(rows, len(window_rows))
        gradients = {"W": self._join_groups(kernels).reshape(parameters["W"].shape)}
        if self.use_bias:
            gradients["b"] = rows.sum(axis=0)
        return gradients

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the size of the windows as matrix rows."""
        return InnerSizes(0, math.prod((*self._field(input_shape), *self._kernel_shape(), input_shape[-1])))

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work. Each of Y outputs needs K products, K = window x channels of a group.

        Forward: Y*K multiply-accumulates, and the additional work of :func:`kernel_cost` per output. Backward: Y*K for
        dW, and another Y*K for dx if needed. Products with zeros of the padding are counted (PopLibs only counts
        products inside the image). Tiles read windows in place: im2col belongs to this simulator's arithmetic, not to
        the machine's.
        """
        x, y = batch * math.prod(input_shape), batch * math.prod(self.output_shape(input_shape))
        groups, filters = self._grouping(input_shape[-1])
        taps, channels, positions = math.prod(self._kernel_shape()), input_shape[-1] // groups, y // (groups * filters)
        products = KernelProducts(
            Convolution(positions, channels, filters, taps, math.prod(self._windows.strides), groups),
            weights=Product(taps * channels, positions, filters, groups, shared_rows=taps),  # the taps share image rows
            input_gradient=Convolution(positions, filters, channels, taps, groups=groups),
        )
        weights, bias = taps * channels * groups * filters, groups * filters * self.use_bias
        elements = KernelElements(x, y, weights, bias)
        return kernel_cost(products, elements, self.activation, itemsize, need_input_gradient)


class OfImages(_Convolution):
    """Common parts of image convolutions."""

    kernel_size: Pair
    strides: Pair

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.kernel_size, self.strides, self.padding)

    def _image(self, input_shape: Shape) -> Shape:
        return input_shape

    def _kernel_shape(self) -> Shape:
        return self.kernel_size


@dataclass(frozen=True)
class Conv2D(OfImages):
    """A convolution of images of height, width and channels.

    Names and defaults follow Keras ``Conv2D``. Kernel ``W`` of shape (*kernel_size, channels of a group, filters)
    starts Glorot uniform, bias ``b`` of shape (filters,) zero. As in every framework the kernel is not flipped: the
    operation is a correlation. :mod:`ipusim.model.layers.windows` defines the padding.
    """

    kind: ClassVar = "conv2d"

    filters: Annotated[Axis, Doc("channels of the output")]
    kernel_size: Annotated[Extents, Doc("height and width of the kernel")]
    strides: Annotated[Extents, Doc("steps of the kernel, down and right")] = (1, 1)
    padding: Annotated[Padding, Doc("whether the image is padded for windows at its edges")] = "valid"
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    groups: Annotated[Axis, _GROUPS] = 1


@dataclass(frozen=True)
class Conv1D(_Convolution):
    """A convolution of sequences of steps and channels.

    Names and defaults follow Keras ``Conv1D``. Kernel ``W`` of shape (kernel_size, channels of a group, filters) starts
    Glorot uniform, bias ``b`` of shape (filters,) zero. Everything else follows ``conv2d``.
    """

    kind: ClassVar = "conv1d"

    filters: Annotated[Axis, Doc("channels of the output")]
    kernel_size: Annotated[Extent, Doc("length of the kernel, in steps of the sequence")]
    strides: Annotated[Extent, Doc("steps from one window to the next")] = 1
    padding: Annotated[Padding, Doc("whether the sequence is padded for windows at its ends")] = "valid"
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    groups: Annotated[Axis, _GROUPS] = 1

    @cached_property
    def _windows(self) -> Windows:
        return Windows((1, self.kernel_size), (1, self.strides), self.padding)

    def _image(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2:
            raise ModelError(f"expected sequences of steps and channels, got an input of shape {input_shape}")
        if self.padding == "valid" and input_shape[0] < self.kernel_size:
            raise ModelError(
                f"expected sequences no shorter than the window of {self.kernel_size} steps, got {input_shape[0]}"
            )
        return (1, *input_shape)

    def _kernel_shape(self) -> Shape:
        return (self.kernel_size,)
