"""A depthwise convolution as Keras has it: a convolution in as many groups as its input has channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activation
from ipusim.model.layers.convolution import Conv2D
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import (
    Array,
    InHalves,
    InnerSizes,
    Key,
    LayerCost,
    Parameters,
    Rest,
    Saved,
    Shape,
    glorot_uniform,
)
from ipusim.model.layers.windows import Extents, Padding, Windows


@dataclass(frozen=True)
class DepthwiseConv2D(InHalves):
    """A convolution of images that makes several channels of each channel by itself.

    Names and defaults are those of Keras ``DepthwiseConv2D``. Kernel ``W`` of shape (*kernel_size, channels,
    depth_multiplier) starts Glorot uniform and bias ``b`` of shape (channels * depth_multiplier,) zero. It runs and
    costs as ``conv2d`` in as many groups as there are channels.
    """

    kind: ClassVar = "depthwise_conv2d"

    kernel_size: Annotated[Extents, Doc("height and width of the kernel")]
    strides: Annotated[Extents, Doc("steps of the kernel, down and right")] = (1, 1)
    padding: Annotated[Padding, Doc("whether the image is padded for windows at its edges")] = "valid"
    depth_multiplier: Annotated[Axis, Doc("channels of the output for each channel of the input")] = 1
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for a multiplier below 1, an unknown activation, or windows that cannot be."""
        if self.depth_multiplier < 1:
            raise ModelError(f"a depthwise convolution needs a multiplier from 1, got {self.depth_multiplier}")
        activation(self.activation)
        Windows(self.kernel_size, self.strides, self.padding)

    def _of(self, input_shape: Shape) -> Conv2D:
        """Return the convolution in groups that it is; raises ModelError for an input that is no image."""
        if len(input_shape) != 3:
            raise ModelError(f"expected images of height, width and channels, got an input of shape {input_shape}")
        channels = input_shape[-1]
        filters = channels * self.depth_multiplier
        return Conv2D(
            filters, self.kernel_size, self.strides, self.padding, self.activation, self.use_bias, groups=channels
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the windows along each axis, and the channels; raises ModelError when no window fits."""
        return self._of(input_shape).output_shape(input_shape)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        of = self._of(input_shape).parameter_shapes(input_shape)
        return of | {"W": (*self.kernel_size, input_shape[-1], self.depth_multiplier)}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform; ``b`` is zero."""
        shapes = self.parameter_shapes(input_shape)
        parameters = {"W": glorot_uniform(shapes["W"], rng, dtype)}
        return parameters | {"b": np.zeros(shapes["b"], dtype)} if self.use_bias else parameters

    def _grouped(self, parameters: Parameters) -> dict[str, Array]:
        """Return the parameters as the convolution in groups has them, whose filters are in the same order."""
        kernel = parameters["W"]
        return {**parameters, "W": kernel.reshape(*kernel.shape[:2], 1, -1)}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, height, width, channels) convolved, in the output's shape."""
        return self._of(x.shape[1:]).forward(self._grouped(parameters), x, key)

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, and what the gradients of the parameters are made of."""
        of = self._of(saved[0].shape[1:])
        return of.backward_input(self._grouped(parameters), saved, grad, need_input_gradient)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return dW and db."""
        x: Any = rest[0]
        gradients = self._of(x.shape[1:]).backward_weights(self._grouped(parameters), rest)
        return gradients | {"W": gradients["W"].reshape(parameters["W"].shape)}

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the windows side by side, as rows of a matrix."""
        return self._of(input_shape).inner_sizes(input_shape)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of the convolution in groups."""
        return self._of(input_shape).cost(input_shape, batch, itemsize, need_input_gradient)
