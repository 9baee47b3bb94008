"""Models of tf_keras on simulated IPUs, against the same training by tf_keras alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensorflow_tests import needs_tensorflow
from tests.traced_keras import Placed, build, keras

BATCH, STEPS, CLASSES = 8, 20, 10


@pytest.fixture(autouse=True)
def _tensorflow():
    needs_tensorflow()


def _vectors(count=BATCH * STEPS):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 12)).astype(np.float32), rng.integers(0, CLASSES, count)


def _images(count=BATCH * STEPS):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 8, 8, 3)).astype(np.float32), rng.integers(0, CLASSES, count)


def _texts(count=BATCH * STEPS):
    rng = np.random.default_rng(0)
    return rng.integers(0, 50, (count, 12)), rng.integers(0, 2, count)


def _compiled(model, optimizer, **options):
    loss = optimizer_loss = "sparse_categorical_crossentropy"
    if model.output_shape[-1] == 1:
        loss = "binary_crossentropy"
    metrics = ["accuracy"]
    model.compile(optimizer, loss or optimizer_loss, metrics=metrics, **options)
    return model


def _mlp(k, optimizer=None, **options):
    dense = k.layers.Dense
    layers = [dense(16, "relu", input_shape=(12,)), dense(24, "tanh"), dense(CLASSES, "softmax")]
    return _compiled(k.Sequential(layers), optimizer or k.optimizers.SGD(0.1, momentum=0.9), **options)


# No bias before a batch norm: its gradient is rounding alone, which Adam makes steps of.
def _cnn(k, optimizer=None, **options):
    inputs = k.Input((8, 8, 3))
    x = k.layers.Conv2D(4, 3, padding="same", use_bias=False)(inputs)
    x = k.layers.ReLU()(k.layers.BatchNormalization()(x))
    shortcut = x
    x = k.layers.ReLU()(k.layers.BatchNormalization()(k.layers.Conv2D(4, 3, padding="same", use_bias=False)(x)))
    x = k.layers.GlobalAveragePooling2D()(k.layers.add([x, shortcut]))
    outputs = k.layers.Dense(CLASSES, "softmax", kernel_regularizer="l2")(x)
    return _compiled(k.Model(inputs, outputs), optimizer or k.optimizers.Adam(0.01), **options)


def _lstm(k, optimizer=None, **options):
    layers = [
        k.layers.Embedding(50, 8, input_length=12),
        k.layers.LSTM(6),
        k.layers.Dense(1, "sigmoid"),
    ]
    return _compiled(k.Sequential(layers), optimizer or k.optimizers.legacy.RMSprop(0.01), **options)


MODELS = {"mlp": (_mlp, _vectors), "cnn": (_cnn, _images), "lstm": (_lstm, _texts)}


def _weights_are_equal(a, b):
    """Hold arrays against others, to 1e-5 of the largest number of each."""
    assert len(a) == len(b)
    for found, expected in zip(a, b, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(initial=0))


def _slots(model):
    """Values of the optimizer's variables, its count of updates among them."""
    variables = model.optimizer.variables
    return [variable.numpy() for variable in (variables() if callable(variables) else variables)]


def _histories_are_equal(a, b):
    assert a.history.keys() == b.history.keys()
    for name, values in b.history.items():
        np.testing.assert_allclose(a.history[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_trains_evaluates_and_predicts_as_tf_keras_does(name, steps):
    make, data = MODELS[name]
    x, y = data()
    models = [build(lambda k: make(k, steps_per_execution=steps), placed) for placed in (Placed(), None)]
    losses = [[], []]
    history = [
        model.fit(
            x,
            y,
            BATCH,
            verbose=0,
            shuffle=False,
            validation_data=(x[:20], y[:20]),
            callbacks=[
                keras().callbacks.LambdaCallback(on_train_batch_end=lambda _, logs, to=to: to.append(logs["loss"]))
            ],
        )
        for model, to in zip(models, losses, strict=True)
    ]
    assert len(losses[0]) == STEPS // steps
    np.testing.assert_allclose(*losses, rtol=1e-5)
    _histories_are_equal(*history)
    _weights_are_equal(*(model.get_weights() for model in models))
    _weights_are_equal(*map(_slots, models))
    np.testing.assert_allclose(*(model.evaluate(x[:20], y[:20], BATCH, verbose=0) for model in models), rtol=1e-5)
    predicted = [model.predict(x[:21], BATCH, verbose=0) for model in models]
    assert predicted[0].shape[0] == 21
    np.testing.assert_allclose(*predicted, rtol=1e-5, atol=3e-7)
