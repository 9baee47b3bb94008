"""Compute transposed convolutions: every image element adds the kernel, times the element, to a larger image.

A convolution with the same windows maps its output's gradient to its input's gradient by this operation.
"""

from __future__ import annotations

import math
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
from ipusim.model.layers.windows import Extents, Padding, Windows
from ipusim.model.work import Convolution, Product


@dataclass(frozen=True)
class Conv2DTranspose(InHalves):
    """A transposed convolution, which enlarges images of height, width and channels.

    Names and defaults follow Keras ``Conv2DTranspose``. Kernel ``W`` of shape (*kernel_size, filters, channels) starts
    Glorot uniform, bias ``b`` of shape (filters,) zero. With padding ``same`` the output has the input's size times the
    strides; with ``valid`` the output covers the whole reach of the kernel.
    """

    kind: ClassVar = "conv2d_transpose"

    filters: Annotated[Axis, Doc("channels of the output")]
    kernel_size: Annotated[Extents, Doc("height and width of the kernel")]
    strides: Annotated[Extents, Doc("steps in the output from one element of the input to the next")] = (1, 1)
    padding: Annotated[
        Padding, Doc("whether the output ends after the last step (same) or after the last kernel position (valid)")
    ] = "valid"
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for filters below 1, an unknown activation, or impossible windows."""
        if self.filters < 1:
            raise ModelError(f"a convolution needs at least 1 filter, got {self.filters}")
        activation(self.activation)
        _ = self._windows

    @cached_property
    def _windows(self) -> Windows:
        """Windows over the output, a window per input element."""
        return Windows(self.kernel_size, self.strides, self.padding)

    @property
    def _taps(self) -> int:
        return math.prod(self.kernel_size)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return height, width and filters; raises ModelError for an input other than images."""
        if len(input_shape) != 3:
            raise ModelError(f"expected images of height, width and channels, got an input of shape {input_shape}")
        height, width = (
            size * stride + (max(window - stride, 0) if self.padding == "valid" else 0)
            for size, window, stride in zip(input_shape, self.kernel_size, self.strides, strict=False)
        )
        return height, width, self.filters

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        kernel = (*self.kernel_size, self.filters, input_shape[-1])
        return {"W": kernel, "b": (self.filters,)} if self.use_bias else {"W": kernel}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the sum of overlapping kernels scaled by the elements of ``x`` (batch, height, width, channels)."""
        W, shape = parameters["W"], self.output_shape(x.shape[1:])
        products = x.reshape(-1, x.shape[-1]) @ W.reshape(-1, x.shape[-1]).T
        products = products.reshape(*x.shape[:-1], self._taps, self.filters)
        padded = np.zeros_like(products, order="C", shape=(len(x), *self._windows.padded_shape(shape)))
        for tap, view in enumerate(self._windows.offsets(padded, shape)):
            np.add(view, products[..., tap, :], out=view)
        y = self._windows.crop(padded, shape).copy()
        if self.use_bias:
            y += parameters["b"]
        y, saved_array = activate(self.activation, y)
        return y, (x, saved_array)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, a convolution of g, and the rest: x and g, the gradient before the activation."""
        x, saved_array = saved_values
        grad = pull_back(self.activation, saved_array, grad)
        if not need_input_gradient:
            return None, (x, grad)
        dx = self._window_rows(grad) @ parameters["W"].reshape(-1, x.shape[-1])
        return dx.reshape(x.shape), (x, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return dW = (windows of g).T @ x and db = sum of g."""
        x, grad = rest_values
        gradients = {"W": (self._window_rows(grad).T @ x.reshape(-1, x.shape[-1])).reshape(parameters["W"].shape)}
        if self.use_bias:
            gradients["b"] = grad.reshape(-1, self.filters).sum(axis=0)
        return gradients

    def _window_rows(self, grad: Array) -> Array:
        """Return the windows of g as rows: (batch x elements of the input, window x filters)."""
        window_views = list(self._windows.offsets(self._windows.pad(grad), grad.shape[1:]))
        return np.stack(window_views, axis=3).reshape(-1, self._taps * self.filters)

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the size of the scaled kernels before the sum."""
        return InnerSizes(0, math.prod(input_shape[:-1]) * self._taps * self.filters)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work for X elements per input channel, with K = window x filters x channels.

        Forward: X*K multiply-accumulates, and the additional work of :func:`kernel_cost` per output. Backward: X*K for
        dW, and another X*K for dx if needed. The forward pass is planned like dx of a convolution, and dx like the
        forward pass of a convolution.
        """
        x, y = batch * math.prod(input_shape), batch * math.prod(self.output_shape(input_shape))
        channels, filters, taps = input_shape[-1], self.filters, self._taps
        weights, positions = taps * channels * filters, x // channels
        products = KernelProducts(
            Convolution(positions, channels, filters, taps),
            weights=Product(taps * filters, positions, channels, shared_rows=taps),
            input_gradient=Convolution(positions, filters, channels, taps, math.prod(self.strides)),
        )
        elements = KernelElements(x, y, weights, filters * self.use_bias)
        return kernel_cost(products, elements, self.activation, itemsize, need_input_gradient)
