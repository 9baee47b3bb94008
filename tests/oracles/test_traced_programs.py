"""Models that TensorFlow traces, cut into stages: work of the same model as a scenario, losses of TensorFlow itself.

A scenario's layers are written here as users write them for TensorFlow, with Keras' layers and TensorFlow's functions.
"""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute, runs
from ipusim.app.scenario import load_job
from tests.tensorflow_tests import needs_tensorflow
from tests.traced_steps import (
    Model,
    accumulate_with_tensorflow,
    build,
    job_of,
    micro_batches,
    traced_work,
    train_with_ipusim,
    train_with_tensorflow,
)

SCENARIOS = Path("scenarios")
#: Losses of float32: to a part in 100,000, and to two units in the last place of the sums that they are logarithms of.
CLOSE = {"rtol": 1e-5, "atol": 3e-7}

DENSE = [
    {"name": "flat", "type": "flatten"},
    {"name": "first", "type": "dense", "units": 24, "activation": "tanh"},
    {"name": "second", "type": "dense", "units": 16, "activation": "sigmoid", "use_bias": False},
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
CNN = [
    {"name": "first", "type": "conv2d", "filters": 8, "kernel_size": [3, 3], "padding": "same", "activation": "relu"},
    {"name": "second", "type": "conv2d", "filters": 16, "kernel_size": [5, 3], "strides": [2, 1]},
    {"name": "largest", "type": "max_pool2d"},
    {"name": "third", "type": "conv2d", "filters": 8, "kernel_size": [1, 1], "use_bias": False},
    {"name": "mean", "type": "average_pool2d"},
    {"name": "flat", "type": "flatten"},
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
BATCH_NORM = [
    {"name": "conv", "type": "conv2d", "filters": 8, "kernel_size": [3, 3], "padding": "same", "use_bias": False},
    {"name": "norm", "type": "batch_norm"},
    {"name": "relu", "type": "activation", "activation": "relu"},
    {"name": "again", "type": "conv2d", "filters": 8, "kernel_size": [3, 3]},
    {"name": "other", "type": "batch_norm"},
    {"name": "flat", "type": "flatten"},
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
LSTM = [
    {"name": "lstm", "type": "lstm", "units": 12},
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
TWO_LSTMS = [{"name": "steps", "type": "lstm", "units": 7, "return_sequences": True}, *LSTM]
ATTENTION = [
    {"name": "embed", "type": "dense", "units": 16},
    {"name": "heads", "type": "multi_head_attention", "num_heads": 2, "split_qkv": True},
    {"name": "norm", "type": "layer_norm"},
    {"name": "flat", "type": "flatten"},
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
CAUSAL = [{**layer, "causal": True} if layer["name"] == "heads" else layer for layer in ATTENTION]
#: Encoder layers of BERT with normalisations behind the sums, and scores of all tokens of a vocabulary.
BERT = [
    {"name": "tokens", "type": "embedding", "input_dim": 40, "output_dim": 16},
    {"name": "positions", "type": "position_embedding"},
    {"name": "embedded", "type": "layer_norm"},
    {"name": "heads", "type": "multi_head_attention", "num_heads": 2, "split_qkv": True},
    {"name": "skip", "type": "add", "from": "embedded"},
    {"name": "attended", "type": "layer_norm"},
    {"name": "up", "type": "dense", "units": 32, "activation": "gelu"},
    {"name": "down", "type": "dense", "units": 16},
    {"name": "second_skip", "type": "add", "from": "attended"},
    {"name": "norm", "type": "layer_norm"},
    {"name": "transform", "type": "dense", "units": 16, "activation": "gelu_erf"},
    {"name": "scores", "type": "dense", "units": 40},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
#: Layers, shape of a sample, first layers of later stages, the optimizer, and that of TensorFlow 1.
MODELS = {
    "dense": (DENSE, (9, 5), ["second", "last"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.1)),
    "cnn": (CNN, (17, 16, 3), ["largest"], "momentum", lambda v1: v1.train.MomentumOptimizer(0.05, 0.9)),
    "batch_norm_with_adam": (BATCH_NORM, (9, 9, 3), ["again"], "adam", lambda v1: v1.train.AdamOptimizer(1e-3)),
    "lstm": (LSTM, (5, 6), ["last"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.1)),
    "two_lstms": (TWO_LSTMS, (5, 6), ["lstm"], "rmsprop", lambda v1: v1.train.RMSPropOptimizer(1e-3)),
    "attention": (ATTENTION, (6, 12), ["norm"], "adam", lambda v1: v1.train.AdamOptimizer(1e-3)),
    "bert": (BERT, (6,), ["attended", "norm"], "adam", lambda v1: v1.train.AdamOptimizer(1e-3)),
    "causal_attention": (CAUSAL, (6, 12), ["norm"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.01)),
}
#: Options of a scenario's optimizers that have no default; none of them changes the work of an update.
OPTIONS = {"momentum": {"momentum": 0.9}}
TUTORIAL = sorted(path.name for path in SCENARIOS.glob("tutorial_step*.yaml"))


@pytest.fixture(autouse=True)
def _tensorflow():
    needs_tensorflow()


def _batch_norm(tf, x, name):
    """TensorFlow's fused batch normalisation with variables of its own."""
    v1 = tf.compat.v1
    scale = v1.get_variable(f"{name}/scale", x.shape[-1:], initializer=v1.ones_initializer())
    offset = v1.get_variable(f"{name}/offset", x.shape[-1:], initializer=v1.zeros_initializer())
    return v1.nn.fused_batch_norm(x, scale, offset)[0]


def _layer_norm(tf, x, name):
    """Layer normalisation as programs write it with TensorFlow's functions."""
    v1 = tf.compat.v1
    scale = v1.get_variable(f"{name}/scale", x.shape[-1:], initializer=v1.ones_initializer())
    offset = v1.get_variable(f"{name}/offset", x.shape[-1:], initializer=v1.zeros_initializer())
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


def _attention(tf, x, heads, causal=False):
    """Self-attention of several heads with a dense layer for queries, keys, values and the result."""
    batch, positions, elements = x.shape

    def projected(name):
        split = tf.reshape(tf.keras.layers.Dense(elements, name=name)(x), [batch, positions, heads, elements // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    query, key, value = map(projected, ("query", "key", "value"))
    scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(elements // heads)
    if causal:
        scores += np.triu(np.full((positions, positions), -1e9, np.float32), 1)
    joined = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    return tf.keras.layers.Dense(elements)(tf.reshape(joined, x.shape))


def _gelu(tf, x):
    """GELU as programs for BERT write it out."""
    return x * 0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def _dense(tf, x, options):
    """A dense layer of Keras with an activation of Keras or of TensorFlow's functions."""
    written = {"gelu": lambda z: _gelu(tf, z), "gelu_erf": tf.nn.gelu}
    activation = options.get("activation")
    return tf.keras.layers.Dense(**{**options, "activation": written.get(activation, activation)})(x)


def _call(tf, layer, x, labels, outputs):
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
        "batch_norm": lambda: _batch_norm(tf, x, name),
        "layer_norm": lambda: _layer_norm(tf, x, name),
        "lstm": lambda: keras.LSTM(**options)(x),
        "multi_head_attention": lambda: _attention(tf, x, options["num_heads"], options.get("causal", False)),
        "dropout": lambda: tf.nn.dropout(x, options["rate"]),
        "softmax_cross_entropy": lambda: tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        ),
    }
    return calls[kind]()


def _stage(layers):
    """A stage's function, which hands labels on until the loss."""

    def function(x, labels):
        from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

        tf = load()
        outputs = {}
        for layer in layers:
            x = outputs[layer["name"]] = _call(tf, layer, x, labels, outputs)
        return x if layers[-1]["type"] == "softmax_cross_entropy" else (x, labels)

    return function


def _model(job, layers, optimizer):
    """The model of a scenario, cut as the scenario is."""
    by_name = {layer["name"]: layer for layer in layers}
    stages = [_stage([by_name[name] for name in profile.layers]) for profile in job.program.stages]
    options = job.request.options
    batch, data = options.pipeline.micro_batch_size, options.data
    if data.type == "synthetic_tokens":
        tokens = ((batch, data.length), np.int32)
        return Model(stages, [tokens, tokens], optimizer, data.vocabulary)
    return Model(stages, [((batch, *data.shape), np.float32), ((batch,), np.int32)], optimizer)


def _of(name):
    layers, shape, splits, rule, optimizer = MODELS[name]
    data = {"type": "synthetic", "shape": list(shape), "classes": 10}
    if layers[0]["type"] == "embedding":
        data = {"type": "synthetic_tokens", "length": shape[0], "vocabulary": layers[0]["input_dim"]}
    job = job_of(layers, data, splits, 8, {"type": rule, "learning_rate": 0.1, **OPTIONS.get(rule, {})})
    return job, _model(job, layers, optimizer)


def _of_file(name):
    job = load_job(SCENARIOS / name)
    layers = [
        layer.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
        for layer in job.request.options.model.layers
    ]
    return job, _model(job, layers, lambda v1: v1.train.GradientDescentOptimizer(0.01))


def _check_work(job, model):
    built, batches = build(model), micro_batches(model, 1)
    initial, _ = train_with_tensorflow(built, [])
    works = traced_work(built, initial, batches[0])
    for ours, profile in zip(works, job.program.stages, strict=True):
        forward = tuple(work for work in profile.forward if not work.is_nothing)
        backward = tuple(work for work in profile.backward if not work.is_nothing)
        assert ours.alone == ()
        assert tuple(work for work in ours.forward if not work.is_nothing) == forward
        own = tuple(work for work in ours.backward if not work.is_nothing)
        assert own == backward[: len(own)]
        sums = backward[len(own) :]  # of gradients into their accumulators, which no layer has
        assert sum(work.vector.elementwise for work in sums) * 4 == profile.parameter_bytes
        assert not any(work.products for work in sums)


@pytest.mark.parametrize("name", [*TUTORIAL, "mnist_cnn.yaml"])
def test_a_shipped_scenarios_model_has_its_work_when_traced(name):
    _check_work(*_of_file(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_work_of_its_scenario(name):
    _check_work(*_of(name))


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_tensorflows_over_twenty_steps(name):
    _, model = _of(name)
    built, batches = build(model), micro_batches(model, 20)
    initial, expected = train_with_tensorflow(built, batches)
    np.testing.assert_allclose(train_with_ipusim(built, initial, batches), expected, **CLOSE)


@pytest.mark.parametrize("name", TUTORIAL)
def test_losses_of_the_tutorial_are_tensorflows(name):
    _, model = _of_file(name)
    built, batches = build(model), micro_batches(model, 20)
    initial, expected = train_with_tensorflow(built, batches)
    np.testing.assert_allclose(train_with_ipusim(built, initial, batches), expected, **CLOSE)


def _request(built, initial, batches, pipeline, system):
    """A request whose stages are those of a traced step."""
    from ipusim.ipu.graph.traced_functions import StepFunctions  # noqa: PLC0415

    functions = StepFunctions("program", built.step, initial, lambda index: batches[index % len(batches)])
    options = {
        "system": system,
        "pipeline": {
            "schedule": pipeline.schedule,
            "gradient_accumulation_count": pipeline.gradient_accumulation_count,
            "repeat_count": pipeline.repeat_count,
            "device_mapping": list(range(built.step.trace.stages)),
        },
        "use_synthetic_data": True,
    }
    return Request(runs.validate(options), name="program", functions=functions)


def _check_machine(job, model):
    """Hold the machine's run against that of the scenario, span by span, and its losses against TensorFlow's."""
    built, pipeline = build(model), job.request.options.pipeline
    count = pipeline.gradient_accumulation_count
    batches = micro_batches(model, pipeline.repeat_count * count)
    initial, expected = accumulate_with_tensorflow(built, batches, count)
    system = job.request.options.system.model_dump(exclude_unset=True)
    run, scenario = execute(assemble(_request(built, initial, batches, pipeline, system))), execute(job)
    for column in ("start", "end", "kind", "ipu", "stage", "micro_batch", "execution", "time_step"):
        np.testing.assert_array_equal(getattr(run.timeline, column), getattr(scenario.timeline, column))
    np.testing.assert_allclose([each.loss for each in run.learning.losses], expected, **CLOSE)


@pytest.mark.parametrize("name", TUTORIAL)
def test_the_machine_runs_the_tutorial_as_its_scenarios(name):
    _, model = _of_file(name)
    _check_machine(load_job(SCENARIOS / name, ["steps=1", "pipeline.repeat_count=2"]), model)


@pytest.mark.parametrize("name", MODELS)
def test_the_machine_runs_a_model_as_its_scenario(name):
    _check_machine(*_of(name))


def test_tensorflow_executes_no_node_of_a_stage():
    """Neither a session nor an eager operation of TensorFlow's runs while stages do."""
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()
    _, model = _of("two_lstms")
    built, batches = build(model), micro_batches(model, 2)
    initial, expected = train_with_tensorflow(built, batches)
    refused = AssertionError("TensorFlow executed something")
    with (
        mock.patch.object(tf.compat.v1.Session, "run", side_effect=refused),
        mock.patch("tensorflow.python.eager.execute.execute", side_effect=refused),
        mock.patch("tensorflow.python.eager.execute.quick_execute", side_effect=refused),
    ):
        assert len(train_with_ipusim(built, initial, batches)) == len(expected)
