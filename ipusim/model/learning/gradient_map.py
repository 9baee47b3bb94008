"""Change each micro-batch's gradients before accumulation: Graphcore's MapGradientOptimizer."""

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

_Limit = Annotated[float, Gt(0), Le(1e9)]


@dataclass(frozen=True)
class GradientMap:
    """The operations on each micro-batch's gradients before accumulation, in order.

    Each variable is mapped separately, on the IPU that holds the variable. A norm therefore covers the gradient of
    one variable in one micro-batch; the sum or mean over micro-batches follows.
    """

    kind: ClassVar[str] = "map_gradient"
    graphcore: ClassVar[str] = "MapGradientOptimizer"

    #: Decay from the example in MapGradientOptimizer's documentation.
    decay: Annotated[float, Ge(0), Le(1), Doc("share of the variable that is added to its gradient")] = 0.0
    #: Bound of ``tf.clip_by_value``.
    clip_by_value: Annotated[_Limit | None, Doc("bound of each element's absolute value")] = None
    #: Bound of ``tf.clip_by_norm``.
    clip_by_norm: Annotated[_Limit | None, Doc("maximum norm; gradients with a larger norm are scaled down")] = None

    def __post_init__(self) -> None:
        """Raise ModelError for a decay below 0, or bounds not above 0."""
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise ModelError(f"expected a decay of 0 or more, got {self.decay}")
        for name, limit in (("value", self.clip_by_value), ("norm", self.clip_by_norm)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise ModelError(f"expected to clip by a {name} above 0, got {limit}")

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
        """Return the work for a micro-batch's gradients.

        Work per element: product and sum for ``decay``; two comparisons for ``clip_by_value``; square, sum and product
        for ``clip_by_norm``. Traffic: the gradient is read and written, and the weight is read for ``decay``.
        Decay and comparisons take a compute set each, a norm three: two for the reduction, one for the product.
        """
        decay, value, norm = self.decay > 0, self.clip_by_value is not None, self.clip_by_norm is not None
        return MappingWork(
            vector=parameter_count * VectorWork(2 * decay + 2 * value + 2 * norm, reductions=int(norm)),
            sram_bytes=parameter_count * (2 + decay) * itemsize,
            itemsize=itemsize,
            compute_sets=decay + value + 3 * norm,
        )
