"""Optimizers of a program's own: Keras' and TensorFlow 1's, with slots, and wherever they are called."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu import loops, optimizers
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.tensorflow import keras
from ipusim.model.learning.optimizers import Momentum
from ipusim.model.work import VectorWork

X = np.arange(1, 4, dtype=np.float32)


class Casting(keras.optimizers.SGD):
    """Casts gradients that were accumulated in another dtype, and hands Keras' arguments on by their places."""

    def apply_gradients(self, grads_and_vars, name=None):
        return super().apply_gradients([(tf.cast(g, v.dtype), v) for g, v in grads_and_vars], name)


class OwnMomentum(keras.optimizers.Optimizer):
    """Momentum, as a program writes it for Keras."""

    def __init__(self, learning_rate=0.01, momentum=0.5, name="OwnMomentum", **kwargs):
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("momentum", momentum)

    def _create_slots(self, var_list):
        for var in var_list:
            self.add_slot(var, "sum")

    def _resource_apply_dense(self, grad, var, apply_state=None):
        total = self.get_slot(var, "sum")
        total.assign(self._get_hyper("momentum", var.dtype) * total + grad)
        return var.assign_sub(self._decayed_lr(var.dtype) * total)


class OwnOfTensorFlow1(tf.train.Optimizer):
    """The same for TensorFlow 1."""

    def __init__(self, learning_rate=0.01, momentum=0.5, use_locking=False, name="OwnMomentum"):
        super().__init__(use_locking, name)
        self._rate, self._momentum = learning_rate, momentum

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "sum", self.name)

    def _prepare(self):
        self._rate_now = np.float32(self._rate)

    def _apply_dense(self, grad, var):
        total = self.get_slot(var, "sum")
        total.assign(total * self._momentum + grad)
        return var.assign_sub(self._rate_now * total.value())


def loss_of(x):
    y = x * tf.get_variable("w", [], initializer="ones")
    return tf.reduce_mean((y * tf.get_variable("v", [], initializer="ones") - 3 * x) ** 2)


def in_a_loop(make, wrapped=lambda opt: opt):
    outfeed = IPUOutfeedQueue()

    def body(x):
        loss = loss_of(x)
        return outfeed.enqueue(loss), wrapped(make()).minimize(loss)

    loops.repeat(4, body, [], IPUInfeedQueue([X] * 4))
    return outfeed.dequeue()


def in_a_pipeline(make, *applied, **options):
    outfeed = IPUOutfeedQueue()
    infeed = IPUInfeedQueue([X] * 16)

    def first(x):
        return x * tf.get_variable("w", [], initializer="ones"), x

    def last(y, x):
        return tf.reduce_mean((y * tf.get_variable("v", [], initializer="ones") - 3 * x) ** 2)

    def learn(loss):
        return OptimizerFunctionOutput(make(), loss, apply_gradients_args=applied)

    pipeline(
        [first, last],
        4,
        repeat_count=4,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=learn,
        **options,
    )
    return outfeed.dequeue()


@pytest.mark.parametrize("kind", [OwnMomentum, OwnOfTensorFlow1])
def test_an_optimizer_of_ones_own_learns_as_the_rule_that_it_writes_down(kind):
    def right():
        return tf.train.MomentumOptimizer(0.01, 0.5)

    np.testing.assert_allclose(in_a_loop(kind), in_a_loop(right), rtol=1e-6)
    np.testing.assert_allclose(in_a_pipeline(kind), in_a_pipeline(right), rtol=1e-6)
    wrapped = in_a_loop(kind, optimizers.CrossReplicaOptimizer)
    np.testing.assert_array_equal(wrapped, in_a_loop(kind))
    assert wrapped[-1] < wrapped[0]


@pytest.mark.parametrize("kind", [OwnMomentum, OwnOfTensorFlow1])
def test_its_slots_take_time_and_memory_as_the_rules_do(kind):
    rule, right = kind().rule, Momentum(0.01, 0.5)
    assert rule.slots == ("sum",)
    assert (rule.work(10, 4), rule.state_bytes(10, 2)) == (right.work(10, 4), right.state_bytes(10, 2))
    assert rule.work(10, 4).vector == VectorWork(40)


def test_a_keras_model_trains_with_an_optimizer_of_ones_own_that_is_clipped_and_scheduled():
    def losses(optimizer):
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer, "mse")
        x = np.arange(12, dtype=np.float32).reshape(6, 2)
        return model.fit(x, x[:, :1], batch_size=2, epochs=2, verbose=0, shuffle=False).history["loss"]

    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    limits = {"clipvalue": 0.5}
    np.testing.assert_allclose(
        losses(OwnMomentum(rate, 0.0, **limits)), losses(keras.optimizers.SGD(rate, **limits)), rtol=1e-6
    )


@pytest.mark.parametrize("applied", [(), ("a name",)])
def test_gradients_are_cast_by_an_optimizer_with_keras_own_arguments(applied):
    found = in_a_pipeline(lambda: Casting(0.01), *applied, gradient_accumulation_dtype=np.float64)
    np.testing.assert_allclose(found, in_a_pipeline(lambda: keras.optimizers.SGD(0.01)), rtol=1e-6)


@pytest.mark.parametrize("changed", [lambda gradient: gradient, lambda gradient: gradient * 0.5])
def test_a_body_hands_keras_own_arguments_by_their_places(changed):
    def losses(*args):
        outfeed = IPUOutfeedQueue()

        def body(x):
            with tf.GradientTape() as tape:
                w = tf.get_variable("w", [], initializer="ones")
                loss = tf.reduce_mean((x * w - 3 * x) ** 2)
            (gradient,) = tape.gradient(loss, [w])
            outfeed.enqueue(loss)
            return Casting(0.01).apply_gradients([(changed(gradient), w)], *args)

        loops.repeat(3, body, [], IPUInfeedQueue([X] * 3))
        return outfeed.dequeue()

    found = losses("a name")
    np.testing.assert_array_equal(found, losses())
    assert found[-1] < found[0]


def test_one_that_says_no_update_is_refused():
    class Empty(keras.optimizers.Optimizer):
        def __init__(self):
            super().__init__("Empty")

    with pytest.raises(
        UnsupportedProgramError, match=r"Empty: expected .* to define _resource_apply_dense\(grad, var\)"
    ):
        Empty()
