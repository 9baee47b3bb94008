"""Options of products in programs reach their plans, and a program in any schedule learns what one loop learns."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions
from tests.programs import pipelined

WIDTH, BATCH, EXECUTIONS = 16, 4, 2
#: Numbers that float32 has, in which TensorFlow keeps them.
RATE, MOMENTUM = 0.0625, 0.875
REMOTE = {"device_connection__enable_remote_buffers": True}


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
