"""Dropout whose mask has a shape of its own: one draw for all along an axis of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.model.layers.dropout import DROP, keep_mask
from ipusim.model.layers.layer import Array, Key, LayerCost, Saved, Shape
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class ShapedDropout:
    """Elements of (x,) dropped by a mask that is spread over them, and the others scaled up, as the core's dropout.

    Attributes:
        rate: share of the mask that drops.
        shape: of the mask.
        key: of the draws; None for none, as in inference.
    """

    rate: float
    shape: Shape
    key: Key | None

    def _dropped(self, x: Array) -> Array:
        if self.key is None or self.rate == 0:
            return x
        found: Array = x * keep_mask(self.key, self.shape, self.rate)
        found *= 1 / (1 - self.rate)
        return found

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return ``x`` with elements dropped."""
        return (self._dropped(arrays[0]),), None

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradient dropped and scaled like the input: the mask is drawn anew."""
        return [self._dropped(grads[0]) for _ in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work of either pass: draws of the mask, and a choice and a product for each element."""
        (x,) = arrays
        drawn, size = math.prod(self.shape), x.dtype.itemsize
        choose = VectorWork(2)
        work = Work(vector=drawn * (DROP - choose) + x.size * choose, sram_bytes=2 * x.nbytes, itemsize=size)
        return LayerCost(work, work)
