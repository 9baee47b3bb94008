"""A layer of the simulator that nodes of a traced pass make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.api import LayerCost, Shape, Work


@dataclass(frozen=True)
class Found:
    """A layer among the nodes of a forward pass.

    Attributes:
        name: name of its characteristic node.
        layer: a layer or loss of the simulator, with this layer's options.
        input_shape: shape of a sample that it takes.
        batch: number of samples.
        itemsize: bytes of an element.
        nodes: names of the nodes that it stands for.
        weight: name of the node that hands it the kernel of a product; empty for a layer without one.
    """

    name: str
    layer: Any
    input_shape: Shape
    batch: int
    itemsize: int
    nodes: frozenset[str]
    weight: str = ""

    @property
    def forward(self) -> Work:
        """The work of its forward pass."""
        return self._cost(True).forward

    def backward(self, *, into: bool, own: bool) -> Work:
        """Return the work of its backward pass.

        Args:
            into: whether the gradient of its input is computed.
            own: whether those of its variables are.
        """
        cost = self._cost(into)
        return cost.backward if own or not into else cost.halves.input

    def _cost(self, need_input_gradient: bool) -> LayerCost:
        cost: LayerCost = self.layer.cost(self.input_shape, self.batch, self.itemsize, need_input_gradient)
        return cost
