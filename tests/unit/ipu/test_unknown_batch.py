"""Programs whose inputs have axes that are as long as what is fed: they are laid out for that, and go on."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import pipeline
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.timeline.kinds import SpanKind

BATCHES = (3, 500, 3, 1)
W = np.linspace(-1, 1, 8).astype(np.float32).reshape(2, 4)


def data(batch, seed=0):
    return np.random.default_rng(seed + batch).normal(size=(batch, 2)).astype(np.float32)


def weights():
    return tf.get_variable("w", initializer=W)


def given(x):
    return ipu_compiler.compile(lambda x: tf.matmul(x, weights()), [x])


def captured(x):
    return ipu_compiler.compile(lambda: tf.matmul(x, weights()), [])


def looped(x):
    def body(total, x):
        return total + tf.matmul(x, weights()) / 2, x

    total, _ = ipu_compiler.compile(lambda: loops.repeat(2, body, [tf.matmul(x, W) * 0, x]), [])
    return [total]


def piped(x):
    outfeed = IPUOutfeedQueue()
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.ones(8, np.float32)).repeat())
    stages = [lambda x, one: x * one, lambda x: tf.matmul(x, weights())]
    ran = ipu_compiler.compile(lambda: pipeline(stages, 4, inputs=[x], infeed_queue=infeed, outfeed_queue=outfeed), [])
    with tf.control_dependencies([ran]):
        found = outfeed.dequeue()[0][0]
    return [found, infeed.initializer]


@pytest.mark.parametrize("program", [given, captured, looped, piped])
def test_a_program_is_laid_out_for_what_it_is_fed(program):
    x = tf.placeholder(tf.float32, [None, 2])
    fetched, *starts = program(x)
    with recording(Recorder()) as recorder, tf.Session() as session:
        session.run([tf.global_variables_initializer(), *starts])
        for batch in BATCHES:
            found = session.run(fetched, {x: data(batch)})
            np.testing.assert_allclose(found, data(batch) @ W, rtol=1e-5, atol=1e-6)
    assert [each.ran for each in recorder.programs] == [2, 1, 1]  # those of one form are one program
    three, many, one = (each.run(each.job.request).timeline.end.max() / each.ran for each in recorder.programs)
    assert one <= three < many


def model(x, t):
    y = tf.layers.dense(x, 1, use_bias=False, kernel_initializer="ones", name="dense")
    moving = tf.get_variable("moving", initializer=np.float32(0), trainable=False)
    moving.assign(0.5 * moving + 1.0)
    loss = tf.reduce_mean(tf.square(tf.reshape(y, [-1]) - t))
    return loss, moving + 0.0, tf.train.MomentumOptimizer(0.05, 0.5).minimize(loss)


def expected(batches):
    w, velocity, moving = np.ones(2), np.zeros(2), 0.0
    for batch in batches:
        x, t = data(batch), data(batch, 1)[:, 0]
        error = x @ w - t
        moving = 0.5 * moving + 1
        yield np.mean(error**2), moving
        velocity = 0.5 * velocity + 2 * x.T @ error / batch
        w = w - 0.05 * velocity


def test_variables_and_the_optimizers_state_go_on_from_one_batch_to_the_next():
    x, t = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None])
    fetched = ipu_compiler.compile(model, [x, t])
    with tf.Session() as session:
        for _ in range(2):  # from the beginning again
            session.run(tf.global_variables_initializer())
            found = [session.run(fetched, {x: data(batch), t: data(batch, 1)[:, 0]}) for batch in BATCHES]
            np.testing.assert_allclose(np.array(found), np.array(list(expected(BATCHES))), rtol=1e-4)


def test_host_copies_are_those_of_what_is_fed():
    x = tf.placeholder(tf.float32, [None, 2])
    (doubled,) = ipu_compiler.compile(lambda x: x * 2, [x])
    with recording(Recorder()) as recorder, tf.Session() as session:
        for batch in (10, 100_000):
            assert session.run(doubled, {x: np.ones((batch, 2))}).shape == (batch, 2)
    small, large = (each.run(each.job.request).timeline for each in recorder.programs)
    for kind in (SpanKind.INFEED, SpanKind.OUTFEED):
        cycles = [int((each.end - each.start)[each.rows(kind)].sum()) for each in (small, large)]
        assert 0 < 10 * cycles[0] < cycles[1]


def test_what_does_not_go_together_for_a_batch_leaves_the_program_as_it_is():
    x = tf.placeholder(tf.float32, [None, 2])
    (found,) = ipu_compiler.compile(
        lambda x: (
            x
            + tf.get_variable("b", initializer=np.ones((1, 2), np.float32)) * 0
            + (tf.zeros((3, 2)) if x.shape[0] > 1 else 0)
        ),
        [x],
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            assert session.run(found, {x: data(1)}).shape == (1, 2)
            assert session.run(found, {x: data(3)}).shape == (3, 2)
            with pytest.raises(ProgramError.__mro__[1], match="failed"):
                session.run(found, {x: data(4)})


FORMS = {
    "shape": (lambda x: tf.shape(x * 1.0), [5, 2]),
    "shape of a placeholder": (tf.shape, [5, 2]),
    "size": (lambda x: tf.size(x + 1.0), 10),
    "size of a placeholder": (tf.size, 10),
    "zeros like it": (lambda x: tf.zeros_like(x * 1.0), np.zeros((5, 2))),
    "zeros like a placeholder": (tf.zeros_like, np.zeros((5, 2))),
    "ones like it": (lambda x: tf.ones_like(tf.identity(x)), np.ones((5, 2))),
    "zeros of its shape": (lambda x: tf.zeros(tf.shape(x)), np.zeros((5, 2))),
    "ones for each row": (lambda x: tf.ones([tf.shape(x)[0], 3]), np.ones((5, 3))),
    "mean over rows": (lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(tf.identity(x))[0], tf.float32), 2.0),
}


@pytest.mark.parametrize(("of", "value"), FORMS.values(), ids=FORMS)
def test_shapes_are_those_of_what_is_fed(of, value):
    x = tf.placeholder(tf.float32, [None, 2])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(of(x), {x: np.ones((5, 2))}), value)


def test_the_shape_of_a_last_batch_is_its_own():
    x = tf.data.Dataset.from_tensor_slices(np.arange(5.0)).batch(2).make_one_shot_iterator().get_next()
    size = tf.size(x)
    with tf.Session() as session:
        assert [session.run(size) for _ in range(3)] == [2, 2, 1]


def test_shapes_that_are_known_are_arrays():
    x, w = tf.placeholder(tf.float32, [3, 2]), tf.get_variable("w", initializer=W)
    for tensor in (x, x * 2.0, x + 1.0):
        assert isinstance(tf.shape(tensor), np.ndarray)
        np.testing.assert_array_equal(tf.shape(tensor), [3, 2])
    np.testing.assert_array_equal(tf.shape(w), [2, 4])


def test_computed_tensors_say_which_axes_are_as_long_as_what_is_fed():
    x = tf.placeholder(tf.float32, [None, 2])
    assert (x * 2.0).shape == (None, 2)
    assert tf.matmul(x, W).shape == (None, 4)
    assert tf.reduce_sum(x, 0).shape == (2,)
    assert (x + np.ones((5, 2), np.float32)).shape == (5, 2)
    assert tf.squeeze(x[:1]).shape == (2,)
