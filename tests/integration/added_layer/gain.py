"""A layer and a loss that are not the package's, in one module: all that adding them takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Gt, Le

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
)
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class Gain(InHalves):
    """Multiplies each element of the last axis by a weight of its own.

    The weights are ``g``.
    """

    kind: ClassVar = "gain"

    start: Annotated[float, Gt(0), Le(8), Doc("what the weights start with")] = 1.0

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        return {"g": input_shape[-1:]}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        return {"g": np.full(input_shape[-1:], self.start, dtype)}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        return x * parameters["g"], x

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        return (grad * parameters["g"] if need_input_gradient else None), (saved_values, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        x, grad = rest_values
        return {"g": (grad * x).reshape(-1, grad.shape[-1]).sum(axis=0)}

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        count = batch * math.prod(input_shape)
        forward = Work(vector=VectorWork(count), sram_bytes=(2 * count + input_shape[-1]) * itemsize, itemsize=itemsize)
        return LayerCost(
            forward, Work(vector=VectorWork(3 * count), sram_bytes=4 * count * itemsize, itemsize=itemsize)
        )


@dataclass(frozen=True)
class Hinge(Parameterless):
    """The loss of a classifier: mean over scores of how far each is from 1 for its class, and from -1 for others."""

    kind: ClassVar = "hinge"

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        assert labels.dtype.kind in "iu"

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        return np.zeros((samples, *input_shape[:-1]), np.int32)

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        sides = np.where(np.arange(x.shape[-1]) == labels[..., None], 1, -1).astype(x.dtype)
        short = np.maximum(1 - sides * x, 0)
        return np.asarray(short.mean()), (sides, short > 0)

    def backward(
        self, parameters: Parameters, saved_values: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        sides, short = saved_values
        return -sides * short * (scale / sides.size), {}

    def accuracy(self, x: Array, labels: Array) -> float | None:
        return float(np.mean(x.argmax(axis=-1) == labels))

    def constant_loss(self, labels: Array) -> float | None:
        return None

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        count = batch * math.prod(input_shape)
        work = Work(vector=VectorWork(3 * count), sram_bytes=2 * count * itemsize, itemsize=itemsize)
        return LayerCost(work, work)
