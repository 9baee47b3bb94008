"""A function of each micro-batch's gradients before they are accumulated: Graphcore's MapGradientOptimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_doc import Doc
from annotated_types import Ge, Gt, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array
from ipusim.model.work import MappingWork, VectorWork, Work

_Bound = Annotated[float, Gt(0), Le(1e9)]


@dataclass(frozen=True)
class GradientMap:
    """The operations on each micro-batch's gradients before accumulation, in order.

    Each variable is taken by itself. Gradients are mapped where they are made: the norm is that of one
    variable in one micro-batch, and the reduction over micro-batches comes after.
    """

    kind: ClassVar[str] = "map_gradient"
    graphcore: ClassVar[str] = "MapGradientOptimizer"

    #: As in the example of MapGradientOptimizer's documentation.
    decay: Annotated[float, Ge(0), Le(1), Doc("share of the variable that is added to its gradient")] = 0.0
    #: As ``tf.clip_by_value``.
    clip_by_value: Annotated[_Bound | None, Doc("bound of each element's absolute value")] = None
    #: As ``tf.clip_by_norm``.
    clip_by_norm: Annotated[_Bound | None, Doc("maximum norm; gradients with a larger norm are scaled down")] = None

    def __post_init__(self) -> None:
        """Raise ModelError for a decay below 0, or bounds that are not above 0."""
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise ModelError(f"expected a decay of 0 or more, got {self.decay}")
        for name, bound in (("value", self.clip_by_value), ("norm", self.clip_by_norm)):
            if bound is not None and not (math.isfinite(bound) and bound > 0):
                raise ModelError(f"expected to clip by a {name} above 0, got {bound}")

    def __call__(self, gradient: Array, variable: Array) -> Array:
        """Return the gradient to accumulate; neither argument changes."""
        if self.decay:
            gradient = gradient + self.decay * variable
        if self.clip_by_value is not None:
            gradient = gradient.clip(-self.clip_by_value, self.clip_by_value)
        if self.clip_by_norm is not None:
            norm = math.sqrt(np.square(gradient, dtype=np.float64).sum())
            if norm > self.clip_by_norm:
                gradient = gradient * (self.clip_by_norm / norm)
        return gradient

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work for one micro-batch's gradients.

        For each element a product and a sum of the decay, two comparisons with a value,
        a square, sum and product by a norm. It reads the gradient, with decay the
        weight too, and writes the gradient. Decay and comparisons are a compute set each, a norm is three: its
        reduction is two, and then its product.
        """
        decay, value, norm = self.decay > 0, self.clip_by_value is not None, self.clip_by_norm is not None
        return MappingWork(
            vector=parameter_count * VectorWork(2 * decay + 2 * value + 2 * norm, reductions=int(norm)),
            sram_bytes=parameter_count * (2 + decay) * itemsize,
            itemsize=itemsize,
            compute_sets=decay + value + 3 * norm,
        )
