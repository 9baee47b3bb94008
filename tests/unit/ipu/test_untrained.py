"""State that no optimizer trains: counters, steps and moving statistics, in every schedule once for each pass."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import get_variable, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientAccumulationOptimizerV2
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from tests.effort import slowest

#: Schedules and recomputation modes that Graphcore does not have together.
UNSUPPORTED = {
    ("Interleaved", "RecomputeAndBackpropagateInterleaved"),
    ("Sequential", "RecomputeThenBackpropagate"),
}
X = np.random.default_rng(3).normal(2, 3, (8, 4, 3)).astype(np.float32)


def count():
    return tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False)


def counted(x):
    """Scale by a weight and by the number of micro-batches so far, which the next pass sees."""
    before = tf.cast(count(), tf.float32)
    now = count_again().assign_add(1)
    return x * tf.get_variable("w", [], initializer=tf.ones_initializer()) * (1 + before / 10), now


def count_again():
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        return count()


def trained(stages, optimizer=None, element=None, **arguments):
    """Run a pipeline that trains, and return it and what its outfeed has sent."""
    outfeed, rate = IPUOutfeedQueue(), tf.train.GradientDescentOptimizer(0.01)

    def learn(loss, *_):
        return OptimizerFunctionOutput(rate if optimizer is None else optimizer(rate), loss)

    given = {"gradient_accumulation_count": 8, "repeat_count": 2, "optimizer_function": learn} | arguments
    elements = [np.float32([1, 2])] if element is None else element
    found = pipeline(stages, infeed_queue=IPUInfeedQueue(repeat(elements)), outfeed_queue=outfeed, **given)
    return found, outfeed.dequeue()


def configured(recompute):
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = recompute
    return config


def by_hand(executions=2, count=8, rate=0.01):
    """Return the losses and the weight of ``counted``, pass by pass."""
    losses, w, seen = [], 1.0, 0
    for _ in range(executions):
        gradient = 0.0
        for _ in range(count):
            losses.append(3 * w * (1 + seen / 10))
            gradient += 3 * (1 + seen / 10)
            seen += 1
        w -= rate * gradient
    return losses, w


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("mode", list(RecomputationMode))
@pytest.mark.parametrize("recompute", [pytest.param(False, marks=slowest), True])
def test_a_counter_counts_each_micro_batch_once_in_every_schedule(schedule, mode, recompute):
    arguments = {"pipeline_schedule": schedule, "recomputation_mode": mode, "config": configured(recompute)}
    stages = [counted, lambda x, now: (tf.reduce_sum(x), now)]
    if (schedule.name, mode.name) in UNSUPPORTED:
        with pytest.raises(UnsupportedProgramError, match="recomputation mode"):
            trained(stages, **arguments)
        return
    found, (losses, counts) = trained(stages, **arguments)
    expected, w = by_hand()
    assert counts.tolist() == list(range(1, 17))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert {name: float(value) for name, value in found.variables.items()} == {
        "w": pytest.approx(w, rel=1e-5),
        "count": 16,
    }


def test_a_counter_goes_on_from_run_to_run_and_begins_anew_when_it_is_initialized():
    found, _ = trained([lambda x: counted(x)[0], tf.reduce_sum])
    found.run()
    assert found.variables["count"] == 32
    found.initialize()
    assert found.variables["count"] == 0
    found.run()
    assert found.variables["count"] == 16


def test_a_counter_in_inference():
    found, counts = trained([counted, lambda x, now: now], optimizer_function=None)
    assert counts[0].tolist() == list(range(1, 17))
    assert found.variables["count"] == 16


def test_stages_on_one_ipu_share_a_counter_in_the_order_of_its_passes():
    def again(x):
        return tf.reduce_sum(x), count_again().assign_add(1)

    first = [lambda x: counted(x)[0], lambda x: x, again]
    sequential = {"device_mapping": [0, 1, 0], "pipeline_schedule": PipelineSchedule.Grouped}
    found, (_, counts) = trained(first, gradient_accumulation_count=12, repeat_count=1, **sequential)
    assert found.variables["count"] == 24
    # the first stage of micro-batch n + 2 runs on the IPU before the last of micro-batch n, but for the end
    assert sorted(set(counts.tolist())) == counts.tolist()
    with pytest.raises(UnsupportedProgramError, match=r"stage with ID 1|PipelineStage with ID 1 is trying to use an "):
        trained([lambda x: counted(x)[0], again])


def test_each_replica_has_its_own_and_the_first_is_recorded():
    config = IPUConfig()
    config.auto_select_ipus = 4
    outfeed = IPUOutfeedQueue()

    def stage(x):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), trainable=False)
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer()), total.assign_add(tf.reduce_sum(x))

    found = pipeline(
        [stage, lambda x, total: (tf.reduce_sum(x), total)],
        4,
        infeed_queue=IPUInfeedQueue(repeat(np.arange(8, dtype=np.float32).reshape(8, 1))),
        outfeed_queue=outfeed,
        optimizer_function=lambda loss, _: OptimizerFunctionOutput(
            CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(0.1)), loss
        ),
        config=config,
    )
    totals = outfeed.dequeue()[1]
    assert totals.tolist() == [[0, 1], [2, 4], [6, 9], [12, 16]]
    assert found.variables["total"] == 12


def test_memory_counts_them_once_and_as_they_were_for_passes_that_run_again():
    def stage(shared):
        def call(x):
            kept = tf.get_variable("kept", [1000], initializer=tf.zeros_initializer(), trainable=False)
            if shared:
                kept.assign_add(tf.ones([1000]))
            return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

        return call

    def held(first, recompute):
        found, _ = trained([first, tf.reduce_sum], config=configured(recompute), repeat_count=1)
        profile = found.program.stages[0]
        return profile.untrained_bytes, profile.changing_bytes, found.program.saved_bytes(0)

    x_bytes = 8
    assert held(stage(shared=False), recompute=True) == (4000, 0, x_bytes)
    assert held(stage(shared=True), recompute=True) == (4000, 4000, x_bytes + 4000)
    assert held(stage(shared=True), recompute=False)[:2] == (4000, 4000)


@pytest.mark.parametrize("given", ["args", "kwargs"])
def test_a_pipelines_optimizer_counts_its_updates(given):
    step = tf.Variable(0, name="updates", dtype=tf.int64)
    how = {"apply_gradients_args": (step,)} if given == "args" else {"apply_gradients_kwargs": {"global_step": step}}

    def learn(loss):
        return OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.01), loss, **how)

    found, _ = trained([lambda x: counted(x)[0], tf.reduce_sum], repeat_count=3, optimizer_function=learn)
    assert found.variables["updates"] == 3
    assert step.numpy() == 3


def test_a_step_that_updates_count_may_be_read_by_the_last_stage():
    def learn(loss, _):
        step = tf.train.get_or_create_global_step()
        rate = 0.01 / (1 + tf.cast(step, tf.float32))
        return OptimizerFunctionOutput(
            tf.train.GradientDescentOptimizer(rate), loss, apply_gradients_kwargs={"global_step": step}
        )

    def last(x):
        return tf.reduce_sum(x), tf.train.get_or_create_global_step()

    stages = [lambda x: x * tf.get_variable("w", [], initializer=tf.ones_initializer()), last]
    found, (losses, steps) = trained(stages, optimizer_function=learn, gradient_accumulation_count=4)
    assert steps.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.variables["w"] == pytest.approx(1 - 0.01 * 12 - 0.005 * 12)
    assert losses == pytest.approx([3, 3, 3, 3] + [3 * (1 - 0.12)] * 4)


def moving(images, momentum, x=X):
    """Return the moving statistics after all of ``x``."""
    mean, variance = np.zeros(3), np.ones(3)
    axes = tuple(range(x.ndim - 2))
    for each in x:
        whole = each.size / 3 / (each.size / 3 - 1) if images else 1
        mean = momentum * mean + (1 - momentum) * each.mean(axis=axes)
        variance = momentum * variance + (1 - momentum) * each.var(axis=axes) * whole
    return mean, variance


@pytest.mark.parametrize("images", [False, True])
def test_batch_normalisation_evaluates_by_the_statistics_that_training_has_moved(images):
    x = X.reshape(8, 1, 2, 2, 3) if images else X
    norm = tf.keras.layers.BatchNormalization(momentum=0.9)
    outfeed = IPUOutfeedQueue()
    config = configured(recompute=True)
    found, _ = trained([norm, lambda y: tf.reduce_sum(y * y)], element=x, repeat_count=1, config=config)
    name = "batch_normalization"
    variables = found.variables
    mean, variance = moving(images, 0.9, x)
    assert variables[f"{name}/moving_mean"] == pytest.approx(mean, rel=1e-5)
    assert variables[f"{name}/moving_variance"] == pytest.approx(variance, rel=1e-5)
    pipeline([norm, lambda y: y], 8, infeed_queue=IPUInfeedQueue(x), outfeed_queue=outfeed)
    expected = (x - mean) / np.sqrt(variance + 1e-3) * variables[f"{name}/gamma"] + variables[f"{name}/beta"]
    assert outfeed.dequeue()[0] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_loop_trains_the_variables_of_its_list_and_counts_its_updates(sharded):
    outfeed, on = IPUOutfeedQueue(), scopes.ipu_shard if sharded else lambda _: nullcontext()
    step, seen = tf.Variable(0), tf.Variable(np.float32(5), trainable=False)
    w, b = tf.Variable(np.ones((3, 2), np.float32)), tf.Variable(np.zeros(2, np.float32))
    norm = tf.keras.layers.BatchNormalization(momentum=0.9)

    def body(x):
        with on(0):
            y = tf.matmul(norm(x), w) + b
            count = seen.assign_add(1.0)
        with on(1):
            loss = tf.reduce_mean(tf.square(y - 1.0))
        optimizer = GradientAccumulationOptimizerV2(tf.train.MomentumOptimizer(0.1, 0.9), 2)
        with tf.control_dependencies([optimizer.minimize(loss, step, [b])]):
            return outfeed.enqueue((loss, count))

    loops.repeat(8, body, [], IPUInfeedQueue(repeat(X)))
    assert (step.numpy(), seen.numpy(), w.numpy().tolist()) == (4, 13, [[1, 1]] * 3)
    assert outfeed.dequeue()[1].tolist() == list(range(6, 14))
    # y is b and what has mean 0: a gradient of b - 1 for each element of both mini-batches, by momentum
    value, speed = 0.0, 0.0
    for _ in range(4):
        speed = 0.9 * speed + 2 * (value - 1)
        value -= 0.1 * speed
    assert b.numpy() == pytest.approx([value] * 2, rel=1e-5)
    mean, variance = moving(images=False, momentum=0.9)
    assert norm._variables["batch_normalization/moving_mean"].numpy() == pytest.approx(mean, rel=1e-5)
    assert norm._variables["batch_normalization/moving_variance"].numpy() == pytest.approx(variance, rel=1e-5)


@pytest.mark.parametrize(
    ("stage", "kind", "text"),
    [
        (lambda x: x * count().assign(1.5), ModelError, "value: expected int32 numbers, and not float64, got 1.5"),
        (lambda x: x * count().assign_add([1]), ModelError, r"expected the shape \(\) of variable 'count' and not"),
        (lambda x: x * count().assign("one"), ModelError, "value: expected an array or a number, got 'one'"),
        (
            lambda x: tf.Variable(1.0).assign(x[0]),
            ModelError,
            "variable 'Variable' is trained, and can only be modified by the apply_gradients",
        ),
        (lambda x: x * tf.Variable(1.0, trainable=False).numpy(), ModelError, "outside of stages and loops"),
        (lambda x: tf.assign(x, 1.0), ModelError, "ref: expected a variable made with trainable=False"),
    ],
)
def test_changes_that_cannot_be(stage, kind, text):
    with pytest.raises((kind, ProgramError), match=text):
        trained([stage, tf.reduce_sum])


def test_a_variable_asked_for_as_trained_and_as_untrained():
    def untrained(x):
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer(), trainable=False)

    def both(x):
        return untrained(x) * get_variable("w", 1.0)

    one = {"device_mapping": [0, 0], "pipeline_schedule": PipelineSchedule.Sequential}
    for stages in ([both, tf.reduce_sum], [untrained, lambda x: tf.reduce_sum(x * get_variable("w", 1.0))]):
        with pytest.raises(ModelError, match="'w' was asked for with trainable=True and with trainable=False"):
            trained(stages, **one)


def test_a_sharded_loop_sets_a_variable_to_what_depends_on_something():
    def body(x):
        with scopes.ipu_shard(0):
            y = x * tf.get_variable("w", [], initializer=tf.ones_initializer())
            tf.get_variable("s", [], initializer=tf.ones_initializer(), trainable=False).assign(2.0)
        with scopes.ipu_shard(1):
            loss = tf.reduce_sum(y)
        return outfeed.enqueue(loss)

    outfeed = IPUOutfeedQueue()
    with pytest.raises(
        UnsupportedProgramError, match="'s': a sharded loop that sets it to a value which depends on no"
    ):
        loops.repeat(2, body, [], IPUInfeedQueue(repeat(X)))


def test_momentum_of_batch_normalisation():
    with pytest.raises(ProgramTypeError, match="momentum: expected a number from 0 to 1, got 'slow'"):
        tf.keras.layers.BatchNormalization(momentum="slow")
    with pytest.raises(ProgramError, match="momentum: expected a number from 0 to 1, got 2"):
        tf.keras.layers.BatchNormalization(momentum=2)
