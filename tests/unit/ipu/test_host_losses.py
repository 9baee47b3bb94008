"""Optimizers on tensors of the host, outside of any program: their gradients and updates, in a session."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramTypeError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.optimizers import MapGradientOptimizer


@pytest.fixture
def three():
    tf.disable_eager_execution()
    return [tf.Variable(np.array([number], np.float32), name=f"v{place}") for place, number in enumerate((1, 2, 3))]


def in_session(*fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [session.run(each) for each in fetches]


def test_the_example_of_graphcores_documentation_in_a_session(three):
    optimizer = MapGradientOptimizer(tf.train.GradientDescentOptimizer(0.1), lambda grad, var: grad + 0.01 * var)
    pairs = optimizer.compute_gradients(three[0] * three[1] + three[0] * three[2] + three[1] * three[2], three)
    gradients, _, changed = in_session([gradient for gradient, _ in pairs], optimizer.apply_gradients(pairs), three)
    np.testing.assert_allclose(np.ravel(gradients), [5.01, 4.02, 3.03], rtol=1e-6)
    np.testing.assert_allclose(np.ravel(changed), [1 - 0.501, 2 - 0.402, 3 - 0.303], rtol=1e-6)


def test_gradients_are_those_at_what_is_fed_and_of_the_variables_as_they_are(three):
    x = tf.placeholder(tf.float32, [2, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, tf.reshape(three[0], [1, 1])) - three[1]))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[three[0]])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        weight = 1.0
        for points in ([1, 2], [3, -1]):
            given = np.array(points)
            session.run(train, {x: given[:, None]})
            weight -= 0.1 * np.mean(2 * (weight * given - 2) * given)
            assert session.run(three[0])[0] == pytest.approx(weight, rel=1e-6)
        assert session.run(three[1]) == 2


def test_a_mapping_must_give_a_gradient():
    optimizer = MapGradientOptimizer(tf.train.GradientDescentOptimizer(0.1), lambda *_: "no")
    with pytest.raises(ProgramTypeError, match="gradient_mapping_function: expected"):
        optimizer.compute_gradients(lambda: 3 * tf.get_variable("w", [], initializer="ones"))


def test_in_the_block_of_a_session_operations_wait_for_it_as_after_disable_eager_execution():
    one, two = (tf.Variable(np.array([number], np.float32), name=f"w{number}") for number in (1, 2))
    assert tf.get_default_session() is None
    assert tf.executing_eagerly()
    with tf.Session() as session:
        assert tf.get_default_session() is session
        assert not tf.executing_eagerly()
        pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(np.float32(3) * one * two, [one, two])
        changed = one.assign_add([1.0])
        assert [np.ravel(gradient).tolist() for gradient in session.run([gradient for gradient, _ in pairs])] == [
            [6],
            [3],
        ]
        assert session.run(changed) == session.run(one) == [2]
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
        assert tf.get_default_session() is session
    assert tf.executing_eagerly()
    assert one.assign_add([1.0]).numpy() == [3]
