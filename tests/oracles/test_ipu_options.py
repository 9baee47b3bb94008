"""Options of programs that change when and where things happen, and not what comes out."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions, RecomputationMode
from tests.effort import sampled
from tests.programs import pipelined

WIDTH, BATCH, EXECUTIONS = 16, 4, 2
#: Numbers that float32 has, in which TensorFlow keeps them.
RATE, MOMENTUM = 0.0625, 0.875
REMOTE = {"device_connection__enable_remote_buffers": True}
RECOMPUTE = {"allow_recompute": True}
IO_TILES = {"io_tiles__num_io_tiles": 64, "io_tiles__place_ops_on_io_tiles": True}


def weights(seed):
    return np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)) / 4


@cache
def elements(count=400):
    return np.random.default_rng(9).normal(size=(2, count, BATCH, WIDTH))


def dense(tf, name, seed, cut=slice(None)):
    def layer(x):
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            return tf.matmul(x, tf.get_variable(name, dtype=tf.float64, initializer=weights(seed)[:, cut]))

    return layer


def stages(tf, middle=None):
    """Three layers, the last with the loss; labels travel beside the activations."""
    first, second, third = (dense(tf, f"w{place}", place) for place in range(3))
    return [
        lambda x, labels: (tf.tanh(first(x)), labels),
        middle or (lambda x, labels: (tf.tanh(second(x)), labels)),
        lambda x, labels: tf.reduce_mean((third(x) - labels) ** 2),
    ]


def train(names, count=12, *, ipus=4, device=None, written=None, **arguments):
    """Train for two executions."""
    tf = names.tf
    dataset = tf.data.Dataset.from_tensor_slices(tuple(elements()))
    optimizer = names.ipu.optimizers.CrossReplicaOptimizer(tf.train.MomentumOptimizer(RATE, MOMENTUM))
    options = {"ipus": ipus, "device": device, "optimizer": optimizer, "repeat_count": EXECUTIONS}
    return pipelined(names, written or stages(tf), dataset, count, **options | arguments)


@cache
def unsplit(count, replicas):
    """The same training in plain NumPy: losses (micro-batches, replicas) and the weights in the end."""
    held = {f"w{i}": weights(i) for i in range(3)}
    slots = {name: np.zeros_like(array) for name, array in held.items()}
    losses, stream = [], zip(*elements(), strict=True)
    for _ in range(EXECUTIONS):
        total = {name: np.zeros_like(array) for name, array in held.items()}
        for _ in range(count * replicas):
            x, labels = next(stream)
            first = np.tanh(x @ held["w0"])
            second = np.tanh(first @ held["w1"])
            error = second @ held["w2"] - labels
            losses.append(np.mean(error**2))
            grad = 2 * error / error.size
            total["w2"] += second.T @ grad / replicas
            grad = grad @ held["w2"].T * (1 - second**2)
            total["w1"] += first.T @ grad / replicas
            grad = grad @ held["w1"].T * (1 - first**2)
            total["w0"] += x.T @ grad / replicas
        for name, gradient in total.items():
            slots[name] = MOMENTUM * slots[name] + gradient
            held[name] -= RATE * slots[name]
    return np.array(losses).reshape(count * EXECUTIONS, replicas), held


def equal(found, count=12, replicas=1):
    losses, held = unsplit(count, replicas)
    np.testing.assert_allclose(np.reshape(found.sent[0], losses.shape), losses, rtol=1e-10)
    for name, array in held.items():
        np.testing.assert_allclose(found.variables[name], array, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_pipeline_learns_what_the_unsplit_model_does(names, schedule):
    equal(train(names, pipeline_schedule=schedule))


@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeThenBackpropagate),
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeAndBackpropagateInterleaved),
        (PipelineSchedule.Interleaved, RecomputationMode.Auto),
        (PipelineSchedule.Sequential, RecomputationMode.RecomputeAndBackpropagateInterleaved),
    ],
)
def test_recomputation_changes_no_number(names, schedule, mode):
    found = train(names, pipeline_schedule=schedule, recomputation_mode=mode, device=RECOMPUTE)
    equal(found)
    shape = found.job.program.shape
    assert shape.recomputes(0)
    assert shape.recompute_inline == (mode is RecomputationMode.RecomputeAndBackpropagateInterleaved)


def test_host_copies_on_io_tiles_change_no_number(names):
    found = train(names, device=IO_TILES)
    equal(found)
    assert found.job.program.shape.overlapped_io
    assert not found.job.notes


@pytest.mark.parametrize(
    "sharding",
    [
        {},
        {"replicated_optimizer_state_sharding": True},
        {"replicated_optimizer_state_sharding": True, "replicated_weight_sharding": True, "offload_weights": True},
    ],
)
def test_replicas_average_their_gradients_however_variables_are_stored(names, sharding):
    device = {**REMOTE, "optimizations__minimum_remote_tensor_size": 1} if sharding else {}
    found = train(names, 6, ipus=16, device=device, **sharding)
    assert found.job.system.replicas == 4
    assert found.sent[0].shape == (12, 4)
    equal(found, 6, replicas=4)
    offload = found.job.program.offload
    assert (offload.sharded_state, offload.weights) == (bool(sharding), "replicated_weight_sharding" in sharding)


@pytest.mark.parametrize(("remote", "asked"), [(False, {}), (True, {}), (True, {"offload_activations": False})])
def test_batch_serialization_is_more_micro_batches(names, remote, asked):
    found = train(names, 3, batch_serialization_iterations=4, ipus=1, device=REMOTE if remote else {}, **asked)
    equal(found)
    assert found.job.plan.schedule == "sequential"
    assert set(found.job.program.shape.mapping) == {0}
    assert found.job.program.offload.activations == (remote and not asked)


def test_offloads_take_time_and_change_no_number(names):
    plain = train(names)
    names.tf.reset_default_graph()
    found = train(names, device=REMOTE, offload_gradient_accumulation_buffers=True)
    equal(found)
    assert found.job.program.offload.weight_update_variables
    assert found.timeline.end.max() > plain.timeline.end.max()


def planned(passes):
    return {(work.memory_proportion, work.partials_itemsize) for work in passes if work.products}


def test_options_of_products_reach_their_plans(names):
    share = {"availableMemoryProportion": "0.001"}
    options = [PipelineStageOptions(matmul_options={**share, "partialsType": "half"})] * 3
    found = train(names, forward_propagation_stages_poplar_options=options)
    equal(found)
    assert planned(found.job.program.stages[0].forward) == {(Fraction(1, 1000), 2)}
    assert planned(found.job.program.stages[0].backward) == {(None, 4)}
    names.tf.reset_default_graph()
    found = train(names, backward_propagation_stages_poplar_options=options)
    assert planned(found.job.program.stages[0].forward) == {(None, 4)}
    assert planned(found.job.program.stages[0].backward) == {(Fraction(1, 1000), 2)}
    names.tf.reset_default_graph()
    found = train(names, device={"matmuls__poplar_options": share})
    assert planned(found.job.program.stages[2].backward) == {(Fraction(1, 1000), 4)}


@sampled(2)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("recompute", [False, True])
def test_concurrent_stages_learn_what_one_stage_does(names, schedule, recompute):
    """Two columns of a layer beside each other, and a label that goes through with one of them."""
    tf, cut = names.tf, 10
    left, right = dense(tf, "left", 1, slice(0, cut)), dense(tf, "right", 1, slice(cut, WIDTH))
    first, _, last = stages(tf)
    middle = [lambda x, labels: tf.tanh(left(x)), lambda x, labels: (tf.tanh(right(x)), labels)]
    written = [first, middle, lambda a, b, labels: last(tf.concat([a, b], axis=1), labels)]
    device = RECOMPUTE if recompute else {}
    found = train(names, written=written, device_mapping=[0, [1, 2], 3], pipeline_schedule=schedule, device=device)
    found.variables["w1"] = np.concatenate([found.variables["left"], found.variables["right"]], axis=1)
    equal(found)
    assert found.job.program.shape.parts == ((0,), (1, 2), (3,))
    assert found.timeline.info.stages[1:3] == ("pipeline_stage_1_0", "pipeline_stage_1_1")


def test_a_shared_variable_in_parts_is_refused(names):
    first, _, last = stages(names.tf)
    with pytest.raises(UnsupportedProgramError, match=r"^replicated_weight_sharding: .* got 'w0' in several"):
        train(
            names,
            written=[first, first, last],
            device_mapping=[0, 0, 1],
            replicated_weight_sharding=True,
            device=REMOTE,
        )
