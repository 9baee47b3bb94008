"""Run TensorFlow's fused batch normalisation and its gradient in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ipusim.api import Array, functions
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register

_ONE = np.float32(1)
_FORWARD: Final = "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
_GRADIENT: Final = "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"
#: Operation types of batch normalisation.
BATCH_NORMS: Final = frozenset(f"{_FORWARD} {_GRADIENT}".split())
#: Attribute of a batch normalisation: number of replicas sharing statistics.
GROUP: Final = "_ipusim_replicas"


def _channels_first(node: Node) -> bool:
    return str(node.attributes["data_format"]).startswith("NC")


def _rows(x: Array, channels_first: bool) -> Array:
    """Return images as a float32 matrix: a row per pixel, a column per channel."""
    wide = widened(x)
    return (np.moveaxis(wide, 1, -1) if channels_first else wide).reshape(-1, x.shape[1 if channels_first else -1])


def _images(rows: Array, like: Array, channels_first: bool) -> Array:
    """Return pixels in the shape and dtype of images ``like``."""
    if not channels_first:
        return rows.reshape(like.shape).astype(like.dtype, copy=False)
    lengths = (like.shape[0], *like.shape[2:], like.shape[1])
    return np.moveaxis(rows.reshape(lengths), -1, 1).astype(like.dtype, copy=False)


def _sum_over_replicas(x: Array, group: int) -> Array:
    """Return the sum over a replica group."""
    return x if group == 1 else np.asarray(functions.all_reduce(x, group))


def _sum_rows(rows: Array, group: int) -> Array:
    """Return the sum of all rows of the replicas of a group."""
    total: Array = np.add.reduce(rows, axis=0)
    return _sum_over_replicas(total, group)


@register(_FORWARD)
def _normalise(node: Node) -> Kernel:
    """Normalise by the batch's mean and variance in training, by the running values otherwise.

    The running variance averages the sample variance: the batch's variance times N / (N - 1), for N values.
    """
    channels_first, training = _channels_first(node), node.attributes["is_training"]
    epsilon = np.float32(node.attributes["epsilon"])
    factor = np.float32(node.attributes.get("exponential_avg_factor", 1.0))
    results = len(node.output_types)
    group = node.attributes.get(GROUP, 1)

    def statistics(rows: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Return the batch's mean and variance, and the updated running mean and variance."""
        count = len(rows) * group
        batch_mean = _sum_rows(rows, group) / np.float32(count)
        centred = rows - batch_mean
        batch_variance = _sum_rows(centred * centred, group) / np.float32(count)
        sample_variance = batch_variance * np.float32(count / max(count - 1, 1))
        if factor == 1:
            return batch_mean, batch_variance, batch_mean, sample_variance
        old_share = _ONE - factor
        return (
            batch_mean,
            batch_variance,
            old_share * mean + factor * batch_mean,
            old_share * variance + factor * sample_variance,
        )

    def run(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Any, ...]:
        rows = _rows(x, channels_first)
        used_mean, used_variance, new_mean, new_variance = (
            statistics(rows, mean, variance) if training else (mean, variance) * 2
        )
        factors = _ONE / np.sqrt(used_variance + epsilon) * scale
        y = rows - used_mean  # in place: another large array costs as much as the arithmetic
        y *= factors
        y += offset
        return (_images(y, x, channels_first), new_mean, new_variance, used_mean, used_variance, np.float32(0))[
            :results
        ]

    return run


@register(_GRADIENT)
def _normalise_gradient(node: Node) -> Kernel:
    channels_first, training = _channels_first(node), node.attributes["is_training"]
    epsilon = np.float32(node.attributes["epsilon"])
    empty, group = np.zeros(0, np.float32), node.attributes.get(GROUP, 1)

    def run(grad: Array, x: Array, scale: Array, mean: Array, variance: Array, _: Any = None) -> tuple[Any, ...]:
        arriving, rows = _rows(grad, channels_first), _rows(x, channels_first)
        centred = rows - mean
        inverse = _ONE / np.sqrt(variance + epsilon)
        offset_gradient = np.add.reduce(arriving, axis=0)
        scale_gradient = np.add.reduce(arriving * centred, axis=0) * inverse
        if training:
            count = np.float32(len(rows) * group)
            sums = _sum_over_replicas(np.stack([offset_gradient, scale_gradient]), group)
            centred_gradient = arriving - sums[0] / count - centred * (sums[1] * inverse / count)
            dx = scale * inverse * centred_gradient
        else:
            dx = arriving * (scale * inverse)
        return _images(dx, x, channels_first), scale_gradient, offset_gradient, empty, empty

    return run
