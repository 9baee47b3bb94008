"""Losses of the true classes and some that are drawn, instead of all: Graphcore's ``nce_loss`` and sampled softmax."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.ipu import checks, embedding_ops
from ipusim.ipu.tensorflow.array_functions import cast, stop_gradient, tensor, whole_numbers
from ipusim.ipu.tensorflow.candidate_sampling import log_uniform_candidate_sampler


def sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    seed: int | None,
) -> tuple[Any, Any]:
    """Return logits (batch, num_true + num_sampled) of true and drawn classes, and labels that sum to 1 in each row.

    From each logit the logarithm of how often its class is expected is subtracted. Raises ProgramError for tensors
    that do not fit, ProgramTypeError for labels that are no whole numbers.
    """
    table = (
        anp.concatenate([tensor(each) for each in weights]) if isinstance(weights, list | tuple) else tensor(weights)
    )
    bias, x, true = tensor(biases), tensor(inputs), whole_numbers("labels", labels)
    wanted = {
        "weights": (table.shape, (num_classes, x.shape[-1])),
        "biases": (bias.shape, (num_classes,)),
        "labels": (true.shape, (x.shape[0], num_true)),
    }
    for name, (found, shape) in wanted.items():
        if found != shape:
            checks.wrong_value(name, f"a tensor of shape {shape}", found)
    if sampled_values is None:
        sampled_values = log_uniform_candidate_sampler(true, num_true, num_sampled, True, num_classes, seed)
    drawn, true_expected, expected = sampled_values
    classes = np.concatenate([true.reshape(-1), np.asarray(drawn, true.dtype)])
    rows = cast(embedding_ops.embedding_lookup(table, classes), x.dtype)
    offsets = cast(embedding_ops.embedding_lookup(anp.reshape(bias, (-1, 1)), classes), x.dtype)[:, 0]
    count = true.size
    own = anp.reshape(rows[:count], (*true.shape, -1))
    true_logits = anp.sum(anp.expand_dims(x, 1) * own, axis=-1) + anp.reshape(offsets[:count], true.shape)
    others = anp.dot(x, anp.transpose(rows[count:])) + offsets[count:]
    logits = anp.concatenate([true_logits - _log(true_expected, x.dtype), others - _log(expected, x.dtype)], axis=1)
    ones = np.zeros(logits.shape, x.dtype)
    ones[:, :num_true] = 1 / num_true
    return logits, ones


def _log(expected: Any, dtype: Any) -> Any:
    return stop_gradient(anp.log(cast(expected, dtype)))
