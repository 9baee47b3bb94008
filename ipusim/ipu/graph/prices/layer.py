"""Describe a layer of the simulator that was recognised among nodes of a traced pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ipusim.api import LayerCost, Shape, Work
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices.observed import Form


@dataclass(frozen=True)
class FoundLayer:
    """A layer among a forward pass's nodes.

    Attributes:
        name: name of the node that a pattern recognises first, such as the product.
        layer: simulator's layer or loss, including options.
        input_shape: shape of an input sample.
        batch: number of samples.
        itemsize: bytes per element.
        nodes: names of the forward nodes.
        weight: name of the node that reads the product's kernel; empty for layers without a kernel.
    """

    name: str
    layer: Any
    input_shape: Shape
    batch: int
    itemsize: int
    nodes: frozenset[str]
    weight: str = ""

    @classmethod
    def over(cls, node: Node, layer: Any, form: Form, names: Iterable[str] = ()) -> FoundLayer:
        """Return a layer over samples of a form, found at a node, with further nodes; a scalar is a sample."""
        shape = form.shape if len(form.shape) > 1 else (1, form.size)
        return cls(node.name, layer, shape[1:], shape[0], form.dtype.itemsize, frozenset((node.name, *names)))

    @property
    def forward(self) -> Work:
        """Work of the forward pass."""
        return self._cost(True).forward

    def backward(self, *, for_input: bool, for_weights: bool) -> Work:
        """Return the work of the backward pass.

        Args:
            for_input: whether the backward pass computes the input's gradient.
            for_weights: whether the backward pass computes the variables' gradients.
        """
        cost = self._cost(for_input)
        return cost.backward if for_weights or not for_input else cost.halves.input

    def _cost(self, need_input_gradient: bool) -> LayerCost:
        cost: LayerCost = self.layer.cost(self.input_shape, self.batch, self.itemsize, need_input_gradient)
        return cost
