"""Compute the gated linear unit: half of the input gates the other half."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.layers.activations import activate
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.work import VectorWork, Work, work_of


@dataclass(frozen=True)
class GLU(Parameterless):
    """Halves the last axis: the first half times the sigmoid of the second half.

    The gated linear unit (arXiv 1612.08083, equation 1). The preceding layer computes both halves, as for PyTorch's
    ``GLU``.
    """

    kind: ClassVar = "glu"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with half the last axis; raises ModelError for an odd or missing axis."""
        if not input_shape or input_shape[-1] % 2:
            raise ModelError(f"a gated linear unit needs an even number of elements to halve, got {input_shape}")
        return (*input_shape[:-1], input_shape[-1] // 2)

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return a * sigmoid(b) for the halves a and b of ``x``: (batch, ..., 2 n) to (batch, ..., n)."""
        a, b = np.split(x, 2, axis=-1)
        y, _ = activate("sigmoid", b, may_overwrite=False)
        y *= a
        return y, x

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return g * s for a and g * s * a * (1 - s) for b, with a recomputed s = sigmoid(b)."""
        a, b = np.split(saved_values, 2, axis=-1)
        s, _ = activate("sigmoid", b, may_overwrite=False)
        dx: Array = np.empty_like(saved_values)
        da, db = np.split(dx, 2, axis=-1)
        np.multiply(grad, s, out=da)
        np.subtract(1, s, out=db)
        db *= a
        db *= da
        return dx

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work for n output elements; the gating half travels to the other half's tiles.

        Forward, per element: a sigmoid and a product, a compute set each. Backward: a sigmoid, three products and a
        difference, in a compute set for the sigmoid and one for the gradient of each half. The gating half travels
        again, and its gradient returns.
        """
        n = batch * math.prod(self.output_shape(input_shape))
        forward = work_of(
            itemsize, vector=n * VectorWork(1, transcendentals=1), accesses=3 * n, exchanged=n, compute_sets=2
        )
        backward = work_of(
            itemsize, vector=n * VectorWork(4, transcendentals=1), accesses=5 * n, exchanged=2 * n, compute_sets=3
        )
        return LayerCost(forward, backward if need_input_gradient else Work(itemsize=itemsize))
