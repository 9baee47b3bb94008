"""The core's recurrent layers with the tensors that Graphcore's operations take: time first, one kernel, states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.recurrent import Recurrent

#: The place in Graphcore's kernel of each of the core's gates (popnn/LstmDef.hpp, popnn/GruDef.hpp).
_PLACES: Final[dict[type[Recurrent], tuple[int, ...]]] = {LSTM: (1, 0, 2, 3), GRU: (1, 0, 2)}


@dataclass(frozen=True)
class RecurrentOperation:
    """A recurrent layer of the core on (x, kernel, biases, scores, lengths, states).

    x is (time steps, batch, elements), the kernel (elements + units, gates * units), biases (gates, units), or
    (gates, 2, units) where each product has its own. Scores are (batch, time steps) and lengths (batch,), where the
    layer has them, and each state (batch, units), where it is given. Results are the outputs of all time steps and
    the states after the last.

    Attributes:
        layer: with sequences returned.
        given: whether states are.
        partials_itemsize: bytes of the products' partial sums.
    """

    layer: LSTM | GRU
    given: bool
    partials_itemsize: int = 4

    @property
    def _places(self) -> tuple[int, ...]:
        return next(places for kind, places in _PLACES.items() if isinstance(self.layer, kind))

    @property
    def _beside(self) -> int:
        return self.layer.beside if isinstance(self.layer, GRU) else 0

    @property
    def _attended(self) -> bool:
        return isinstance(self.layer, GRU) and self.layer.attended

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return outputs (time steps, batch, units) and states (batch, units)."""
        x = self._joined(arrays)
        parameters = self._unpacked(arrays[0].shape[-1], *arrays[1:3])
        outputs, states, saved = self.layer.run(parameters, x, arrays[3 + self._beside :] if self.given else None)
        return (outputs.transpose(1, 0, 2), *states), (parameters, saved, arrays[0].shape[-1], arrays[2].shape)

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradients of what is wanted; those of lengths are never."""
        parameters, inner, elements, biases = saved
        grad, dstates = np.ascontiguousarray(grads[0].transpose(1, 0, 2)), tuple(grads[1:])
        needs_x = bool({0, 3} & set(wanted)) if self._attended else 0 in wanted
        dx, dbefore, rest = self.layer.go_back(parameters, inner, grad, dstates, needs_x)
        found: dict[int, Any] = {}
        if dx is not None:
            found[0] = dx[..., :elements].transpose(1, 0, 2)
            if self._attended:
                found[3] = dx[..., elements]
        if {1, 2} & set(wanted):
            found[1], found[2] = self._packed(self.layer.backward_weights(parameters, rest), biases)
        found |= {3 + self._beside + place: each for place, each in enumerate(dbefore)}
        return [found[place] for place in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the layer's own work."""
        steps, batch, elements = arrays[0].shape
        need = 0 in wanted or (self._attended and 3 in wanted)
        found = self.layer.cost((steps, elements + self._beside), batch, arrays[0].dtype.itemsize, need)
        return LayerCost(found.forward, found.backward).with_partials(self.partials_itemsize)

    def _joined(self, arrays: Sequence[Array]) -> Array:
        """Return the input as the layer takes it: the batch first, with scores and the mask behind the elements."""
        x = arrays[0].transpose(1, 0, 2)
        parts = [x]
        if self._attended:
            parts.append(arrays[3][..., None].astype(x.dtype))
        if isinstance(self.layer, GRU) and self.layer.masked:
            mask = np.arange(x.shape[1]) < arrays[2 + self._beside][:, None]
            parts.append(mask[..., None].astype(x.dtype))
        return np.concatenate(parts, axis=-1)

    def _unpacked(self, elements: int, kernel: Array, biases: Array) -> dict[str, Array]:
        """Return the core's parameters."""
        order, units = list(self._places), self.layer.units
        columns = kernel.reshape(len(kernel), len(order), units)[:, order].reshape(kernel.shape)
        own = biases[order]
        bias = own.reshape(-1) if biases.ndim == 2 else own.transpose(1, 0, 2).reshape(2, -1)
        return {"W": columns[:elements], "U": columns[elements:], "b": bias}

    def _packed(self, gradients: dict[str, Array], biases: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the gradients of kernel and biases."""
        order, units = list(np.argsort(self._places)), self.layer.units
        columns = np.concatenate([gradients["W"], gradients["U"]])
        kernel = columns.reshape(len(columns), len(order), units)[:, order].reshape(columns.shape)
        bias = gradients["b"]
        parts = bias.reshape(-1, units) if len(biases) == 2 else bias.reshape(2, -1, units).transpose(1, 0, 2)
        return kernel, parts[order]
