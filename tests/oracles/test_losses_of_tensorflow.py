"""Losses of twenty weight updates against TensorFlow's own: a Saver between two sessions, and replicas.

Pipelines, convolutions, batch normalisation and an LSTM are held so in test_traced_programs.py, a custom loop in
test_traced_functions.py, Functional models and callbacks of Keras in test_traced_keras.py, estimators in
tests/integration/test_estimators.py.
"""

import numpy as np
import pytest

from tests.programs import configure, hosted_names

UPDATES, COUNT, BATCH, CLASSES = 20, 4, 8, 5
RNG = np.random.default_rng(7)
FIRST, LAST = (RNG.normal(0, 0.3, shape).astype(np.float32) for shape in ((12, 16), (16, CLASSES)))
X = RNG.normal(size=(UPDATES * COUNT * 2 * BATCH, 12)).astype(np.float32)
Y = RNG.integers(0, CLASSES, len(X)).astype(np.int32)


def _stages(tf):
    def first(x, labels):
        return tf.nn.relu(tf.matmul(x, tf.get_variable("first", initializer=FIRST))), labels

    def last(x, labels):
        logits = tf.matmul(x, tf.get_variable("last", initializer=LAST))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    return [first, last]


def _batches(tf, start=0):
    return tf.data.Dataset.from_tensor_slices((X[start:], Y[start:])).batch(BATCH, drop_remainder=True)


def _optimizer(tf):
    return tf.train.AdamOptimizer(0.01)


def _pipelined(names, updates, optimizer, start=0):
    """The losses of a compiled pipeline as an operation, and what initializes it."""
    tf, ipu = names.tf, names.ipu
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(_batches(tf, start))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def network():
        return ipu.pipelining_ops.pipeline(
            _stages(tf),
            COUNT,
            repeat_count=updates,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            outfeed_loss=True,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer(tf), loss),
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(network)
    with tf.control_dependencies([operation]):
        losses = outfeed.dequeue()
    return losses, [tf.global_variables_initializer(), infeed.initializer]


def _alone(names, replicas):
    """Losses by TensorFlow's session: gradients of a replica are summed up, those of replicas are averaged."""
    tf = names.tf
    tf.reset_default_graph()
    x, labels = tf.data.make_one_shot_iterator(_batches(tf)).get_next()
    first, last = _stages(tf)
    loss, optimizer = last(*first(x, labels)), _optimizer(tf)
    pairs = optimizer.compute_gradients(loss)
    totals = [tf.placeholder(tf.float32, variable.shape) for _, variable in pairs]
    update = optimizer.apply_gradients([(total, each) for total, (_, each) in zip(totals, pairs, strict=True)])
    losses = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(UPDATES):
            found = [session.run([loss, *(each for each, _ in pairs)]) for _ in range(COUNT * replicas)]
            losses += [each[0] for each in found]
            sums = [np.sum(each, axis=0) / replicas for each in list(zip(*found, strict=True))[1:]]
            session.run(update, dict(zip(totals, sums, strict=True)))
    return losses


def _with_a_saver(folder):
    with hosted_names(1) as names:
        tf, losses, half = names.tf, [], UPDATES // 2
        for part in range(2):
            tf.reset_default_graph()
            configure(names, 2)
            operation, initializers = _pipelined(names, half, _optimizer, part * half * COUNT * BATCH)
            saver = tf.train.Saver()
            with tf.Session() as session:
                session.run(initializers)
                if part:
                    saver.restore(session, str(folder / "model"))
                losses.append(session.run(operation))
                saver.save(session, str(folder / "model"))
        return np.concatenate(losses), _alone(names, 1)


def _on_replicas(folder):
    with hosted_names(1) as names:
        configure(names, 4)
        operation, initializers = _pipelined(
            names, UPDATES, lambda tf: names.ipu.optimizers.CrossReplicaOptimizer(_optimizer(tf))
        )
        with names.tf.Session() as session:
            session.run(initializers)
            losses = session.run(operation)
        return losses, _alone(names, 2)


@pytest.mark.parametrize("losses_of", [_with_a_saver, _on_replicas])
def test_losses_are_those_of_tensorflow(losses_of, tmp_path):
    losses, expected = losses_of(tmp_path)
    assert len(expected) >= UPDATES
    assert np.std(expected) > 1e-2
    np.testing.assert_allclose(np.ravel(losses), expected, rtol=1e-5, atol=3e-7)
