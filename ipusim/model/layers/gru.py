"""The gated recurrent unit, in Keras' order of the gates: update, reset, candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.model.layers.activations import activate, pull_back
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.recurrent import Recurrent, kernel_gradient, zero_state
from ipusim.model.work import VectorWork


@dataclass(frozen=True)
class GRU(Recurrent):
    """A gated recurrent unit over the time steps of a sample.

    Cho et al.'s layer, as Keras 2 ``GRU`` computes it: z and r are the recurrent activation of x @
    W + h @ U + b; h = z * h + (1 - z) * n, where the candidate n is the activation of x @ W + r *
    (h @ U + b) when the reset gate comes after the product, and of x @ W + (r * h) @ U + b when
    before. After it, ``b`` has a row for x @ W and one for h @ U.
    """

    kind: ClassVar = "gru"

    reset_after: Annotated[bool, Doc("whether the reset gate comes after the matrix product")] = True
    gates: ClassVar[int] = 3

    @property
    def _bias_shape(self) -> Shape:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Run over the time steps of ``x`` (batch, time steps, elements); return all outputs or the last."""
        batch, steps, _ = x.shape
        gates = x @ parameters["W"]  # (batch, time steps, 3 * units)
        if self.use_bias:
            gates += parameters["b"][0] if self.reset_after else parameters["b"]
        h = zero_state(x, self.units)
        outputs, inner = (np.empty_like(x, shape=(batch, steps, self.units), order="C") for _ in range(2))
        for t in range(steps):
            z, r, n = self._split(gates[:, t])
            inner[:, t] = self._step(parameters, h, z, r, n)
            h = z * h + (1 - z) * n
            outputs[:, t] = h
        return (outputs if self.return_sequences else h), (x, gates, outputs, inner)

    def _step(self, parameters: Parameters, h: Array, z: Array, r: Array, n: Array) -> Array:
        """Turn x @ W of one step into the gates, in place; return what the reset gate is multiplied with."""
        U, wide = parameters["U"], 2 * self.units
        if self.reset_after:
            recurrent = h @ U
            if self.use_bias:
                recurrent += parameters["b"][1]
            z += recurrent[:, : self.units]
            r += recurrent[:, self.units : wide]
            inner = recurrent[:, wide:]
        else:
            z += h @ U[:, : self.units]
            r += h @ U[:, self.units : wide]
            inner = h
        for gate in (z, r):
            gate[...], _ = activate(self.recurrent_activation, gate)
        n += r * inner if self.reset_after else (r * h) @ U[:, wide:]
        n[...], _ = activate(self.activation, n)
        return inner

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx through the time steps in reverse, and the gradients of x @ W and h @ U of all steps."""
        x, gates, outputs, inner = saved
        steps, wide = x.shape[1], 2 * self.units
        U = parameters["U"]
        given = self._all_steps(grad, steps)
        dgates = np.empty_like(gates)  # of x @ W
        drecurrent = np.empty_like(gates) if self.reset_after else dgates  # of h @ U; only the candidate's differ
        dh = zero_state(x, self.units)
        for t in reversed(range(steps)):
            z, r, n = self._split(gates[:, t])
            before = outputs[:, t - 1] if t else zero_state(x, self.units)
            dh = dh + given[:, t]
            dn = pull_back(self.activation, n, dh * (1 - z))
            dz = pull_back(self.recurrent_activation, z, dh * (before - n))
            dh = dh * z
            # What r is multiplied with: the product with h, or h before the product.
            dreset = dn if self.reset_after else dn @ U[:, wide:].T
            dr = pull_back(self.recurrent_activation, r, dreset * inner[:, t])
            for target, part in zip(self._split(dgates[:, t]), (dz, dr, dn), strict=True):
                target[...] = part
            if self.reset_after:
                for target, part in zip(self._split(drecurrent[:, t]), (dz, dr, dn * r), strict=True):
                    target[...] = part
                dh = dh + drecurrent[:, t] @ U.T
            else:
                dh = dh + dgates[:, t, :wide] @ U[:, :wide].T + dreset * r
        resets = None if self.reset_after else gates[..., self.units : wide]
        return (dgates @ parameters["W"].T if need_input_gradient else None), (x, outputs, dgates, drecurrent, resets)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return the sums over the time steps, from the last one."""
        x, outputs, dgates, drecurrent, resets = rest
        wide = 2 * self.units
        dU = np.zeros_like(parameters["U"])
        for t in reversed(range(x.shape[1])):
            before = outputs[:, t - 1] if t else zero_state(x, self.units)
            if resets is None:
                dU += before.T @ drecurrent[:, t]
            else:
                dU[:, :wide] += before.T @ dgates[:, t, :wide]
                dU[:, wide:] += (resets[:, t] * before).T @ np.ascontiguousarray(dgates[:, t, wide:])
        gradients = {"W": kernel_gradient(x, dgates), "U": dU}
        if self.use_bias:
            bias = dgates.sum(axis=(0, 1))
            gradients["b"] = np.stack([bias, drecurrent.sum(axis=(0, 1))]) if self.reset_after else bias
        return gradients

    def _split(self, gates: Array) -> list[Array]:
        """Return views of the gates z, r and n of one time step."""
        return [gates[:, n * self.units : (n + 1) * self.units] for n in range(self.gates)]

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work (see :class:`ipusim.model.layers.recurrent.Recurrent`).

        For each unit and step: two gates, one activation, r times its factor, and
        z*h + (1 - z)*n; backward the products with each of their operands, the sum for
        ``b`` of each gate, those of dh, and two more biases' with the reset gate after.
        """
        back = VectorWork(8, reductions=2)
        unit = self._unit_work(recurrent_gates=2, activations=1, forward=VectorWork(5), backward=back)
        return self._cost(input_shape, batch, itemsize, need_input_gradient, unit, kept=5)
