"""``tf.cond``, ``tf.while_loop`` and ``tf.custom_gradient`` in stages: each micro-batch goes a way of its own."""

import numpy as np
import pytest

from tests.programs import configure, hosted_names, run
from tests.traced_training import train

pytestmark = pytest.mark.usefixtures("tf")

ROWS = np.array([[3.0], [-2.0], [5.0], [-4.0]], np.float32)


def weight(tf, name, begin=1.0, **options):
    return tf.compat.v1.get_variable(name, initializer=np.float32(begin), use_resource=True, **options)


def learned(tf, first, rows=ROWS):
    """What a pipeline of two stages sends, and its variables after a step of 1."""
    stages = [lambda x: first(x[0]), tf.reduce_sum]
    done = train(lambda _: stages, [rows], batch=1, rate=1.0, repeat_count=1, outfeed_loss=True)
    return done.losses.tolist(), {name: float(value) for name, value in done.variables.items()}


def test_each_micro_batch_takes_its_own_branch_and_teaches_the_variables_of_that(tf):
    def stage(x):
        above, below = weight(tf, "above"), weight(tf, "below", 2.0)
        return tf.cond(x[0] > 0.0, lambda: x * above, lambda: x * below)

    losses, variables = learned(tf, stage)
    assert losses == [3, -4, 5, -8]
    assert variables == {"above": 1 - 3 - 5, "below": 2 + 2 + 4}


def test_each_micro_batch_loops_as_often_as_its_values_ask_for(tf):
    def stage(x):
        w = weight(tf, "w", 2.0)
        return tf.while_loop(lambda i, _: i < x[0], lambda i, y: (i + 1.0, y * w), [0.0, x])[1]

    losses, variables = learned(tf, stage, np.array([[1.0], [3.0], [0.0], [0.0]], np.float32))
    assert losses == [2, 24, 0, 0]
    assert variables == {"w": 2 - 1 - 3 * 3 * 2**2}


def test_changes_of_the_branch_that_is_not_taken_are_none(tf):
    def stage(x):
        seen = weight(tf, "seen", 0.0, trainable=False)
        y = x * weight(tf, "w")
        return tf.cond(x[0] < 0.0, lambda: y + seen.assign_add(1.0), lambda: y)

    losses, variables = learned(tf, stage)
    assert losses == [3, -1, 5, -2]
    assert variables["seen"] == 2


def test_the_program_says_the_gradient_of_arguments_and_variables(tf):
    def stage(x):
        w = weight(tf, "w")

        @tf.custom_gradient
        def scaled(x, w):
            return x * w * 7.0, lambda dy: (None, tf.reduce_sum(dy) * 10.0)

        return scaled(x * weight(tf, "before"), w)

    losses, variables = learned(tf, stage)
    assert losses == (ROWS[:, 0] * 7).tolist()
    assert variables == {"before": 1, "w": 1 - 40}


def sent_by_loop(result):
    """Return what a loop over the rows sends: ``result(tf, x)`` of each row."""
    with hosted_names() as names:
        tf, ipu = names.tf, names.ipu
        configure(names, 1)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(ROWS))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x):
            return outfeed.enqueue(result(tf, x))

        ran = run(names, lambda: ipu.loops.repeat(4, body, infeed_queue=infeed), outfeed, [infeed])
        return ran.sent.tolist()


def test_a_branch_of_a_loop_on_the_device_may_be_an_operation():
    def counted(tf, x):
        count = weight(tf, "count", 0.0, trainable=False)
        done = tf.cond(x[0] > 0.0, lambda: tf.group(count.assign_add(1.0)), tf.no_op)
        with tf.control_dependencies([done]):
            return count.read_value()

    assert sent_by_loop(counted) == [1, 1, 2, 2]


def test_a_branch_that_only_draws_needs_no_value_if_no_node_reads_it():
    """As dropout of a Keras model that is built on placeholders, and then called on a micro-batch."""

    def unchanged(tf, x):
        unread = tf.placeholder(tf.float32, [1])
        tf.cond(tf.equal(x[0], 3.0), lambda: unread * tf.random.uniform([1]), lambda: unread)
        return x

    assert sent_by_loop(unchanged) == ROWS.tolist()
