"""``tf.losses``: the mean of a loss over the micro-batch."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.per_example_loss import concrete, squared_errors
from ipusim.ipu.tensorflow.array_functions import cast, reduce_mean, tensor
from ipusim.ipu.tensorflow.nn import sparse_softmax_cross_entropy_with_logits


@also_on_host
def mean_squared_error(labels: Any, predictions: Any, weights: float = 1.0) -> Any:
    """Return the mean of (predictions - labels)^2 over all elements.

    Raises UnsupportedProgramError for weights, ProgramError for labels of another shape.
    """
    _refuse_weights(weights)
    check_shapes(concrete(predictions), concrete(labels), batch_is_known=False)
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


def check_shapes(predictions: Any, labels: Any, batch_is_known: bool = True) -> None:
    """Refuse predictions and labels of different shapes in TensorFlow's words; raises ProgramError.

    Where the batch is not known, a first axis of one element may stand for any.
    """
    one, other = anp.shape(predictions), anp.shape(labels)
    first = int(not batch_is_known and len(one) == len(other) and 1 in (*one[:1], *other[:1]))
    if one[first:] != other[first:]:
        raise ProgramError(f"Shapes {one} and {other} are incompatible")


def _refuse_weights(weights: Any) -> None:
    if not isinstance(weights, int | float) or weights != 1:
        raise UnsupportedProgramError(f"weights: expected 1.0, got {weights!r}: multiply the loss instead")


__getattr__, __dir__ = offering("tf.losses", in_module(__name__, "mean_squared_error sparse_softmax_cross_entropy"))


def in_rows(labels: Any, predictions: Any) -> Any:
    """Return labels (batch,) of predictions (batch, 1) as these are, as Keras gives them to losses and metrics."""
    shape = anp.shape(predictions)
    return anp.reshape(labels, shape) if len(shape) == 2 and (*anp.shape(labels), 1) == shape else labels


def fitted(y_true: Any, y_pred: Any) -> Any:
    """Return labels in the dtype of predictions, and in their shape where one has a last axis of one element more.

    Raises ProgramError for labels whose axes do not go with those of the predictions.
    """
    labels, shape = tensor(y_true), anp.shape(y_pred)
    own = anp.shape(labels)
    if (*own, 1) == shape or own == (*shape, 1):
        labels = anp.reshape(labels, shape)
    elif own and (len(own) != len(shape) or any(a != b and 1 not in (a, b) for a, b in zip(own, shape, strict=True))):
        checks.wrong_value("y_true", f"labels for predictions of shape {shape}", own)
    return labels if labels.dtype == y_pred.dtype else cast(labels, y_pred.dtype)


def shares_of(y_true: Any, y_pred: Any) -> Any:
    """Return labels that have a share for each class; raises ProgramError for others, such as class numbers."""
    labels, shape = fitted(y_true, y_pred), anp.shape(y_pred)
    if anp.shape(labels) != shape:
        expected = f"a share for each class, shape {shape}; of class numbers take the sparse loss and metrics"
        checks.wrong_value("y_true", expected, anp.shape(labels))
    return labels


def fitted_weights(sample_weight: Any, values: Any) -> Any:
    """Return weights in the shape of values: one of a sample, or of a step of it, is that of all that it has.

    Raises ProgramError for weights of other axes.
    """
    weights, shape = tensor(sample_weight), anp.shape(values)
    if anp.shape(weights) != shape:
        own = anp.shape(weights)
        own = own[:-1] if len(own) == len(shape) + 1 and own[-1] == 1 else (*own, *[1] * (len(shape) - len(own)))
        if len(own) != len(shape) or any(size not in (1, axis) for size, axis in zip(own, shape, strict=True)):
            checks.wrong_value("sample_weight", f"weights for values of shape {shape}", anp.shape(weights))
        weights = anp.reshape(weights, own) * np.ones(shape, np.float32)
    return cast(weights, np.float32)


def classes_of(y_true: Any, y_pred: Any) -> Any:
    """Return class numbers (batch, ...) for predictions (batch, ..., classes), without a last axis of one element."""
    labels, axes = tensor(y_true), len(anp.shape(y_pred)) - 1
    if len(anp.shape(labels)) == axes + 1 and anp.shape(labels)[-1:] == (1,):
        labels = anp.reshape(labels, anp.shape(labels)[:-1])
    return labels if labels.dtype.kind in "iu" else cast(labels, np.int32)
