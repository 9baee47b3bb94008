"""Models of tf_keras on simulated IPUs, and a scenario's layers as users write them for TensorFlow."""

import contextvars
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tests.programs import configured, tensorflow


class LateKeras:
    """tf_keras with Graphcore's names, which are imported when a test first uses them."""

    def __getattr__(self, name: str) -> Any:
        from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415
        from ipusim.ipu.keras.placement import install  # noqa: PLC0415

        install()
        return import_module("ipusim.ipu.keras") if name == "ipu" else getattr(load().keras, name)


def in_strategy(ipus: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a strategy's scope on a device of so many IPUs, which leaves nothing behind."""

    def run() -> Any:
        from ipusim.ipu.ipu_strategy import IPUStrategy  # noqa: PLC0415

        configured(machine="m2000", auto_select_ipus=ipus).configure_ipu_system()
        with IPUStrategy().scope():
            return function(*arguments)

    return contextvars.copy_context().run(run)


@dataclass(eq=False)
class Placed:
    """A placement of a model.

    Attributes:
        stages: stage of each call of the model; None for a model that is not pipelined.
        accumulation: number of batches of a weight update.
        schedule: the pipeline's schedule.
    """

    stages: Sequence[int] | None = None
    accumulation: int = 1
    reduction: Any = "SUM"
    version: int = 0
    schedule: str = "grouped"
    sums_results: bool = False
    asynchronous: bool = False
    replicas: int = 1
    buffer_depth: int = 3

    @property
    def settings(self) -> "Placed":
        return self

    @property
    def stage_of(self) -> Any:
        return None if self.stages is None else lambda nodes: self.stages

    def accumulator_dtype(self, variable: Any) -> None:
        return None

    def check(self, batch: Any, kind: str, steps: int) -> None:
        pass

    def request(self, stages: int, count: int, repeats: int, *, kind: str) -> dict[str, Any]:
        pipeline = {"schedule": "single" if self.stages is None else self.schedule, "reduction_method": self.reduction}
        counts = {"gradient_accumulation_count": count, "repeat_count": repeats}
        ipus = 1 << (stages - 1).bit_length()
        system = {"name": "m2000", "auto_select_ipus": ipus}
        mapping = {"device_mapping": list(range(stages))}
        return {"system": system, "pipeline": {**pipeline, **counts, **mapping}}


def keras() -> Any:
    """tf_keras, with the functions of placed models installed."""
    tf = tensorflow()
    from ipusim.ipu.traced.keras.execution import install  # noqa: PLC0415

    install()
    return tf.keras


def build(make: Callable[[Any], Any], placed: Placed | None = None) -> Any:
    """A model with initial values that depend on nothing else, on simulated IPUs if it is placed."""
    from ipusim.ipu.traced.keras.execution import place  # noqa: PLC0415

    own = keras()
    own.backend.clear_session()
    own.utils.set_random_seed(1)
    model = make(own)
    if placed is not None:
        place(model, placed)
    return model


#: A layer as a scenario writes it.
Layer = Mapping[str, Any]


def _scale_and_offset(v1: Any, x: Any, name: str) -> list[Any]:
    """Variables of a normalisation."""
    starts = {"scale": v1.ones_initializer(), "offset": v1.zeros_initializer()}
    return [v1.get_variable(f"{name}/{each}", x.shape[-1:], initializer=start) for each, start in starts.items()]


def _batch_norm(tf: Any, x: Any, name: str) -> Any:
    """TensorFlow's fused batch normalisation with variables of its own."""
    v1 = tf.compat.v1
    return v1.nn.fused_batch_norm(x, *_scale_and_offset(v1, x, name))[0]


def _group_norm(tf: Any, x: Any, name: str, groups: int = 2, strided_channel_grouping: bool = True) -> Any:
    """Group normalisation as programs write it, or that of Keras, which has groups of consecutive channels."""
    if not strided_channel_grouping:
        return tf.keras.layers.GroupNormalization(groups, name=name)(x)
    *places, channels = x.shape
    view = tf.reshape(x, [*places, channels // groups, groups])
    mean, variance = tf.nn.moments(view, list(range(1, len(places) + 1)), keepdims=True)
    normal = tf.reshape((view - mean) / tf.sqrt(variance + 1e-3), x.shape)
    scale, offset = _scale_and_offset(tf.compat.v1, x, name)
    return normal * scale + offset


def _moments_norm(tf: Any, x: Any, name: str, axes: Sequence[int]) -> Any:
    """Normalisation over some axes as programs write it with TensorFlow's functions."""
    scale, offset = _scale_and_offset(tf.compat.v1, x, name)
    mean, variance = tf.nn.moments(x, axes, keepdims=axes[0] != 0)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


def _attention(tf: Any, x: Any, heads: int, causal: bool = False) -> Any:
    """Self-attention of several heads with a dense layer for queries, keys, values and the result."""
    batch, positions, elements = x.shape

    def projected(name: str) -> Any:
        split = tf.reshape(tf.keras.layers.Dense(elements, name=name)(x), [batch, positions, heads, elements // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    query, key, value = map(projected, ("query", "key", "value"))
    scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(elements // heads)
    if causal:
        scores += np.triu(np.full((positions, positions), -1e9, np.float32), 1)
    joined = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    return tf.keras.layers.Dense(elements)(tf.reshape(joined, x.shape))


def _gru(tf: Any, x: Any, options: Mapping[str, Any]) -> Any:
    """A GRU of TensorFlow 1, whose reset gate comes before the product."""
    rnn = tf.compat.v1.nn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow advises Keras
        outputs, state = rnn.dynamic_rnn(rnn.rnn_cell.GRUCell(options["units"]), x, dtype=x.dtype)
    return outputs if options.get("return_sequences") else state


def _gelu(tf: Any, x: Any) -> Any:
    """GELU as programs for BERT write it out."""
    return x * 0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def _dense(tf: Any, x: Any, options: Mapping[str, Any]) -> Any:
    """A dense layer of Keras with an activation of Keras or of TensorFlow's functions."""
    written = {"gelu": lambda z: _gelu(tf, z), "gelu_erf": tf.nn.gelu}
    activation = options.get("activation")
    return tf.keras.layers.Dense(**{**options, "activation": written.get(activation, activation)})(x)


def _call(tf: Any, layer: Layer, x: Any, labels: Any, outputs: Mapping[str, Any]) -> Any:
    """A layer of a scenario, called as a program of TensorFlow writes it."""
    keras, kind, options = tf.keras.layers, layer["type"], dict(layer)
    name = options.pop("name")
    del options["type"]
    calls = {
        "flatten": lambda: keras.Flatten()(x),
        "dense": lambda: _dense(tf, x, options),
        "embedding": lambda: keras.Embedding(**options)(x),
        "position_embedding": lambda: x + tf.compat.v1.get_variable(name, x.shape[1:]),
        "add": lambda: x + outputs[options["from"]],
        "conv2d": lambda: keras.Conv2D(**options)(x),
        "max_pool2d": lambda: keras.MaxPool2D(**options)(x),
        "average_pool2d": lambda: keras.AveragePooling2D(**options)(x),
        "activation": lambda: getattr(tf.nn, options["activation"])(x),
        "batch_norm": lambda: _moments_norm(tf, x, name, [0]) if len(x.shape) == 2 else _batch_norm(tf, x, name),
        "layer_norm": lambda: keras.LayerNormalization()(x) if "keras" in name else _moments_norm(tf, x, name, [-1]),
        "group_norm": lambda: _group_norm(tf, x, name, **options),
        "instance_norm": lambda: _moments_norm(tf, x, name, [1, 2]),
        "lstm": lambda: keras.LSTM(**options)(x),
        "gru": lambda: _gru(tf, x, options) if "cell" in name else keras.GRU(**options)(x),
        "multi_head_attention": lambda: _attention(tf, x, options["num_heads"], options.get("causal", False)),
        "dropout": lambda: tf.nn.dropout(x, options["rate"]),
        "softmax_cross_entropy": lambda: tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        ),
    }
    return calls[kind]()


def stage_of(layers: Sequence[Layer], *, labelled: bool = True, predictions: bool = False) -> Callable[..., Any]:
    """Return a stage's function.

    Args:
        layers: the stage's layers.
        labelled: whether labels come in, which the function hands on until the loss.
        predictions: whether the stage with the loss gives what the loss is taken of, too.
    """

    def function(x: Any, labels: Any = None) -> Any:
        tf, before = tensorflow(), x
        outputs: dict[str, Any] = {}
        for layer in layers:
            before, x = x, _call(tf, layer, x, labels, outputs)
            outputs[layer["name"]] = x
        if layers[-1]["type"] == "softmax_cross_entropy":
            return (before, x) if predictions else x
        return (x, labels) if labelled else x

    return function


def layers_of(job: Any) -> list[Layer]:
    """Return the layers of a scenario as it writes them."""
    options = {"exclude_none": True, "exclude_defaults": True, "by_alias": True}
    return [layer.model_dump(**options) for layer in job.request.options.model.layers]
