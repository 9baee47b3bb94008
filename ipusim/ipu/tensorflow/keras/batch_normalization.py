"""Keras' batch normalisation, with moving statistics beside the core's layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval

from ipusim.ipu import checks
from ipusim.ipu.cross_replica_ops import cross_replica_sum
from ipusim.ipu.names import statistics_group
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer
from ipusim.ipu.variable import NamedVariable
from ipusim.model.functions.counting import unseen
from ipusim.model.layers import normalisation
from ipusim.model.layers.layer import Array, Shape


class BatchNormalization(CoreLayer):
    """Keras ``BatchNormalization`` of the last axis.

    In training it is by the statistics of each micro-batch, which its forward pass adds to the moving ones; else by
    these. By default it is training where the program trains, and where its ``trainable`` is False it never is, as in
    TensorFlow 2. What is added to the moving statistics, a few operations for each channel, takes no simulated time.
    Where IPUConfig says so, statistics are those of the micro-batches of several replicas, which meet for them. As in
    TensorFlow's fused operation, the variance of images that moves is that of their whole population, n / (n - 1) of
    the sample's (tf2xla/kernels/batch_norm_op.cc).
    """

    core, kind = normalisation.BatchNorm, "batch_normalization"
    _order = ("axis", "epsilon", "center", "scale")  # the momentum, which is second, is none of the core's
    _untrained = frozenset({"mean", "variance"})

    def __init__(self, axis: Any = -1, momentum: float = 0.99, *args: Any, **kwargs: Any) -> None:
        """Take the arguments in Keras' order: how much the moving statistics keep in each micro-batch comes second.

        Raises ProgramTypeError and ProgramError for a momentum that is no number from 0 to 1.
        """
        if isinstance(momentum, bool) or not isinstance(momentum, int | float):
            checks.wrong_type("momentum", "a number from 0 to 1", momentum)
        if not 0 <= momentum <= 1:
            checks.wrong_value("momentum", "a number from 0 to 1", momentum)
        super().__init__(axis, *args, **kwargs)
        self._momentum = float(momentum)
        assert isinstance(self._layer, normalisation.BatchNorm)
        self._epsilon = self._layer.epsilon

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return super().get_config() | {"momentum": self._momentum}

    def _names(self) -> dict[str, str]:
        return super()._names() | {"mean": "moving_mean", "variance": "moving_variance"}

    def _forms(self, shape: Shape) -> dict[str, Shape]:
        return super()._forms(shape) | {"mean": shape[-1:], "variance": shape[-1:]}

    def _drawn(self, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Array]:
        found = super()._drawn(shape, dtype)
        for own, value in (("mean", 0), ("variance", 1)):
            found[own] = self._begun(own, np.full(shape[-1:], value, dtype), len(found))
        return found

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        mean, variance = variables["mean"], variables["variance"]
        training = training and self._trainable
        if training and statistics_group() > 1:
            return self._over_replicas(x, variables, statistics_group())
        if training:
            mean.assign(moving_average(mean.read_value(), x, self._momentum, np.mean))
            variance.assign(moving_average(variance.read_value(), x, self._momentum, _variance))
            return super()._applied(x, variables, training)
        return self._normalised(x, mean.read_value(), variance.read_value(), variables)

    def _over_replicas(self, x: Any, variables: Mapping[str, NamedVariable], group: int) -> Any:
        """Return ``x`` normalised by the statistics of the micro-batches of each group of so many replicas."""
        axes, size = tuple(range(x.ndim - 1)), x.dtype.type(group)
        mean = cross_replica_sum(anp.mean(x, axis=axes), group) / size
        variance = cross_replica_sum(anp.mean((x - mean) ** 2, axis=axes), group) / size
        for kept, found in ((variables["mean"], mean), (variables["variance"], variance)):
            kept.assign(_mixed(kept.read_value(), getval(found), self._momentum))
        return self._normalised(x, mean, variance, variables)

    def _normalised(self, x: Any, mean: Any, variance: Any, variables: Mapping[str, NamedVariable]) -> Any:
        scale = 1 / anp.sqrt(variance + variance.dtype.type(self._epsilon))
        y = (x - mean) * (scale * variables["gamma"].read_value() if "gamma" in variables else scale)
        return y + variables["beta"].read_value() if "beta" in variables else y


@unseen
def moving_average(before: Array, x: Array, momentum: float, statistic: Callable[..., Array]) -> Array:
    """Return a moving statistic after the micro-batch ``x``."""
    return _mixed(before, statistic(x, axis=tuple(range(x.ndim - 1))), momentum)


def _mixed(before: Array, found: Array, momentum: float) -> Array:
    moved: Array = (before * momentum + found * (1 - momentum)).astype(before.dtype)
    return moved


def _variance(x: Array, axis: tuple[int, ...]) -> Array:
    """Return the variance of each channel; of images that of the whole population."""
    count = math.prod(x.shape[:-1])
    return np.asarray(x.var(axis=axis) * (count / (count - 1) if x.ndim == 4 and count > 1 else 1))
