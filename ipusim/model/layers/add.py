"""Add two layers' outputs, at the end of a skip connection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_doc import Doc

from ipusim.model.layers.join import Join
from ipusim.model.layers.keys import EarlierLayer, ScenarioName
from ipusim.model.layers.layer import Array, LayerCost, Shape
from ipusim.model.work import VectorWork, work_of


@dataclass(frozen=True)
class Add(Join):
    """Adds the output of an earlier layer, of the same shape: a skip connection."""

    kind: ClassVar = "add"

    source: Annotated[EarlierLayer, ScenarioName("from"), Doc("the earlier layer")]
    source_shape: Shape | None = field(default=None, init=False, compare=False)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input; raises ModelError if the earlier output has another shape."""
        if self.skip_value.shape != input_shape:
            raise self._refusal(f"the shape {list(input_shape)}")
        return input_shape

    def combine(self, x: Array, value: Array) -> Array:
        """Return the sum."""
        return x + value

    def gradients(self, grad: Array) -> tuple[Array, Array]:
        """Return the gradient twice."""
        return grad, grad

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: an addition per element, of outputs forward and of gradients backward."""
        count = batch * math.prod(input_shape)
        work = work_of(itemsize, vector=VectorWork(count), accesses=3 * count, exchanged=count)
        return LayerCost(work, work)
