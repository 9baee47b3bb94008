"""Keras models and layers that are made in a function which runs again and again: they keep names and weights."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import ipu_compiler, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_estimator import IPUEstimator
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import IPURunConfig, RunConfig
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.tensorflow import keras

X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
Y = np.array([0, 1, 2, 1], np.int32)


class Scaled(keras.layers.Layer):
    """A layer of the program's own, with a weight."""

    def build(self, input_shape):
        self.scale = self.add_weight("scale", (input_shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs * self.scale


def made():
    return keras.Sequential([keras.layers.Dense(6, activation="relu"), Scaled(), keras.layers.Dense(3)])


def functional():
    x = keras.Input((5,))
    return keras.Model(x, keras.layers.Dense(3)(Scaled()(keras.layers.Dense(6, activation="relu")(x))))


def trained(model_of, split=False):
    """Return the losses of a loop whose body calls what ``model_of`` returns."""
    outfeed = IPUOutfeedQueue()

    def body(x, y):
        with scopes.ipu_shard(0):
            model = model_of()
            logits = model(x, training=True)
        with scopes.ipu_shard(1 if split else 0):
            loss = loss_of(y, logits)
        outfeed.enqueue(loss)
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    loops.repeat(4, body, [], IPUInfeedQueue([(X, Y)] * 4))
    return outfeed.dequeue()


def loss_of(labels, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("make", [made, functional])
def test_a_model_made_in_a_loops_body_learns_as_one_made_outside(make, split):
    outside = make()
    expected = trained(lambda: outside)
    np.testing.assert_array_equal(trained(make, split), expected)
    assert expected[-1] < expected[0]


def test_a_model_made_in_a_computation_learns_in_each_run():
    outside = made()
    x, y = tf.placeholder(tf.float32, X.shape), tf.placeholder(tf.int32, Y.shape)

    def computation(model_of):
        def compute(x, y):
            loss = loss_of(y, model_of()(x, training=True))
            return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)

        (loss,) = ipu_compiler.compile(compute, [x, y])
        with tf.Session() as session:
            return [session.run(loss, {x: X, y: Y}) for _ in range(4)]

    np.testing.assert_array_equal(computation(made), computation(lambda: outside))


def test_models_made_in_stages_are_counted_on_from_those_before_and_outside():
    made()  # outside, which has a name of its own
    outfeed = IPUOutfeedQueue()

    def learn(loss):
        return OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)

    def first(x, y):
        return keras.Sequential([keras.layers.Dense(6)])(x), y

    def last(h, y):
        return loss_of(y, keras.Sequential([keras.layers.Dense(3)])(h))

    infeed = IPUInfeedQueue([(X, Y)] * 8)
    ran = pipeline(
        [first, last], 4, repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed, optimizer_function=learn
    )
    names = [name.partition("/")[0] for name in ran.variables]
    assert len(set(names)) == 2
    assert len(names) == 4
    number = int(keras.Sequential().name.rpartition("_")[2])
    assert sorted(set(names)) == sorted((f"sequential_{number}", f"sequential_{number + 1}"))


def test_an_estimators_model_keeps_its_weights_from_training_to_evaluation(tmp_path):
    def model_fn(features, labels, mode):
        loss = loss_of(labels, made()(features, training=mode == tf.estimator.ModeKeys.TRAIN))
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"last": (loss, loss)})
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        )

    def data():
        return tf.data.Dataset.from_tensors((X, Y)).repeat()

    config = RunConfig(ipu_run_config=IPURunConfig(iterations_per_loop=2))
    estimator = IPUEstimator(model_fn, str(tmp_path), config)
    outside = made()
    expected = trained(lambda: outside)
    found = []
    for _ in range(2):
        found.append(estimator.evaluate(data, steps=2)["loss"] if found else float(expected[0]))
        estimator.train(data, steps=2)
    assert found == pytest.approx([expected[0], expected[2]], rel=1e-6)
    assert {name.rpartition("/")[2] for name in estimator.get_variable_names()} == {
        *("global_step", "kernel", "bias", "scale")
    }
