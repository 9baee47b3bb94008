"""Layers of the core as operations on arrays: the input, then the layer's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.api import Array, LayerCost


@dataclass(frozen=True)
class LayerOperation:
    """A layer on (x, *parameters).

    Attributes:
        layer: the layer.
        names: names of its parameters.
    """

    layer: Any
    names: tuple[str, ...]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
        """Return the output."""
        parameters = dict(zip(self.names, arrays[1:], strict=True))
        y, saved = self.layer.forward(parameters, arrays[0])
        return (y,), (parameters, saved)

    def backward(self, saved: Any, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients of the arguments ``argnums``."""
        parameters, inner = saved
        grad_x, gradients = self.layer.backward(parameters, inner, grads[0], 0 in argnums)
        every = [grad_x, *(gradients[name] for name in self.names)]
        return [every[number] for number in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the layer's own cost."""
        x = arrays[0]
        cost: LayerCost = self.layer.cost(x.shape[1:], len(x), x.dtype.itemsize, 0 in argnums)
        if any(number in argnums for number in range(1, len(arrays))):
            return cost
        return LayerCost(cost.forward, cost.halves.input)
