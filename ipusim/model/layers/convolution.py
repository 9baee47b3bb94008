"""Two-dimensional convolution as a matrix product over the windows of the image (im2col)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activate, activation, pull_back
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import (
    Array,
    Halves,
    InHalves,
    InnerSizes,
    Key,
    LayerCost,
    Parameters,
    Rest,
    Saved,
    Shape,
    all_later,
    glorot_uniform,
)
from ipusim.model.layers.windows import Extents, Padding, Windows
from ipusim.model.work import Convolution, Product, VectorWork, Work


@dataclass(frozen=True)
class Conv2D(InHalves):
    """A convolution of images of height, width and channels.

    Names and defaults are those of Keras ``Conv2D``. Kernel ``W`` of shape (*kernel_size, channels,
    filters) starts Glorot uniform and bias ``b`` of shape (filters,) zero. As in every framework
    the kernel is not turned round: it is a correlation. Padding is what
    :mod:`ipusim.model.layers.windows` says.
    """

    kind: ClassVar = "conv2d"

    filters: Annotated[Axis, Doc("channels of the output")]
    kernel_size: Annotated[Extents, Doc("height and width of the kernel")]
    strides: Annotated[Extents, Doc("steps of the kernel, down and right")] = (1, 1)
    padding: Annotated[Padding, Doc("whether the image is padded for windows at its edges")] = "valid"
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for filters below 1, an unknown activation, or windows that cannot be."""
        if self.filters < 1:
            raise ModelError(f"a convolution needs at least 1 filter, got {self.filters}")
        activation(self.activation)
        _ = self._windows

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.kernel_size, self.strides, self.padding)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (windows down, windows right, filters); raises ModelError when no window fits."""
        return (*self._windows.field(input_shape), self.filters)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        kernel = (*self.kernel_size, input_shape[-1], self.filters)
        return {"W": kernel, "b": (self.filters,)} if self.use_bias else {"W": kernel}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform; ``b`` is zero."""
        parameters = {"W": glorot_uniform((*self.kernel_size, input_shape[-1], self.filters), rng, dtype)}
        if self.use_bias:
            parameters["b"] = np.zeros(self.filters, dtype)
        return parameters

    def _columns(self, x: Array) -> Array:
        """Return the windows of ``x`` as rows: (batch * windows, window * channels)."""
        places = list(self._windows.offsets(self._windows.pad(x), x.shape[1:]))
        return np.stack(places, axis=3).reshape(-1, len(places) * x.shape[-1])

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the images ``x`` (batch, height, width, channels) convolved, in the output's shape."""
        y = self._columns(x) @ parameters["W"].reshape(-1, self.filters)
        if self.use_bias:
            y += parameters["b"]
        y, kept = activate(self.activation, y.reshape(len(x), *self.output_shape(x.shape[1:])))
        return y, (x, kept)

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx as the windows' gradients added where they overlap, and x and the rows of g."""
        x, kept = saved
        rows = pull_back(self.activation, kept, grad).reshape(-1, self.filters)
        if not need_input_gradient:
            return None, (x, rows)
        field = grad.shape[:-1]
        columns = (rows @ parameters["W"].reshape(-1, self.filters).T).reshape(*field, -1, x.shape[-1])
        padded = np.zeros_like(self._windows.pad(x))
        for place, view in enumerate(self._windows.offsets(padded, x.shape[1:])):
            np.add(view, columns[..., place, :], out=view)
        return self._windows.crop(padded, x.shape[1:]), (x, rows)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return dW = windows.T @ g and db = sum of g."""
        x, rows = rest
        gradients = {"W": (self._columns(x).T @ rows).reshape(parameters["W"].shape)}
        if self.use_bias:
            gradients["b"] = rows.sum(axis=0)
        return gradients

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the windows side by side, as rows of a matrix."""
        *field, filters = self.output_shape(input_shape)
        kernel = self.parameter_shapes(input_shape)["W"]
        return InnerSizes(0, math.prod(field) * math.prod(kernel) // filters)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work, with Y outputs of K = window x channels products each.

        Forward: Y*K multiply-accumulates, a sum for the bias and the activation's work
        for each output, a compute set each. Backward: Y*K for dW, and again for dx where needed. Products
        with the padding count (PopLibs counts those within the image alone). Tiles read
        windows where they lie: im2col is this simulator's arithmetic, not the machine's.
        """
        x = batch * math.prod(input_shape)
        y = batch * math.prod(self.output_shape(input_shape))
        taps, channels = math.prod(self.kernel_size), input_shape[-1]
        weights, positions = taps * channels * self.filters, y // self.filters
        bias = self.filters if self.use_bias else 0
        rule = activation(self.activation)
        changes = rule.keeps != "nothing"
        forward = Work(
            products=(Convolution(positions, channels, self.filters, taps, math.prod(self.strides)),),
            vector=y * (rule.forward + VectorWork(int(self.use_bias))),
            sram_bytes=(x + weights + bias + y) * itemsize,
            itemsize=itemsize,
            compute_sets=self.use_bias + changes,
            convolution=True,
        )
        saved = x + (y if changes else 0)
        own, into = self._gradients(positions, channels)
        again = weights + x if need_input_gradient else 0
        backward = Work(
            products=(own, *((into,) if need_input_gradient else ())),
            vector=y * (rule.backward + VectorWork(reductions=int(self.use_bias))),
            sram_bytes=(y + saved + weights + bias + again) * itemsize,
            itemsize=itemsize,
            compute_sets=changes + 2 * self.use_bias,
            convolution=True,
        )
        apart = self._halves(x, y, channels, itemsize) if need_input_gradient else all_later(backward)
        return LayerCost(forward, backward, apart)

    def _gradients(self, positions: int, channels: int) -> tuple[Product, Convolution]:
        """Return what makes dW, whose rows of all taps take the same image, and what makes dx."""
        taps = math.prod(self.kernel_size)
        own = Product(taps * channels, positions, self.filters, shared=taps)
        return own, Convolution(positions, self.filters, channels, taps)

    def _halves(self, x: int, y: int, channels: int, itemsize: int) -> Halves:
        """Return the work of dx, and of dW and db; the first writes g where an activation changes it."""
        weights, rule = math.prod(self.kernel_size) * channels * self.filters, activation(self.activation)
        changes = rule.keeps != "nothing"
        slope = 2 * y if changes else 0
        own, into = self._gradients(y // self.filters, channels)
        first = Work(
            products=(into,),
            vector=y * rule.backward,
            sram_bytes=(y + slope + weights + x) * itemsize,
            itemsize=itemsize,
            compute_sets=int(changes),
            convolution=True,
        )
        second = Work(
            products=(own,),
            vector=VectorWork(reductions=y * self.use_bias),
            sram_bytes=(x + y + weights + (self.filters if self.use_bias else 0)) * itemsize,
            itemsize=itemsize,
            compute_sets=2 * self.use_bias,
            convolution=True,
        )
        return Halves(first, second)
