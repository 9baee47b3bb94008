"""The sum of two layers' outputs, where a skip connection ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Called, EarlierLayer
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class Add(Parameterless):
    """Adds the output of an earlier layer, of the same shape: a skip connection.

    It stands in a network as a layer does; the stage around it does the sum, as
    it alone has both values.
    """

    kind: ClassVar = "add"
    within: ClassVar = False

    source: Annotated[EarlierLayer, Called("from"), Doc("the earlier layer")]

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input."""
        return input_shape

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Raise ModelError: a sum of two values needs both."""
        raise ModelError(f"the sum with {self.source!r} is its stage's to make")

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Raise ModelError, as ``forward`` does."""
        raise ModelError(f"the sum with {self.source!r} is its stage's to make")

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return one sum for each element, forward of the values and backward of their gradients."""
        count = batch * math.prod(input_shape)
        work = Work(
            vector=VectorWork(count),
            sram_bytes=3 * count * itemsize,
            exchange_bytes=count * itemsize,
            itemsize=itemsize,
        )
        return LayerCost(work, work)
