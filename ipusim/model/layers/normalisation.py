"""Normalise groups of elements to mean 0 and variance 1, then scale and shift.

A group lies within a sample; only a group of batch normalisation extends over a whole micro-batch. Names and defaults
follow Graphcore's Keras layers (keras.ipu.layers, with epsilon 0.001): a scale ``gamma`` of ones, an offset ``beta`` of
zeros, no moving statistics. Channels are the last axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Gt, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, Halves, InHalves, Key, LayerCost, Parameters, Rest, Saved, Shape, all_later
from ipusim.model.work import VectorWork, in_one, work_of

#: Work per group: two means, the sum with epsilon, and 1 / sqrt.
_GROUP: Final = VectorWork(3, transcendentals=1)


@dataclass(frozen=True)
class _Normalisation(InHalves):
    """Common parts of normalisations, which differ in the elements of a group."""

    epsilon: Annotated[float, Gt(0), Le(1), Doc("added to the variance")] = 1e-3
    center: Annotated[bool, Doc("whether beta is added")] = True
    scale: Annotated[bool, Doc("whether the result is multiplied by gamma")] = True

    def __post_init__(self) -> None:
        """Raise ModelError for an epsilon not above 0."""
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ModelError(f"expected an epsilon above 0, got {self.epsilon}")

    def _view(self, input_shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        """Return the shape to view a sample in, and the axes of a group (the batch is axis 0).

        The last axes of the view are the channels, in order.
        """
        raise NotImplementedError

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape; raises ModelError if no groups can be formed."""
        if not input_shape:
            raise ModelError("a normalisation needs an input of at least one axis, got a scalar for each sample")
        self._view(input_shape)
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of ``gamma`` and ``beta``, an element per channel."""
        names = (["gamma"] if self.scale else []) + (["beta"] if self.center else [])
        return dict.fromkeys(names, input_shape[-1:])

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Return ones for ``gamma`` and zeros for ``beta``."""
        start = {"gamma": 1, "beta": 0}
        return {name: np.full(shape, start[name], dtype) for name, shape in self.parameter_shapes(input_shape).items()}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return gamma * (x - mean) / sqrt(variance + epsilon) + beta, of the shape of ``x`` (batch, ...)."""
        shape, axes = self._view(x.shape[1:])
        view = x.reshape(len(x), *shape)
        normalised = view - view.mean(axis=axes, keepdims=True)
        inverse_deviation = np.square(normalised).mean(axis=axes, keepdims=True)  # first the variance
        inverse_deviation += self.epsilon
        np.sqrt(inverse_deviation, out=inverse_deviation)
        np.divide(1, inverse_deviation, out=inverse_deviation)
        normalised *= inverse_deviation
        y = normalised.reshape(x.shape)
        if self.scale:
            y = y * parameters["gamma"]
        if self.center:
            y = y + parameters["beta"]
        return y, (normalised, inverse_deviation)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return dx, and the rest: n and grad.

        With g = grad * gamma and the normalised input n, dx = (g - mean(g) - n * mean(g * n)) / sqrt(variance +
        epsilon).
        """
        normalised, inverse_deviation = saved_values
        if not need_input_gradient:
            return None, (normalised, grad)
        _, axes = self._view(grad.shape[1:])
        g = (grad * parameters["gamma"] if self.scale else grad).reshape(normalised.shape)
        dx = normalised * (g * normalised).mean(axis=axes, keepdims=True)
        dx += g.mean(axis=axes, keepdims=True)
        np.subtract(g, dx, out=dx)
        dx *= inverse_deviation
        return dx.reshape(grad.shape), (normalised, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the sums of grad * n for gamma, and of grad for beta."""
        normalised, grad = rest_values
        channels = grad.shape[-1]
        gradients: dict[str, Array] = {}
        if self.scale:
            gradients["gamma"] = (grad * normalised.reshape(grad.shape)).reshape(-1, channels).sum(axis=0)
        if self.center:
            gradients["beta"] = grad.reshape(-1, channels).sum(axis=0)
        return gradients

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of the statistics and their use, in either pass.

        Counts follow PopLibs (lib/poplin/Norms.cpp, lib/popnn/GroupNorm.cpp).

        - Forward, per element: sum, difference, square, sum, product with 1 / sqrt, product with gamma, sum with beta.
        - Backward, per element: a product and a sum for gamma, and a sum for beta, which form the second half.
        - Backward, per element for dx: a difference and a product to normalise again, a product with gamma, then sum,
          product, sum, product, sum, difference and product.

        Related sums share two compute sets. 1 / sqrt, every element-wise operation, the scale of the means, and the
        copy for dx take a compute set each.
        """
        shape, axes = self._view(input_shape)
        elements = batch * math.prod(input_shape)
        groups = elements // math.prod((batch, *shape)[axis] for axis in axes)
        parameters = input_shape[-1] * (self.scale + self.center)
        forward = work_of(
            itemsize,
            vector=elements * VectorWork(3 + self.scale + self.center, reductions=2) + groups * _GROUP,
            accesses=2 * elements + parameters,
            exchanged=elements,
            compute_sets=2 + 1 + 2 + self.scale + self.center,
        )
        weight_work = VectorWork(int(self.scale), reductions=self.scale + self.center)
        first = work_of(
            itemsize,
            vector=(elements * VectorWork(7 + self.scale, reductions=2) + VectorWork(2 * groups)) * need_input_gradient,
            accesses=3 * elements + parameters,
            exchanged=2 * elements,
            compute_sets=(2 + self.scale + 1 + 2 + 6) * need_input_gradient,
        )
        read_elements = (1 + self.scale) * elements
        second = work_of(
            itemsize,
            vector=elements * weight_work,
            accesses=read_elements + parameters,
            exchanged=read_elements,
            compute_sets=self.scale + 2 if parameters else 0,
        )
        sram_bytes = ((2 + need_input_gradient) * elements + 2 * parameters) * itemsize
        backward = in_one(first, second, (), sram_bytes, first.exchange_bytes)
        if not parameters:
            return LayerCost(forward, backward)
        return LayerCost(forward, backward, Halves(first, second) if need_input_gradient else all_later(backward))


@dataclass(frozen=True)
class LayerNorm(_Normalisation):
    """Brings the last axis to mean 0 and variance 1, at each position.

    Layer normalisation (arXiv 1607.06450).
    """

    kind: ClassVar = "layer_norm"

    def _view(self, input_shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        return input_shape, (len(input_shape),)


@dataclass(frozen=True)
class GroupNorm(_Normalisation):
    """Brings each group of channels to mean 0 and variance 1, over all positions.

    Group normalisation (arXiv 1803.08494). Strided grouping is PopLibs' default (include/popnn/GroupNorm.hpp); the
    paper groups consecutive channels.
    """

    kind: ClassVar = "group_norm"

    groups: Annotated[Axis, Doc("groups that the channels are divided into")] = 2
    strided_channel_grouping: Annotated[
        bool, Doc("whether channel c belongs to group c mod groups, else groups are consecutive")
    ] = True

    def _view(self, input_shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        channels, positions = input_shape[-1], math.prod(input_shape[:-1])
        if self.groups < 1 or channels % self.groups:
            raise ModelError(f"expected a number of groups that divides the {channels} channels, got {self.groups}")
        size = channels // self.groups
        if self.strided_channel_grouping:
            return (positions, size, self.groups), (1, 2)
        return (positions, self.groups, size), (1, 3)


@dataclass(frozen=True)
class InstanceNorm(_Normalisation):
    """Brings each channel to mean 0 and variance 1, over all positions.

    Instance normalisation (arXiv 1607.08022).
    """

    kind: ClassVar = "instance_norm"

    def _view(self, input_shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        if len(input_shape) < 2:
            raise ModelError("an instance normalisation needs an input of at least two axes, got one")
        return (math.prod(input_shape[:-1]), input_shape[-1]), (1,)


@dataclass(frozen=True)
class BatchNorm(_Normalisation):
    """Brings each channel to mean 0 and variance 1, over a whole micro-batch.

    The layer has no moving statistics. Evaluation and inference also use the statistics of the samples at hand, and
    results depend on these samples.

    Batch normalisation (arXiv 1502.03167); Keras ``BatchNormalization`` of the last axis in training, without momentum,
    which belongs to moving statistics. Replicas, and the micro-batches of a weight update, have separate statistics.
    """

    kind: ClassVar = "batch_norm"

    def _view(self, input_shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        return (math.prod(input_shape[:-1]), input_shape[-1]), (0, 1)
