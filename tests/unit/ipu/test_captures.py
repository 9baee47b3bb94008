"""Tensors of the host that the body of a loop or a computation uses without being given them."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import ipu_compiler, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import pipeline

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 8


def data():
    return IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat())


def trained(captured):
    """Return the losses of a loop in three runs, whose placeholders its body captures or takes as inputs."""
    tf.reset_default_graph()
    rate, factor = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [2])
    infeed, outfeed = data(), IPUOutfeedQueue()

    def body(rate, factor, x):
        y = x * tf.get_variable("w", initializer=np.ones(2, np.float32)) * factor + 2 * factor
        loss = tf.reduce_mean(tf.square(y)) + tf.reduce_sum(factor[1] - x)
        train = tf.train.GradientDescentOptimizer(rate).minimize(loss)
        return outfeed.enqueue(loss), train

    def of_inputs(rate, factor, x):
        return rate, factor, *body(rate, factor, x)

    def of_captures(x):
        return body(rate, factor * 1, x)

    def net():
        if captured:
            return loops.repeat(4, of_captures, infeed_queue=infeed)
        return loops.repeat(4, of_inputs, [rate, factor * 1], infeed_queue=infeed)

    fetched, losses = ipu_compiler.compile(net), outfeed.dequeue()
    found = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        for step in range(3):
            session.run(fetched, {rate: 0.1 * (step + 1), factor: [1 + step, 2]})
            found.append(session.run(losses))
    return np.array(found)


def test_a_body_computes_with_what_a_run_feeds_as_with_inputs():
    captured = trained(captured=True)
    np.testing.assert_array_equal(captured, trained(captured=False))
    assert len(np.unique(captured)) == captured.size


def test_a_computation_captures_as_well():
    fed, given = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    fetched = ipu_compiler.compile(lambda x: x + fed, [given])
    with tf.Session() as session:
        for number in (1, 2):
            (found,) = session.run(fetched, {given: [3, 4], fed: [number, 0]})
            np.testing.assert_array_equal(found, [3 + number, 4])
        with pytest.raises(ProgramError, match="You must feed a value for placeholder"):
            session.run(fetched, {given: [3, 4]})


def test_a_stage_of_a_pipeline_captures_nothing():
    fed = tf.placeholder(tf.float32, [2])
    for uses in (lambda x: x * fed, lambda x: tf.add(x, fed), lambda x: tf.reduce_sum(fed) + x):

        def net(stage=uses):
            return pipeline([stage, lambda x: x], 4, infeed_queue=data(), outfeed_queue=IPUOutfeedQueue())

        with pytest.raises(ProgramError, match="Trying to capture the tensor"):
            ipu_compiler.compile(net)


def test_a_sharded_body_is_told_to_take_them_as_inputs():
    fed, outfeed = tf.placeholder(tf.float32, [2]), IPUOutfeedQueue()

    def body(x):
        with scopes.ipu_shard(0):
            y = x * fed
        with scopes.ipu_shard(1):
            return outfeed.enqueue(y * 2)

    with pytest.raises(UnsupportedProgramError, match="expected the tensors of the host that it uses in `inputs`"):
        ipu_compiler.compile(lambda: loops.repeat(3, body, infeed_queue=data()))
