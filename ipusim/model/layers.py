"""The layers, in plain NumPy: forward and backward stand side by side, because simulated IPUs execute both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from ipusim.errors import ModelError
from ipusim.model.layer import (
    ELEMENTARY_FLOPS,
    Array,
    LayerCost,
    Parameterless,
    Parameters,
    Saved,
    Shape,
    glorot_uniform,
)
from ipusim.model.profile import Work

Activation = Literal["identity", "relu", "tanh"]

#: Vector operations for one element of each activation: (forward, backward).
#: relu: a maximum; a comparison and a product. tanh: the function; 1 - y*y, times the gradient.
_ACTIVATION_FLOPS: Final[dict[Activation, tuple[int, int]]] = {
    "identity": (0, 0),
    "relu": (1, 2),
    "tanh": (ELEMENTARY_FLOPS, 3),
}


@dataclass(frozen=True)
class Flatten(Parameterless):
    """Joins all axes of a sample into one. It moves nothing: on tiles as in NumPy it is a change of view."""

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return one axis of as many elements."""
        return (math.prod(input_shape),)

    def forward(self, parameters: Parameters, x: Array) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) as (batch, elements)."""
        return x.reshape(len(x), -1), x.shape

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return ``grad`` in the input's shape."""
        return (grad.reshape(saved) if need_input_gradient else None), {}

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return no work."""
        return LayerCost(Work(itemsize=itemsize), Work(itemsize=itemsize))


@dataclass(frozen=True)
class Dense:
    """A fully connected layer over the last axis: ``activation(x @ W + b)``.

    Kernel ``W`` of shape (inputs, units) starts Glorot uniform and bias ``b`` of
    shape (units,) zero, the defaults of Keras ``Dense``.

    Attributes:
        units: size of the last axis of the output.
        activation: identity, relu or tanh.
        use_bias: whether there is a ``b``.
    """

    units: int
    activation: Activation = "identity"
    use_bias: bool = True

    def __post_init__(self) -> None:
        """Raise ModelError for units below 1 or an unknown activation."""
        if self.units < 1:
            raise ModelError(f"a dense layer needs at least 1 unit, got {self.units}")
        if self.activation not in get_args(Activation):
            raise ModelError(
                f"unknown activation {self.activation!r}: expected one of {', '.join(get_args(Activation))}"
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with ``units`` as its last axis."""
        if not input_shape:
            raise ModelError("a dense layer needs an input of at least one axis, got a scalar for each sample")
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

    def forward(self, parameters: Parameters, x: Array) -> tuple[Array, Saved]:
        """Return ``activation(x @ W + b)``: (batch, ..., inputs) to (batch, ..., units)."""
        y = x @ parameters["W"]
        # y is ours alone until it is returned, so the rest happens in place.
        if self.use_bias:
            y += parameters["b"]
        if self.activation == "relu":
            np.maximum(y, 0, out=y)
        elif self.activation == "tanh":
            np.tanh(y, out=y)
        return y, (x, y)

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return dx = g @ W.T, dW = x.T @ g and db = sum of g, with g the gradient before the activation."""
        x, y = saved
        if self.activation == "relu":
            grad = grad * (y > 0)
        elif self.activation == "tanh":
            slope = np.square(y)
            np.subtract(1, slope, out=slope)
            slope *= grad
            grad = slope
        W = parameters["W"]
        rows = grad.reshape(-1, self.units)  # (batch * ..., units)
        gradients = {"W": x.reshape(-1, len(W)).T @ rows}  # (inputs, units)
        if self.use_bias:
            gradients["b"] = rows.sum(axis=0)
        return (grad @ W.T if need_input_gradient else None), gradients

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work, with R = batch x rows, I inputs and U units.

        Forward: R*I*U multiply-accumulates; the bias adds R*U and the activation
        its own flops for each of R*U outputs. Backward: R*I*U for dW, and again for
        dx where needed; R*U for db, and the activation's derivative.
        """
        inputs, units = input_shape[-1], self.units
        rows = batch * math.prod(input_shape[:-1])
        x, y, weights = rows * inputs, rows * units, inputs * units
        bias = units if self.use_bias else 0
        activation_forward, activation_backward = _ACTIVATION_FLOPS[self.activation]
        forward = Work(
            macs=x * units,
            flops=y * (activation_forward + self.use_bias),
            sram_bytes=(x + weights + bias + y) * itemsize,
            exchange_bytes=x * itemsize,
            itemsize=itemsize,
        )
        saved = x + (y if self.activation != "identity" else 0)
        backward = Work(
            macs=x * units * (1 + need_input_gradient),
            flops=y * (activation_backward + self.use_bias),
            sram_bytes=(y + saved + weights + bias + (weights + x if need_input_gradient else 0)) * itemsize,
            exchange_bytes=(y + x + (weights if need_input_gradient else 0)) * itemsize,
            itemsize=itemsize,
        )
        return LayerCost(forward, backward)
