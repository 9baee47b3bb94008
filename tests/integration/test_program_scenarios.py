"""Programs as scenarios: under any option the scenario takes the program's time, or it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.write import scenario_text
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu import horovod as hvd
from ipusim.ipu import optimizers
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.programs import as_scenario as said_so
from ipusim.ipu.programs.as_layers import short_names
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, RecomputationMode
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.ipu.tensorflow.keras import layers
from ipusim.runs.assemble.assemble import assemble
from ipusim.timeline.timeline import layers_text
from tests.effort import sampled, slowest


def learning(make):
    return lambda loss: OptimizerFunctionOutput(make(), loss)


def sgd():
    return optimizers.GradientDescentOptimizer(0.1)


def adam():
    return optimizers.AdamOptimizer(0.01, epsilon=1e-6)


def averaged():
    return optimizers.CrossReplicaOptimizer(optimizers.MomentumOptimizer(0.01, 0.9))


def device(ipus=2, remote=False, recompute=False, io_tiles=0, share=None):
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.device_connection.enable_remote_buffers = remote
    config.allow_recompute = recompute
    config.io_tiles.num_io_tiles, config.io_tiles.place_ops_on_io_tiles = io_tiles, bool(io_tiles)
    if share:
        config.matmuls.poplar_options = {"availableMemoryProportion": share}
    return config


#: Arguments of a pipeline, each of which changes what it takes; queues are made for each.
OPTIONS = {
    "plain": {},
    "interleaved": {"pipeline_schedule": PipelineSchedule.Interleaved},
    "sequential": {"pipeline_schedule": PipelineSchedule.Sequential, "reduction_method": "mean"},
    "adam": {"optimizer_function": learning(adam), "outfeed_loss": True},
    "replicas": {"optimizer_function": learning(averaged), "config": device(4)},
    "recomputed": {"config": device(recompute=True)},
    "recomputed inside": {
        "config": device(recompute=True),
        "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved,
    },
    "state elsewhere": {"optimizer_function": learning(adam), "config": device(remote=True)},
    "state in parts": {
        "optimizer_function": learning(averaged),
        "config": device(4, remote=True),
        "replicated_optimizer_state_sharding": True,
    },
    "serialized": {
        "config": device(1, remote=True),
        "pipeline_schedule": PipelineSchedule.Sequential,
        "batch_serialization_iterations": 2,
        "device_mapping": [0, 0],
    },
    "summed up": {"accumulate_outfeed": True, "accumulate_outfeed_dtype": np.float64},
    "last": {"mode": IPUOutfeedMode.LAST},
    "I/O tiles": {"config": device(io_tiles=32), "gradient_accumulation_count": 12},
    "inference": {"optimizer_function": None},
    "matmuls": {"config": device(share="0.1")},
}


def hidden(x, labels):
    with tf.variable_scope("hidden"):
        return layers.Dense(16, activation="relu")(x), labels


def doubled(x, labels):
    y, labels = hidden(x, labels)
    return y * 2, labels


def counted(x, labels):
    tf.get_variable("count", [], initializer="zeros", trainable=False).assign_add(1.0)
    return hidden(x, labels)


def normalised(x, labels):
    y, labels = hidden(x, labels)
    return layers.BatchNormalization()(y, training=True), labels


def loss_of(x, labels):
    with tf.variable_scope("logits"):
        logits = layers.Dense(3)(x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def ran(first=hidden, last=loss_of, mode=IPUOutfeedMode.ALL, x=None, labels=None, **changes):
    """Run a pipeline of two stages; returns what was recorded of it."""
    rng = np.random.default_rng(0)
    element = (
        rng.normal(size=(8, 6)).astype(np.float32) if x is None else x,
        rng.integers(3, size=8).astype(np.int32) if labels is None else labels,
    )
    given = {
        "gradient_accumulation_count": 4,
        "repeat_count": 2,
        "infeed_queue": IPUInfeedQueue(repeat([element])),
        "outfeed_queue": IPUOutfeedQueue(outfeed_mode=mode),
        "optimizer_function": learning(sgd),
        "name": "small",
    }
    with recording(Recorder()) as found:
        pipeline([first, last], **given | changes)
    (program,) = found.programs
    return program


@sampled(3)
@pytest.mark.parametrize(
    ("option", "first", "layered"),
    [
        *((option, hidden, True) for option in OPTIONS),
        *(
            pytest.param(option, doubled, False, marks=() if place % 3 == 0 else slowest)
            for place, option in enumerate(OPTIONS)
        ),
    ],
)
def test_it_takes_the_programs_time(option, first, layered, tmp_path):
    program = ran(first, **OPTIONS[option])
    said = as_scenario(program.as_job())
    assert (said.request.options.model is not None) is layered
    (tmp_path / "said.yaml").write_text(scenario_text(said.request, tmp_path), encoding="utf-8")
    job = load_job(tmp_path / "said.yaml", ["numerics=off"])
    twin, own = (said_so._time_alone(each) for each in (job, program.job))
    assert twin.end.tolist() == own.end.tolist()
    assert twin.bytes.tolist() == own.bytes.tolist()
    assert job.system == program.job.system
    if layered:
        assert job.memory.peaks == program.job.memory.peaks


def test_a_stage_that_counts_beside_its_layers_is_one_of_layers():
    said = as_scenario(ran(counted).as_job()).request.without_defaults()
    assert said["model"] == as_scenario(ran().as_job()).request.without_defaults()["model"]


def test_layers_with_what_they_are_made_with(tmp_path):
    def first(x, targets):
        with tf.variable_scope("block0/conv"):
            y = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(x)
        return layers.Dropout(0.25)(layers.Flatten()(y)), targets

    def last(y, targets):
        with tf.variable_scope("block1/conv"):
            return tf.losses.mean_squared_error(targets, layers.Dense(2, use_bias=False, name="out")(y))

    x, targets = np.ones((2, 8, 8, 3), np.float32), np.ones((2, 2), np.float32)
    said = as_scenario(ran(first, last, x=x, labels=targets, optimizer_function=learning(adam)).as_job())
    given = said.request.without_defaults()
    assert given["model"]["layers"] == [
        {"name": "conv", "type": "conv2d", "filters": 4, "kernel_size": [3, 3], "strides": [2, 2],
         "padding": "same", "activation": "relu"},
        {"name": "flatten", "type": "flatten"},
        {"name": "dropout", "type": "dropout", "rate": 0.25},
        {"name": "out", "type": "dense", "units": 2, "use_bias": False},
        {"name": "mean_squared_error", "type": "mean_squared_error"},
    ]  # fmt: skip
    assert given["optimizer"] == {"type": "adam", "learning_rate": 0.01, "epsilon": 1e-6}
    assert given["data"] == {"type": "synthetic_targets", "shape": [8, 8, 3], "target_shape": [2], "samples": 16}


def test_data_are_enough_for_all_hosts():
    def on_host():
        with IPUHorovodStrategy().scope():
            return ran(config=device(), optimizer_function=None).as_job()

    assert as_scenario(hvd.run(on_host, np=2)[0]).request.options.data.samples == 8 * 4 * 2 * 2


def test_tokens():
    def first(x, labels):
        return layers.Embedding(10, 4)(x), labels

    def last(y, labels):
        logits = layers.Dense(10)(y)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    tokens = np.zeros((2, 5), np.int32)
    data = as_scenario(ran(first, last, x=tokens, labels=tokens).as_job()).request.without_defaults()["data"]
    assert data == {"type": "synthetic_tokens", "length": 5, "vocabulary": 10, "samples": 16}


def shared(x, labels):
    with tf.variable_scope("w", reuse=tf.AUTO_REUSE):
        for _ in range(2):
            x = layers.Dense(6, name="same")(x)
    return x, labels


def multiplied(x, labels):
    return tf.matmul(x, tf.get_variable("w", [6, 6])), labels


def beside(x, labels):
    return layers.Dense(4)(x), labels, layers.Dense(4)(x)


def scaled(x, labels):
    table = tf.get_variable("w", [1, 1, 1, 2]) * 2
    return tf.reshape(tf.nn.conv2d(tf.reshape(x, [8, 6, 1, 1]), table, 1, "SAME"), [8, 12]), labels


class Clipped(optimizers.GradientDescentOptimizer):
    def compute_gradients(self, loss, *args, **kwargs):
        return [(gradient * 0.5, variable) for gradient, variable in super().compute_gradients(loss, *args, **kwargs)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"first": shared}, "variable 'w/same/kernel' is of several layers"),
        ({"first": normalised}, "stage 'small_stage_0' calls moving_average, which is no layer"),
        ({"first": multiplied}, "stage 'small_stage_0' calls dot, which is no layer"),
        ({"first": lambda x, labels: (x, labels)}, "stage 'small_stage_0' runs no layer"),
        (
            {"first": beside, "last": lambda x, labels, _: loss_of(x, labels)},
            "stage 'small_stage_0' runs layers that are not one after the other",
        ),
        ({"first": scaled}, "stage 'small_stage_0' calls multiply, which is no layer"),
        (
            {"last": lambda x, labels: loss_of(x, labels % 2)},
            "stage 'small_stage_1' calls remainder, which is no layer",
        ),
        (
            {"optimizer_function": learning(lambda: Clipped(0.1))},
            "the optimizer changes gradients by functions of its own",
        ),
    ],
)
def test_why_it_is_no_scenario_of_layers(changes, why):
    said = as_scenario(ran(**changes).as_job())
    assert f"It is no scenario of layers: {why}." in " ".join(said.comments)
    assert assemble(said.request).name == "small"


def test_one_that_no_scenario_says_is_refused(monkeypatch):
    program = ran(doubled)
    monkeypatch.setattr(said_so, "in_costs", lambda _job, _: {"pipeline": {"stages": []}})
    with pytest.raises(
        UnsupportedProgramError, match="no scenario takes the time that the program 'small' takes; of its"
    ):
        as_scenario(program.as_job())


def test_short_names_tell_layers_apart():
    names = ["m/a/dense", "m/b/dense_1", "m/b/dense_2", "m/c/fc", "m/d/fc", "9/x y", "relu", "relu", "n" * 80]
    assert short_names(names, {"dense"}) == (
        "a",
        "dense_1",
        "dense_2",
        "c_fc",
        "d_fc",
        "x_y",
        "relu",
        "relu_1",
        "n" * 64,
    )
    assert short_names(["9"]) == ("layer9",)


def test_very_many_layers_are_cut_short():
    assert layers_text(["a", "b"]) == "a, b"
    assert layers_text([]) == ""
    text = layers_text([f"layer{number}" for number in range(500)])
    assert text.startswith("layer0, layer1, ")
    assert text.endswith(", ... layer499 (500 layers)")
    assert len(text) < 450
