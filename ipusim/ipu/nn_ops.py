"""Functions of Graphcore's ``nn_ops``: activations, and losses and a search of labels that come in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.api import Array, functions, layers
from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import embedding_ops
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.layers import run_loss
from ipusim.ipu.runtime.operations import BeamSearch, PerExampleCTC
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss
from ipusim.ipu.tensorflow import nn
from ipusim.ipu.tensorflow.activations import Activation
from ipusim.ipu.tensorflow.array_functions import cast, stop_gradient, tensor, whole_numbers
from ipusim.ipu.tensorflow.random import log_uniform_candidate_sampler


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """Return gelu of each element, by tanh or exactly."""
    return Activation("gelu" if checks.truth("approximate", approximate) else "gelu_erf")(x)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """Return the logistic function of each element, in three straight lines."""
    return Activation("hard_sigmoid")(x)


def swish(x: Any, name: str | None = None) -> Any:
    """Return x times the logistic function of x, for each element."""
    return Activation("swish")(x)


def multi_conv(func: Callable[..., Any] | None = None, options: dict[str, Any] | None = None) -> Any:
    """Return ``func`` as it is, or a decorator that does.

    Without effect: convolutions run one after another, each on all tiles of an IPU.

    Raises ProgramTypeError for options that are no dictionary when the function is called, as Graphcore's does.
    """

    def decorated(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if options and not isinstance(options, dict):
                raise ProgramTypeError(f"Expected the multi_conv `options` to be a `dict`, but got {options} instead.")
            return inner(*args)

        return call

    checks.function("func", func, optional=True)
    return decorated if func is None else decorated(func)


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Return the loss of each sample by connectionist temporal classification; its mean is the core's ``ctc``.

    Args:
        labels: whole numbers (batch, labels), the first ``label_length`` (batch,) of each sample.
        logits: (time steps, batch, classes), the first ``logit_length`` (batch,) steps of each sample.
        label_length, logit_length, blank_index: as above; the blank is one of the classes.
        out_dtype: of the losses; None for that of the logits.

    Raises ProgramError for a type that is too small, and ProgramError and ModelError for tensors that do not fit.
    """
    return _ctc(labels, logits, label_length, logit_length, blank_index, out_dtype, "logits")


#: Its former name.
ctc_loss_with_logits = ctc_loss_v2


def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Return what :func:`ctc_loss_v2` does, of logarithms of probabilities."""
    return _ctc(labels, data, label_length, data_length, blank_index, out_dtype, "data")


#: Its former name.
ctc_loss = ctc_loss_with_log_probs


def _ctc(labels: Any, data: Any, label_length: Any, data_length: Any, blank: Any, out_dtype: Any, kind: str) -> Any:
    x = _scores(kind, data)
    if out_dtype is not None:
        if x.dtype == np.float32 and checks.dtype("out_dtype", out_dtype) == np.float16:
            raise ProgramError(f"out_dtype cannot be float16 when dtype of {kind} is float32.")
        out_dtype = checks.dtype("out_dtype", out_dtype)
    _, batch, classes = x.shape
    rows = _whole("labels", labels, (batch, None))
    counts = _whole("label_length", label_length, (batch,))
    if counts.min(initial=0) < 0 or counts.max(initial=0) > rows.shape[1]:
        checks.wrong_value("label_length", f"lengths from 0 to {rows.shape[1]}", counts)
    used = np.arange(rows.shape[1]) < counts[:, None]
    if (((rows < 0) | (rows == checks.integer("blank_index", blank) % classes)) & used).any():
        checks.wrong_value("labels", f"classes from 0 to {classes - 1}, but for the blank, {blank}", rows)
    steps = _whole(f"{kind.removesuffix('s')}_length", data_length, (batch,))
    own = np.concatenate([np.where(used, rows, -1), steps[:, None]], axis=1)
    loss = layers.CTC(rows.shape[1], blank, timed=True, log_probabilities=kind == "data")
    outputs = anp.transpose(x, (1, 0, 2))
    result = PerExampleLoss(
        (batch,),
        lambda: functions.operate(PerExampleCTC(loss), outputs, own)[0],
        lambda: run_loss(loss, outputs, own, {}),
    )
    return result if out_dtype in (None, x.dtype) else cast(result, out_dtype)


def ctc_beam_search_decoder(
    logits: Any,
    logits_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the likeliest labels of each sample: negative log probabilities, lengths, and the labels.

    They are (batch, top_paths), (batch, top_paths) and (batch, top_paths, time steps), with -1 behind the labels. No
    gradient goes back. Raises ProgramError for more paths than beams, and for tensors that do not fit.
    """
    return _decoded("logits", logits, logits_lengths, beam_width, top_paths, blank_index)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any,
    input_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return what :func:`ctc_beam_search_decoder` does, of logarithms of probabilities."""
    return _decoded("log_probs", log_probs, input_lengths, beam_width, top_paths, blank_index)


def _decoded(kind: str, data: Any, lengths: Any, width: Any, paths: Any, blank: Any) -> tuple[Any, Any, Any]:
    x = _scores(kind, data)
    steps, batch, classes = x.shape
    counts = _whole("logits_lengths" if kind == "logits" else "input_lengths", lengths, (batch,))
    if counts.min(initial=0) < 0 or counts.max(initial=0) > steps:
        checks.wrong_value("lengths", f"from 0 to {steps} time steps", counts)
    beams = checks.whole("beam_width", width, 1)
    if checks.whole("top_paths", paths, 1) > beams:
        checks.wrong_value("top_paths", f"at most beam_width, {beams}", paths)
    if not -classes <= checks.integer("blank_index", blank) < classes:
        checks.wrong_value("blank_index", f"one of {classes} classes", blank)
    operation = BeamSearch(beams, paths, blank % classes, kind != "logits")
    losses, sizes, labels = functions.operate_without_gradient(operation, anp.transpose(x, (1, 0, 2)), counts)
    return losses, sizes, labels


def _scores(name: str, data: Any) -> Any:
    x = tensor(data)
    if x.ndim != 3 or x.dtype.kind != "f":
        result = f"{x.dtype}{list(x.shape)}"
        checks.wrong_value(name, "a floating-point tensor of shape [max_time, batch_size, num_classes]", result)
    return x


def _whole(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    result: Array = whole_numbers(name, value)
    same = len(shape) == result.ndim and all(
        want in (None, size) for want, size in zip(shape, result.shape, strict=True)
    )
    if not same:
        checks.wrong_value(
            name, f"a tensor of shape {[('?' if want is None else want) for want in shape]}", result.shape
        )
    return result.astype(np.int64)


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "nce_loss",
) -> Any:
    """Return the noise-contrastive loss of each sample (Gutmann and Hyvarinen 2010), of ``num_sampled`` classes drawn.

    Weights are (num_classes, elements), biases (num_classes,), labels (batch, num_true), inputs (batch, elements).
    Raises as :func:`ipusim.ipu.nn_ops._sampled_logits` does.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, None
    )
    return anp.sum(nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits), axis=1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Any:
    """Return the cross entropy of each sample over its own classes and those drawn (Jean et al. 2014).

    Arguments are as for :func:`nce_loss`; ``seed`` is of the draws. Raises as that does.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, seed
    )
    return nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)


def _sampled_logits(
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
        anp.concatenate([tensor(weight) for weight in weights])
        if isinstance(weights, list | tuple)
        else tensor(weights)
    )
    bias, x, true = tensor(biases), tensor(inputs), whole_numbers("labels", labels)
    shapes = {
        "weights": (table.shape, (num_classes, x.shape[-1])),
        "biases": (bias.shape, (num_classes,)),
        "labels": (true.shape, (x.shape[0], num_true)),
    }
    for name, (result, shape) in shapes.items():
        if result != shape:
            checks.wrong_value(name, f"a tensor of shape {shape}", result)
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
