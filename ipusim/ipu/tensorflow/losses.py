"""``tf.losses``: the mean of a loss over the micro-batch."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.host import also_on_host
from ipusim.ipu.tensorflow.array_functions import reduce_mean, tensor
from ipusim.ipu.tensorflow.keras.labels import classes_of
from ipusim.ipu.tensorflow.nn import sparse_softmax_cross_entropy_with_logits
from ipusim.ipu.tensorflow.offered import found_in, offering
from ipusim.ipu.tensorflow.squared_errors import squared_errors


@also_on_host
def mean_squared_error(labels: Any, predictions: Any, weights: float = 1.0) -> Any:
    """Return the mean of (predictions - labels)^2 over all elements; raises UnsupportedProgramError for weights."""
    _refuse_weights(weights)
    return reduce_mean(squared_errors(predictions, labels))


@also_on_host
def sparse_softmax_cross_entropy(labels: Any, logits: Any, weights: float = 1.0) -> Any:
    """Return the mean cross entropy of ``logits`` (batch, ..., classes) and whole-number ``labels`` (batch, ...).

    Either may have a last axis of one element more, as TensorFlow's loss takes them and ``tf.nn`` does not.
    Raises UnsupportedProgramError for weights.
    """
    _refuse_weights(weights)
    shape = anp.shape(logits)
    if len(shape) == anp.ndim(labels) + 2 and shape[-1] == 1:
        logits = anp.reshape(tensor(logits), shape[:-1])
    classes = classes_of(labels, tensor(logits))
    return reduce_mean(sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits))


def _refuse_weights(weights: Any) -> None:
    if not isinstance(weights, int | float) or weights != 1:
        raise UnsupportedProgramError(f"weights: expected 1.0, got {weights!r}: multiply the loss instead")


__getattr__, __dir__ = offering("tf.losses", found_in(__name__, "mean_squared_error sparse_softmax_cross_entropy"))
