"""Compute basic layers in NumPy (flatten, reshape, dense, activation), forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc
from annotated_types import Len

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import ActivationName, activate, activation, pull_back
from ipusim.model.layers.kernel_cost import KernelElements, KernelProducts, kernel_cost
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import (
    Array,
    InHalves,
    Key,
    LayerCost,
    Parameterless,
    Parameters,
    Rest,
    Saved,
    Shape,
    View,
)
from ipusim.model.layers.products import add_product
from ipusim.model.layers.serialized_matmul import Dimension, SerializedMatmul
from ipusim.model.work import Product, Work, work_of


@dataclass(frozen=True)
class Flatten(View):
    """Flattens a sample to a single axis.

    A change of view on tiles and in NumPy, without movement.
    """

    kind: ClassVar = "flatten"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return a single axis with the same number of elements."""
        return (math.prod(input_shape),)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) as (batch, elements)."""
        return x.reshape(len(x), -1), x.shape


@dataclass(frozen=True)
class Reshape(View):
    """Reshapes a sample, keeping the number and order of the elements.

    Names follow Keras ``Reshape``. No data moves, as in ``flatten``.
    """

    kind: ClassVar = "reshape"

    target_shape: Annotated[tuple[Axis, ...], Len(1, 4), Doc("the axes of a sample after the layer")]

    def __post_init__(self) -> None:
        """Raise ModelError for no axes, or an axis below 1."""
        if not self.target_shape or min(self.target_shape) < 1:
            raise ModelError(f"expected a shape of sizes from 1 upwards, got {self.target_shape}")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the new shape; raises ModelError for an input with another number of elements."""
        if math.prod(input_shape) != math.prod(self.target_shape):
            raise ModelError(
                f"expected a shape of the input's {math.prod(input_shape)} elements, got {self.target_shape} of "
                f"{math.prod(self.target_shape)}"
            )
        return self.target_shape

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) as (batch, *target_shape)."""
        return x.reshape(len(x), *self.target_shape), x.shape


@dataclass(frozen=True)
class Dense(InHalves):
    """A fully connected layer: activation(x @ W + b).

    The product uses the last axis of x. Kernel ``W`` of shape (inputs, units) starts Glorot uniform, bias ``b`` of
    shape (units,) zero, like Keras ``Dense``. :mod:`ipusim.model.layers.serialized_matmul` defines the split of
    products; the operand a there is x, viewed as rows along the last axis.
    """

    kind: ClassVar = "dense"

    units: Annotated[Axis, Doc("outputs of the layer")]
    activation: Annotated[ActivationName, Doc("function of each output")] = "identity"
    use_bias: Annotated[bool, Doc("whether b is added")] = True
    serialization_factor: Annotated[
        Axis, Doc("number of parts of the matrix products, one computed at a time to save memory")
    ] = 1
    serialization_dimension: Annotated[
        Dimension, Doc("dimension split into parts: the rows of x, the sums over its columns, or the units")
    ] = "a_columns"

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1, an unknown activation, or impossible parts."""
        if self.units < 1:
            raise ModelError(f"a dense layer needs at least 1 unit, got {self.units}")
        activation(self.activation)
        _ = self._matmul

    @cached_property
    def _matmul(self) -> SerializedMatmul:
        return SerializedMatmul(self.serialization_factor, self.serialization_dimension)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with ``units`` as last axis.

        Raises ModelError for a scalar, or units or inputs not divisible by the serialization factor.
        """
        if not input_shape:
            raise ModelError("a dense layer needs an input of at least one axis, got a scalar for each sample")
        if self.serialization_dimension != "a_columns":  # a_columns depends on the batch: cost checks it
            self._matmul.check(0, input_shape[-1], self.units)
        return (*input_shape[:-1], self.units)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``W`` and, with a bias, ``b``."""
        kernel = (input_shape[-1], self.units)
        return {"W": kernel, "b": (self.units,)} if self.use_bias else {"W": kernel}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``activation(x @ W + b)``: (batch, ..., inputs) to (batch, ..., units)."""
        W = parameters["W"]
        if self.serialization_factor == 1:
            y = x @ W
        else:
            y = self._matmul.product(x.reshape(-1, len(W)), W).reshape(*x.shape[:-1], self.units)
        # y is private until the return, which allows operations in place.
        if self.use_bias:
            y += parameters["b"]
        y, saved_array = activate(self.activation, y)
        return y, (x, saved_array)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx = g @ W.T, and the rest: x and g, the gradient before the activation."""
        x, saved_array = saved_values
        grad = pull_back(self.activation, saved_array, grad)
        W = parameters["W"]
        if not need_input_gradient:
            return None, (x, grad)
        if self.serialization_factor == 1:
            return grad @ W.T, (x, grad)
        dx = self._matmul.left_gradient(x.reshape(-1, len(W)), W, grad.reshape(-1, self.units))
        return dx.reshape(x.shape), (x, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return dW = x.T @ g and db = sum of g."""
        inputs, rows = self._rows(rest_values)
        if self.serialization_factor == 1:
            gradients = {"W": inputs.T @ rows}  # (inputs, units)
        else:
            gradients = {"W": self._matmul.right_gradient(inputs, parameters["W"], rows)}
        if self.use_bias:
            gradients["b"] = np.add.reduce(rows, axis=0)
        return gradients

    def add_weight_gradients(self, parameters: Parameters, rest_values: Rest, totals: Parameters) -> None:
        """Add dW and db to ``totals``."""
        if self.serialization_factor != 1:
            for name, gradient in self.backward_weights(parameters, rest_values).items():
                np.add(totals[name], gradient, out=totals[name])
            return
        inputs, rows = self._rows(rest_values)
        add_product(totals["W"], inputs, rows)
        if self.use_bias:
            b = totals["b"]
            np.add(b, np.add.reduce(rows, axis=0), out=b)

    def _rows(self, rest_values: Rest) -> tuple[Array, Array]:
        """Return the inputs (batch * ..., inputs) and g (batch * ..., units)."""
        x, grad = rest_values
        return x.reshape(-1, x.shape[-1]), grad.reshape(-1, self.units)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work for R = batch x rows, I inputs and U units.

        Forward: R*I*U multiply-accumulates, and the additional work of :func:`kernel_cost` for R*U outputs. Backward:
        R*I*U for dW, and another R*I*U for dx if needed. A serialized product consists of several products, each of
        which reads the operands that are not split. Raises ModelError if the factor does not divide R.
        """
        inputs, units = input_shape[-1], self.units
        rows = batch * math.prod(input_shape[:-1])
        matmul = self._matmul
        matmul.check(rows, inputs, units)
        x, y, weights = rows * inputs, rows * units, inputs * units
        products = KernelProducts(
            matmul.parts(Product(rows, inputs, units), "mkn"),
            weights=matmul.parts(Product(inputs, rows, units), "kmn"),
            input_gradient=matmul.parts(Product(rows, units, inputs), "mnk"),
            convolution=False,
        )
        elements = KernelElements(x, y, weights, units * self.use_bias, matmul.repeated_elements(x, weights, y))
        return kernel_cost(products, elements, self.activation, itemsize, need_input_gradient)


@dataclass(frozen=True)
class ActivationLayer(Parameterless):
    """A function of each element.

    Like Keras ``Activation``; :mod:`ipusim.model.layers.activations` lists the names.
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
        """Return the function of every element of ``x`` (batch, ...)."""
        return activate(self.activation, x, may_overwrite=False)

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return ``grad`` times the function's slope."""
        return pull_back(self.activation, saved_values, grad)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the activation's work; an element takes two accesses to memory forward, and three backward."""
        rule, no_work = activation(self.activation), Work(itemsize=itemsize)
        if rule.saved_array == "nothing":
            return LayerCost(no_work, no_work)
        elements = batch * math.prod(input_shape)
        forward = work_of(itemsize, vector=elements * rule.forward, accesses=2 * elements)
        backward = work_of(itemsize, vector=elements * rule.backward, accesses=3 * elements)
        return LayerCost(forward, backward if need_input_gradient else no_work)
