"""State that no optimizer trains: counters, steps and moving statistics, in every schedule once for each pass."""

import numpy as np
import pytest

from tests.programs import pipelined

COUNT, RATE = 8, 0.01
#: Schedules with a recomputation mode that Graphcore has together.
MODES = [
    ("Grouped", "RecomputeThenBackpropagate"),
    ("Grouped", "RecomputeAndBackpropagateInterleaved"),
    ("Interleaved", "RecomputeThenBackpropagate"),
    ("Sequential", "RecomputeAndBackpropagateInterleaved"),
]


def counted(names, x):
    """Scale by a weight and by the number of micro-batches so far, which the next pass sees."""
    tf = names.tf
    with tf.variable_scope("all", reuse=tf.AUTO_REUSE, use_resource=True):
        count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False)
        weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
    before = count.read_value()
    with tf.control_dependencies([before]):
        now = count.assign_add(1)
    return x * weight * (1 + tf.cast(before, tf.float32) / 10), tf.identity(now)


def trained(names, stages, ipus=2, recompute=False, make=None, **arguments):
    """Two runs of two executions each."""
    tf = names.tf
    dataset = tf.data.Dataset.from_tensors(np.float32([1, 2])).repeat()

    def learn(loss, *_):
        optimizer = (make or tf.train.GradientDescentOptimizer)(RATE)
        return names.ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    options = {"ipus": ipus, "device": {"allow_recompute": recompute}, "repeat_count": 2, "optimizer_function": learn}
    return pipelined(names, stages, dataset, COUNT, feeds=({}, {}), **options | arguments)


def by_hand():
    """Losses of four executions, each loss the mean of w (1 + n / 10) x."""
    w, losses = 1.0, []
    for execution in range(4):
        factors = [1 + (COUNT * execution + place) / 10 for place in range(COUNT)]
        losses += [w * factor * 1.5 for factor in factors]
        w -= RATE * 1.5 * sum(factors)
    return losses, w


@pytest.mark.parametrize(("schedule", "mode"), MODES)
def test_a_counter_counts_each_micro_batch_once_in_every_schedule(names, schedule, mode):
    """It goes on from run to run, and passes that are computed again see what they saw."""
    ops = names.ipu.pipelining_ops
    found = trained(
        names,
        [lambda x: counted(names, x), lambda y, now: (names.tf.reduce_mean(y), now)],
        recompute=True,
        pipeline_schedule=ops.PipelineSchedule[schedule],
        recomputation_mode=ops.RecomputationMode[mode],
    )
    losses, weight = by_hand()
    np.testing.assert_allclose(np.concatenate([each[0] for each in found.sent]), losses, rtol=1e-5)
    assert np.concatenate([each[1] for each in found.sent]).tolist() == list(range(1, 4 * COUNT + 1))
    assert (found.variables["all/count"], found.variables["all/w"]) == (4 * COUNT, pytest.approx(weight, rel=1e-5))


def test_each_replica_has_its_own_and_the_first_is_recorded(names):
    make = lambda rate: names.ipu.optimizers.CrossReplicaOptimizer(  # noqa: E731
        names.tf.train.GradientDescentOptimizer(rate)
    )
    stages = [lambda x: counted(names, x), lambda y, now: (names.tf.reduce_mean(y), now)]
    found = trained(names, stages, ipus=4, make=make)
    counts = np.concatenate([each[1] for each in found.sent])
    assert counts.tolist() == [[place, place] for place in range(1, 4 * COUNT + 1)]
    assert found.variables["all/count"] == 4 * COUNT


def test_a_step_that_updates_count_may_be_read_by_the_last_stage(names):
    tf = names.tf

    def last(x):
        with tf.variable_scope("all", reuse=tf.AUTO_REUSE, use_resource=True):
            loss = tf.reduce_mean(x * tf.get_variable("w", [], initializer=tf.ones_initializer()))
        return loss, tf.identity(tf.train.get_or_create_global_step())

    class Counting(names.ipu.optimizers.IpuOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return super().apply_gradients(grads_and_vars, tf.train.get_global_step(), name)

    make = lambda rate: Counting(tf.train.GradientDescentOptimizer(rate))  # noqa: E731
    found = trained(names, [lambda x: x, last], make=make)
    steps = np.concatenate([each[1] for each in found.sent])
    assert steps.tolist() == np.repeat(np.arange(4), COUNT).tolist()
    assert found.variables["global_step"] == 4
