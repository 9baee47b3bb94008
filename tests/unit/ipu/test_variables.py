"""Variables as objects: on the host, in stages, in sessions, and shared by the programs of one."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import (
    IpusimError,
    ModelError,
    ProgramError,
    ProgramStateError,
    ProgramTypeError,
    UnsupportedProgramError,
)
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.runtime.host import Running

X = np.ones((2, 3), np.float32)


def learn(loss):
    return OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.05), loss)


def run(stages, *, training=True, element=X, **arguments):
    outfeed = IPUOutfeedQueue()
    given = {"optimizer_function": learn if training else None} | arguments
    infeed = IPUInfeedQueue(repeat([element]))
    return pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed, **given), outfeed.dequeue


def test_a_variable_on_the_host():
    v = tf.Variable([1.0, 2.0], name="v")
    assert (v.name, v.shape, v.get_shape(), v.dtype, v.ndim, v.size, len(v)) == ("v", (2,), (2,), np.float32, 1, 2, 2)
    assert (v + 1).tolist() == [2, 3]
    assert (1 - v).tolist() == [0, -1]
    assert (v @ v, v[1]) == (5, 2)
    assert (v > 1.5).tolist() == [False, True]
    assert (np.ones(2) * v).tolist() == [1, 2]
    assert v.assign_add([1, 1]) is v
    assert v.numpy().tolist() == [2, 3]
    v.assign_sub(np.float32([1, 0]))
    assert (v.read_value().tolist(), v.value().tolist(), v.eval().tolist()) == ([1, 3], [1, 3], [1, 3])
    assert (np.sum(v), np.exp(v)[0], np.dot(v, v)) == (4, np.exp(np.float32(1)), 10)
    assert repr(v) == "<tf.Variable 'v' shape=(2,) dtype=float32>"
    assert int(tf.Variable(3)) == 3
    assert float(tf.Variable(1.5)) == 1.5
    assert [10, 20, 30][tf.Variable(2)] == 30
    assert not tf.Variable(0)
    assert tf.reduce_sum(v).tolist() == 4
    v.numpy()[:] = 7
    assert v.numpy().tolist() == [1, 3]


def test_names_kinds_and_collections():
    with tf.variable_scope("net"):
        first, second = tf.Variable(1.0, name="w"), tf.Variable(2.0, name="w")
        step = tf.get_variable("step", [], tf.int32, trainable=False)
    counter = tf.Variable(0)
    assert [each.name for each in (first, second, step, counter)] == ["net/w", "net/w_1", "net/step", "Variable"]
    assert tf.global_variables() == [first, second, step, counter]
    assert tf.trainable_variables() == [first, second]
    assert tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "net/w_") == [second]
    assert tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, "net") == [first, second, step]
    assert tf.get_collection("losses") == []
    assert tf.train.get_global_step() is None
    made = tf.train.get_or_create_global_step()
    assert tf.train.get_or_create_global_step() is tf.train.get_global_step() is made
    assert tf.get_collection(tf.GraphKeys.GLOBAL_STEP) == [made]
    with tf.variable_scope("net", reuse=True):
        assert tf.get_variable("step", [], tf.int32) is step
    tf.reset_default_graph()
    assert tf.global_variables() == []


def test_a_session_sets_reads_and_initializes():
    tf.disable_eager_execution()
    v = tf.Variable(1.0, name="v", trainable=False)
    more, fed = v.assign_add(2.0), tf.placeholder(tf.float32, [])
    given, twice = v.assign(fed), v * 2
    assert not tf.executing_eagerly()
    with tf.Session() as session:
        assert session.run([v, more]) == [3, 3]  # the variable itself is read last
        assert session.run(twice) == 6
        assert session.run(given, {fed: 10.0}) == 10
        assert session.run(tf.assign_sub(v, 4.0)) == 6
        session.run(tf.variables_initializer([v]))
        assert session.run(v) == 1
        session.run([more, more])
        assert session.run(v) == 3
        session.run(v.initializer)
        assert session.run(v) == v.initialized_value() == 1
    with pytest.raises(ProgramTypeError, match="as a Python `bool` is not allowed"):
        bool(v)
    with pytest.raises(ProgramTypeError, match="has a value in a session alone"):
        np.asarray(v)


def test_stages_and_loops_train_a_variable_of_the_host():
    with IPUStrategy().scope():
        w, b = tf.Variable(np.ones((3, 1), np.float32), name="w"), tf.Variable(0.0, name="b")
    found, losses = run([lambda x: tf.matmul(x, w) + b, lambda y: tf.reduce_sum(y * 1.0)], repeat_count=2)
    # four gradients of 2 for each weight and for b, twice
    assert losses()[0][:5].tolist() == pytest.approx([6, 6, 6, 6, 6 - 4 * 0.05 * 2 * (3 + 1) * 2])
    assert w.numpy().ravel().tolist() == pytest.approx([1 - 0.8] * 3)
    assert b.numpy() == found.variables["b"] == pytest.approx(-0.8)
    # another program goes on from there, and the first sees what that has made of it
    b.assign(1.0)
    outfeed = IPUOutfeedQueue()

    def body(x):
        loss = tf.reduce_sum(tf.matmul(x, w) + b)
        return outfeed.enqueue(loss), tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[b])

    loops.repeat(1, body, [], IPUInfeedQueue(repeat([X])))
    assert outfeed.dequeue() == pytest.approx([2 * (3 * 0.2 + 1)])
    assert found.variables["b"] == b.numpy() == pytest.approx(0.8)
    found.run()
    assert losses()[0][0] == pytest.approx(2 * (3 * 0.2 + 0.8))
    found.initialize()
    assert (b.numpy(), found.variables["b"]) == (0, 0)


def test_a_variable_is_an_input_of_a_program():
    rate = tf.Variable(0.5, trainable=False, name="rate")
    outfeed = IPUOutfeedQueue()
    pipeline(
        [lambda c, x: (c, x), lambda c, x: c * x],
        2,
        inputs=[rate],
        infeed_queue=IPUInfeedQueue(repeat([X])),
        outfeed_queue=outfeed,
    )
    assert outfeed.dequeue()[0][0].tolist() == (X / 2).tolist()


@pytest.mark.parametrize("layers", [False, True])
def test_training_and_evaluation_in_one_session_share_by_name(layers):
    def first(x):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            return tf.layers.dense(x, 2) if layers else tf.matmul(x, tf.get_variable("w", [3, 2]))

    def last(y):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            return tf.reduce_mean(tf.square(y - tf.get_variable("b", [2])))

    def build(training):
        outfeed, infeed = IPUOutfeedQueue(), IPUInfeedQueue(repeat([X]))
        program = ipu_compiler.compile(
            lambda: pipeline(
                [first, last],
                4,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=learn if training else None,
            )
        )
        infeed.initializer.evaluate(Running())
        return program, outfeed.dequeue()

    (train, losses), (evaluate, evaluated) = build(training=True), build(training=False)
    names = [each.name for each in tf.global_variables()]
    assert names == (["net/dense/kernel", "net/dense/bias", "net/b"] if layers else ["net/w", "net/b"])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        before = session.run(losses)[0]
        for _ in range(3):
            session.run(evaluate)
            found = session.run(evaluated)
            session.run(train)
            now = session.run(losses)
            assert np.ravel(found)[0] == np.ravel(now)[0] < np.ravel(before)[0]
            before = now
        session.run(tf.global_variables_initializer())
        session.run(evaluate)
        first_again = session.run(evaluated)
        session.run(train)
        assert np.ravel(first_again)[0] == np.ravel(session.run(losses))[0]


def test_without_reuse_each_program_has_its_own():
    def stage(x):
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

    def build():
        infeed, outfeed = IPUInfeedQueue(repeat([X])), IPUOutfeedQueue()
        given = {"infeed_queue": infeed, "outfeed_queue": outfeed, "optimizer_function": learn}
        infeed.initializer.evaluate(Running())
        return ipu_compiler.compile(lambda: pipeline([stage, tf.reduce_sum], 4, **given)), outfeed.dequeue()

    (one, first), (other, second) = build(), build()
    with tf.Session() as session:
        session.run([one, other])
        assert session.run(first)[0].tolist() == session.run(second)[0].tolist()
        session.run(one)
        session.run(other)
        assert session.run(first)[0].tolist() == session.run(second)[0].tolist()


def test_a_shared_variable_has_one_form():
    def stage(size):
        def call(x):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                return x * tf.get_variable("w", [size])

        return call

    def build(size, inner=tf.reduce_sum):
        infeed, outfeed = IPUInfeedQueue(repeat([X])), IPUOutfeedQueue()
        return ipu_compiler.compile(
            lambda: pipeline([stage(size), inner], 4, infeed_queue=infeed, outfeed_queue=outfeed)
        )

    build(3)
    with pytest.raises(
        ProgramError, match=r"Trying to share variable w, but specified shape \(1,\) and found shape \(3"
    ):
        build(1)


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (tf.Variable, ProgramError, "initial_value must be specified."),
        (lambda: tf.Variable("one"), ProgramTypeError, "value: expected an array or a number"),
        (lambda: tf.Variable(1.0, dtype="bogus"), ProgramTypeError, "dtype: expected a dtype"),
        (lambda: tf.Variable(1.0, trainable="no"), ProgramTypeError, "trainable: expected True or False"),
        (lambda: tf.Variable(1.0, name=3), ProgramTypeError, "name: expected a text"),
        (lambda: tf.Variable(1.0, constraint=abs), ProgramError, "constraint: expected None"),
        (lambda: tf.Variable(1.0).assign([1.0, 2.0]), ProgramError, r"value: expected the shape \(\) of variable"),
        (lambda: tf.Variable(1).assign(1.5), ProgramTypeError, "value: expected int32 numbers, and not float64"),
        (lambda: tf.Variable(1).assign(np.ones(())), ProgramTypeError, "expected int32 as variable 'Variable' is, and"),
        (lambda: tf.Variable(1).assign_add("one"), ProgramTypeError, "delta: expected an array or a number"),
        (lambda: tf.assign(3, 4), ProgramTypeError, "ref: expected a variable made with trainable=False"),
        (lambda: tf.variables_initializer([3]), ProgramTypeError, "var_list: expected a list of variables"),
        (lambda: tf.get_collection(3), ProgramTypeError, "key: expected a text"),
        (lambda: tf.global_variables(3), ProgramTypeError, "scope: expected a text"),
        (lambda: [tf.train.create_global_step() for _ in "ab"], ProgramError, '"global_step" already exists.'),
        (lambda: [tf.get_variable("w", [1]) for _ in "ab"], ProgramError, "Variable w already exists, disallowed"),
    ],
)
def test_what_cannot_be(action, kind, text):
    with pytest.raises(kind, match=text) as caught:
        action()
    assert isinstance(caught.value, IpusimError)


@pytest.mark.parametrize(
    "stage",
    [
        np.dot,
        anp.dot,
        lambda x, w: np.multiply(x, w, out=np.empty((2, 3))),
        lambda x, w: anp.exp(w) * x,
        lambda x, w: anp.concatenate([x, [w]]),
        lambda x, w: x * np.asarray(w),
        lambda x, w: x * float(w[0]),
        lambda x, w: np.add.reduce(w) * x,
    ],
)
def test_a_trained_variable_is_refused_to_plain_functions_rather_than_untrained(stage):
    w = tf.Variable(np.ones(3, np.float32), name="w")
    with pytest.raises(
        ModelError, match=r"variable 'w' was given to a function of NumPy|takes an array out of the trace"
    ):
        run([lambda x: stage(x, w), tf.reduce_sum])


@pytest.mark.parametrize(
    "stage",
    [
        lambda x, w: x * w,
        lambda x, w: w * x,
        lambda x, w: np.ones(3) * w * x,
        tf.multiply,
        lambda x, w: x - (0 - w) * x + w * 0 - x,
        lambda x, w: anp.multiply(x, w.read_value()),
        lambda x, w: x * w**2 / w,
    ],
)
def test_gradients_come_back_to_a_variable_whatever_it_meets(stage):
    w = tf.Variable(np.ones(3, np.float32), name="w")
    run(
        [
            lambda x: x * tf.get_variable("before", [], initializer=tf.ones_initializer()),
            lambda x: tf.reduce_sum(stage(x, w)),
        ]
    )
    assert w.numpy() == pytest.approx([1 - 0.05 * 4 * 2] * 3)


def test_a_variable_in_an_optimizer_is_the_one_that_it_is_given():
    w = tf.Variable(1.0, name="w")

    class Reading(tf.train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return w + 1

    with pytest.raises(ProgramStateError, match="as the Variable that apply_gradients is given"):
        run(
            [lambda x: x * w, tf.reduce_sum],
            optimizer_function=lambda loss: OptimizerFunctionOutput(Reading(0.1), loss),
        )


def half_in_float32(getter, name, dtype, trainable, shape=None, *args, **kwargs):
    """Make variables in float32 whatever they are computed with, as programs in half precision do."""
    if trainable and dtype != tf.float32:
        return tf.cast(getter(name, shape, tf.float32, *args, trainable=trainable, **kwargs), dtype)
    return getter(name, shape, dtype, *args, trainable=trainable, **kwargs)


def test_a_custom_getter_makes_the_variables_of_its_scope_and_those_inside():
    asked = []

    def noting(getter, name, *args, **kwargs):
        asked.append(name)
        return getter(name, *args, **kwargs)

    def computation(x):
        with tf.variable_scope("outer", custom_getter=half_in_float32), tf.variable_scope("inner"):
            w = tf.get_variable("w", [3], tf.float16, initializer="ones", custom_getter=noting)
            still = tf.get_variable("still", [], tf.float16, initializer="ones", trainable=False)
        loss = tf.reduce_sum(tf.cast(w * x, tf.float32))
        assert (w.dtype, still.dtype) == (np.float16, np.float16)
        return loss, tf.train.GradientDescentOptimizer(0.25).minimize(loss)

    x = tf.placeholder(tf.float16, [3])
    (loss,) = ipu_compiler.compile(computation, [x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert [float(session.run(loss, {x: [1, 2, 0]})) for _ in range(2)] == [3, 0.75 + 2 * 0.5]
    (made,) = [each for each in tf.global_variables() if each.name == "outer/inner/w"]
    assert made.dtype == np.float32
    assert set(asked) == {"outer/inner/w"}


def test_a_custom_getter_is_refused_where_no_get_variable_asks():
    def computation():
        with tf.variable_scope("scope", custom_getter=half_in_float32):
            return tf.layers.dense(np.ones((2, 3), np.float16), 2)

    with pytest.raises(UnsupportedProgramError, match=r"tf\.layers\.dense: in a scope with a custom_getter"):
        ipu_compiler.compile(computation)

    def without_variables():
        with tf.variable_scope("scope", custom_getter=half_in_float32):
            return tf.layers.flatten(np.ones((2, 3, 4), np.float32))

    compiled = ipu_compiler.compile(without_variables)
    with tf.Session() as session:
        assert np.shape(session.run(compiled)) == (1, 2, 12)
    with (
        pytest.raises(ProgramTypeError, match="custom_getter: expected a function"),
        tf.variable_scope("a", custom_getter=3),
    ):
        pass
