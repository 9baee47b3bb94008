"""Compute long short-term memory, with gates in Keras' order: input, forget, candidate, output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.model.layers.activations import activate, pull_back
from ipusim.model.layers.layer import Array, Parameters, Rest, Saved, Shape
from ipusim.model.layers.recurrent import (
    Recurrent,
    RecurrentGradients,
    RecurrentPass,
    States,
    kernel_gradient,
    zero_state,
)
from ipusim.model.work import VectorWork


@dataclass(frozen=True)
class LSTM(Recurrent):
    """Long short-term memory over the time steps of a sample.

    Hochreiter and Schmidhuber's layer, computed like Keras ``LSTM``: i, f, g, o = x @ W + h @ U + b; c = f * c + i * g;
    h = o * activation(c), with the recurrent activation on i, f and o and the activation on g. The forget gate's bias
    starts at one after Jozefowicz et al. 2015, the default in Keras.
    """

    kind: ClassVar = "lstm"

    unit_forget_bias: Annotated[bool, Doc("whether the forget gate's bias starts at one")] = True
    gate_count: ClassVar[int] = 4
    state_count: ClassVar[int] = 2
    saved_elements: ClassVar[int] = 7

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform and ``U`` orthogonal; ``b`` is zero, or one for the forget gate."""
        parameters = super().initial_parameters(input_shape, rng, dtype)
        if self.use_bias and self.unit_forget_bias:
            parameters["b"][self.units : 2 * self.units] = 1
        return parameters

    def run(self, parameters: Parameters, x: Array, states: States | None = None) -> RecurrentPass:
        """Run over the time steps of ``x`` (batch, time steps, elements), from h and c in ``states`` or from zeros."""
        batch, steps, _ = x.shape
        U = parameters["U"]
        gates = x @ parameters["W"]  # (batch, time steps, 4 * units)
        if self.use_bias:
            gates += parameters["b"]
        h, c = states or (zero_state(x, self.units), zero_state(x, self.units))
        outputs, cells, active_cells = (np.empty_like(x, shape=(batch, steps, self.units), order="C") for _ in range(3))
        for t in range(steps):
            gates[:, t] += h @ U
            i, f, g, o = self._split_gates(gates[:, t])
            for gate in (i, f, o):
                gate[...], _ = activate(self.recurrent_activation, gate)
            g[...], _ = activate(self.activation, g)
            c = f * c + i * g
            cells[:, t] = c
            active_cells[:, t], _ = activate(self.activation, c, may_overwrite=False)
            h = o * active_cells[:, t]
            outputs[:, t] = h
        return RecurrentPass(outputs, (h, c), (x, gates, outputs, cells, active_cells, states))

    def go_back(
        self,
        parameters: Parameters,
        saved_values: Saved,
        grad: Array,
        dstates: States,
        need_input_gradient: bool = True,
    ) -> RecurrentGradients:
        """Run backward through the time steps; the rest contains the gradients of the gates."""
        x, gates, outputs, cells, active_cells, states = saved_values
        steps = x.shape[1]
        U = parameters["U"]
        dgates = np.empty_like(gates)
        dh, dc = dstates
        for t in reversed(range(steps)):
            i, f, g, o = self._split_gates(gates[:, t])
            previous_cell = cells[:, t - 1] if t else states[1] if states else zero_state(x, self.units)
            dh = dh + grad[:, t]
            dc = dc + pull_back(self.activation, active_cells[:, t], dh * o)
            parts = self._split_gates(dgates[:, t])
            parts[0][...] = pull_back(self.recurrent_activation, i, dc * g)
            parts[1][...] = pull_back(self.recurrent_activation, f, dc * previous_cell)
            parts[2][...] = pull_back(self.activation, g, dc * i)
            parts[3][...] = pull_back(self.recurrent_activation, o, dh * active_cells[:, t])
            dh = dgates[:, t] @ U.T
            dc = dc * f
        dx = dgates @ parameters["W"].T if need_input_gradient else None
        return RecurrentGradients(dx, (dh, dc), (x, outputs, dgates, states))

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of ``W``, ``U`` and ``b``: sums over the time steps, from the last to the first."""
        x, outputs, dgates, states = rest_values
        dU = np.zeros_like(parameters["U"])
        for t in reversed(range(1, x.shape[1])):
            dU += outputs[:, t - 1].T @ dgates[:, t]
        if states:
            dU += states[0].T @ dgates[:, 0]
        gradients = {"W": kernel_gradient(x, dgates), "U": dU}
        if self.use_bias:
            gradients["b"] = dgates.sum(axis=(0, 1))
        return gradients

    def unit_work(self) -> tuple[VectorWork, VectorWork]:
        """Return the vector work per unit and step, forward and backward.

        Forward: three gates, two activations, f*c + i*g, and o times the activation of the cell. Backward: products
        with both operands of every product, the sums of dc and dh, and the sum per gate for ``b``.
        """
        return self._unit_work(recurrent_gates=3, activations=2, forward=VectorWork(4), backward=VectorWork(8))
