"""Functions of TensorFlow 2 that a strategy runs on simulated IPUs, against the same functions run by TensorFlow."""

import numpy as np
import pytest

from tests.programs import configure, hosted_names

BATCH = 8


@pytest.fixture
def names():
    with hosted_names(2) as found:
        configure(found, 1)
        yield found


def _data(tf, count=240):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((count, 12)).astype(np.float32), rng.integers(0, 10, count).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(samples).batch(BATCH, drop_remainder=True)


def _in_a_loop(names):
    """A function that trains a model in a loop, with what it changes."""
    tf, keras = names.tf, names.keras
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Dense(16, "relu", input_shape=(12,)), layers.BatchNormalization(), layers.Dense(10)]
    )
    optimizer, mean = keras.optimizers.legacy.Adam(0.01), keras.metrics.Mean()
    judge = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            x, labels = next(iterator)
            with tf.GradientTape() as tape:
                loss = judge(labels, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905 - autograph's has no strict
            mean.update_state(loss)
            total += loss
        return {"total": total, "steps": (steps,)}

    return train, lambda: [*model.get_weights(), *optimizer.get_weights(), mean.result().numpy()]


def test_a_function_trains_in_a_loop_as_tensorflow_does(names):
    outcomes = []
    for run in (names.ipu.ipu_strategy.IPUStrategy().run, lambda function, args: function(*args)):
        train, values = _in_a_loop(names)
        iterator = iter(_data(names.tf).repeat())
        results = [run(train, [iterator, names.tf.constant(steps)]) for steps in (5, 3, 5)]
        assert [int(result["steps"][0]) for result in results] == [5, 3, 5]
        outcomes.append(([float(result["total"]) for result in results], values()))
    (totals, ours), (expected, theirs) = outcomes
    np.testing.assert_allclose(totals, expected, rtol=1e-6)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_end_of_the_data_is_tensorflows_error(names):
    train, _ = _in_a_loop(names)
    with pytest.raises(names.tf.errors.OutOfRangeError):
        names.ipu.ipu_strategy.IPUStrategy().run(train, [iter(_data(names.tf, 2 * BATCH)), names.tf.constant(3)])
