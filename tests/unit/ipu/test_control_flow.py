"""``tf.cond``, ``tf.while_loop`` and ``tf.custom_gradient`` in stages, in loops, and on the host."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.model.functions.counting import count_several
from ipusim.model.functions.surrounded import Surrounded
from tests.devices import on

ROWS = np.array([[3.0], [-2.0], [5.0], [-4.0]], np.float32)


def weight(name, begin=1.0):
    return tf.get_variable(name, shape=(), initializer=tf.constant_initializer(begin))


def two_ipus():
    config = IPUConfig()
    config.auto_select_ipus = 2
    return config


def train(first, rows=ROWS, last=tf.reduce_sum):
    """Return what a pipeline of two stages sends, and its variables after a step of 1."""
    outfeed = IPUOutfeedQueue()
    ran = pipeline(
        [first, last],
        len(rows),
        infeed_queue=IPUInfeedQueue(list(rows)),
        outfeed_queue=outfeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(1.0), loss),
        outfeed_loss=True,
        config=two_ipus(),
    )
    return outfeed.dequeue().tolist(), {name: float(np.sum(value)) for name, value in ran.variables.items()}


def test_each_micro_batch_takes_its_own_branch_and_teaches_the_variables_of_that():
    def stage(x):
        return tf.cond(x[0] > 0.0, lambda: x * weight("above"), lambda: x * weight("below", 2.0))

    losses, variables = train(stage)
    assert losses == [3, -4, 5, -8]
    assert variables == {"above": 1 - 3 - 5, "below": 2 + 2 + 4}


def test_each_micro_batch_loops_as_often_as_its_values_ask_for():
    def stage(x):
        _, y = tf.while_loop(lambda i, _: i < x[0], lambda i, y: (i + 1.0, y * weight("w", 2.0)), [0.0, x])
        return y

    losses, variables = train(stage, np.array([[1.0], [3.0], [0.0], [0.0]], np.float32))
    assert losses == [2, 24, 0, 0]
    assert variables == {"w": 2 - 1 - 3 * 3 * 2**2}


def test_layers_of_branches_and_bodies_keep_their_names_whichever_is_taken():
    def dense(x):
        return tf.keras.layers.Dense(1, kernel_initializer="ones")(x)

    def stage(x):
        x = tf.reshape(x, (1, 1))
        y = tf.cond(x[0, 0] > 0.0, lambda: dense(x), lambda: dense(x) + dense(x))
        return dense(tf.while_loop(lambda y: tf.abs(y[0, 0]) < 4.0, lambda y: dense(y) + y, [y]))

    for first in (0, 1):  # the branch and iterations of the micro-batch on which the stage is tried
        losses, variables = train(stage, np.roll(ROWS, first, axis=0))
        assert sorted(losses) == [-8, -4, 5, 6]
        assert set(variables) == {f"dense{n}/{own}" for n in ("", "_1", "_2", "_3", "_4") for own in ("kernel", "bias")}


def test_changes_of_the_branch_that_is_not_taken_are_none():
    def stage(x):
        seen = tf.get_variable("seen", shape=(), initializer=tf.zeros_initializer(), trainable=False)
        y = x * weight("w")
        return tf.cond(x[0] < 0.0, lambda: y + tf.assign_add(seen, 1.0), lambda: y)

    assert train(stage)[0] == [3, -1, 5, -2]


def test_the_program_says_the_gradient_of_arguments_and_variables():
    @tf.custom_gradient
    def scaled(x):
        w = weight("w")

        def gradient(dy, variables):
            assert len(variables) == 1
            return None, [tf.reduce_sum(dy) * 10.0]

        return x * w * 7.0, gradient

    losses, variables = train(lambda x: scaled(x * weight("before")))
    assert losses == (ROWS[:, 0] * 7).tolist()
    assert variables == {"before": 1, "w": 1 - 40}


def test_a_gradient_of_ones_own_is_counted_and_the_forward_pass_is_not_gone_back_through():
    square = np.ones((8, 8))

    def macs(function):
        found = count_several(lambda x: [function(x * 2.0)], [square], [0], (0,), weights=[], itemsize=4)
        return [sum(each.macs for each in steps) for steps in (found.forward, found.backward)]

    own = tf.custom_gradient(lambda x: (tf.matmul(x, x), lambda dy: tf.matmul(dy, dy)))
    with Surrounded(lookup=lambda _, initial: initial):
        assert macs(lambda x: tf.matmul(x, x)) == [8**3, 2 * 8**3]
        assert macs(own) == [8**3, 8**3]


def test_branches_on_the_host_wait_for_the_session():
    fed = tf.placeholder(np.float32, ())
    chosen = tf.cond(fed > 1.0, lambda: fed * 2.0, lambda: tf.constant(0.5))
    i, total = tf.while_loop(lambda i, _: i < fed, lambda i, s: (i + 1.0, s + i), (tf.zeros(()), fed))
    with tf.Session() as session:
        assert session.run([chosen, i, total], {fed: 3.0}) == [6, 3, 6]
        assert session.run([chosen, i, total], {fed: 0.0}) == [0.5, 0, 0]


def test_a_session_does_the_operation_of_the_branch_that_is_taken():
    count, fed = tf.Variable(0.0), tf.placeholder(np.float32, ())
    with tf.Session() as session:

        def done(pred):
            return tf.cond(pred, lambda: tf.group(count.assign_add(1.0)), tf.no_op)

        waits, at_once, never = done(fed > 0.0), done(True), done(False)
        with tf.control_dependencies([waits]):
            behind = tf.identity(fed)
        for value, counted in ((1.0, 1), (-1.0, 1), (2.0, 2)):
            assert session.run([waits, fed], {fed: value}) == [None, value]
            assert session.run(count) == counted
        for operation, counted in ((behind, 3), (at_once, 4), (never, 4)):
            session.run(operation, {fed: 1.0})
            assert session.run(count) == counted
        with pytest.raises(ProgramError, match=r"of the same shapes and dtypes, got float32\[\] and an operation$"):
            tf.cond(fed > 0.0, lambda: count.assign(1.0), tf.no_op)


def test_variables_may_be_the_values_of_branches_on_the_host():
    first, second, fed = tf.Variable(1.0), tf.Variable(2.0), tf.placeholder(np.float32, ())
    assert tf.cond(tf.Variable(True), lambda: first, lambda: second) == 1
    with tf.Session() as session:
        either = tf.cond(fed > 0.0, lambda: first, lambda: second)
        number = tf.cond(fed > 0.0, lambda: [first, fed], lambda: [3.0, second])
        assert session.run([either, number], {fed: 4.0}) == [1, [1, 4]]
        assert session.run([either, number], {fed: -4.0}) == [2, [3, 2]]
        session.run(first.assign(5.0))
        assert session.run(either, {fed: 4.0}) == 5


def test_a_branch_of_a_loop_on_the_device_may_be_an_operation():
    count, outfeed = tf.Variable(0.0, trainable=False), IPUOutfeedQueue()

    def body(x):
        done = tf.cond(x[0] > 0.0, lambda: tf.group(count.assign_add(1.0)), tf.no_op)
        with tf.control_dependencies([done]):
            return outfeed.enqueue(count.read_value())

    loops.repeat(4, body, [], IPUInfeedQueue(list(ROWS)))
    assert outfeed.dequeue().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("most", [None, 2])
def test_a_loop_of_one_variable_returns_a_list_in_tensorflow_2_alone(most):
    def double(begin, **options):
        return tf.while_loop(lambda i: i < 3.0, lambda i: 2.0 * i, begin, maximum_iterations=most, **options)

    assert float(double([1.0])) == 4
    assert double([1.0], return_same_structure=True) == [4]
    fed = tf.placeholder(np.float32, ())
    with tf.Session() as session:
        assert session.run([double([fed]), double([fed], return_same_structure=True)], {fed: 1.0}) == [4, [4]]
    with ipu.install(tensorflow=2):
        assert double([1.0]) == [4]
        assert float(double([1.0], return_same_structure=False)) == float(double(1.0)) == 4


def sharded(body):
    with scopes.ipu_shard(0):
        w = weight("w")
    with scopes.ipu_shard(1):
        return body(w * weight("v"))


REFUSED = {
    "no function": (lambda: tf.cond(True, 1, lambda: 2), ProgramTypeError, "true_fn: expected a function without"),
    "no truth value": (lambda: tf.cond(ROWS, int, int), ProgramTypeError, "pred: expected one truth value, got"),
    "a body of another form": (
        lambda: tf.while_loop(lambda i: i < 3, lambda i: tf.cast(i, np.float32), [0]),
        ProgramError,
        r"body: expected loop variables of the shapes and dtypes that it takes, int32\[\], got float32\[\]",
    ),
    "no end": (
        lambda: tf.while_loop(lambda i: True, lambda i: i, [0], maximum_iterations=-1),
        ProgramError,
        "maximum_iterations: expected a whole number from 0",
    ),
    "no gradient": (
        lambda: tf.custom_gradient(lambda x: x)(ROWS),
        ProgramTypeError,
        "custom_gradient of <lambda>: exp",
    ),
    "margins": (lambda: tf.pad(ROWS, [[1, 1]]), ProgramError, "paddings: expected two numbers from 0 on for each of"),
    "a mirror": (lambda: tf.pad(ROWS, [[0, 0], [1, 0]], "REFLECT"), ProgramError, "paddings: expected at most 0 along"),
    "a mode": (lambda: tf.pad(ROWS, [[0, 0], [1, 0]], "EDGE"), ProgramError, "mode: expected CONSTANT, REFLECT, SYM"),
    "a slice": (lambda: tf.slice(ROWS, [3, 0], [2, 1]), ProgramError, r"begin and size: expected elements of a tensor"),
    "a stride": (
        lambda: tf.strided_slice(ROWS, [0], [1], [0]),
        ProgramError,
        "begin, end and strides: expected as many",
    ),
    "an axis": (lambda: tf.reverse(ROWS, [2]), ProgramError, r"axis: expected axes of a tensor of shape \(4, 1\)"),
    "shapes": (lambda: tf.add_n([ROWS, ROWS[0]]), ProgramError, "inputs: expected a list of at least one tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    call, kind, text = REFUSED[name]
    with pytest.raises(kind, match=f"^{text}"):
        call()


OF_STAGES = {
    "branches of two forms": (
        lambda x: tf.cond(x[0] > 0.0, lambda: x, lambda: x[0]),
        ProgramError,
        r"true_fn and false_fn: expected tensors of the same shapes and dtypes, got float32\[1\] and float32\[\]",
    ),
    "variables that the gradient does not take": (
        tf.custom_gradient(lambda x: (x * weight("w"), lambda dy: dy)),
        ProgramTypeError,
        "If using @custom_gradient with a function that uses variables",
    ),
    "a gradient of another shape": (
        lambda x: tf.custom_gradient(lambda x: (x, lambda dy: dy[0]))(x * weight("w")),
        ModelError,
        r".*custom_gradient of <lambda>: expected gradient 0 of shape \(1,\), got \(\)",
    ),
    "too many gradients": (
        lambda x: tf.custom_gradient(lambda x: (x, lambda dy: (dy, dy)))(x * weight("w")),
        ModelError,
        ".*custom_gradient of <lambda>: expected gradients of 1 arguments and 0 variables, got 2",
    ),
}


@pytest.mark.parametrize("name", OF_STAGES)
def test_what_stages_are_refused(name):
    stage, kind, text = OF_STAGES[name]
    with pytest.raises(kind, match=f"^{text}"):
        train(stage)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("pred", lambda x: tf.cond(x > 0.0, lambda: x, lambda: -x)),
        ("custom_gradient", tf.custom_gradient(lambda x: (x, lambda dy: dy))),
    ],
)
def test_values_of_a_body_over_several_shards_are_not_known_when_it_is_written_down(name, body):
    outfeed = IPUOutfeedQueue()
    with pytest.raises(UnsupportedProgramError, match=f"^{name}: not simulated in a loop over several shards: "):
        on(2, lambda: loops.repeat(2, lambda: outfeed.enqueue(sharded(body))))
