"""Convolution as matrix products over the windows of images or sequences (im2col), a product for each group.

A sequence is an image of one row, so that both kinds run the same arithmetic and cost the same work.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import Activation, ActivationName, activate, activation, pull_back
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
from ipusim.model.layers.windows import Extent, Extents, Padding, Windows
from ipusim.model.work import Convolution, Product, VectorWork, Work

_GROUPS = Doc(
    "parts that channels and filters are divided into, each part of the filters made of its own part of the "
    "channels; as many as there are channels: a depthwise convolution"
)


class _Convolution(InHalves, ABC):
    """What the kinds share: all but how many axes there are."""

    filters: int
    padding: Padding
    activation: str
    use_bias: bool
    groups: int

    @property
    @abstractmethod
    def _windows(self) -> Windows:
        """The windows over images."""

    @abstractmethod
    def _image(self, input_shape: Shape) -> Shape:
        """Return the input's shape as that of an image; raises ModelError where it is none."""

    @abstractmethod
    def _kernel(self) -> Shape:
        """Return the axes of the kernel."""

    def __post_init__(self) -> None:
        """Raise ModelError for filters or groups below 1, an unknown activation, or windows that cannot be."""
        if self.filters < 1:
            raise ModelError(f"a convolution needs at least 1 filter, got {self.filters}")
        if self.groups < 1 or self.filters % self.groups:
            raise ModelError(f"expected a number of groups that divides the {self.filters} filters, got {self.groups}")
        activation(self.activation)
        _ = self._windows

    def _field(self, input_shape: Shape) -> Shape:
        """Return how many windows there are along each axis; raises ModelError when none fits."""
        image = self._image(input_shape)
        field = self._windows.field(image)
        if image[-1] % self.groups:
            raise ModelError(f"expected a number of groups that divides the {image[-1]} channels, got {self.groups}")
        return field[-len(self._kernel()) :]

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the windows along each axis, and the filters; raises ModelError when no window fits."""
        return (*self._field(input_shape), self.filters)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        kernel = (*self._kernel(), input_shape[-1] // self.groups, self.filters)
        return {"W": kernel, "b": (self.filters,)} if self.use_bias else {"W": kernel}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform; ``b`` is zero."""
        parameters = {"W": glorot_uniform(self.parameter_shapes(input_shape)["W"], rng, dtype)}
        if self.use_bias:
            parameters["b"] = np.zeros(self.filters, dtype)
        return parameters

    def _joined(self, groups: Array) -> Array:
        """Return results (groups, rows, filters of a group) as (rows, filters)."""
        return groups.transpose(1, 0, 2).reshape(groups.shape[1], -1)

    def _kernels(self, W: Array) -> Array:
        """Return ``W`` as a matrix for each group: (groups, window x channels, filters)."""
        return W.reshape(-1, self.groups, self.filters // self.groups).transpose(1, 0, 2)

    def _columns(self, image: Array) -> Array:
        """Return the windows as rows of each group: (groups, batch x windows, window x channels)."""
        places = list(self._windows.offsets(self._windows.pad(image), image.shape[1:]))
        channels = image.shape[-1] // self.groups
        stacked = np.stack(places, axis=3).reshape(-1, len(places), self.groups, channels)
        return stacked.transpose(2, 0, 1, 3).reshape(self.groups, len(stacked), -1)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ..., channels) convolved, in the output's shape."""
        columns = self._columns(x.reshape(len(x), *self._image(x.shape[1:])))
        y = self._joined(columns @ self._kernels(parameters["W"]))
        if self.use_bias:
            y += parameters["b"]
        y, activated = activate(self.activation, y.reshape(len(x), *self.output_shape(x.shape[1:])))
        return y, (x, activated)

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx as the windows' gradients added where they overlap, and x and the rows of g."""
        x, activated = saved
        rows = pull_back(self.activation, activated, grad).reshape(-1, self.filters)
        if not need_input_gradient:
            return None, (x, rows)
        shape = self._image(x.shape[1:])
        columns = self._rows(rows) @ self._kernels(parameters["W"]).swapaxes(1, 2)
        windows = columns.reshape(self.groups, len(rows), -1, shape[-1] // self.groups).transpose(1, 2, 0, 3)
        columns = windows.reshape(len(x), *self._windows.field(shape), -1, shape[-1])
        padded = np.zeros_like(self._windows.pad(x.reshape(len(x), *shape)))
        for offset, view in enumerate(self._windows.offsets(padded, shape)):
            np.add(view, columns[..., offset, :], out=view)
        return self._windows.crop(padded, shape).reshape(x.shape), (x, rows)

    def _rows(self, rows: Array) -> Array:
        """Return g (rows, filters) as (groups, rows, filters of a group)."""
        return rows.reshape(len(rows), self.groups, -1).transpose(1, 0, 2)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return dW = windows.T @ g and db = sum of g."""
        x, rows = rest
        columns = self._columns(x.reshape(len(x), *self._image(x.shape[1:])))
        kernels = columns.swapaxes(1, 2) @ self._rows(rows)
        gradients = {"W": self._joined(kernels).reshape(parameters["W"].shape)}
        if self.use_bias:
            gradients["b"] = rows.sum(axis=0)
        return gradients

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the windows side by side, as rows of a matrix."""
        return InnerSizes(0, math.prod((*self._field(input_shape), *self._kernel(), input_shape[-1])))

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work, with Y outputs of K = window x channels of a group products each.

        Forward: Y*K multiply-accumulates, a sum for the bias and the activation's work
        for each output, a compute set each. Backward: Y*K for dW, and again for dx where needed. Products
        with the padding count (PopLibs counts those within the image alone). Tiles read
        windows where they lie: im2col is this simulator's arithmetic, not the machine's.
        """
        x = batch * math.prod(input_shape)
        y = batch * math.prod(self.output_shape(input_shape))
        taps, channels, filters = math.prod(self._kernel()), input_shape[-1] // self.groups, self.filters // self.groups
        weights, positions = taps * channels * self.filters, y // self.filters
        bias = self.filters if self.use_bias else 0
        rule = activation(self.activation)
        changes = rule.keeps != "nothing"
        stride = math.prod(self._windows.strides)
        product = Convolution(positions, channels, filters, taps, stride, self.groups)
        forward = forward_work(product, x, y, weights, bias, rule, itemsize)
        saved = x + (y if changes else 0)
        own, into = self._gradients(positions, channels)
        reread = weights + x if need_input_gradient else 0
        backward = Work(
            products=(own, *((into,) if need_input_gradient else ())),
            vector=y * (rule.backward + VectorWork(reductions=int(self.use_bias))),
            sram_bytes=(y + saved + weights + bias + reread) * itemsize,
            itemsize=itemsize,
            compute_sets=changes + 2 * self.use_bias,
            convolution=True,
        )
        halves = backward_halves(own, into, x, y, weights, bias, rule, itemsize)
        return LayerCost(forward, backward, halves if need_input_gradient else all_later(backward))

    def _gradients(self, positions: int, channels: int) -> tuple[Product, Convolution]:
        """Return what makes dW, whose rows of all taps take the same image, and what makes dx.

        ``channels`` are those of a group.
        """
        taps, filters = math.prod(self._kernel()), self.filters // self.groups
        own = Product(taps * channels, positions, filters, self.groups, shared=taps)
        return own, Convolution(positions, filters, channels, taps, groups=self.groups)


def forward_work(
    product: Convolution, x: int, y: int, weights: int, bias: int, rule: Activation, itemsize: int
) -> Work:
    """Return the forward work of a convolution, or of a transposed one: its product, bias and activation.

    Args:
        product: that makes the outputs.
        x, y, weights, bias: elements of inputs, outputs, kernel and bias; no bias is 0.
        rule: of the activation.
        itemsize: bytes of an element.
    """
    return Work(
        products=(product,),
        vector=y * (rule.forward + VectorWork(int(bias > 0))),
        sram_bytes=(x + weights + bias + y) * itemsize,
        itemsize=itemsize,
        compute_sets=(bias > 0) + (rule.keeps != "nothing"),
        convolution=True,
    )


def backward_halves(
    own: Product, into: Convolution, x: int, y: int, weights: int, bias: int, rule: Activation, itemsize: int
) -> Halves:
    """Return the work of dx, and of dW and db; the first writes g where an activation changes it.

    Args:
        own, into: the products that make dW and dx.
        x, y, weights, bias, rule, itemsize: as of :func:`forward_work`.
    """
    changes = rule.keeps != "nothing"
    slope = 2 * y if changes else 0
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
        vector=VectorWork(reductions=y * (bias > 0)),
        sram_bytes=(x + y + weights + bias) * itemsize,
        itemsize=itemsize,
        compute_sets=2 * (bias > 0),
        convolution=True,
    )
    return Halves(first, second)


@dataclass(frozen=True)
class Conv2D(_Convolution):
    """A convolution of images of height, width and channels.

    Names and defaults are those of Keras ``Conv2D``. Kernel ``W`` of shape (*kernel_size, channels of a
    group, filters) starts Glorot uniform and bias ``b`` of shape (filters,) zero. As in every framework
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
    groups: Annotated[Axis, _GROUPS] = 1

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.kernel_size, self.strides, self.padding)

    def _image(self, input_shape: Shape) -> Shape:
        return input_shape

    def _kernel(self) -> Shape:
        return self.kernel_size


@dataclass(frozen=True)
class Conv1D(_Convolution):
    """A convolution of sequences of steps and channels.

    Names and defaults are those of Keras ``Conv1D``. Kernel ``W`` of shape (kernel_size, channels of a
    group, filters) starts Glorot uniform and bias ``b`` of shape (filters,) zero. All else is as in ``conv2d``.
    """

    kind: ClassVar = "conv1d"

    filters: Annotated[Axis, Doc("channels of the output")]
    kernel_size: Annotated[Extent, Doc("steps that the kernel extends over")]
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

    def _kernel(self) -> Shape:
        return (self.kernel_size,)
