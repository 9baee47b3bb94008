"""Programs as scenarios: under any option the scenario takes the program's time, or it is refused."""

import functools

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.write import scenario_text
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.programs import as_scenario as said_so
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.programs.layer_names import short_names
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.runs.assemble.assemble import assemble
from ipusim.timeline.timeline import layers_text
from tests.effort import rarest, sampled
from tests.programs import pipelined

#: TensorFlow, Graphcore's package and Keras' layers, while a test runs.
tf = ipu = layers = None


@pytest.fixture
def ran(names):
    """Runs a pipeline of two stages; returns what was recorded of it."""
    global tf, ipu, layers
    tf, ipu, layers = names.tf, names.ipu, names.tf.keras.layers
    return functools.partial(_ran, names)


def sgd():
    return tf.train.GradientDescentOptimizer(0.1)


def adam():
    return tf.train.AdamOptimizer(0.01, epsilon=1e-6)


def averaged():
    optimizer = tf.train.MomentumOptimizer(0.01, 0.9)
    return ipu.optimizers.CrossReplicaOptimizer(optimizer)


def clipped():
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    return ipu.optimizers.MapGradientOptimizer(optimizer, lambda gradient, variable: gradient * 0.5)


#: Attributes of a device, by the arguments of ``configure``.
REMOTE = {"device_connection__enable_remote_buffers": True}
#: Arguments of a pipeline, each of which changes what it takes, with its optimizer, IPUs and attributes of its device.
OPTIONS = {
    "plain": {},
    "interleaved": {"pipeline_schedule": "Interleaved"},
    "sequential": {"pipeline_schedule": "Sequential", "reduction_method": "mean"},
    "adam": {"optimizer": adam, "outfeed_loss": True},
    "replicas": {"optimizer": averaged, "ipus": 4},
    "recomputed": {"device": {"allow_recompute": True}},
    "recomputed inside": {
        "device": {"allow_recompute": True},
        "recomputation_mode": "RecomputeAndBackpropagateInterleaved",
    },
    "state elsewhere": {"optimizer": adam, "device": REMOTE},
    "state in parts": {
        "optimizer": averaged,
        "ipus": 4,
        "device": REMOTE,
        "replicated_optimizer_state_sharding": True,
    },
    "serialized": {
        "ipus": 1,
        "device": REMOTE,
        "pipeline_schedule": "Sequential",
        "batch_serialization_iterations": 2,
        "device_mapping": [0, 0],
    },
    "summed up": {"accumulate_outfeed": True, "accumulate_outfeed_dtype": np.float64},
    "last": {"mode": "LAST"},
    "I/O tiles": {
        "device": {"io_tiles__num_io_tiles": 32, "io_tiles__place_ops_on_io_tiles": True},
        "gradient_accumulation_count": 12,
    },
    "inference": {"optimizer": None},
    "matmuls": {"device": {"matmuls__poplar_options": {"availableMemoryProportion": "0.1"}}},
}


def hidden(x, labels):
    with tf.variable_scope("hidden"):
        return layers.Dense(16, activation="relu")(x), labels


def doubled(x, labels):
    y, labels = hidden(x, labels)
    return y * 2, labels


def normalised(x, labels):
    y, labels = hidden(x, labels)
    return layers.BatchNormalization()(y, training=True), labels


def loss_of(x, labels):
    with tf.variable_scope("logits"):
        logits = layers.Dense(3)(x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _ran(
    names, first=hidden, last=loss_of, mode="ALL", x=None, labels=None, optimizer=sgd, ipus=2, device=None, **changes
):
    rng = np.random.default_rng(0)
    element = (
        rng.normal(size=(8, 6)).astype(np.float32) if x is None else x,
        rng.integers(3, size=8).astype(np.int32) if labels is None else labels,
    )
    for name, kind in (("pipeline_schedule", "PipelineSchedule"), ("recomputation_mode", "RecomputationMode")):
        if name in changes:
            changes[name] = getattr(ipu.pipelining_ops, kind)[changes[name]]

    options = {"ipus": ipus, "device": device, "mode": mode, "optimizer": optimizer, "repeat_count": 2, "name": "small"}
    with recording(Recorder()) as found, tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensors(element).repeat()
        pipelined(names, [first, last], dataset, changes.pop("gradient_accumulation_count", 4), **options | changes)
    (program,) = found.programs
    return program


def job_of(said, folder):
    """The Job of a scenario that is written to a file."""
    (folder / "said.yaml").write_text(scenario_text(said.request, folder), encoding="utf-8")
    return load_job(folder / "said.yaml", ["numerics=off"])


@sampled(3)
@pytest.mark.parametrize(
    ("option", "first", "layered"),
    [
        *((option, hidden, True) for option in OPTIONS),
        *(
            pytest.param(option, doubled, False, marks=() if place % 3 == 0 else rarest)
            for place, option in enumerate(OPTIONS)
        ),
    ],
)
def test_it_takes_the_programs_time(ran, option, first, layered, tmp_path):
    program = ran(first, **OPTIONS[option])
    said = as_scenario(program.as_job())
    assert (said.request.options.model is not None) is layered
    job = job_of(said, tmp_path)
    twin, own = (said_so._step_timeline(each) for each in (job, program.job))
    assert twin.end.tolist() == own.end.tolist()
    assert twin.bytes.tolist() == own.bytes.tolist()
    assert job.system == program.job.system
    if layered:
        found, right = ([peak.bytes for peak in each.memory.peaks] for each in (program.job, job))
        assert found == pytest.approx(right, abs=1024)  # a traced loss keeps less than a scenario's


def test_layers_with_what_they_are_made_with(ran):
    def first(x, targets):
        with tf.variable_scope("block0/conv"):
            y = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(x)
        return layers.Dropout(0.25)(layers.Flatten()(y), training=True), targets

    def last(y, targets):
        with tf.variable_scope("block1/conv"):
            return tf.losses.mean_squared_error(targets, layers.Dense(2, use_bias=False, name="out")(y))

    x, targets = np.ones((2, 8, 8, 3), np.float32), np.ones((2, 2), np.float32)
    said = as_scenario(ran(first, last, x=x, labels=targets, optimizer=adam).as_job())
    given = said.request.without_defaults()
    assert given["model"]["layers"] == [
        {"name": "conv", "type": "conv2d", "filters": 4, "kernel_size": [3, 3], "strides": [2, 2],
         "padding": "same", "activation": "relu"},
        {"name": "flatten", "type": "flatten"},
        {"name": "dropout", "type": "dropout", "rate": 0.25},
        {"name": "out", "type": "dense", "units": 2, "use_bias": False},
        {"name": "mean_squared_error", "type": "mean_squared_error"},
    ]  # fmt: skip
    names = ["conv", "flatten", "dropout"], ["out", "mean_squared_error"]
    assert given["pipeline"]["stages"] == [{"name": "first", "layers": names[0]}, {"name": "last", "layers": names[1]}]
    assert given["optimizer"] == {"type": "adam", "learning_rate": 0.01, "epsilon": 1e-6}
    assert given["data"] == {"type": "synthetic_targets", "shape": [8, 8, 3], "target_shape": [2], "samples": 16}


def test_tokens_and_a_skip_connection(ran, tmp_path):
    def first(ids, labels):
        with tf.variable_scope("tokens"):
            x = tf.gather(tf.get_variable("table", [20, 6]), ids)
        with tf.variable_scope("places"):
            x += tf.get_variable("rows", [5, 6])
        return x + layers.Dense(6, tf.nn.gelu, name="inner")(x), labels

    def last(y, labels):
        logits = layers.Dense(20, name="scores")(y)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    ids = np.ones((2, 5), np.int32)
    program = ran(first, last, x=ids, labels=ids)
    said = as_scenario(program.as_job())
    assert said.request.without_defaults()["model"]["layers"] == [
        {"name": "tokens", "type": "embedding", "input_dim": 20, "output_dim": 6},
        {"name": "places", "type": "position_embedding"},
        {"name": "inner", "type": "dense", "units": 6, "activation": "gelu_erf"},
        {"name": "add", "type": "add", "from": "places"},
        {"name": "scores", "type": "dense", "units": 20},
        {"name": "softmax_cross_entropy", "type": "softmax_cross_entropy"},
    ]
    twin, own = map(said_so._step_timeline, (job_of(said, tmp_path), program.job))
    assert twin.end.tolist() == own.end.tolist()


def shared(x, labels):
    weight = tf.get_variable("w", [6, 6])
    return tf.matmul(tf.matmul(x, weight), weight), labels


def beside(x, labels):
    return layers.Dense(4)(x), labels, layers.Dense(4)(x)


def scaled(x, labels):
    table = tf.get_variable("w", [1, 1, 1, 2]) * 2
    return tf.reshape(tf.nn.conv2d(tf.reshape(x, [8, 6, 1, 1]), table, 1, "SAME"), [8, 12]), labels


def deep(x, labels):
    x, labels = hidden(x, labels)
    for _ in range(600):
        x = tf.tanh(x)
    return x, labels


def twice(x, labels):
    return loss_of(x + layers.Dense(16)(ipu.normalization_ops.layer_norm(x)), labels)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"first": deep, "last": twice}, "stage 'twice' calls AddN, which is no layer"),
        ({"first": shared}, "stage 'shared' calls AddN, which is no layer"),
        ({"first": normalised}, "stage 'normalised' calls "),
        ({"first": lambda x, labels: (x, labels)}, "stage 'small_stage_0' runs no layer"),
        (
            {"first": beside, "last": lambda x, labels, y: tf.losses.mean_squared_error(x, y)},
            "stage 'beside' runs layers that are not one after the other",
        ),
        ({"first": scaled}, "stage 'scaled' calls Mul, which is no layer"),
        ({"last": lambda x, labels: loss_of(x, labels % 2)}, "stage 'small_stage_1' calls FloorMod, which is no layer"),
        ({"optimizer": clipped}, "the optimizer changes gradients by functions of its own"),
    ],
)
def test_why_it_is_no_scenario_of_layers(ran, changes, why):
    said = as_scenario(ran(**changes).as_job())
    assert f"The scenario has costs in place of layers: {why}" in " ".join(said.comments)
    assert assemble(said.request).name == "small"


def summed(x, labels):
    return ipu.cross_replica_ops.cross_replica_sum(hidden(x, labels)[0]), labels


def looked_up(x, labels):
    table = ipu.embedding_ops.HostEmbedding("rows", np.ones((8, 16), np.float32))
    with table.register():
        return table.lookup(tf.cast(x[:, 0], tf.int32) * 0), labels


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"first": summed, "optimizer": averaged, "ipus": 4},
            r"^no scenario takes the same time as the program 'small': replicas call all_reduce of float32\[8, 16\] "
            r"in small_stage_0, which a scenario cannot express$",
        ),
        ({"first": looked_up}, "small_stage_0 looks up rows in tables on the host, which a"),
    ],
)
def test_what_a_scenario_cannot_express_is_refused(ran, changes, why):
    program = ran(**changes)
    with pytest.raises(UnsupportedProgramError, match=why):
        as_scenario(program.as_job())


def test_one_that_no_scenario_says_is_refused(ran, monkeypatch):
    program = ran(doubled)
    monkeypatch.setattr(said_so, "in_costs", lambda _job, _: {"pipeline": {"stages": []}})
    with pytest.raises(
        UnsupportedProgramError, match=r"no scenario takes the same time as the program 'small'\. With its"
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
