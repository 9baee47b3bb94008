"""``tf.metrics``: measures that go on from batch to batch, each a value and its update.

A measure is a quotient of two sums, which are added up over batches, be they computed on an IPU or on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from autograd.tracer import getval

from ipusim.api import Array
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.tensorflow.losses import check_shapes


class Metric(tuple[Any, Any]):
    """A value and its update, which are one here: a function of two sums.

    Attributes:
        total, count: the sums.
        function: from their quotient to the value.
    """

    total: Any
    count: Any
    function: Callable[[Any], Any]

    def __new__(cls, total: Any, count: Any, function: Callable[[Any], Any] = np.asarray) -> Metric:
        """Take the sums."""
        value = function(np.divide(total, count) if count else np.float32(0))
        result = super().__new__(cls, (value, value))
        result.total, result.count, result.function = total, count, function
        return result

    def summed(self, totals: Any, counts: Any) -> Metric:
        """Return the metric of sums of several batches."""
        return Metric(_sum(totals), _sum(counts), self.function)


def mean(values: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the mean of all elements."""
    return _weighted(_now(values, np.float32), weights)


def accuracy(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the share of predictions that equal their labels."""
    true, predicted = _matched(labels, predictions)
    return _weighted((true == predicted).astype(np.float32), weights)


def mean_squared_error(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the mean square of differences."""
    return _weighted(np.square(_difference(labels, predictions)), weights)


def root_mean_squared_error(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the root of the mean square of differences."""
    result = mean_squared_error(labels, predictions, weights)
    return Metric(result.total, result.count, np.sqrt)


def mean_absolute_error(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the mean of absolute differences."""
    return _weighted(np.abs(_difference(labels, predictions)), weights)


def precision(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the share of what is predicted that is true."""
    true, predicted = _matched(labels, predictions, bool)
    return _share(true & predicted, predicted, weights)


def recall(labels: Any, predictions: Any, weights: Any = None, *_: Any, **__: Any) -> Metric:
    """Return the share of what is true that is predicted."""
    true, predicted = _matched(labels, predictions, bool)
    return _share(true & predicted, true, weights)


def _now(value: Any, dtype: Any = None) -> Array:
    """Return the value of an array of a body, also of one that a gradient goes back through: none goes through this."""
    return np.asarray(getval(concrete(value)), dtype)


def _matched(labels: Any, predictions: Any, dtype: Any = None) -> tuple[Array, Array]:
    """Return both in one shape, without a last axis of one element that the other lacks; raises ProgramError."""
    true, predicted = _now(labels, dtype), _now(predictions, dtype)
    if true.ndim == predicted.ndim + 1 and true.shape[-1] == 1:
        true = true[..., 0]
    elif predicted.ndim == true.ndim + 1 and predicted.shape[-1] == 1:
        predicted = predicted[..., 0]
    check_shapes(predicted, true)
    return true, predicted


def _difference(labels: Any, predictions: Any) -> Array:
    true, predicted = _matched(labels, predictions, np.float32)
    return np.asarray(predicted - true)


def _share(part: Array, whole: Array, weights: Any) -> Metric:
    times = _times(weights, whole)
    return Metric(_sum(part * times), _sum(whole * times))


def _weighted(values: Array, weights: Any) -> Metric:
    times = _times(weights, values)
    return Metric(_sum(values * times), _sum(times))


def _times(weights: Any, values: Array) -> Array:
    """Return weights in the shape of values, of which they may have one axis less, or one of one element more.

    Raises ProgramError for weights that do not go with the values.
    """
    times = _now(1 if weights is None else weights, np.float32)
    if times.ndim == values.ndim + 1 and times.shape[-1] == 1:
        times = times[..., 0]
    elif times.ndim and times.ndim == values.ndim - 1:
        times = times[..., None]
    if times.ndim not in (0, values.ndim) or any(
        size not in (1, whole) for size, whole in zip(times.shape, values.shape, strict=False)
    ):
        raise ProgramError(
            f"weights can not be broadcast to values. values.shape={values.shape}. weights.shape={times.shape}."
        )
    return np.broadcast_to(times, values.shape)


def _sum(values: Any) -> np.float32:
    return np.float32(np.sum(np.asarray(values), dtype=np.float64))
