"""Normalise batches with half-precision parameters, like Graphcore's TensorFlow."""

from __future__ import annotations

from inspect import signature
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load

tf = load()

_function = tf.compat.v1.nn.fused_batch_norm
_PARAMETERS = ("scale", "offset", "mean", "variance")


def fused_batch_norm(*args: Any, **kwargs: Any) -> Any:
    """Call TensorFlow's ``fused_batch_norm`` on float32 parameters, and return statistics of the scale's dtype."""
    arguments = signature(_function).bind(*args, **kwargs).arguments
    dtype = tf.convert_to_tensor(arguments["scale"]).dtype
    if dtype != tf.float16:
        return _function(**arguments)
    for name in _PARAMETERS:
        if arguments.get(name) is not None:
            arguments[name] = tf.cast(arguments[name], tf.float32)
    y, mean, variance = _function(**arguments)
    return y, tf.cast(mean, dtype), tf.cast(variance, dtype)
