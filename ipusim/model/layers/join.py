"""Where a skip connection ends: a layer that takes what an earlier layer makes beside its own input."""

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
class Taken:
    """The value of a skip connection: an earlier layer's output, or the middle of an image that it is.

    The middle is taken where the image is made, so that no more travels.

    Attributes:
        source: the earlier layer.
        output_shape: shape of a sample of its output.
        crop: height and width of the middle; None for all.
    """

    source: str
    output_shape: Shape
    crop: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """What tells it from other values; that of all of an output is the layer's."""
        return self.source if self.crop is None else "{}/{}x{}".format(self.source, *self.crop)

    @property
    def shape(self) -> Shape:
        """Shape of a sample of it."""
        return self.output_shape if self.crop is None else (*self.crop, *self.output_shape[2:])

    def of(self, output: Array) -> Array:
        """Return it, of the layer's output (batch, ...)."""
        return output if self.crop is None else output[self._middle(self.crop)].copy()

    def gradient(self, grad: Array) -> Array:
        """Return the gradient of the layer's output for its own: zero around the middle."""
        if self.crop is None:
            return grad
        whole = np.zeros_like(grad, order="C", shape=(len(grad), *self.output_shape))
        whole[self._middle(self.crop)] = grad
        return whole

    def _middle(self, crop: Sequence[int]) -> tuple[slice, ...]:
        starts = [(size - part) // 2 for size, part in zip(self.output_shape, crop, strict=False)]
        return (slice(None), *(slice(start, start + part) for start, part in zip(starts, crop, strict=True)))


class Join(Parameterless, ABC):
    """A layer that takes the output of an earlier layer beside its input.

    It stands in a network as a layer does; the network tells it the shape of the earlier output, and the stage around
    it joins both values, as it alone has them.

    Attributes:
        source: the earlier layer.
        beside: shape of a sample of its output; None until a network says it.
    """

    within: ClassVar = False

    source: str
    beside: Shape | None

    def with_beside(self, shape: Shape) -> Self:
        """Return the layer that knows the shape of the earlier output."""
        known = copy(self)
        object.__setattr__(known, "beside", shape)
        return known

    @property
    def taken(self) -> Taken:
        """What it takes of the earlier output; raises ModelError before a network has said that shape."""
        if self.beside is None:
            raise ModelError(f"the output of {self.source!r} beside the input is its network's to know")
        return Taken(self.source, self.beside)

    @abstractmethod
    def joined(self, x: Array, taken: Array) -> Array:
        """Return what the input ``x`` and the value that is taken make."""

    @abstractmethod
    def gradients(self, grad: Array) -> tuple[Array, Array]:
        """Return the gradients of the input and of the value that is taken."""

    def _refused(self, requirement: str) -> ModelError:
        """Return the error of an earlier output of another shape."""
        got = f"got the output of {self.source} with {list(self.beside or ())}"
        return ModelError(f"expected an earlier layer with an output of {requirement}, {got}")

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Raise ModelError: it takes two values."""
        raise ModelError(f"to join {self.source!r} is its stage's to do")

    def input_gradient(self, saved: Saved, grad: Array) -> Array:
        """Raise ModelError, as ``forward`` does."""
        raise ModelError(f"to join {self.source!r} is its stage's to do")
