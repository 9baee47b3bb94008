"""Programs of TensorFlow 1 and 2 after one another in a process: each as if it were alone."""

import numpy as np

from tests.programs import configure, hosted_names, pipelined

X = np.ones((64, 6), np.float32)


def of_version_1(names):
    """Train a pipeline of Keras' and TensorFlow's layers; leave a session open, and a graph of its own entered."""
    tf, dense = names.tf, names.keras.layers.Dense
    dataset = tf.data.Dataset.from_tensor_slices(X).batch(4, drop_remainder=True).repeat()
    stages = [
        lambda x: dense(5)(names.keras.layers.Flatten()(x)),
        lambda x: tf.reduce_mean(tf.square(tf.layers.dense(x, 1))),
    ]
    optimizer = tf.train.MomentumOptimizer(0.01, 0.9)
    found = pipelined(names, stages, dataset, 4, ipus=2, optimizer=optimizer, repeat_count=3).sent
    tf.Session(graph=tf.Graph()).__enter__()
    tf.InteractiveSession()
    return np.ravel(found)[::4].tolist()  # one of each weight update


def of_version_2(names):
    """Train a model of Keras by ``fit``, and another by a Keras optimizer in a function."""
    tf, ipu, keras = names.tf, names.ipu, names.keras
    configure(names, 1)
    losses, strategy = [], ipu.ipu_strategy.IPUStrategy()
    for optimizer in (keras.optimizers.Adam(0.1), keras.optimizers.legacy.SGD(0.1, momentum=0.9)):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5), keras.layers.Dense(3)])
            model.compile(optimizer, "mse", steps_per_execution=4)
            losses += model.fit(X, X[:, :3], 4, epochs=2, verbose=0).history["loss"]

            again = type(optimizer)(0.1)

            @tf.function(jit_compile=True)
            def step(x, model=model, optimizer=again):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(x)))
                variables = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                return loss

            losses += [float(strategy.run(step, [tf.constant(X[:4])])) for _ in range(3)]
    return losses


def test_programs_of_both_versions_follow_each_other():
    found = {1: [], 2: []}
    for version, program in ((1, of_version_1), (2, of_version_2)) * 2:
        with hosted_names(version) as names:
            found[version].append(program(names))
    for first, second in found.values():
        assert first == second
        assert np.isfinite(first).all()
        assert len(set(first)) == len(first)  # as every step trains
