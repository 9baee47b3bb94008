"""Compute activations, losses over sampled classes, CTC losses and decoders: Graphcore's ``nn_ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.api import Array, layers
from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.operations import BeamSearch, PerExampleCTC
from ipusim.ipu.traced.operations import operate, operate_without_gradient

tf = load()


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """Return gelu of a tensor, element by element.

    Args:
        x: tensor.
        approximate: whether tanh approximates the error function.
        name: name of the operation.
    """
    return tf.nn.gelu(x, checks.truth("approximate", approximate), name)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """Return the piecewise linear approximation of the logistic function, in three parts.

    Args:
        x: tensor.
        name: name of the operation.
    """
    return tf.identity(tf.keras.activations.hard_sigmoid(x), name)


def swish(x: Any, name: str | None = None) -> Any:
    """Return x times the logistic function of x.

    Args:
        x: tensor.
        name: name of the operation.
    """
    value = tf.convert_to_tensor(x)
    return tf.multiply(value, tf.sigmoid(value), name)


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Return connectionist temporal classification losses, one per sample.

    Args:
        labels: whole numbers (batch, labels); the first ``label_length`` labels of a sample count.
        logits: (time steps, batch, classes); the first ``logit_length`` steps of a sample count.
        label_length: number of labels per sample (batch,).
        logit_length: number of time steps per sample (batch,).
        blank_index: class that means no label.
        out_dtype: dtype of the losses; by default the logits' dtype.
        name: name of the operation.

    Raises:
        ProgramError: if out_dtype is too small or tensors do not match. Labels and lengths from the infeed are
            checked while the program runs.
    """
    return _ctc_loss(labels, logits, label_length, logit_length, blank_index, out_dtype, "logits", name)


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
    """Return the losses of :func:`ctc_loss_v2` from logarithms of probabilities.

    Args:
        labels, label_length, blank_index, out_dtype, name: see :func:`ctc_loss_v2`.
        data: logarithms of probabilities (time steps, batch, classes).
        data_length: number of time steps per sample.
    """
    return _ctc_loss(labels, data, label_length, data_length, blank_index, out_dtype, "data", name)


ctc_loss = ctc_loss_with_log_probs


def _ctc_loss(
    labels: Any, data: Any, label_length: Any, data_length: Any, blank: Any, out_dtype: Any, kind: str, name: Any
) -> Any:
    """Add the node of a CTC loss; ``kind`` names the argument for ``data``, logits or log probabilities."""
    x = _scores(kind, data)
    if out_dtype is not None:
        out_dtype = tf.as_dtype(out_dtype)
        if x.dtype == tf.float32 and out_dtype == tf.float16:
            raise ProgramError(f"out_dtype cannot be float16 when dtype of {kind} is float32.")
        checks.dtype("out_dtype", out_dtype.as_numpy_dtype)
    _, batch, classes = x.shape.as_list()
    rows = _whole_numbers("labels", labels, [batch, None])
    counts = _whole_numbers("label_length", label_length, [batch])
    steps = _whole_numbers(f"{kind.removesuffix('s')}_length", data_length, [batch])
    loss = layers.CTC(
        rows.shape.as_list()[1], checks.integer("blank_index", blank), timed=True, log_probabilities=kind == "data"
    )
    operation = PerExampleCTC(loss)
    outputs = tf.transpose(x, [1, 0, 2])
    static_values = [item for item in (tf.get_static_value(rows), tf.get_static_value(counts)) if item is not None]
    for lengths in static_values[1:]:
        operation.check(np.asarray(tf.get_static_value(rows)), lengths, classes)
    (result,) = operate(operation, [outputs, rows, counts, steps], [(x.dtype, [batch])], name or "ctc_loss")
    return result if out_dtype in (None, x.dtype) else tf.cast(result, out_dtype)


def ctc_beam_search_decoder(
    logits: Any,
    logits_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the likeliest label sequences of every sample.

    Args:
        logits: (time steps, batch, classes).
        logits_lengths: number of time steps per sample.
        beam_width: candidates kept after a time step.
        top_paths: sequences returned per sample.
        blank_index: class that means no label.
        name: name of the operation.

    Returns:
        Negative log probabilities (batch, top_paths), lengths (batch, top_paths), and the labels (batch, top_paths,
        time steps), padded with -1. The operation has no gradient.

    Raises:
        ProgramError: if top_paths exceeds beam_width or tensors do not match.
    """
    return _decode("logits", logits, logits_lengths, beam_width, top_paths, blank_index, name)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any,
    input_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the sequences of :func:`ctc_beam_search_decoder` from logarithms of probabilities.

    Args:
        log_probs: logarithms of probabilities (time steps, batch, classes).
        input_lengths: number of time steps per sample.
        beam_width, top_paths, blank_index, name: see :func:`ctc_beam_search_decoder`.
    """
    return _decode("log_probs", log_probs, input_lengths, beam_width, top_paths, blank_index, name)


def _decode(
    kind: str, data: Any, lengths: Any, width: Any, paths: Any, blank: Any, name: str | None
) -> tuple[Any, Any, Any]:
    """Add the node of a beam search; ``kind`` names the argument for ``data``, logits or log probabilities."""
    x = _scores(kind, data)
    steps, batch, classes = x.shape.as_list()
    counts = _whole_numbers("logits_lengths" if kind == "logits" else "input_lengths", lengths, [batch])
    beams = checks.whole("beam_width", width, 1)
    if checks.whole("top_paths", paths, 1) > beams:
        checks.wrong_value("top_paths", f"at most beam_width, {beams}", paths)
    if not -classes <= checks.integer("blank_index", blank) < classes:
        checks.wrong_value("blank_index", f"one of {classes} classes", blank)
    operation = _CheckedSearch(beams, paths, blank % classes, kind != "logits")
    if (static_counts := tf.get_static_value(counts)) is not None:
        _check_steps(static_counts, steps)
    forms = [(x.dtype, [batch, paths]), (tf.int32, [batch, paths]), (tf.int32, [batch, paths, steps])]
    layer_name = name or "ctc_beam_search_decoder"
    losses, sizes, labels = operate_without_gradient(operation, [tf.transpose(x, [1, 0, 2]), counts], forms, layer_name)
    return losses, sizes, labels


class _CheckedSearch(BeamSearch):
    """Beam search over (scores, numbers of time steps) with a check of the numbers."""

    def forward(self, *arrays: Array) -> Any:
        """Return negative log probabilities, lengths and labels; raises ProgramError for numbers out of range."""
        scores, counts = arrays
        _check_steps(counts, scores.shape[1])
        return super().forward(scores, counts)


def _check_steps(counts: Array, steps: int) -> None:
    """Raise ProgramError for numbers of time steps out of range."""
    if counts.min(initial=0) < 0 or counts.max(initial=0) > steps:
        checks.wrong_value("lengths", f"from 0 to {steps} time steps", counts)


def _scores(name: str, data: Any) -> Any:
    """Return class scores as a tensor; raises ProgramError for another shape or dtype."""
    x = tf.convert_to_tensor(data)
    if x.shape.rank != 3 or not x.dtype.is_floating:
        requirement = "a floating-point tensor of shape [max_time, batch_size, num_classes]"
        checks.wrong_value(name, requirement, f"{x.dtype.name}{x.shape.as_list() if x.shape.rank is not None else ''}")
    return x


def _whole_numbers(name: str, value: Any, shape: list[int | None]) -> Any:
    """Return whole numbers of a shape as int64; raises ProgramTypeError and ProgramError for other values."""
    result = tf.convert_to_tensor(value)
    if not result.dtype.is_integer:
        checks.wrong_type(name, "whole numbers", value)
    if not result.shape.is_compatible_with(shape):
        requirement = f"a tensor of shape {['?' if size is None else size for size in shape]}"
        checks.wrong_value(name, requirement, tuple(result.shape.as_list()))
    return tf.cast(result, tf.int64)


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
    """Return noise-contrastive losses with ``num_sampled`` sampled classes, one per sample.

    Args:
        weights: (num_classes, elements).
        biases: (num_classes,).
        labels: whole numbers (batch, num_true).
        inputs: (batch, elements).
        num_sampled: number of sampled classes.
        num_classes: number of classes.
        num_true: number of target classes per sample.
        sampled_values: result of a candidate sampler; by default a log-uniform sampler draws the classes.
        name: name of the operation.

    Raises:
        ProgramError: if shapes do not match.
    """
    return _sampled_loss(tf.compat.v1.nn.nce_loss, **locals())


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
    """Return cross entropy losses over target classes and sampled classes, one per sample.

    Args:
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, name: see
            :func:`nce_loss`.
        seed: seed of the sampler.

    Raises:
        ProgramError: if shapes do not match.
    """
    return _sampled_loss(tf.compat.v1.nn.sampled_softmax_loss, **locals(), remove_accidental_hits=False)


def _sampled_loss(
    function: Any, weights: Any, biases: Any, labels: Any, inputs: Any, num_classes: int, num_true: int, **options: Any
) -> Any:
    """Return TensorFlow's loss on sampled classes; raises ProgramError for tensors with conflicting shapes."""
    x, true = tf.convert_to_tensor(inputs), tf.convert_to_tensor(labels)
    if not true.dtype.is_integer:
        checks.wrong_type("labels", "whole numbers", labels)
    shapes = {"biases": (tf.convert_to_tensor(biases), (num_classes,)), "labels": (true, (x.shape[0], num_true))}
    if isinstance(weights, list | tuple):
        weights = tf.concat(weights, 0)
    else:
        shapes["weights"] = (tf.convert_to_tensor(weights), (num_classes, x.shape[-1]))
    for name, (value, shape) in sorted(shapes.items()):
        if not value.shape.is_compatible_with(shape):
            requirement = tuple(None if size is None else int(size) for size in tf.TensorShape(shape).as_list())
            checks.wrong_value(name, f"a tensor of shape {requirement}", tuple(value.shape.as_list()))
    numbers = {"num_classes": num_classes, "num_true": num_true, "partition_strategy": "div"}
    return function(weights, biases, tf.cast(labels, tf.int64), inputs, **numbers, **options)


def multi_conv(func: Callable[..., Any] | None = None, options: dict[str, Any] | None = None) -> Any:
    """Return ``func`` with checked options, or a decorator for it.

    Without effect: convolutions run one after another, each on all tiles of an IPU.

    As in Graphcore's software, the call raises ProgramTypeError for options that are not a dictionary.
    """

    def decorated(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if options and not isinstance(options, dict):
                raise ProgramTypeError(f"Expected the multi_conv `options` to be a `dict`, but got {options} instead.")
            return inner(*args)

        return call

    checks.function("func", func, optional=True)
    return decorated if func is None else decorated(func)
