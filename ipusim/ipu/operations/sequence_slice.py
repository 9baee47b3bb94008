"""Slices of sequences moved to where they are asked for, as PopLibs' ``SequenceSlice`` moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class SequenceSlice:
    """Rows of (dst, src, counts, sources, places): counts[i] rows of src from sources[i] come to places[i] of dst.

    Where slices overlap in dst, the later one stays.

    Attributes:
        zero_unused: whether other rows become zero.
    """

    zero_unused: bool

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return dst with the slices in it."""
        dst, src, counts, sources, places = arrays
        taken = np.full(len(dst), -1)
        for count, source, place in zip(counts, sources, places, strict=True):
            taken[place : place + count] = np.arange(source, source + count)
        kept = np.zeros_like(dst) if self.zero_unused else dst.copy()
        kept[taken >= 0] = src[taken[taken >= 0]]
        return (kept,), (taken, src.shape)

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradients of the rows that stay, and of each row of src the sum of those of its uses."""
        taken, shape = saved
        (grad,) = grads
        kept, given = np.zeros_like(grad), np.zeros(shape, grad.dtype)
        if not self.zero_unused:
            kept[taken < 0] = grad[taken < 0]
        np.add.at(given, taken[taken >= 0], grad[taken >= 0])
        return [(kept, given)[place] for place in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: dst is written once, rows are read and written, and come over the exchange.

        Back, the rows of src are summed into zeros.
        """
        dst, src, counts = arrays[:3]
        moved, row = int(np.sum(counts)) * math.prod(src.shape[1:]), dst.dtype.itemsize
        forward = Work(
            sram_bytes=(2 * moved + dst.size) * row, exchange_bytes=moved * row, itemsize=max(row, 2), compute_sets=2
        )
        backward = Work(
            vector=VectorWork(moved * (1 in wanted)),
            sram_bytes=(2 * moved + (src.size if 1 in wanted else 0) + (dst.size if 0 in wanted else 0)) * row,
            exchange_bytes=moved * row,
            itemsize=max(row, 2),
            compute_sets=3,
        )
        return LayerCost(forward, backward)
