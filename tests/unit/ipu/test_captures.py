"""Tensors of the host that the body of a loop or a computation uses without being given them.

A stage of a pipeline may not, as test_graphcore_texts has it.
"""

import numpy as np
import pytest

from tests.programs import configure, run

X = np.arange(12, dtype=np.float32).reshape(6, 2) / 8


@pytest.fixture(autouse=True)
def _one_ipu(names):
    configure(names, 1)


def queues(names):
    ipu, data = names.ipu, names.tf.data.Dataset.from_tensor_slices(X).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def trained(names, captured, shards=(0, 0)):
    """The losses of a loop in three runs, whose placeholders its body captures or takes as inputs."""
    tf, ipu = names.tf, names.ipu
    tf.reset_default_graph()
    configure(names, 1 + max(shards))
    rate, factor = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [2])
    infeed, outfeed = queues(names)

    def body(rate, factor, x):
        with ipu.scopes.ipu_shard(shards[0]):
            y = x * tf.get_variable("w", initializer=np.ones(2, np.float32)) * factor + 2 * factor
        with ipu.scopes.ipu_shard(shards[1]):
            loss = tf.reduce_mean(tf.square(y)) + tf.reduce_sum(factor[1] - x)
            sent = outfeed.enqueue(loss)
        return sent, tf.train.GradientDescentOptimizer(rate).minimize(loss)

    def net():
        if captured:
            return ipu.loops.repeat(4, lambda x: body(rate, factor * 1, x), infeed_queue=infeed)
        given = [rate, factor * 1]
        return ipu.loops.repeat(4, lambda r, f, x: (r, f, *body(r, f, x)), given, infeed_queue=infeed)

    feeds = [{rate: 0.1 * (step + 1), factor: [1 + step, 2]} for step in range(3)]
    return np.array(run(names, net, outfeed, [infeed], feeds).sent)


def test_a_body_computes_with_what_a_run_feeds_as_with_inputs(names):
    captured = trained(names, captured=True)
    np.testing.assert_array_equal(captured, trained(names, captured=False))
    np.testing.assert_allclose(captured, trained(names, captured=True, shards=(0, 1)), rtol=1e-6)
    assert len(np.unique(captured)) == captured.size


def test_a_computation_captures_as_well(names):
    tf = names.tf
    fed, given = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    fetched = names.ipu.ipu_compiler.compile(lambda x: x + fed, [given])
    with tf.Session() as session:
        for number in (1, 2):
            (found,) = session.run(fetched, {given: [3, 4], fed: [number, 0]})
            np.testing.assert_array_equal(found, [3 + number, 4])
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"):
            session.run(fetched, {given: [3, 4]})
