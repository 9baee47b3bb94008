"""The plain layers, in NumPy: forward and backward stand side by side, because simulated IPUs execute both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Len

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activate, activation, pull_back
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import (
    Array,
    Halves,
    InHalves,
    Key,
    LayerCost,
    Parameterless,
    Parameters,
    Rest,
    Saved,
    Shape,
    View,
    all_later,
    glorot_uniform,
)
from ipusim.model.layers.products import add_product
from ipusim.model.layers.serialized_matmul import Dimension, SerializedMatmul
from ipusim.model.work import Product, VectorWork, Work


@dataclass(frozen=True)
class Flatten(View):
    """Joins all axes of a sample into one.

    It moves nothing: on tiles as in NumPy it is a change of view.
    """

    kind: ClassVar = "flatten"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return one axis of as many elements."""
        return (math.prod(input_shape),)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) as (batch, elements)."""
        return x.reshape(len(x), -1), x.shape

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return ``grad`` in the input's shape."""
        return (grad.reshape(saved) if need_input_gradient else None), {}


@dataclass(frozen=True)
class Reshape(View):
    """Sees a sample in another shape, of as many elements in the same order.

    Names are those of Keras ``Reshape``. Like ``flatten`` it moves nothing.
    """

    kind: ClassVar = "reshape"

    target_shape: Annotated[tuple[Axis, ...], Len(1, 4), Doc("the axes of a sample then")]

    def __post_init__(self) -> None:
        """Raise ModelError for no axes, or one below 1."""
        if not self.target_shape or min(self.target_shape) < 1:
            raise ModelError(f"expected a shape of sizes from 1 upwards, got {self.target_shape}")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the new shape; raises ModelError when the input has another number of elements."""
        if math.prod(input_shape) != math.prod(self.target_shape):
            raise ModelError(
                f"expected a shape of the input's {math.prod(input_shape)} elements, got {self.target_shape} of "
                f"{math.prod(self.target_shape)}"
            )
        return self.target_shape

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) as (batch, *target_shape)."""
        return x.reshape(len(x), *self.target_shape), x.shape

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return ``grad`` in the input's shape."""
        return (grad.reshape(saved) if need_input_gradient else None), {}


@dataclass(frozen=True)
class Dense(InHalves):
    """A fully connected layer: activation(x @ W + b).

    It takes the last axis of x. Kernel ``W`` of shape (inputs, units) starts Glorot uniform and bias ``b`` of
    shape (units,) zero, the defaults of Keras ``Dense``. The products are split as
    :mod:`ipusim.model.layers.serialized_matmul` says, where a is x as rows of its last axis.
    """

    kind: ClassVar = "dense"

    units: Annotated[Axis, Doc("outputs of the layer")]
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    serialization_factor: Annotated[
        Axis, Doc("parts that the matrix products are split into, to take less memory at a time")
    ] = 1
    serialization_dimension: Annotated[
        Dimension, Doc("what the parts split: the rows of x, the sums over its columns, or the units")
    ] = "a_columns"

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1, an unknown activation, or parts that cannot be."""
        if self.units < 1:
            raise ModelError(f"a dense layer needs at least 1 unit, got {self.units}")
        activation(self.activation)
        _ = self._matmul

    @cached_property
    def _matmul(self) -> SerializedMatmul:
        return SerializedMatmul(self.serialization_factor, self.serialization_dimension)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with ``units`` as its last axis.

        Raises ModelError for a scalar, or units or inputs that the serialization
        factor does not divide.
        """
        if not input_shape:
            raise ModelError("a dense layer needs an input of at least one axis, got a scalar for each sample")
        if self.serialization_dimension != "a_columns":  # those hold the batch: see cost and forward
            self._matmul.check(0, input_shape[-1], self.units)
        return (*input_shape[:-1], self.units)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        kernel = (input_shape[-1], self.units)
        return {"W": kernel, "b": (self.units,)} if self.use_bias else {"W": kernel}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw ``W`` Glorot uniform; ``b`` is zero."""
        parameters = {"W": glorot_uniform((input_shape[-1], self.units), rng, dtype)}
        if self.use_bias:
            parameters["b"] = np.zeros(self.units, dtype)
        return parameters

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``activation(x @ W + b)``: (batch, ..., inputs) to (batch, ..., units)."""
        W = parameters["W"]
        if self.serialization_factor == 1:
            y = x @ W
        else:
            y = self._matmul.product(x.reshape(-1, len(W)), W).reshape(*x.shape[:-1], self.units)
        # y is ours alone until it is returned, so the rest happens in place.
        if self.use_bias:
            y += parameters["b"]
        y, activated = activate(self.activation, y)
        return y, (x, activated)

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx = g @ W.T, and x and g, the gradient before the activation."""
        x, activated = saved
        grad = pull_back(self.activation, activated, grad)
        W = parameters["W"]
        if not need_input_gradient:
            return None, (x, grad)
        if self.serialization_factor == 1:
            return grad @ W.T, (x, grad)
        dx = self._matmul.left_gradient(x.reshape(-1, len(W)), W, grad.reshape(-1, self.units))
        return dx.reshape(x.shape), (x, grad)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return dW = x.T @ g and db = sum of g."""
        inputs, rows = self._rows(rest)
        if self.serialization_factor == 1:
            gradients = {"W": inputs.T @ rows}  # (inputs, units)
        else:
            gradients = {"W": self._matmul.right_gradient(inputs, parameters["W"], rows)}
        if self.use_bias:
            gradients["b"] = np.add.reduce(rows, axis=0)
        return gradients

    def add_weight_gradients(self, parameters: Parameters, rest: Rest, totals: Parameters) -> None:
        """Add dW and db to ``totals``."""
        if self.serialization_factor != 1:
            for name, gradient in self.backward_weights(parameters, rest).items():
                np.add(totals[name], gradient, out=totals[name])
            return
        inputs, rows = self._rows(rest)
        add_product(totals["W"], inputs, rows)
        if self.use_bias:
            b = totals["b"]
            np.add(b, np.add.reduce(rows, axis=0), out=b)

    def _rows(self, rest: Rest) -> tuple[Array, Array]:
        """Return the inputs (batch * ..., inputs) and g (batch * ..., units)."""
        x, grad = rest
        return x.reshape(-1, x.shape[-1]), grad.reshape(-1, self.units)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work, with R = batch x rows, I inputs and U units.

        Forward: R*I*U multiply-accumulates; the bias adds R*U and the activation
        its own work for each of R*U outputs, a compute set each. Backward: R*I*U for dW, and again for
        dx where needed; R*U for db, whose partial sums come over the exchange, and the activation's derivative. A
        serialized product is as many products as parts, each of which reads again what it does
        not split. Raises ModelError when the factor does not divide R.
        """
        inputs, units = input_shape[-1], self.units
        rows = batch * math.prod(input_shape[:-1])
        self._matmul.check(rows, inputs, units)
        x, y, weights = rows * inputs, rows * units, inputs * units
        bias = units if self.use_bias else 0
        rule = activation(self.activation)
        reread = self._matmul.repeated(x, weights, y)
        changes = rule.keeps != "nothing"
        forward = Work(
            products=(self._matmul.parts(Product(rows, inputs, units), "mkn"),),
            vector=y * (rule.forward + VectorWork(int(self.use_bias))),
            sram_bytes=(x + weights + bias + y + reread) * itemsize,
            itemsize=itemsize,
            compute_sets=self.use_bias + changes,
        )
        saved = x + (y if changes else 0)
        reread = self._matmul.repeated(x, weights, y) * (1 + need_input_gradient)
        own = self._matmul.parts(Product(inputs, rows, units), "kmn")
        into = self._matmul.parts(Product(rows, units, inputs), "mnk")
        backward = Work(
            products=(own, *((into,) if need_input_gradient else ())),
            vector=y * (rule.backward + VectorWork(reductions=int(self.use_bias))),
            sram_bytes=(y + saved + weights + bias + (weights + x if need_input_gradient else 0) + reread) * itemsize,
            itemsize=itemsize,
            compute_sets=changes + 2 * self.use_bias,
        )
        apart = self._halves(rows, inputs, itemsize) if need_input_gradient else all_later(backward)
        return LayerCost(forward, backward, apart)

    def _halves(self, rows: int, inputs: int, itemsize: int) -> Halves:
        """Return the work of dx, and of dW and db; the first writes g where an activation changes it."""
        x, y, weights = rows * inputs, rows * self.units, inputs * self.units
        reread, rule = self._matmul.repeated(x, weights, y), activation(self.activation)
        changes = rule.keeps != "nothing"
        slope = 2 * y if changes else 0
        into = Work(
            products=(self._matmul.parts(Product(rows, self.units, inputs), "mnk"),),
            vector=y * rule.backward,
            sram_bytes=(y + slope + weights + x + reread) * itemsize,
            itemsize=itemsize,
            compute_sets=int(changes),
        )
        own = Work(
            products=(self._matmul.parts(Product(inputs, rows, self.units), "kmn"),),
            vector=VectorWork(reductions=y * self.use_bias),
            sram_bytes=(x + y + weights + (self.units if self.use_bias else 0) + reread) * itemsize,
            itemsize=itemsize,
            compute_sets=2 * self.use_bias,
        )
        return Halves(into, own)


@dataclass(frozen=True)
class ActivationLayer(Parameterless):
    """A function of each element.

    Keras ``Activation``; names are those of :mod:`ipusim.model.layers.activations`.
    """

    kind: ClassVar = "activation"

    activation: Annotated[ActivationName, Doc("the function")]

    def __post_init__(self) -> None:
        """Raise ModelError for an unknown activation."""
        activation(self.activation)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return input_shape

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the function of each element of ``x`` (batch, ...)."""
        return activate(self.activation, x, own=False)

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return ``grad`` times the function's slope."""
        return (pull_back(self.activation, saved, grad) if need_input_gradient else None), {}

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: the activation's for each element, read and written where it lies."""
        rule, none = activation(self.activation), Work(itemsize=itemsize)
        if rule.keeps == "nothing":
            return LayerCost(none, none)
        elements = batch * math.prod(input_shape)
        forward = Work(vector=elements * rule.forward, sram_bytes=2 * elements * itemsize, itemsize=itemsize)
        backward = Work(vector=elements * rule.backward, sram_bytes=3 * elements * itemsize, itemsize=itemsize)
        return LayerCost(forward, backward if need_input_gradient else none)
