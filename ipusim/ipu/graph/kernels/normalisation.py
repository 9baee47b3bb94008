"""Batch normalisation as TensorFlow fuses it, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import widened
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, register

_ONE = np.float32(1)


def _channels_first(node: Node) -> bool:
    return str(node.attributes["data_format"]).startswith("NC")


def _rows(x: Array, first: bool) -> Array:
    """Return images as a row of channels for each position, in float32."""
    wide = widened(x)
    return (np.moveaxis(wide, 1, -1) if first else wide).reshape(-1, x.shape[1 if first else -1])


def _images(rows: Array, like: Array, first: bool) -> Array:
    """Return rows of channels in the form and dtype of images."""
    if not first:
        return rows.reshape(like.shape).astype(like.dtype, copy=False)
    lengths = (like.shape[0], *like.shape[2:], like.shape[1])
    return np.moveaxis(rows.reshape(lengths), -1, 1).astype(like.dtype, copy=False)


@register("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _normalise(node: Node) -> Kernel:
    """Normalise by the batch's mean and variance in training, by the given ones else.

    The running variance takes the sample variance: the variance times N / (N - 1).
    """
    first, training = _channels_first(node), node.attributes["is_training"]
    epsilon = np.float32(node.attributes["epsilon"])
    factor = np.float32(node.attributes.get("exponential_avg_factor", 1.0))
    results = len(node.output_types)

    def statistics(rows: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Return the batch's mean and variance, and the running ones behind it."""
        batch_mean = np.add.reduce(rows, axis=0) / np.float32(len(rows))
        centred = rows - batch_mean
        batch_variance = np.add.reduce(centred * centred, axis=0) / np.float32(len(rows))
        of_sample = batch_variance * np.float32(len(rows) / max(len(rows) - 1, 1))
        if factor == 1:
            return batch_mean, batch_variance, batch_mean, of_sample
        old = _ONE - factor
        return batch_mean, batch_variance, old * mean + factor * batch_mean, old * variance + factor * of_sample

    def run(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Any, ...]:
        rows = _rows(x, first)
        taken, spread, new_mean, new_variance = statistics(rows, mean, variance) if training else (mean, variance) * 2
        factors = _ONE / np.sqrt(spread + epsilon) * scale
        y = _images((rows - taken) * factors + offset, x, first)
        return (y, new_mean, new_variance, taken, spread, np.float32(0))[:results]

    return run


@register("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def _normalise_gradient(node: Node) -> Kernel:
    first, training = _channels_first(node), node.attributes["is_training"]
    epsilon = np.float32(node.attributes["epsilon"])
    nothing = np.zeros(0, np.float32)

    def run(grad: Array, x: Array, scale: Array, mean: Array, variance: Array, _: Any = None) -> tuple[Any, ...]:
        arriving, rows = _rows(grad, first), _rows(x, first)
        centred = rows - mean
        inverse = _ONE / np.sqrt(variance + epsilon)
        of_offset = np.add.reduce(arriving, axis=0)
        of_scale = np.add.reduce(arriving * centred, axis=0) * inverse
        if training:
            count = np.float32(len(rows))
            rest = arriving - of_offset / count - centred * (of_scale * inverse / count)
            dx = scale * inverse * rest
        else:
            dx = arriving * (scale * inverse)
        return _images(dx, x, first), of_scale, of_offset, nothing, nothing

    return run
