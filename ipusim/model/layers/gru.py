"""Compute the gated recurrent unit, with gates in Keras' order: update, reset, candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc

from ipusim.base.errors import ModelError
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
class GRU(Recurrent):
    """A gated recurrent unit over the time steps of a sample.

    Cho et al.'s layer, computed like Keras 2 ``GRU``: z and r are the recurrent activation of x @ W + h @ U + b;
    h = z * h + (1 - z) * n. The candidate n is the activation of x @ W + r * (h @ U + b) with the reset gate after the
    product, and of x @ W + (r * h) @ U + b with the reset gate before. With the gate after, ``b`` has separate rows for
    x @ W and h @ U. Behind the end of a masked sequence, outputs and state are zero, as in PopLibs' ``gruFwd`` with
    ``realTimeSteps``.
    """

    kind: ClassVar = "gru"

    reset_after: Annotated[bool, Doc("whether the reset gate comes after the matrix product")] = True
    masked: Annotated[
        bool, Doc("whether the last element of a time step is a mask: 1 in the sequence, 0 after its end")
    ] = False
    gate_count: ClassVar[int] = 3
    saved_elements: ClassVar[int] = 5
    #: Whether a time step has an attention score after the input's elements.
    attended: ClassVar[bool] = False

    @property
    def _bias_shape(self) -> Shape:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    @property
    def extra_elements(self) -> int:
        """Number of a time step's elements after the input's elements: an attention score and a mask element."""
        return self.attended + self.masked

    def elements(self, input_shape: Shape) -> int:
        """Return the number of a time step's elements that the kernel multiplies."""
        return input_shape[-1] - self.extra_elements

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (time steps, units), or (units,) if the layer returns only the last output."""
        shape = super().output_shape(input_shape)
        if self.elements(input_shape) < 1:
            raise ModelError(
                f"expected time steps of more than {self.extra_elements} elements, because the last of them are no "
                f"input to the layer, got {input_shape[-1]}"
            )
        return shape

    def _parts(self, x: Array) -> tuple[Array, Array | None, Array | None]:
        """Return the input, the attention scores and the mask, with shapes (batch, time steps, ...)."""
        if not self.extra_elements:
            return x, None, None
        elements = self.elements(x.shape)
        score = x[..., elements : elements + 1] if self.attended else None
        return x[..., :elements], score, x[..., -1:] if self.masked else None

    def run(self, parameters: Parameters, x: Array, states: States | None = None) -> RecurrentPass:
        """Run over the time steps of ``x`` (batch, time steps, elements), from h in ``states`` or from zeros."""
        batch, steps, _ = x.shape
        elements, score, mask = self._parts(x)
        gates = elements @ parameters["W"]  # (batch, time steps, 3 * units)
        if self.use_bias:
            gates += parameters["b"][0] if self.reset_after else parameters["b"]
        (h,) = states or (zero_state(x, self.units),)
        outputs, reset_factor = (np.empty_like(x, shape=(batch, steps, self.units), order="C") for _ in range(2))
        for t in range(steps):
            z, r, n = self._split_gates(gates[:, t])
            reset_factor[:, t] = self._step(parameters, h, z, r, n)
            keep = z if score is None else (1 - score[:, t]) * z
            h = keep * h + (1 - keep) * n
            if mask is not None:
                h = h * mask[:, t]
            outputs[:, t] = h
        return RecurrentPass(outputs, (h,), (x, gates, outputs, reset_factor, states))

    def _step(self, parameters: Parameters, h: Array, z: Array, r: Array, n: Array) -> Array:
        """Turn x @ W of a step into the gates z, r and n, in place; return the factor that r multiplies."""
        U, candidate_start = parameters["U"], 2 * self.units
        if self.reset_after:
            recurrent = h @ U
            if self.use_bias:
                recurrent += parameters["b"][1]
            z += recurrent[:, : self.units]
            r += recurrent[:, self.units : candidate_start]
            reset_factor = recurrent[:, candidate_start:]
        else:
            z += h @ U[:, : self.units]
            r += h @ U[:, self.units : candidate_start]
            reset_factor = h
        for gate in (z, r):
            gate[...], _ = activate(self.recurrent_activation, gate)
        n += r * reset_factor if self.reset_after else (r * h) @ U[:, candidate_start:]
        n[...], _ = activate(self.activation, n)
        return reset_factor

    def go_back(
        self,
        parameters: Parameters,
        saved_values: Saved,
        grad: Array,
        dstates: States,
        need_input_gradient: bool = True,
    ) -> RecurrentGradients:
        """Run backward through the time steps; the rest contains the gradients of x @ W and h @ U."""
        x, gates, outputs, reset_factor, states = saved_values
        steps, candidate_start = x.shape[1], 2 * self.units
        elements, score, mask = self._parts(x)
        U = parameters["U"]
        dgates = np.empty_like(gates)  # gradient of x @ W
        drecurrent = np.empty_like(gates) if self.reset_after else dgates  # gradient of h @ U; differs only for n
        dextra = np.zeros_like(x, shape=(*x.shape[:2], self.extra_elements))
        (dh,) = dstates
        for t in reversed(range(steps)):
            z, r, n = self._split_gates(gates[:, t])
            previous_output = outputs[:, t - 1] if t else states[0] if states else zero_state(x, self.units)
            dh = dh + grad[:, t]
            keep = z if score is None else (1 - score[:, t]) * z
            if mask is not None:
                dextra[:, t, -1] = (dh * (keep * previous_output + (1 - keep) * n)).sum(axis=1)
                dh = dh * mask[:, t]
            dn = pull_back(self.activation, n, dh * (1 - keep))
            dkeep = dh * (previous_output - n)
            if score is not None:
                dextra[:, t, 0] = -(dkeep * z).sum(axis=1)
                dkeep = dkeep * (1 - score[:, t])
            dz = pull_back(self.recurrent_activation, z, dkeep)
            dh = dh * keep
            # Gradient of r * factor; the factor is the product with h, or h before the product.
            dreset = dn if self.reset_after else dn @ U[:, candidate_start:].T
            dr = pull_back(self.recurrent_activation, r, dreset * reset_factor[:, t])
            for target, part in zip(self._split_gates(dgates[:, t]), (dz, dr, dn), strict=True):
                target[...] = part
            if self.reset_after:
                for target, part in zip(self._split_gates(drecurrent[:, t]), (dz, dr, dn * r), strict=True):
                    target[...] = part
                dh = dh + drecurrent[:, t] @ U.T
            else:
                dh = dh + dgates[:, t, :candidate_start] @ U[:, :candidate_start].T + dreset * r
        resets = None if self.reset_after else gates[..., self.units : candidate_start]
        dx = dgates @ parameters["W"].T if need_input_gradient else None
        if dx is not None and self.extra_elements:
            dx = np.concatenate([dx, dextra], axis=-1)
        return RecurrentGradients(dx, (dh,), (elements, outputs, dgates, drecurrent, resets, states))

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of ``W``, ``U`` and ``b``: sums over the time steps, from the last to the first."""
        x, outputs, dgates, drecurrent, resets, states = rest_values
        candidate_start = 2 * self.units
        dU = np.zeros_like(parameters["U"])
        for t in reversed(range(x.shape[1])):
            previous_output = outputs[:, t - 1] if t else states[0] if states else zero_state(x, self.units)
            if resets is None:
                dU += previous_output.T @ drecurrent[:, t]
            else:
                dU[:, :candidate_start] += previous_output.T @ dgates[:, t, :candidate_start]
                dU[:, candidate_start:] += (resets[:, t] * previous_output).T @ np.ascontiguousarray(
                    dgates[:, t, candidate_start:]
                )
        gradients = {"W": kernel_gradient(x, dgates), "U": dU}
        if self.use_bias:
            bias = dgates.sum(axis=(0, 1))
            gradients["b"] = np.stack([bias, drecurrent.sum(axis=(0, 1))]) if self.reset_after else bias
        return gradients

    def unit_work(self) -> tuple[VectorWork, VectorWork]:
        """Return the vector work per unit and step, forward and backward.

        Forward: two gates, an activation, r times its factor, and z*h + (1 - z)*n. Backward: products with both
        operands of every product, the sums of dh, the sum per gate for ``b``, and two more sums. The reset gate counts
        the same before and after the product. An attention score adds a product forward, and two products and a sum
        over units backward. A mask adds a product in both passes, and backward the masked value again, with a product
        and a sum.
        """
        forward = VectorWork(5 + self.attended + self.masked)
        backward = VectorWork(8 + 2 * self.attended + 6 * self.masked, reductions=2 + self.extra_elements)
        return self._unit_work(recurrent_gates=2, activations=1, forward=forward, backward=backward)
