"""What LSTM and GRU have in common: parameters, their start, and what a pass over all time steps costs.

Names and defaults are those of Graphcore's Keras layers ``PopnnLSTM`` and ``PopnnGRU``
(keras.ipu.layers), which take sigmoid as the recurrent activation. A sample is
(time steps, elements); states start at zero, or as the layer's caller says.
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

#: The activations whose slope follows from their value, which is all that a recurrent layer keeps.
RECURRENT_ACTIVATIONS: Final = tuple(name for name, rule in ACTIVATIONS.items() if rule.keeps != "input")
#: Compute sets of the vector work of a time step.
_STEP_SETS: Final = 3
#: The states of a micro-batch, each (batch, units): h, and of an LSTM c.
States = tuple[Array, ...]
_ActivationName = Annotated[str, OneOf(RECURRENT_ACTIVATIONS)]


def orthogonal(shape: tuple[int, int], rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw a matrix with orthonormal rows or columns, whichever are fewer, as Keras ``Orthogonal`` does.

    The Q of a Gaussian matrix's QR decomposition, with the sign that makes R's diagonal
    positive. Drawn in double precision.
    """
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q = q * np.sign(np.diag(r))
    return (q if rows >= columns else q.T).astype(dtype, copy=False)


class Ran(NamedTuple):
    """The results of a pass over all time steps.

    Attributes:
        outputs: of all steps, (batch, time steps, units).
        states: after the last step.
        saved: what the way back needs.
    """

    outputs: Array
    states: States
    saved: Saved


class WentBack(NamedTuple):
    """The results of going back through all time steps.

    Attributes:
        dx: the gradient of the input; None where it is not needed.
        dstates: the gradients of the states before the first step.
        rest: what the gradients of the parameters need.
    """

    dx: Array | None
    dstates: States
    rest: Rest


@dataclass(frozen=True)
class Recurrent(InHalves):
    """A layer over time steps whose gates are products with the input and with its own last output.

    The activation is that of an LSTM's output, too.
    """

    units: Annotated[Axis, Doc("elements of the output and of the state")]
    activation: Annotated[_ActivationName, Doc("function of the candidate state")] = "tanh"
    recurrent_activation: Annotated[_ActivationName, Doc("function of the gates")] = "sigmoid"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    return_sequences: Annotated[
        bool, Doc("whether the outputs of all time steps are returned, or only the last output")
    ] = False

    #: Products of ``units`` columns in each step.
    gates: ClassVar[int]
    #: States that a step hands to the next.
    states: ClassVar[int] = 1
    #: Elements of each unit and step that stay for the backward pass.
    saved_elements: ClassVar[int]

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1 or an activation whose slope does not follow from its value."""
        if self.units < 1:
            raise ModelError(f"a recurrent layer needs at least 1 unit, got {self.units}")
        for name in (self.activation, self.recurrent_activation):
            if name not in RECURRENT_ACTIVATIONS:
                raise ModelError(
                    f"expected one of {', '.join(RECURRENT_ACTIVATIONS)} in a recurrent layer, got {name!r}"
                )

    def run(self, parameters: Parameters, x: Array, states: States | None = None) -> Ran:
        """Run over the time steps of ``x`` (batch, time steps, elements), from ``states`` or from zeros."""
        raise NotImplementedError

    def go_back(
        self, parameters: Parameters, saved: Saved, grad: Array, dstates: States, need_input_gradient: bool = True
    ) -> WentBack:
        """Go back through the time steps, from the gradients of the outputs of all and of the last states."""
        raise NotImplementedError

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Run over the time steps of ``x`` (batch, time steps, elements); return all outputs or the last."""
        outputs, states, saved = self.run(parameters, x)
        return (outputs if self.return_sequences else states[0]), saved

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx through the time steps in reverse, and the gradients of the gates of all steps."""
        x = saved[0]
        none = tuple(zero_state(x, self.units) for _ in range(self.states))
        dx, _, rest = self.go_back(parameters, saved, self._all_steps(grad, x.shape[1]), none, need_input_gradient)
        return dx, rest

    def elements(self, input_shape: Shape) -> int:
        """Return the elements of a time step that are multiplied with the kernel."""
        return input_shape[-1]

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the gates and states of all time steps."""
        return InnerSizes(input_shape[0] * self.units * (self.gates + 3))

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (time steps, units), or (units,) for the last step alone."""
        if len(input_shape) != 2:
            raise ModelError(
                f"a recurrent layer needs an input of two axes, time steps and elements, got {len(input_shape)}"
            )
        return (input_shape[0], self.units) if self.return_sequences else (self.units,)

    @property
    def _bias_shape(self) -> Shape:
        return (self.gates * self.units,)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the kernel ``W``, the recurrent kernel ``U`` and, with a bias, ``b``."""
        columns = self.gates * self.units
        shapes: dict[str, Shape] = {"W": (self.elements(input_shape), columns), "U": (self.units, columns)}
        return shapes | {"b": self._bias_shape} if self.use_bias else shapes

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform and ``U`` orthogonal; ``b`` is zero."""
        columns = self.gates * self.units
        parameters = {
            "W": glorot_uniform((self.elements(input_shape), columns), rng, dtype),
            "U": orthogonal((self.units, columns), rng, dtype),
        }
        if self.use_bias:
            parameters["b"] = np.zeros(self._bias_shape, dtype)
        return parameters

    def _split(self, gates: Array) -> list[Array]:
        """Return views of the gates of one time step, in order."""
        return [gates[:, n * self.units : (n + 1) * self.units] for n in range(self.gates)]

    def _all_steps(self, grad: Array, time_steps: int) -> Array:
        """Return the gradient of every time step's output, which is zero but for the last without sequences."""
        if self.return_sequences:
            return grad
        whole = np.zeros_like(grad, shape=(len(grad), time_steps, self.units))
        whole[:, -1] = grad
        return whole

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of all time steps.

        With R = batch x time steps, E elements, U units and G gates: R*(E + U)*G*U
        multiply-accumulates forward; backward as many for the kernels, R*U*G*U for the
        states, and R*E*G*U for dx where needed. Each time step is products and three compute sets of its own, gates,
        state and output, as PopLibs' fused cells have about as many (assumed), and reads the recurrent kernel anew. The
        gradients of the kernels are products over all time steps at once.
        """
        unit_work, saved = self.unit_work(), self.saved_elements
        steps, elements = input_shape[0], self.elements(input_shape)
        rows, columns = batch * steps, self.gates * self.units
        x, y, gates = rows * input_shape[1], rows * self.units, rows * columns
        returned = y if self.return_sequences else batch * self.units
        kernel, recurrent = elements * columns, self.units * columns
        bias = math.prod(self._bias_shape) if self.use_bias else 0
        forward = work_of(
            itemsize,
            products=(Product(batch, elements, columns, times=steps), Product(batch, self.units, columns, times=steps)),
            vector=y * unit_work[0],
            touched=x + kernel + bias + steps * recurrent + y * saved,
            compute_sets=_STEP_SETS * steps,
        )
        states, into = Product(batch, columns, self.units, times=steps), Product(rows, columns, elements)
        own = Product(self.units, rows, columns), Product(elements, rows, columns)
        sums = VectorWork(reductions=unit_work[1].reductions)
        first = work_of(
            itemsize,
            products=(states, into),
            vector=y * (unit_work[1] - sums),
            touched=returned + x + y * saved + 2 * gates + steps * recurrent + kernel,
            compute_sets=_STEP_SETS * steps,
        )
        second = work_of(
            itemsize,
            products=own,
            vector=y * sums,
            touched=x + y + gates + kernel + recurrent + bias,
            compute_sets=2 * self.use_bias,
        )
        for_input = x + kernel if need_input_gradient else 0
        products = (states, *own, into) if need_input_gradient else (states, *own)
        backward = in_one(first, second, products, first.sram_bytes + (recurrent + bias + for_input) * itemsize)
        return LayerCost(forward, backward, Halves(first, second) if need_input_gradient else all_later(backward))

    def unit_work(self) -> tuple[VectorWork, VectorWork]:
        """Return the vector work of one unit and step, forward and backward."""
        raise NotImplementedError

    def _unit_work(
        self, recurrent_gates: int, activations: int, forward: VectorWork, backward: VectorWork
    ) -> tuple[VectorWork, VectorWork]:
        """Return the work of one unit and step: activations, two sums for each gate, and the others."""
        gate, own = activation(self.recurrent_activation), activation(self.activation)
        sums = VectorWork(self.gates * (1 + self.use_bias))
        return (
            recurrent_gates * gate.forward + activations * own.forward + sums + forward,
            recurrent_gates * gate.backward + activations * own.backward + VectorWork(reductions=self.gates) + backward,
        )


def zero_state(x: Array, units: int) -> Array:
    """Return the state before the first time step of ``x`` (batch, time steps, elements)."""
    return np.zeros_like(x, shape=(len(x), units))


def kernel_gradient(x: Array, gates: Array) -> Array:
    """Return dW from the gradients of x @ W, (batch, time steps, gates * units)."""
    return x.reshape(-1, x.shape[-1]).T @ gates.reshape(-1, gates.shape[-1])
