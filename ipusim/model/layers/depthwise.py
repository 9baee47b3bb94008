"""Define Keras' depthwise convolution: a convolution with a group per input channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activation
from ipusim.model.layers.convolution import OfImages
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Shape
from ipusim.model.layers.windows import Extents, Padding


@dataclass(frozen=True)
class DepthwiseConv2D(OfImages):
    """A convolution of images, separate per channel, with ``depth_multiplier`` output channels per input channel.

    Names and defaults follow Keras ``DepthwiseConv2D``. Kernel ``W`` of shape (*kernel_size, channels,
    depth_multiplier) starts Glorot uniform, bias ``b`` of shape (channels * depth_multiplier,) zero. Arithmetic and
    cost equal ``conv2d`` with a group per channel.
    """

    kind: ClassVar = "depthwise_conv2d"

    kernel_size: Annotated[Extents, Doc("height and width of the kernel")]
    strides: Annotated[Extents, Doc("steps of the kernel, down and right")] = (1, 1)
    padding: Annotated[Padding, Doc("whether the image is padded for windows at its edges")] = "valid"
    depth_multiplier: Annotated[Axis, Doc("channels of the output for each channel of the input")] = 1
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for a multiplier below 1, an unknown activation, or impossible windows."""
        if self.depth_multiplier < 1:
            raise ModelError(f"a depthwise convolution needs a multiplier of at least 1, got {self.depth_multiplier}")
        activation(self.activation)
        _ = self._windows

    def _grouping(self, channels: int) -> tuple[int, int]:
        return channels, self.depth_multiplier

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        shapes = super().parameter_shapes(input_shape)
        return shapes | {"W": (*self.kernel_size, input_shape[-1], self.depth_multiplier)}
