"""Scale channels by factors (gates) that a small network computes from the channels' means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers import chain
from ipusim.model.layers.activations import ActivationName
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, InHalves, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.network import NamedLayer
from ipusim.model.layers.parallel import Branch
from ipusim.model.work import VectorWork, Work, work_of


@dataclass(frozen=True)
class SqueezeExcite(InHalves):
    """Multiplies each channel of a sample by a gate from 0 to 1, which two dense layers make of the channels' means.

    The gates are sigmoid(expand(activation(reduce(means)))) ("Squeeze-and-Excitation Networks", arXiv 1709.01507), as
    in EfficientNets. Channels are the last axis, positions all others. The dense layers are ``reduce``, with ``units``
    outputs, and ``expand``, with an output for each channel; their parameters are named like ``reduce/W``.
    """

    kind: ClassVar = "squeeze_excite"

    units: Annotated[Axis, Doc("outputs of the first dense layer, fewer than channels")]
    activation: Annotated[ActivationName, Doc("function of each of these outputs")] = "relu"

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1, or an unknown activation."""
        self._dense_layers(1)

    def _dense_layers(self, channels: int) -> Branch:
        """Return the dense layers."""
        reduce, expand = Dense(self.units, self.activation), Dense(channels, "sigmoid")
        return Branch((NamedLayer("reduce", reduce), NamedLayer("expand", expand)))

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape; raises ModelError for an input without positions."""
        if len(input_shape) < 2:
            raise ModelError(f"expected an input of positions and channels, got {len(input_shape)} axes")
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the dense layers' parameters."""
        return self._dense_layers(input_shape[-1]).parameter_shapes(input_shape[-1:])

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the dense layers' parameters."""
        return self._dense_layers(input_shape[-1]).initial_parameters(input_shape[-1:], rng, dtype)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ..., channels) times the gates of its sample."""
        gates, saved_values = self._dense_layers(x.shape[-1]).forward(parameters, x.mean(axis=_positions(x)))
        return x * _at_positions(gates, x), (x, gates, saved_values)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx = g * gates + dmeans / number of positions, and the rest of the dense layers.

        The gradient of the gates is the sum of g * x.
        """
        x, gates, dense_saved = saved_values
        axes = _positions(x)
        mean_gradients, rest_values = self._dense_layers(x.shape[-1]).backward_input(
            parameters, dense_saved, (grad * x).sum(axis=axes), need_input_gradient
        )
        if mean_gradients is None:
            return None, rest_values
        dx = grad * _at_positions(gates, x)
        dx += _at_positions(mean_gradients / math.prod(x.shape[1:-1]), x)
        return dx, rest_values

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the dense layers' parameters."""
        return self._dense_layers(len(parameters["reduce/W"])).backward_weights(parameters, rest_values)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of the dense layers and, with N elements in C channels of all samples, of means and gates.

        Forward: N elements go into means, which are scaled, and N products with gates. Backward: N products and N sums
        for the gates; for dx, C quotients, N products and N sums. A sum over tiles takes two compute sets, every other
        operation takes one. Elements travel to the tiles of their sums. Gates, and gradients of means, travel to the
        tiles of the elements.
        """
        elements, channels = batch * math.prod(input_shape), batch * input_shape[-1]
        means = work_of(
            itemsize,
            vector=VectorWork(channels, reductions=elements),
            accesses=elements + channels,
            exchanged=elements,
            compute_sets=2 + 1,
        )
        scaling = work_of(
            itemsize, vector=VectorWork(elements), accesses=2 * elements + channels, exchanged=channels, compute_sets=1
        )
        gate_gradients = work_of(
            itemsize,
            vector=VectorWork(elements, reductions=elements),
            accesses=2 * elements + channels,
            exchanged=elements,
            compute_sets=1 + 2,
        )
        input_work = work_of(
            itemsize,
            vector=VectorWork(2 * elements, quotients=channels),
            accesses=2 * elements + 2 * channels,
            exchanged=2 * channels,
            compute_sets=1 + 2,
        )
        dense = self._dense_layers(input_shape[-1]).cost(input_shape[-1:], batch, itemsize, need_input_gradient)
        costs = (LayerCost(means, input_work if need_input_gradient else Work(itemsize=itemsize)), dense)
        return chain.cost_in_turn((*costs, LayerCost(scaling, gate_gradients)), itemsize, need_input_gradient)


def _positions(x: Array) -> tuple[int, ...]:
    """Return the axes of ``x`` between the samples and the channels."""
    return tuple(range(1, x.ndim - 1))


def _at_positions(values: Array, x: Array) -> Array:
    """Return ``values`` (batch, channels) with an axis of one for each position axis of ``x``."""
    return values.reshape(len(x), *(1 for _ in _positions(x)), x.shape[-1])
