"""Functions of Graphcore's ``statistics_ops``; no gradient goes back through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import FixedWidthBins, Histogram
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
