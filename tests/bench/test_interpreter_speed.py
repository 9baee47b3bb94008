"""What the interpreter of traced graphs takes, against TensorFlow's own session."""

import numpy as np

from tests.programs import needs_tensorflow
from tests.traced_steps import Model, build, initial_values, micro_batches, train_with_ipusim

#: Steps of a training of a network of 784, 256, 128 and 10 units, with 32 samples each.
STEPS, BATCH = 200, 32
#: The most that the interpreter may take of the session's time.
LIMIT = 1.5


def test_a_training_takes_little_more_than_in_tensorflows_session(ratio):
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415
    from ipusim.machine.one_thread import one_blas_thread  # noqa: PLC0415

    tf = load()
    dense = tf.keras.layers.Dense

    def last(x, labels):
        logits = dense(10)(dense(128, "relu")(x))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    model = Model(
        [lambda x, labels: (dense(256, "relu")(x), labels), last],
        [((BATCH, 784), np.float32), ((BATCH,), np.int32)],
        lambda v1: v1.train.GradientDescentOptimizer(0.01),
    )
    built, batches = build(model), micro_batches(model, STEPS)
    initial = initial_values(built)

    def ours():
        with one_blas_thread():
            train_with_ipusim(built, initial, batches)

    with tf.compat.v1.Session(graph=built.graph) as session:
        session.run(tf.compat.v1.variables_initializer(built.variables))

        def bare():
            for batch in batches:
                session.run([built.loss, built.train], dict(zip(built.feeds, batch, strict=True)))

        assert ratio("interpreter", ours, bare) <= LIMIT
