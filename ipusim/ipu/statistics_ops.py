"""Compute histograms, without gradients: Graphcore's ``statistics_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import FixedWidthBins, Histogram
from ipusim.ipu.traced.operations import operate_without_gradient

tf = load()


def fixed_width_bins(inputs: Any, n_bins: int) -> Any:
    """Return ``n_bins`` levels, equally spaced from the minimum to the maximum of ``inputs`` (values,).

    Raises:
        ProgramError: if inputs has a wrong type or rank.
    """
    values = tf.convert_to_tensor(inputs)
    if not values.dtype.is_floating or values.shape.rank != 1 or not values.shape.as_list()[0]:
        form = (values.dtype.name, values.shape.as_list())
        checks.wrong_value("inputs", "a rank-1 tensor of floating-point values", form)
    bins = checks.whole("n_bins", n_bins, 1)
    return operate_without_gradient(FixedWidthBins(bins), [values], [(values.dtype, [bins])], "fixed_width_bins")[0]


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """Count numbers below the first level, and between neighbouring levels, in float32.

    Args:
        inputs: numbers (values,).
        levels: bounds (levels,).
        absolute_of_input: whether to count magnitudes.

    Raises:
        ProgramError: if a tensor has a wrong type or rank (Graphcore's message).
    """
    values, bounds = tf.convert_to_tensor(inputs), tf.convert_to_tensor(levels)
    if not (values.dtype.is_floating and bounds.dtype.is_floating):
        raise ProgramError("Only float16 and float32 types are supported for histogram computation.")
    if not values.shape.rank == bounds.shape.rank == 1:
        raise ProgramError("histogram expects rank-1 tensor inputs.")
    return _update(values, bounds, tf.zeros([int(bounds.shape[0]) + 1]), absolute_of_input)


def histogram_update(hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """Add the counts of more numbers to a histogram.

    Args:
        hist: counts in float32.
        inputs, levels, absolute_of_input: see :func:`histogram`.

    Raises:
        ProgramError: if tensors do not match (Graphcore's message).
    """
    counts, values, bounds = (tf.convert_to_tensor(tensor) for tensor in (hist, inputs, levels))
    if counts.dtype != tf.float32:
        raise ProgramError("hist must be of float32 type")
    if not (values.dtype.is_floating and bounds.dtype.is_floating):
        raise ProgramError("Only float16 and float32 types are supported for histogram update.")
    if not counts.shape.rank == values.shape.rank == bounds.shape.rank == 1:
        raise ProgramError("histogram_update expects rank-1 tensor inputs.")
    if counts.shape[0] != bounds.shape[0] + 1:
        raise ProgramError("hist and levels shapes are incompatible. For n levels, hist must have n+1 elements.")
    return _update(values, bounds, counts, absolute_of_input)


def _update(values: Any, levels: Any, counts: Any, absolute: bool) -> Any:
    operation = Histogram(checks.truth("absolute_of_input", absolute))
    forms = [(tf.float32, counts.shape)]
    return operate_without_gradient(operation, [values, levels, counts], forms, "histogram")[0]
