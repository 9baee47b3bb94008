"""Variables of TensorFlow in stages, in loops and on the host, shared by the programs of a session.

Also state that no optimizer trains: counters, steps and moving statistics, in every schedule once for each pass.
"""

import numpy as np
import pytest

from tests.programs import configure, hosted_names, pipelined

X = np.ones((2, 3), np.float32)
COUNT, RATE = 8, 0.01
#: Schedules with a recomputation mode that Graphcore has together.
MODES = [
    ("Grouped", "RecomputeThenBackpropagate"),
    ("Grouped", "RecomputeAndBackpropagateInterleaved"),
    ("Interleaved", "RecomputeThenBackpropagate"),
    ("Sequential", "RecomputeAndBackpropagateInterleaved"),
]


@pytest.fixture(autouse=True)
def _two_ipus(names):
    configure(names, 2)


def built(names, stages, *, training=True, **arguments):
    """Compile a pipeline of four ones at a time; return its operation and the tensor of its results."""
    tf, ipu = names.tf, names.ipu
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(X).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, infeed.initializer)

    def learn(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.05), loss)

    given = {"infeed_queue": infeed, "outfeed_queue": outfeed, "optimizer_function": learn if training else None}
    given |= {"outfeed_loss": True} if training else {}
    operation = ipu.ipu_compiler.compile(lambda: ipu.pipelining_ops.pipeline(stages, 4, **given | arguments))
    return operation, outfeed.dequeue()


def begun(names):
    session = names.tf.Session()
    session.run([names.tf.global_variables_initializer(), names.tf.tables_initializer()])
    return session


def ran(session, program):
    session.run(program[0])
    return session.run(program[1])


def test_a_pipeline_trains_a_variable_of_the_host(names):
    tf = names.tf
    w, b = tf.Variable(np.ones((3, 1), np.float32)), tf.Variable(0.0)
    program = built(names, [lambda x: tf.matmul(x, w) + b, tf.reduce_sum], repeat_count=2)
    session = begun(names)
    # four gradients of 2 for each weight and for b, twice
    assert ran(session, program)[:5].tolist() == pytest.approx([6, 6, 6, 6, 6 - 4 * 0.05 * 2 * (3 + 1) * 2])
    assert session.run(w).ravel().tolist() == pytest.approx([1 - 0.8] * 3)
    session.run(b.assign(1.0))
    assert ran(session, program)[0] == pytest.approx(2 * (3 * 0.2 + 1))


def test_sessions_share_no_values(names):
    tf = names.tf
    w = tf.Variable(1.0)
    program = built(names, [lambda x: x * w, tf.reduce_sum])
    one, other = begun(names), begun(names)
    ran(one, program)
    assert one.run(w) < other.run(w) == 1
    assert ran(other, program)[0] == 6


def test_a_variable_has_an_initialized_value(names):
    variable = names.tf.get_variable("v", [], initializer=names.tf.constant_initializer(2.0), use_resource=True)
    value = variable.initialized_value()
    with names.tf.Session() as session:
        assert session.run(value) == 2
        session.run(variable.initializer)
        session.run(variable.assign(5.0))
        assert session.run(value) == 5


def test_a_layer_computes_in_the_dtype_of_its_input(names):
    assert names.tf.keras.layers.Dense(2)(names.tf.placeholder(names.tf.float16, [1, 2])).dtype == names.tf.float16


@pytest.mark.parametrize("program", ["first", "second"])
def test_a_variable_of_tensorflow_2_has_its_own_name_in_nodes_or_this_name_with_a_number(program):
    """Whatever program ran before in the process."""
    with hosted_names(2) as found:
        from ipusim.ipu.graph.tracing import variable_name  # noqa: PLC0415

        variables = [found.tf.Variable(0.0, name="twice_named") for _ in range(3)]
        names = ["twice_named", "twice_named:1", "twice_named:2"]
        assert [*map(variable_name, variables), *map(variable_name, variables)] == 2 * names


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
