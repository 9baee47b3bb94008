"""Share the common parts of LSTM and GRU: parameters, initialisation, and cost over the time steps.

Names and defaults follow Graphcore's Keras layers ``PopnnLSTM`` and ``PopnnGRU`` (keras.ipu.layers), with sigmoid as
recurrent activation. A sample is (time steps, elements); states start at zero, or at the caller's values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ACTIVATIONS, activation
from ipusim.model.layers.keys import Axis, OneOf
from ipusim.model.layers.layer import (
    Array,
    Halves,
    InHalves,
    InnerSizes,
    Key,
    LayerCost,
    Parameters,
    Rest,
    Saved,
    Shape,
    all_later,
    glorot_uniform,
)
from ipusim.model.work import Product, VectorWork, in_one, work_of

#: Activations with a slope computable from the output, the only array kept by recurrent layers.
RECURRENT_ACTIVATIONS: Final = tuple(name for name, rule in ACTIVATIONS.items() if rule.saved_array != "input")
#: Compute sets of the vector work per time step.
_STEP_SETS: Final = 3
#: States of a micro-batch, shape (batch, units): h, and c for an LSTM.
States = tuple[Array, ...]
_ActivationName = Annotated[str, OneOf(RECURRENT_ACTIVATIONS)]


def orthogonal(shape: tuple[int, int], rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw a matrix with orthonormal rows, or columns if there are fewer columns, like Keras ``Orthogonal``.

    The result is Q of a Gaussian matrix's QR decomposition, with signs that make R's diagonal positive, drawn in double
    precision.
    """
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q = q * np.sign(np.diag(r))
    return (q if rows >= columns else q.T).astype(dtype, copy=False)


class RecurrentPass(NamedTuple):
    """Results of a pass over the time steps.

    Attributes:
        outputs: outputs of the steps, (batch, time steps, units).
        states: states after the last step.
        saved_values: saved data for the backward pass.
    """

    outputs: Array
    states: States
    saved_values: Saved


class RecurrentGradients(NamedTuple):
    """Results of the backward pass through the time steps.

    Attributes:
        dx: gradient of the input; None if not needed.
        dstates: gradients of the states before the first step.
        rest_values: data for the gradients of the parameters.
    """

    dx: Array | None
    dstates: States
    rest_values: Rest


@dataclass(frozen=True)
class Recurrent(InHalves):
    """A layer over time steps, with gates computed from the input and the layer's last output.

    For an LSTM, ``activation`` also applies to the output.
    """

    units: Annotated[Axis, Doc("elements of the output and of the state")]
    activation: Annotated[_ActivationName, Doc("function of the candidate state")] = "tanh"
    recurrent_activation: Annotated[_ActivationName, Doc("function of the gates")] = "sigmoid"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    return_sequences: Annotated[
        bool, Doc("whether the outputs of all time steps are returned, or only the last output")
    ] = False

    #: Number of gates: products with ``units`` columns per step.
    gate_count: ClassVar[int]
    #: Number of states passed to the next step.
    state_count: ClassVar[int] = 1
    #: Elements kept for the backward pass, per unit and step.
    saved_elements: ClassVar[int]

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1, or an activation whose slope is not a function of its output."""
        if self.units < 1:
            raise ModelError(f"a recurrent layer needs at least 1 unit, got {self.units}")
        for name in (self.activation, self.recurrent_activation):
            if name not in RECURRENT_ACTIVATIONS:
                raise ModelError(
                    f"expected one of {', '.join(RECURRENT_ACTIVATIONS)} in a recurrent layer, got {name!r}"
                )

    def run(self, parameters: Parameters, x: Array, states: States | None = None) -> RecurrentPass:
        """Run over the time steps of ``x`` (batch, time steps, elements), from ``states`` or from zeros."""
        raise NotImplementedError

    def go_back(
        self,
        parameters: Parameters,
        saved_values: Saved,
        grad: Array,
        dstates: States,
        need_input_gradient: bool = True,
    ) -> RecurrentGradients:
        """Go back through the time steps, given gradients of outputs and last states."""
        raise NotImplementedError

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Run over the time steps of ``x`` (batch, time steps, elements); return every output or the last."""
        outputs, states, saved_values = self.run(parameters, x)
        return (outputs if self.return_sequences else states[0]), saved_values

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, computed in reverse over time steps, and the gate gradients of the steps."""
        x = saved_values[0]
        zeros = tuple(zero_state(x, self.units) for _ in range(self.state_count))
        dx, _, rest_values = self.go_back(
            parameters, saved_values, self._all_steps(grad, x.shape[1]), zeros, need_input_gradient
        )
        return dx, rest_values

    def elements(self, input_shape: Shape) -> int:
        """Return the number of a time step's elements that the kernel multiplies."""
        return input_shape[-1]

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the size of gates and states over the time steps."""
        return InnerSizes(input_shape[0] * self.units * (self.gate_count + 3))

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (time steps, units), or (units,) if the layer returns only the last output."""
        if len(input_shape) != 2:
            raise ModelError(
                f"a recurrent layer needs an input of two axes, time steps and elements, got {len(input_shape)}"
            )
        return (input_shape[0], self.units) if self.return_sequences else (self.units,)

    @property
    def _bias_shape(self) -> Shape:
        return (self.gate_count * self.units,)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the kernel ``W``, the recurrent kernel ``U`` and, with a bias, ``b``."""
        columns = self.gate_count * self.units
        shapes: dict[str, Shape] = {"W": (self.elements(input_shape), columns), "U": (self.units, columns)}
        return shapes | {"b": self._bias_shape} if self.use_bias else shapes

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform and ``U`` orthogonal; ``b`` is zero."""
        columns = self.gate_count * self.units
        parameters = {
            "W": glorot_uniform((self.elements(input_shape), columns), rng, dtype),
            "U": orthogonal((self.units, columns), rng, dtype),
        }
        if self.use_bias:
            parameters["b"] = np.zeros(self._bias_shape, dtype)
        return parameters

    def _split_gates(self, gates: Array) -> list[Array]:
        """Return views of the gates of a time step, in order."""
        return [gates[:, n * self.units : (n + 1) * self.units] for n in range(self.gate_count)]

    def _all_steps(self, grad: Array, time_steps: int) -> Array:
        """Return the gradient of every step's output; if only the last output is returned, others are zero."""
        if self.return_sequences:
            return grad
        all_gradients = np.zeros_like(grad, shape=(len(grad), time_steps, self.units))
        all_gradients[:, -1] = grad
        return all_gradients

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work over the time steps.

        With R = batch x time steps, E elements, U units and G gates: R*(E + U)*G*U multiply-accumulates forward.
        Backward: the same for the kernels, R*U*G*U for the states, and, if needed, R*E*G*U for dx. A time step consists
        of products and three compute sets for gates, state and output, similar to PopLibs' fused cells (assumed), and
        reads the recurrent kernel again. Kernel gradients are products over the whole sequence.
        """
        unit_work, saved_elements = self.unit_work(), self.saved_elements
        steps, elements = input_shape[0], self.elements(input_shape)
        rows, columns = batch * steps, self.gate_count * self.units
        x, y, gates = rows * input_shape[1], rows * self.units, rows * columns
        result_elements = y if self.return_sequences else batch * self.units
        kernel, recurrent = elements * columns, self.units * columns
        bias = math.prod(self._bias_shape) if self.use_bias else 0
        forward = work_of(
            itemsize,
            products=(Product(batch, elements, columns, times=steps), Product(batch, self.units, columns, times=steps)),
            vector=y * unit_work[0],
            accesses=x + kernel + bias + steps * recurrent + y * saved_elements,
            compute_sets=_STEP_SETS * steps,
        )
        states, input_product = Product(batch, columns, self.units, times=steps), Product(rows, columns, elements)
        weight_products = Product(self.units, rows, columns), Product(elements, rows, columns)
        sums = VectorWork(reductions=unit_work[1].reductions)
        first = work_of(
            itemsize,
            products=(states, input_product),
            vector=y * (unit_work[1] - sums),
            accesses=result_elements + x + y * saved_elements + 2 * gates + steps * recurrent + kernel,
            compute_sets=_STEP_SETS * steps,
        )
        second = work_of(
            itemsize,
            products=weight_products,
            vector=y * sums,
            accesses=x + y + gates + kernel + recurrent + bias,
            compute_sets=2 * self.use_bias,
        )
        input_elements = x + kernel if need_input_gradient else 0
        products = (states, *weight_products, input_product) if need_input_gradient else (states, *weight_products)
        backward = in_one(first, second, products, first.sram_bytes + (recurrent + bias + input_elements) * itemsize)
        return LayerCost(forward, backward, Halves(first, second) if need_input_gradient else all_later(backward))

    def unit_work(self) -> tuple[VectorWork, VectorWork]:
        """Return the vector work per unit and step, forward and backward."""
        raise NotImplementedError

    def _unit_work(
        self, recurrent_gates: int, activations: int, forward: VectorWork, backward: VectorWork
    ) -> tuple[VectorWork, VectorWork]:
        """Return the work per unit and step, forward and backward, completed by common operations.

        Forward: the activations, and for each gate a sum of both products, and a sum with the bias if there is one.
        Backward: the activations, and a sum over samples for each gate. ``forward`` and ``backward`` are the rest.
        """
        gate, unit = activation(self.recurrent_activation), activation(self.activation)
        sums = VectorWork(self.gate_count * (1 + self.use_bias))
        return (
            recurrent_gates * gate.forward + activations * unit.forward + sums + forward,
            recurrent_gates * gate.backward
            + activations * unit.backward
            + VectorWork(reductions=self.gate_count)
            + backward,
        )


def zero_state(x: Array, units: int) -> Array:
    """Return the state before the first time step of ``x`` (batch, time steps, elements)."""
    return np.zeros_like(x, shape=(len(x), units))


def kernel_gradient(x: Array, gates: Array) -> Array:
    """Return dW from the gradients of x @ W, (batch, time steps, gates * units)."""
    return x.reshape(-1, x.shape[-1]).T @ gates.reshape(-1, gates.shape[-1])
