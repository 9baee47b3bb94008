"""``tf.nn``: functions of neural networks, on the core's own layers where it has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval

from ipusim.api import Array, LayerCost, Shape, VectorWork, Work, functions, layers
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.distribution import replicas_in_sync
from ipusim.ipu.runtime.host_functions import also_by_older_names, also_on_host
from ipusim.ipu.runtime.import_names import major_version
from ipusim.ipu.runtime.layers import run, run_loss
from ipusim.ipu.runtime.names import program_trains, scope, unique
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss
from ipusim.ipu.tensorflow.array_functions import reduce_mean, reduce_sum, stop_gradient, tensor
from ipusim.ipu.tensorflow.shaping import one_hot


@dataclass(frozen=True)
class ShapedDropout:
    """Elements of (x,) dropped by a mask that is spread over them, and the others scaled up, as the core's dropout.

    Attributes:
        rate: share of the mask that drops.
        shape: of the mask.
        key: of the draws; None for none, as in inference.
    """

    rate: float
    shape: Shape
    key: layers.Key | None

    def _dropped(self, x: Array) -> Array:
        if self.key is None or self.rate == 0:
            return x
        result: Array = x * layers.keep_mask(self.key, self.shape, self.rate)
        result *= 1 / (1 - self.rate)
        return result

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return ``x`` with elements dropped."""
        return (self._dropped(arrays[0]),), None

    def backward(self, saved: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradient dropped and scaled like the input: the mask is drawn anew."""
        return [self._dropped(grads[0]) for _ in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of either pass, as PopLibs' shaped dropout has it (lib/poprand/RandomGen.cpp).

        A mask of the tensor's own shape is never made; another is drawn, with seeds of its own, and scaled, and each
        element is multiplied with it.
        """
        (x,) = arrays
        drawn = math.prod(self.shape)
        spread = drawn != x.size
        vector = drawn * VectorWork(2) + x.size * VectorWork(1) if spread else x.size * layers.DROP
        sets = 2 * layers.DROP_SETS + 1 if spread else layers.DROP_SETS
        work = Work(vector=vector, sram_bytes=2 * x.nbytes, itemsize=x.dtype.itemsize, compute_sets=sets)
        return LayerCost(work, work)


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None) -> Any:
    """Return the sum of the losses of a batch, divided by the batch of all hosts of the strategy whose scope it is in.

    Without weights and a given batch it is the mean over this host's samples, divided by the hosts.

    Args:
        per_example_loss: (batch, ...), whose first axis has the samples.
        sample_weight: a factor of each sample, or of all.
        global_batch_size: by default this host's batch times the hosts.

    Raises ProgramTypeError and ProgramError for a batch that is no whole number from 1 up.
    """
    hosts = replicas_in_sync()
    losses = per_example_loss if isinstance(per_example_loss, PerExampleLoss) else tensor(per_example_loss)
    value = None if global_batch_size is None else checks.whole("global_batch_size", global_batch_size, 1)
    if not losses.ndim:
        checks.wrong_value("per_example_loss", "a loss of each sample of a batch", per_example_loss)
    samples = losses.shape[0]
    if sample_weight is None and value in (None, hosts * samples) and losses.ndim == 1:
        mean = reduce_mean(losses)
        return mean if hosts == 1 else mean * mean.dtype.type(1 / hosts)
    weighted = losses if sample_weight is None else losses * tensor(sample_weight)
    total = reduce_sum(weighted)
    return total / total.dtype.type(value or hosts * samples)


@also_by_older_names(dim="axis")
@also_on_host
def softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Return exp(x), divided by its sum along an axis, by default the last."""
    return anp.exp(log_softmax(logits, axis))


@also_by_older_names(dim="axis")
@also_on_host
def log_softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Return x less the logarithm of the sum of exp(x) along an axis, by default the last."""
    x, axis = tensor(logits), -1 if axis is None else axis
    shifted = x - anp.max(x, axis=axis, keepdims=True)
    return shifted - anp.log(anp.sum(anp.exp(shifted), axis=axis, keepdims=True))


@also_on_host
def sparse_softmax_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Any:
    """Return -log softmax(logits)[label] for each row of ``logits`` (batch, ..., classes); labels (batch, ...).

    The mean of it, by ``reduce_mean``, is the core's softmax cross entropy. Raises ProgramTypeError without both,
    ProgramError for a single logit and for other numbers of labels than of rows, and ModelError for labels that the
    logits do not have.
    """
    _both("sparse_softmax_cross_entropy_with_logits", labels, logits)
    scores, classes = tensor(logits), tensor(labels)
    if not anp.shape(scores):
        checks.wrong_value("logits", "those of classes in the last axis", logits)
    rows, value = anp.shape(scores)[:1], anp.shape(classes)[:1]
    if rows != value:
        checks.wrong_value("labels", f"as many as logits of shape {anp.shape(scores)} have rows", anp.shape(classes))

    def losses() -> Any:
        layers.SoftmaxCrossEntropy().check_labels(anp.shape(scores)[1:], np.asarray(getval(classes)))
        return -anp.sum(log_softmax(scores) * one_hot(classes, scores.shape[-1], dtype=scores.dtype), axis=-1)

    return PerExampleLoss(
        anp.shape(scores)[:-1], losses, lambda: run_loss(layers.SoftmaxCrossEntropy(), scores, classes, {})
    )


@also_on_host
def softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Any:
    """Return -sum(labels * log softmax(logits)) for each row of ``logits``; raises ProgramTypeError without both.

    In a program for TensorFlow 1 no gradient goes back to the labels.
    """
    known = stop_gradient(labels) if major_version() == 1 and labels is not None else labels
    return softmax_cross_entropy_with_logits_v2(known, logits, axis, name, dim)


@also_on_host
def softmax_cross_entropy_with_logits_v2(
    labels: Any = None, logits: Any = None, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Any:
    """Return -sum(labels * log softmax(logits)) for each row of ``logits``; gradients go back to the labels too.

    ``axis``, or ``dim``, is that of the classes, by default the last. Raises ProgramTypeError without both.
    """
    _both("softmax_cross_entropy_with_logits", labels, logits)
    along = next((each for each in (axis, dim) if each is not None), -1)
    return -anp.sum(tensor(labels) * log_softmax(logits, along), axis=along)


def _both(function: str, labels: Any, logits: Any) -> None:
    if labels is None or logits is None:
        checks.wrong_type(function, "labels=... and logits=...", (labels, logits))


@also_on_host
def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Any:
    """Return max(x, 0) - x z + log(1 + exp(-|x|)) of logits x and labels z; raises ProgramTypeError without both."""
    _both("sigmoid_cross_entropy_with_logits", labels, logits)
    x = tensor(logits)
    zero = x.dtype.type(0)
    return anp.where(x >= 0, x, zero) - x * tensor(labels) + anp.log1p(anp.exp(anp.where(x >= 0, -x, x)))


@also_on_host
def dropout(
    x: Any,
    share: float | None = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: float | None = None,
    keep_prob: float | None = None,
) -> Any:
    """Return ``x`` with a share of its elements 0 and the others scaled up, in training.

    ``share`` is what ``keep_prob`` is in a program for TensorFlow 1, and ``rate`` in one for TensorFlow 2. Masks are
    drawn by the place in the program, not by ``seed``; with a ``noise_shape`` once for all along its axes of one.
    Raises ProgramError for a shape that does not spread over ``x``, UnsupportedProgramError in a program that does not
    train, which draws none.
    """
    if major_version() == 1:
        keep_prob = share if keep_prob is None else keep_prob
    else:
        rate = share if rate is None else rate
    dropped = rate if rate is not None else 0.0 if keep_prob is None else 1 - keep_prob
    if dropped and not program_trains():
        raise UnsupportedProgramError(
            f"tf.nn.dropout: a rate of {dropped} in a program that does not train is not simulated: expected none there"
        )
    value, called = tensor(x), scope().prefix + unique("dropout")
    if noise_shape is None:
        return run(layers.Dropout(dropped), value, {}, draws_as=called)
    layers.check_rate(dropped)
    values = list(noise_shape) if isinstance(noise_shape, list | tuple | np.ndarray) else []
    mask = tuple(size if axis is None else int(axis) for axis, size in zip(values, value.shape, strict=False))
    if len(values) != value.ndim or any(axis not in (1, size) for axis, size in zip(mask, value.shape, strict=True)):
        checks.wrong_value("noise_shape", f"1, or the size of x, for each axis of {value.shape}", noise_shape)
    return functions.operate(ShapedDropout(dropped, mask, functions.draw_key(called)), value)[0]


@also_on_host
def l2_loss(t: Any, name: str | None = None) -> Any:
    """Return half the sum of squares."""
    x = tensor(t)
    return anp.sum(anp.square(x)) * 0.5


@also_on_host
def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    """Return the sum of a tensor and a bias along its last axis; raises ProgramError for a bias of another shape."""
    _channels_last(data_format)
    x, biases = tensor(value), tensor(bias)
    if x.ndim < 2:
        raise ProgramError(f"Input tensor must be at least 2D: {list(x.shape)}")
    if biases.ndim != 1:
        raise ProgramError(f"Biases must be 1D: {list(biases.shape)}")
    if biases.shape != x.shape[-1:]:
        raise ProgramError(
            "Must provide as many biases as the last dimension of the input tensor: "
            f"{list(biases.shape)} vs. {list(x.shape)}"
        )
    return x + biases


@also_on_host
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """Return x @ weights + biases; raises ProgramError for biases of another shape."""
    return bias_add(anp.dot(tensor(x), tensor(weights)), biases)


@also_on_host
def moments(
    x: Any, axes: Any, shift: None = None, name: str | None = None, keep_dims: bool = False, keepdims: bool = False
) -> Any:
    """Return mean and variance over one axis or several."""
    value, over = tensor(x), tuple(np.atleast_1d(axes).tolist())
    mean = anp.mean(value, axis=over, keepdims=True)
    variance = anp.mean(anp.square(value - mean), axis=over, keepdims=True)
    if keep_dims or keepdims:
        return mean, variance
    return anp.squeeze(mean, over), anp.squeeze(variance, over)


@also_on_host
def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: str = "VALID",
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Any:
    """Return the convolution of images (batch, height, width, channels) with kernels (h, w, channels, filters).

    Where the images have several times the channels of the kernels it is one in so many groups, as on IPUs. Raises
    ProgramError for another layout or dilations, and for channels that no groups have.
    """
    _channels_last(data_format)
    if set(np.atleast_1d(dilations).tolist()) != {1}:
        checks.wrong_value("dilations", "1 along each axis", dilations)
    images, kernel = tensor(input), tensor(filter if filters is None else filters)
    height, width, channels, outputs = kernel.shape
    groups, rest = divmod(images.shape[-1], channels)
    if rest or not groups:
        raise ProgramError(f"input depth must be evenly divisible by filter depth: {images.shape[-1]} vs {channels}")
    padded = cast(layers.Padding, padding.lower())
    layer = layers.Conv2D(outputs, (height, width), _steps(strides), padded, use_bias=False, groups=groups)
    return run(layer, images, {"W": kernel}, draws_as="")


def _pool(called: str, kind: type[layers.MaxPool2D | layers.AveragePool2D], of: str) -> Any:
    def pool(
        value: Any,
        ksize: Any,
        strides: Any,
        padding: str = "VALID",
        data_format: str | None = "NHWC",
        name: str | None = None,
        input: Any = None,
    ) -> Any:
        _channels_last(data_format)
        layer = kind(_steps(ksize), _steps(strides), padding.lower())  # type: ignore[arg-type]
        return run(layer, tensor(value if input is None else input), {}, draws_as="")

    pool.__name__ = called
    pool.__doc__ = f"Return the {of} of each window of images (batch, height, width, channels)."
    return also_on_host(pool)


max_pool = _pool("max_pool", layers.MaxPool2D, "largest element")
avg_pool = _pool("avg_pool", layers.AveragePool2D, "mean")


@also_on_host
def embedding_lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None, validate_indices: bool = True
) -> Any:
    """Return the rows of a table (rows, ...) by whole numbers; a list of one table is that table.

    Raises ProgramError for several tables, over which a ``partition_strategy`` would spread the rows.
    """
    tables = params if isinstance(params, list | tuple) and np.ndim(params[0]) else [params]
    if len(tables) != 1:
        checks.wrong_value("params", "one table", len(tables))
    table, places = tensor(tables[0]), tensor(ids)
    rows, *row = table.shape
    flat = table if len(row) == 1 else anp.reshape(table, (rows, math.prod(row)))
    found = run(layers.Embedding(*flat.shape), places, {"W": flat}, draws_as="")
    return found if len(row) == 1 else anp.reshape(found, (*found.shape[:-1], *row))


def _steps(value: Any) -> tuple[int, int]:
    """Return the two middle ones of four numbers, or two, or one for both; raises ProgramError for others."""
    values = [1] if value is None else np.atleast_1d(value).tolist()
    if len(values) == 4 and values[0] == values[3] == 1:
        values = values[1:3]
    if len(values) not in (1, 2):
        checks.wrong_value("strides or ksize", "[1, height, width, 1], or two sizes, or one for both", value)
    return int(values[0]), int(values[-1])


def _channels_last(data_format: str | None) -> None:
    if data_format not in (None, "NHWC"):
        checks.wrong_value("data_format", "NHWC", data_format)


_ACTIVATIONS: Final = "ipusim.ipu.tensorflow.activations"
_OFFERED: Final = (
    "avg_pool bias_add conv2d dropout embedding_lookup l2_loss log_softmax max_pool moments "
    "sigmoid_cross_entropy_with_logits softmax softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2 "
    "sparse_softmax_cross_entropy_with_logits xw_plus_b"
)
__getattr__, __dir__ = offering(
    "tf.nn",
    in_module(__name__, _OFFERED)
    | in_module(_ACTIVATIONS, "elu gelu leaky_relu relu relu6 selu silu softplus softsign swish tanh")
    | {"sigmoid": f"{_ACTIVATIONS}:logistic"}
    | in_module("ipusim.ipu.tensorflow.rnn_cell", "dynamic_rnn")
    | {"rnn_cell": "ipusim.ipu.tensorflow.rnn_cell"}
    | {"compute_average_loss": "ipusim.ipu.tensorflow.nn:compute_average_loss"},
)
