"""Keep only the first positions of a sequence, for subsequent layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.work import Work, work_of


@dataclass(frozen=True)
class TakePositions(Parameterless):
    """Keeps the first positions of each sample.

    In pre-training, BERT's loss covers only masked tokens, for example 20 of 128, and only these tokens need the
    projection onto the vocabulary. If data have masked tokens first, like Graphcore's, this layer before the projection
    selects them, and ``masked_softmax_cross_entropy`` selects their labels.
    """

    kind: ClassVar = "take_positions"

    count: Annotated[Axis, Doc("number of positions kept, from the first, on the first axis of a sample")]

    def __post_init__(self) -> None:
        """Raise ModelError for zero positions."""
        if self.count < 1:
            raise ModelError(f"expected at least 1 position to take, got {self.count}")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (count, ...); raises ModelError for samples with fewer positions."""
        if not input_shape or input_shape[0] < self.count:
            raise ModelError(f"expected samples of at least {self.count} positions to take, got shape {input_shape}")
        return (self.count, *input_shape[1:])

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the first positions of ``x`` (batch, positions, ...), as a copy so that the others can be released."""
        return x[:, : self.count].copy(), x.shape

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return ``grad`` at the first positions, zero elsewhere."""
        dx = np.zeros_like(grad, shape=saved_values)
        dx[:, : self.count] = grad
        return dx

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the cost: the selected positions are read, exchanged between tiles and written.

        Backward, their gradient is read and exchanged, and the whole input gradient is written.
        """
        x, y = batch * math.prod(input_shape), batch * math.prod(self.output_shape(input_shape))
        forward = work_of(itemsize, accesses=2 * y, exchanged=y)
        backward = work_of(itemsize, accesses=y + x, exchanged=y)
        return LayerCost(forward, backward if need_input_gradient else Work(itemsize=itemsize))
