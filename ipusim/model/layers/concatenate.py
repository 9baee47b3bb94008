"""Concatenate two layers' outputs, at the end of a skip connection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.join import Join, SkipValue
from ipusim.model.layers.keys import Axis, EarlierLayer, ScenarioName
from ipusim.model.layers.layer import Array, LayerCost, Shape
from ipusim.model.work import Work, work_of


@dataclass(frozen=True)
class Concatenate(Join):
    """Puts the output of an earlier layer after the input, along the last axis: a skip connection.

    Images of the earlier output that are larger than the input can be cropped to their middle, as in a U-Net.
    """

    kind: ClassVar = "concatenate"

    source: Annotated[EarlierLayer, ScenarioName("from"), Doc("the earlier layer")]
    crop: Annotated[
        tuple[Axis, Axis] | None,
        Doc("height and width of the center crop of the earlier layer's images; default: the whole images"),
    ] = None
    source_shape: Shape | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ModelError unless ``crop`` is a height and a width of at least 1."""
        if self.crop is not None and (len(self.crop) != 2 or min(self.crop) < 1):
            raise ModelError(f"expected a crop to a height and a width of at least 1, got {self.crop}")

    @property
    def skip_value(self) -> SkipValue:
        """Earlier output, cropped if requested; raises ModelError if it is not an image, or smaller than the crop."""
        value = super().skip_value
        if self.crop is None:
            return value
        if len(value.shape) != 3 or any(part > size for part, size in zip(self.crop, value.shape, strict=False)):
            raise self._refusal(f"at least {list(self.crop)} in height and width")
        return replace(value, crop=self.crop)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the joined shape; raises ModelError for different leading axes."""
        taken_shape = self.skip_value.shape
        if not input_shape or taken_shape[:-1] != input_shape[:-1] or not taken_shape:
            raise self._refusal(f"the axes {list(input_shape[:-1])} before the last axis")
        return (*input_shape[:-1], input_shape[-1] + taken_shape[-1])

    def combine(self, x: Array, value: Array) -> Array:
        """Return the concatenation, input first."""
        return np.concatenate([x, value], axis=-1)

    def gradients(self, grad: Array) -> tuple[Array, Array]:
        """Return the gradients of both operands: copies of the two parts of ``grad``."""
        width = grad.shape[-1] - self.skip_value.shape[-1]
        return grad[..., :width].copy(), grad[..., width:].copy()

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: a read and a write per element of the result, in each pass."""
        work = joining(batch * math.prod(self.output_shape(input_shape)), itemsize)
        return LayerCost(work, work)


def joining(elements: int, itemsize: int) -> Work:
    """Return the work of concatenating values with ``elements`` elements in total, or of splitting them."""
    return work_of(itemsize, accesses=2 * elements)
