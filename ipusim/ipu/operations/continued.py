"""The core's recurrent layers from states that are given, and with those after the last time step, in Keras' form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.layers.lstm import LSTM


@dataclass(frozen=True)
class ContinuedRecurrence:
    """A recurrent layer of the core on (x, parameters, states).

    x is (batch, time steps, elements), each state (batch, units). Results are the outputs of all time steps, or of the
    last, and the states behind it.

    Attributes:
        layer: what runs, whose ``return_sequences`` says which outputs.
        names: of the parameters.
        partials_itemsize: bytes of the products' partial sums.
    """

    layer: LSTM | GRU
    names: tuple[str, ...]
    partials_itemsize: int = 4

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return outputs (batch, time steps, units) or (batch, units), and states (batch, units)."""
        first = 1 + len(self.names)
        parameters = dict(zip(self.names, arrays[1:first], strict=True))
        outputs, states, saved = self.layer.run(parameters, arrays[0], arrays[first:])
        given = outputs if self.layer.return_sequences else outputs[:, -1]
        return (given, *states), (parameters, saved, outputs.shape)

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradients of what is wanted."""
        parameters, inner, shape = saved
        grad = grads[0]
        if not self.layer.return_sequences:
            grad = np.zeros_like(grads[0], shape=shape)
            grad[:, -1] = grads[0]
        dx, dbefore, rest = self.layer.go_back(parameters, inner, grad, tuple(grads[1:]), 0 in wanted)
        own = self.layer.backward_weights(parameters, rest)
        found: list[Any] = [dx, *(own[name] for name in self.names), *dbefore]
        return [found[place] for place in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the layer's own work."""
        batch, *shape = arrays[0].shape
        cost = self.layer.cost(tuple(shape), batch, arrays[0].dtype.itemsize, 0 in wanted)
        return cost.with_partials(self.partials_itemsize)
