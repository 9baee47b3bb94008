"""Models that TensorFlow traces, cut into stages: work of the same model as a scenario, losses of TensorFlow itself.

A scenario's layers are written here as users write them for TensorFlow, with Keras' layers and TensorFlow's functions.
"""

from dataclasses import replace

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute, runs
from tests.effort import sampled
from tests.keras_models import stage_of
from tests.traced_steps import (
    Model,
    accumulate_with_tensorflow,
    build,
    initial_values,
    job_of,
    micro_batches,
    traced_work,
)

pytestmark = pytest.mark.usefixtures("tf")

#: Losses of float32: to a part in 100,000, and to two units in the last place of the sums that they are logarithms of.
CLOSE = {"rtol": 1e-5, "atol": 3e-7}

#: Scores of ten classes and their loss, behind all others.
LAST = [
    {"name": "last", "type": "dense", "units": 10},
    {"name": "loss", "type": "softmax_cross_entropy"},
]
DENSE = [
    {"name": "flat", "type": "flatten"},
    {"name": "first", "type": "dense", "units": 24, "activation": "tanh"},
    {"name": "second", "type": "dense", "units": 16, "activation": "sigmoid", "use_bias": False},
    *LAST,
]
CNN = [
    {"name": "first", "type": "conv2d", "filters": 8, "kernel_size": [3, 3], "padding": "same", "activation": "relu"},
    {"name": "second", "type": "conv2d", "filters": 16, "kernel_size": [5, 3], "strides": [2, 1]},
    {"name": "largest", "type": "max_pool2d"},
    {"name": "third", "type": "conv2d", "filters": 8, "kernel_size": [1, 1], "use_bias": False},
    {"name": "mean", "type": "average_pool2d"},
    {"name": "flat", "type": "flatten"},
    *LAST,
]
BATCH_NORM = [
    {"name": "conv", "type": "conv2d", "filters": 8, "kernel_size": [3, 3], "padding": "same", "use_bias": False},
    {"name": "norm", "type": "batch_norm"},
    {"name": "relu", "type": "activation", "activation": "relu"},
    {"name": "again", "type": "conv2d", "filters": 8, "kernel_size": [3, 3]},
    {"name": "other", "type": "batch_norm"},
    {"name": "flat", "type": "flatten"},
    *LAST,
]
TWO_LSTMS = [
    {"name": "steps", "type": "lstm", "units": 7, "return_sequences": True},
    {"name": "lstm", "type": "lstm", "units": 12},
    *LAST,
]
THREE_GRUS = [
    {"name": "steps", "type": "gru", "units": 7, "return_sequences": True, "reset_after": False},
    {"name": "wide", "type": "gru", "units": 5, "return_sequences": True},
    {"name": "gru", "type": "gru", "units": 12},
    *LAST,
]
#: The cell of TensorFlow 1 has other variables than a scenario's layer, and so another weight update.
GRU_CELL = [{"name": "cell", "type": "gru", "units": 7, "reset_after": False}, *LAST]
#: Group normalisation of Keras and written out, instance normalisation, batch and layer normalisation of Keras.
NORMS = [
    {"name": "conv", "type": "conv2d", "filters": 12, "kernel_size": [3, 3], "use_bias": False},
    {"name": "keras", "type": "group_norm", "groups": 4, "strided_channel_grouping": False},
    {"name": "relu", "type": "activation", "activation": "relu"},
    {"name": "again", "type": "conv2d", "filters": 8, "kernel_size": [3, 3]},
    {"name": "written", "type": "group_norm", "groups": 2},
    {"name": "third", "type": "conv2d", "filters": 6, "kernel_size": [1, 1]},
    {"name": "instance", "type": "instance_norm"},
    {"name": "flat", "type": "flatten"},
    {"name": "dense", "type": "dense", "units": 12},
    {"name": "batch", "type": "batch_norm"},
    {"name": "middle", "type": "dense", "units": 9},
    {"name": "keras_layer", "type": "layer_norm"},
    *LAST,
]
ATTENTION = [
    {"name": "embed", "type": "dense", "units": 16},
    {"name": "heads", "type": "multi_head_attention", "num_heads": 2, "split_qkv": True},
    {"name": "norm", "type": "layer_norm"},
    {"name": "flat", "type": "flatten"},
    *LAST,
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
    "two_lstms": (TWO_LSTMS, (5, 6), ["lstm"], "rmsprop", lambda v1: v1.train.RMSPropOptimizer(1e-3)),
    "three_grus": (THREE_GRUS, (4, 6), ["gru"], "rmsprop", lambda v1: v1.train.RMSPropOptimizer(1e-3)),
    "norms": (NORMS, (9, 9, 3), ["again", "flat"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.01)),
    "bert": (BERT, (6,), ["attended", "norm"], "adam", lambda v1: v1.train.AdamOptimizer(1e-3)),
    "causal_attention": (CAUSAL, (6, 12), ["norm"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.01)),
}
#: Optimizers that the models above do not have, and those of TensorFlow 1. A first sum of FTRL that is small takes
#: weights for gradients.
OPTIMIZERS = [
    (
        {"type": "momentum", "learning_rate": 0.1, "momentum": 0.5, "nesterov": True},
        lambda v1: v1.train.MomentumOptimizer(0.1, 0.5, use_nesterov=True),
    ),
    (
        {"type": "adagrad", "learning_rate": 0.1, "initial_accumulator": 0.2},
        lambda v1: v1.train.AdagradOptimizer(0.1, 0.2),
    ),
    (
        {"type": "adadelta", "learning_rate": 1, "rho": 0.9, "epsilon": 0.001},
        lambda v1: v1.train.AdadeltaOptimizer(1.0, 0.9, 0.001),
    ),
    (
        {"type": "ftrl", "learning_rate": 0.1, "initial_accumulator": 1e-8, "l1": 0.001, "l2": 0.01, "beta": 0.1},
        lambda v1: v1.train.FtrlOptimizer(
            0.1,
            initial_accumulator_value=1e-8,
            l1_regularization_strength=0.001,
            l2_regularization_strength=0.01,
            beta=0.1,
        ),
    ),
    (
        {"type": "adam", "learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.001},
        lambda v1: v1.train.AdamOptimizer(0.01, 0.8, 0.9, 0.001),
    ),
    (
        {
            "type": "rmsprop",
            "learning_rate": 0.01,
            "decay": 0.8,
            "momentum": 0.5,
            "epsilon": 0.001,
            "centered": True,
        },
        lambda v1: v1.train.RMSPropOptimizer(0.01, 0.8, 0.5, 0.001, centered=True),
    ),
]
#: Options of a scenario's optimizers that have no default; none of them changes the work of an update.
OPTIONS = {"momentum": {"momentum": 0.9}}


def _model(job, layers, optimizer):
    """The model of a scenario, cut as the scenario is."""
    by_name = {layer["name"]: layer for layer in layers}
    stages = [stage_of([by_name[name] for name in profile.layers]) for profile in job.program.stages]
    options = job.request.options
    batch, data = options.pipeline.micro_batch_size, options.data
    if data.type == "synthetic_tokens":
        tokens = ((batch, data.length), np.int32)
        return Model(stages, [tokens, tokens], optimizer, data.vocabulary)
    return Model(stages, [((batch, *data.shape), np.float32), ((batch,), np.int32)], optimizer)


def _of(name):
    cell = (GRU_CELL, (5, 6), ["last"], "sgd", lambda v1: v1.train.GradientDescentOptimizer(0.1))
    layers, shape, splits, rule, optimizer = MODELS.get(name, cell)
    data = {"type": "synthetic", "shape": list(shape), "classes": 10}
    if layers[0]["type"] == "embedding":
        data = {"type": "synthetic_tokens", "length": shape[0], "vocabulary": layers[0]["input_dim"]}
    optimized = {"type": rule, "learning_rate": 0.1, **OPTIONS.get(rule, {})}
    job = job_of(layers, data, splits, 8, optimized, updates=5)
    return job, _model(job, layers, optimizer)


def _check_work(job, built, initial, batch):
    works = traced_work(built, initial, batch)
    for ours, profile in zip(works, job.program.stages, strict=True):
        forward = tuple(work for work in profile.forward if not work.is_nothing)
        backward = tuple(work for work in profile.backward if not work.is_nothing)
        assert ours.outside_types == ()
        assert tuple(work for work in ours.forward if not work.is_nothing) == forward
        own = tuple(work for work in ours.backward if not work.is_nothing)
        assert own == backward[: len(own)]
        sums = backward[len(own) :]  # of gradients into their accumulators, which no layer has
        assert sum(work.vector.elementwise for work in sums) * 4 == profile.parameter_bytes
        assert not any(work.products for work in sums)


def test_a_cell_of_tensorflow_1_has_the_work_of_its_scenario():
    job, model = _of("gru_cell")
    built = build(model)
    _check_work(job, built, initial_values(built), *micro_batches(model, 1))


def _request(built, initial, batches, pipeline, system, averages=None):
    """A request whose stages are those of a traced step."""
    from ipusim.ipu.graph.traced_functions import StepFunctions  # noqa: PLC0415

    functions = StepFunctions(
        "program", built.step, initial, lambda index: batches[index % len(batches)], averages=averages
    )
    options = {
        "system": system,
        "pipeline": {
            "schedule": pipeline.schedule,
            "gradient_accumulation_count": pipeline.gradient_accumulation_count,
            "repeat_count": pipeline.repeat_count,
            "device_mapping": list(range(built.step.trace.stage_count)),
        },
        "use_synthetic_data": True,
    }
    return Request(runs.validate(options), name="program", functions=functions)


def _check_timelines(run, scenario):
    for column in ("start", "end", "kind", "ipu", "stage", "micro_batch", "execution", "time_step"):
        np.testing.assert_array_equal(getattr(run.timeline, column), getattr(scenario.timeline, column))


@pytest.mark.parametrize("name", MODELS)
def test_the_machine_runs_a_model_as_its_scenario_with_the_losses_of_tensorflow(name):
    """With its work, span by span; losses of five weight updates, of four or six micro-batches each."""
    job, model = _of(name)
    built, pipeline = build(model), job.request.options.pipeline
    count = pipeline.gradient_accumulation_count
    batches = micro_batches(model, pipeline.repeat_count * count)
    initial, expected = accumulate_with_tensorflow(built, batches, count)
    _check_work(job, built, initial, batches[0])
    system = job.request.options.system.model_dump(exclude_unset=True)
    run, scenario = execute(assemble(_request(built, initial, batches, pipeline, system))), execute(job)
    _check_timelines(run, scenario)
    np.testing.assert_allclose([each.loss for each in run.learning.losses], expected, **CLOSE)


@sampled(2)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=[str(spec) for spec, _ in OPTIMIZERS])
def test_an_optimizer_learns_as_that_of_its_scenario_does(number, replicas):
    """From the weights of the scenario, on its samples, in the same time."""
    spec, optimizer = OPTIMIZERS[number]
    job = job_of(DENSE, {"type": "synthetic", "shape": [9, 5], "classes": 10}, ["second"], 8, spec)
    options = job.request.options
    system = {"name": "m2000", "auto_select_ipus": 2 * replicas}
    changed = options.model_copy(
        update={"system": options.system.model_copy(update={"auto_select_ipus": 2 * replicas})}
    )
    job = assemble(replace(job.request, options=changed))
    workload = job.workload(0)
    built = build(_model(job, DENSE, optimizer))
    drawn = [each for stage in range(2) for each in workload.initial_parameters(stage).values()]
    initial = initial_values(built)
    trained = dict(zip((name for name in initial if name in built.step.accumulators), drawn, strict=True))
    batches = [workload.feed.element(index) for index in range(16 * replicas)]
    averages = replicas > 1 or None
    request = _request(built, {**initial, **trained}, batches, options.pipeline, system, averages)
    run, scenario = execute(assemble(request)), execute(job)
    _check_timelines(run, scenario)
    losses = [each.loss for each in scenario.learning.losses]
    np.testing.assert_allclose([each.loss for each in run.learning.losses], losses, rtol=2e-5)
    assert len(set(losses)) == len(losses)
