"""Options of pipelines written in Python that change when and where things happen, and not what comes out."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, MomentumOptimizer
from ipusim.ipu.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    pipeline,
)
from tests.effort import sampled

WIDTH, BATCH = 16, 4


def weights(seed, shape=(WIDTH, WIDTH)):
    return np.random.default_rng(seed).normal(size=shape) / 4


def dense(name, seed):
    return lambda x, labels: (anp.tanh(anp.dot(x, get_variable(name, weights(seed)))), labels)


def loss(x, labels):
    return anp.mean((anp.dot(x, get_variable("w2", weights(2))) - labels) ** 2)


STAGES = [dense("w0", 0), dense("w1", 1), loss]


def elements(count=400):
    rng = np.random.default_rng(9)
    return [(rng.normal(size=(BATCH, WIDTH)), rng.normal(size=(BATCH, WIDTH))) for _ in range(count)]


def train(count=12, *, config=None, stages=STAGES, **arguments):
    """Train for two executions; returns the pipeline and the losses."""
    queue = IPUOutfeedQueue()
    optimizer = CrossReplicaOptimizer(MomentumOptimizer(0.05, 0.9))
    found = pipeline(
        stages,
        count,
        repeat_count=2,
        infeed_queue=IPUInfeedQueue(elements()),
        outfeed_queue=queue,
        optimizer_function=lambda value: OptimizerFunctionOutput(optimizer, value),
        config=config,
        **arguments,
    )
    return found, queue.dequeue()[0]


@cache
def unsplit(count, replicas=1, executions=2):
    """The same training in plain NumPy: losses (micro-batches, replicas) and the weights in the end."""
    held = {f"w{i}": weights(i) for i in range(3)}
    slots = {name: np.zeros_like(array) for name, array in held.items()}
    losses, stream = [], iter(elements())
    for _ in range(executions):
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
            slots[name] = 0.9 * slots[name] + gradient
            held[name] -= 0.05 * slots[name]
    return np.array(losses).reshape(count * executions, replicas), held


def configured(**attributes):
    config = IPUConfig()
    config.auto_select_ipus = attributes.pop("ipus", 4)
    config.allow_recompute = attributes.pop("allow_recompute", False)
    config.device_connection.enable_remote_buffers = attributes.pop("remote", False)
    config.io_tiles.num_io_tiles = attributes.pop("io_tiles", 0)
    config.io_tiles.place_ops_on_io_tiles = bool(config.io_tiles.num_io_tiles)
    assert not attributes
    return config


def equal(found, losses, count, replicas=1):
    expected, held = unsplit(count, replicas)
    assert losses.reshape(expected.shape) == pytest.approx(expected, rel=1e-10)
    for name, array in found.variables.items():
        assert array == pytest.approx(held[name], rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_pipeline_learns_what_the_unsplit_model_does(schedule):
    equal(*train(pipeline_schedule=schedule), 12)


@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeThenBackpropagate),
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeAndBackpropagateInterleaved),
        (PipelineSchedule.Interleaved, RecomputationMode.Auto),
        (PipelineSchedule.Sequential, RecomputationMode.RecomputeAndBackpropagateInterleaved),
    ],
)
def test_recomputation_changes_no_number(schedule, mode):
    found, losses = train(pipeline_schedule=schedule, recomputation_mode=mode, config=configured(allow_recompute=True))
    equal(found, losses, 12)
    assert found.program.shape.recomputes(0)


def test_host_copies_on_io_tiles_change_no_number():
    found, losses = train(config=configured(io_tiles=64))
    equal(found, losses, 12)
    assert found.program.shape.overlapped_io
    assert not found.notes


@pytest.mark.parametrize(
    "sharding",
    [
        {},
        {"replicated_optimizer_state_sharding": True},
        {"replicated_optimizer_state_sharding": True, "replicated_weight_sharding": True, "offload_weights": True},
    ],
)
def test_replicas_average_their_gradients_however_variables_are_stored(sharding):
    config = configured(ipus=16, remote=bool(sharding))
    found, losses = train(6, config=config, **sharding)
    assert found.system.replicas == 4
    assert losses.shape == (12, 4)
    equal(found, losses, 6, replicas=4)
    assert found.program.offload.weights == ("replicated_weight_sharding" in sharding)


@pytest.mark.parametrize("remote", [False, True])
def test_batch_serialization_is_more_micro_batches(remote):
    found, losses = train(3, batch_serialization_iterations=4, config=configured(ipus=1, remote=remote))
    equal(found, losses, 12)
    assert found.plan.schedule == "sequential"
    assert set(found.program.shape.mapping) == {0}
    assert found.program.offload.activations == remote


def test_offloads_take_time_and_change_no_number():
    plain, _ = train(config=configured())
    found, losses = train(config=configured(remote=True), offload_gradient_accumulation_buffers=True)
    equal(found, losses, 12)
    assert found.program.offload.weight_update_variables
    assert found.summary.execution_cycles > plain.summary.execution_cycles


def test_options_of_products_reach_their_plans():
    options = [PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.001", "partialsType": "half"})] * 3
    found, losses = train(forward_propagation_stages_poplar_options=options)
    equal(found, losses, 12)

    def planned(profile):
        return {(work.memory_proportion, work.partials_itemsize) for work in profile if work.products}

    assert planned(found.program.stages[0].forward) == {(Fraction(1, 1000), 2)}
    assert planned(found.program.stages[0].backward) == {(None, 4)}
    config = configured()
    config.matmuls.poplar_options = {"availableMemoryProportion": 0.001}
    assert planned(train(config=config)[0].program.stages[2].backward) == {(Fraction(1, 1000), 4)}


def concurrent_stages(parallel):
    """Two columns of a layer beside each other, and a label that goes through with one of them."""

    def columns(name, cut):
        return lambda x: anp.tanh(anp.dot(x, get_variable(name, weights(1)[:, cut])))

    left, right = columns("left", slice(0, 10)), columns("right", slice(10, WIDTH))

    def with_labels(x, labels):
        return right(x), labels

    def both(x, labels):
        return left(x), *with_labels(x, labels)

    def end(a, b, labels):
        return loss(anp.concatenate([a, b], axis=1), labels)

    middle = [lambda x, labels: left(x), with_labels] if parallel else both
    return [dense("w0", 0), middle, end]


@cache
def columns_in_one_stage():
    """Return the variables and losses of a training in which one stage has both columns."""
    single, losses = train(stages=concurrent_stages(False))
    return single.variables, losses


@sampled(2)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("recompute", [False, True])
def test_concurrent_stages_learn_what_one_stage_does(schedule, recompute):
    config = configured(allow_recompute=recompute)
    found, losses = train(
        stages=concurrent_stages(True), device_mapping=[0, [1, 2], 3], pipeline_schedule=schedule, config=config
    )
    variables, expected = columns_in_one_stage()
    assert losses == pytest.approx(expected, rel=1e-12)
    for name, array in variables.items():
        assert found.variables[name] == pytest.approx(array, rel=1e-12), name
    assert found.program.shape.parts == ((0,), (1, 2), (3,))
    assert found.timeline.info.stages[1:3] == ("pipeline_stage_1_0", "pipeline_stage_1_1")


def test_a_shared_variable_in_parts_is_refused():
    stages = [dense("w0", 0), dense("w0", 0), loss]
    with pytest.raises(UnsupportedProgramError, match=r"^replicated_weight_sharding: .* got 'w0' in several"):
        train(
            stages=stages,
            device_mapping=[0, 0, 1],
            replicated_weight_sharding=True,
            config=configured(remote=True),
        )


def test_replicas_share_a_variable_of_several_stages():
    """Its one accumulator is summed up over the replicas once."""
    queue = IPUOutfeedQueue()

    def stage(x):
        return x * get_variable("w", np.float64(2))

    found = pipeline(
        [stage, stage, stage],
        6,
        infeed_queue=IPUInfeedQueue(np.float64(i) for i in range(12)),
        outfeed_queue=queue,
        device_mapping=[0, 0, 0],
        optimizer_function=lambda x: OptimizerFunctionOutput(CrossReplicaOptimizer(GradientDescentOptimizer(0.01)), x),
        config=configured(ipus=2),
    )
    assert found.system.replicas == 2
    # d(w^3 x)/dw = 3 w^2 x = 12 x; the sum over 0 to 11 is 66, and each replica has half of the elements.
    assert found.variables["w"] == pytest.approx(2 - 0.01 * 12 * 66 / 2, rel=1e-12)
    assert found.program.stages[0].accumulator_bytes == 8
    assert found.program.stages[1].accumulator_bytes == found.program.stages[2].parameter_bytes == 0


class CastGradients(GradientDescentOptimizer):
    """The training guide's: accumulated gradients are cast to their variables' types."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        super().apply_gradients([(gradient.astype(v.dtype), v) for gradient, v in grads_and_vars], global_step, name)


def half(optimizer):
    """Train one weight of float16, with gradients of 0.5 accumulated in float32."""
    return pipeline(
        [lambda x: x * get_variable("w", np.float16(1)), lambda x: x],
        8,
        infeed_queue=IPUInfeedQueue([np.float16(0.5)] * 8),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda value: OptimizerFunctionOutput(optimizer, value),
        gradient_accumulation_dtype=np.float32,
    )


@pytest.mark.parametrize(
    "optimizer", [GradientDescentOptimizer(0.5), CrossReplicaOptimizer(MomentumOptimizer(0.5, 0.9))]
)
def test_gradients_accumulated_in_another_type_are_not_cast_to_the_variables(optimizer):
    with pytest.raises(TypeError, match=r"^the gradient of 'w' is float32 and the variable float16: expected"):
        half(optimizer)


def test_an_optimizer_of_ones_own_casts_accumulated_gradients():
    found = half(CrossReplicaOptimizer(CastGradients(0.5)))
    assert (found.variables["w"].dtype, found.variables["w"]) == (np.float16, -1.0)
