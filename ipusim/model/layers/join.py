"""Define the end of a skip connection: a layer with an earlier layer's output as second input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array, Key, Parameterless, Parameters, Saved, Shape


@dataclass(frozen=True)
class SkipValue:
    """Value of a skip connection: an earlier layer's output, or the middle of an output image.

    The middle is cut out at the source, which reduces traffic.

    Attributes:
        source: the earlier layer.
        output_shape: shape of a sample of the earlier output.
        crop: height and width of the middle; None for the whole output.
    """

    source: str
    output_shape: Shape
    crop: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Unique name of the value; for a whole output, the layer's name."""
        return self.source if self.crop is None else "{}/{}x{}".format(self.source, *self.crop)

    @property
    def shape(self) -> Shape:
        """Shape of a sample of the value."""
        return self.output_shape if self.crop is None else (*self.crop, *self.output_shape[2:])

    def take(self, output: Array) -> Array:
        """Return the value, given the layer's output (batch, ...)."""
        return output if self.crop is None else output[self._middle(self.crop)].copy()

    def gradient(self, grad: Array) -> Array:
        """Return the gradient of the layer's output from the value's gradient: zero around the middle."""
        if self.crop is None:
            return grad
        output_grad = np.zeros_like(grad, order="C", shape=(len(grad), *self.output_shape))
        output_grad[self._middle(self.crop)] = grad
        return output_grad

    def _middle(self, crop: Sequence[int]) -> tuple[slice, ...]:
        starts = [(size - part) // 2 for size, part in zip(self.output_shape, crop, strict=False)]
        return (slice(None), *(slice(start, start + part) for start, part in zip(starts, crop, strict=True)))


class Join(Parameterless, ABC):
    """A layer that joins the output of an earlier layer with its input.

    The layer is part of a network like any other. The network provides the shape of the earlier output. The stage joins
    both values, since only the stage holds both.

    Attributes:
        source: the earlier layer.
        source_shape: shape of a sample of the earlier output; None until a network provides the shape.
    """

    #: Whether the layer may be inside another layer, such as a residual block.
    may_be_inner: ClassVar = False

    source: str
    source_shape: Shape | None

    def with_source_shape(self, shape: Shape) -> Self:
        """Return the layer with the shape of the earlier output."""
        layer = copy(self)
        object.__setattr__(layer, "source_shape", shape)
        return layer

    @property
    def skip_value(self) -> SkipValue:
        """Used part of the earlier output; raises ModelError before a network has provided the shape."""
        if self.source_shape is None:
            raise ModelError(f"only a network provides the output of {self.source!r}: add the layer to a network")
        return SkipValue(self.source, self.source_shape)

    @abstractmethod
    def combine(self, x: Array, value: Array) -> Array:
        """Return the result for the input ``x`` and the taken value."""

    @abstractmethod
    def gradients(self, grad: Array) -> tuple[Array, Array]:
        """Return the gradients of the input and of the taken value."""

    def _refusal(self, requirement: str) -> ModelError:
        """Return the error for an earlier output that lacks ``requirement``, such as ``the shape [4, 4, 8]``."""
        actual = f"got the output of {self.source} with {list(self.source_shape or ())}"
        return ModelError(f"expected an earlier layer with an output of {requirement}, {actual}")

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Raise ModelError: the layer needs two values."""
        raise ModelError(f"only a stage joins the output of {self.source!r} with its input: run the layer in a stage")

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Raise ModelError, like ``forward``."""
        raise ModelError(f"only a stage joins the output of {self.source!r} with its input: run the layer in a stage")
