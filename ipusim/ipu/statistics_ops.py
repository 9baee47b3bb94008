"""Functions of Graphcore's ``statistics_ops``; no gradient goes back through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, VectorWork, Work, functions, layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.operations import WithoutGradient
from ipusim.ipu.tensorflow.array_functions import tensor


def fixed_width_bins(inputs: Any, n_bins: int) -> Any:
    """Return ``n_bins`` levels at equal distances from the least to the largest of ``inputs`` (values,)."""
    values = tensor(inputs)
    if values.dtype.kind != "f" or values.ndim != 1 or not values.shape[0]:
        checks.wrong_value("inputs", "a rank-1 tensor of floating-point values", (values.dtype, values.shape))
    return functions.operate_without_gradient(FixedWidthBins(checks.whole("n_bins", n_bins, 1)), values)[0]


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """Return the counts of ``inputs`` (values,) below the first of ``levels`` and from each level to the next, float32.

    Raises ProgramError for tensors of other types or ranks.
    """
    values, bounds = tensor(inputs), tensor(levels)
    if values.dtype.kind != "f" or bounds.dtype.kind != "f":
        raise ProgramError("Only float16 and float32 types are supported for histogram computation.")
    if values.ndim != 1 or bounds.ndim != 1:
        raise ProgramError("histogram expects rank-1 tensor inputs.")
    before = np.zeros(bounds.shape[0] + 1, np.float32)
    return _counted(values, bounds, before, absolute_of_input)


def histogram_update(hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """Return ``hist`` with what :func:`histogram` counts of other ``inputs`` added; raises as that does."""
    before, values, bounds = tensor(hist), tensor(inputs), tensor(levels)
    if before.dtype != np.float32:
        raise ProgramError("hist must be of float32 type")
    if values.dtype.kind != "f" or bounds.dtype.kind != "f":
        raise ProgramError("Only float16 and float32 types are supported for histogram update.")
    if not before.ndim == values.ndim == bounds.ndim == 1:
        raise ProgramError("histogram_update expects rank-1 tensor inputs.")
    if before.shape[0] != bounds.shape[0] + 1:
        raise ProgramError("hist and levels shapes are incompatible. For n levels, hist must have n+1 elements.")
    return _counted(values, bounds, before, absolute_of_input)


def _counted(values: Any, levels: Any, before: Any, absolute: bool) -> Any:
    operation = Histogram(checks.truth("absolute_of_input", absolute))
    return functions.operate_without_gradient(operation, values, levels, before)[0]


@dataclass(frozen=True)
class FixedWidthBins(WithoutGradient):
    """So many levels at equal distances from the least to the largest of (values,)."""

    levels: int

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the levels."""
        (values,) = arrays
        return (np.linspace(values.min(), values.max(), self.levels, dtype=values.dtype),), None

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
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

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return (levels + 1,) counts in float32, as popops counts with ``useFloatArithmetic``."""
        values, levels, before = arrays
        bins = np.searchsorted(levels, np.abs(values) if self.absolute else values, side="right")
        return (before + np.bincount(bins, minlength=len(levels) + 1).astype(np.float32),), None

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
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
