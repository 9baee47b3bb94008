"""Levels of histograms, and histograms, as PopLibs' ``GatherStatistics`` counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.ipu.operations.without_gradient import WithoutGradient
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class FixedWidthBins(WithoutGradient):
    """So many levels at equal distances from the least to the largest of (values,)."""

    levels: int

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the levels."""
        (values,) = arrays
        return (np.linspace(values.min(), values.max(), self.levels, dtype=values.dtype),), None

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: a minimum and a maximum, each of two compute sets, and a product and a sum for a level."""
        (values,) = arrays
        size = values.dtype.itemsize
        work = Work(
            vector=VectorWork(2 * self.levels, reductions=2 * values.size),
            sram_bytes=(2 * values.size + self.levels) * size,
            itemsize=size,
            compute_sets=2 * 2 + 1,
        )
        return LayerCost(work, Work(itemsize=size))


@dataclass(frozen=True)
class Histogram(WithoutGradient):
    """Numbers of (values, levels, before): below the first level, from each level on, added to those before.

    Attributes:
        absolute: whether magnitudes are counted.
    """

    absolute: bool

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return (levels + 1,) counts in float32, as popops counts with ``useFloatArithmetic``."""
        values, levels, before = arrays
        bins = np.searchsorted(levels, np.abs(values) if self.absolute else values, side="right")
        return (before + np.bincount(bins, minlength=len(levels) + 1).astype(np.float32),), None

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: each value is held against each level, and the tiles' counts are summed in two sets."""
        values, levels, before = arrays
        size = values.dtype.itemsize
        work = Work(
            vector=VectorWork(values.size * (levels.size + self.absolute) + before.size, reductions=values.size),
            sram_bytes=(values.size + levels.size) * size + 2 * before.nbytes,
            exchange_bytes=levels.nbytes,
            itemsize=size,
            compute_sets=1 + 2,
        )
        return LayerCost(work, Work(itemsize=size))
