"""Keras models trained batch by batch, programs that take turns, and weights of classes."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import ipu_strategy
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.keras import Model, Sequential
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers
from tests.devices import on

RNG = np.random.default_rng(5)
X = RNG.normal(size=(32, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 32)


def regression(optimizer=None, **options):
    """Return a model whose training goes on from more than its weights: momenta, draws, a schedule."""
    model = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dropout(0.3), layers.Dense(1)])
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.9)
    model.compile(optimizer or keras.optimizers.SGD(rate, momentum=0.9), "mse", metrics=["mae"], **options)
    return model


def batches(size=8):
    return [slice(start, start + size) for start in range(0, len(X), size)]


def same_bits(one, two):
    return [a.tobytes() for a in one.get_weights()] == [b.tobytes() for b in two.get_weights()]


def test_training_batch_by_batch_is_fit():
    by_hand, fitted = regression(), regression()
    losses = [by_hand.train_on_batch(X[rows], Y[rows], reset_metrics=False)[0] for rows in batches()]
    history = fitted.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history
    assert same_bits(by_hand, fitted)
    assert history["loss"] == [losses[-1]]
    assert by_hand.optimizer.iterations == 4


@pytest.mark.parametrize("kind", ["arrays", "a dataset"])
def test_a_model_of_the_host_takes_a_last_batch_of_fewer_samples(kind):
    """As without a strategy in TensorFlow; the batch counts by its samples, and no later one is moved."""
    by_hand, fitted = regression(keras.optimizers.Adam(0.01)), regression(keras.optimizers.Adam(0.01))
    x, y = X[:29], Y[:29]
    expected = []
    for _ in range(3):
        by_hand.reset_metrics()
        for rows in batches():
            last = by_hand.train_on_batch(x[rows], y[rows], reset_metrics=False)
        expected.append(last)
    data = (x, y) if kind == "arrays" else (tf.data.Dataset.from_tensor_slices((x, y)).batch(8),)
    seen = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(step))
    history = fitted.fit(*data, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[callback]).history
    assert same_bits(by_hand, fitted)
    assert [*zip(history["loss"], history["mae"], strict=True)] == [tuple(last) for last in expected]
    assert seen == [0, 1, 2, 3] * 3
    by_hand.reset_metrics()
    for rows in batches():
        found = by_hand.test_on_batch(x[rows], y[rows], reset_metrics=False)
    assert fitted.evaluate(*data, batch_size=8, verbose=0) == found
    np.testing.assert_array_equal(fitted.predict(x, batch_size=8), fitted.predict(x, batch_size=29))


def test_every_sample_is_in_one_batch_of_an_epoch_that_is_shuffled():
    numbers = np.arange(29, dtype=np.float32)[:, None]
    model = keras.Sequential([layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.0), lambda y, z: z)
    losses = model.fit(numbers, numbers, batch_size=8, epochs=3, verbose=0).history["loss"]
    assert losses == pytest.approx([14.0] * 3)


def test_metrics_are_of_one_batch_unless_they_shall_go_on():
    model = regression()
    alone = [model.test_on_batch(X[rows], Y[rows])[0] for rows in batches()]
    assert alone == [pytest.approx(np.mean((model(X[rows]) - Y[rows]) ** 2), rel=1e-5) for rows in batches()]
    going_on = [model.test_on_batch(X[rows], Y[rows], reset_metrics=False) for rows in batches()]
    assert going_on[-1] == model.evaluate(X, Y, 8, 0)
    first = batches()[0]
    found = model.test_on_batch(X[first], Y[first], return_dict=True)
    assert list(found) == ["loss", "mae"]
    assert found["loss"] == alone[0]


def test_batches_of_several_sizes_count_by_their_samples():
    model = regression()
    whole = [float(each) for each in model.test_on_batch(X, Y)]
    model.reset_metrics()
    for rows in (slice(0, 4), slice(4, 8), slice(8, 32)):
        found = model.test_on_batch(X[rows], Y[rows], reset_metrics=False)
    assert found == pytest.approx(whole, rel=1e-6)


def test_a_prediction_of_one_batch_of_any_size():
    model = regression()
    np.testing.assert_array_equal(model.predict_on_batch(X[:5]), model.predict(X[:5], batch_size=5))
    assert model.pipeline.timeline.makespan_cycles > 0


def test_programs_of_several_batch_sizes_take_turns_on_one_optimizer():
    """By hand with momentum and drawn masks, and by fit with another number of steps in an execution."""
    turns, alone = regression(), regression()
    turns.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    turns.train_on_batch(X[:8], Y[:8])
    turns.train_on_batch(X[:4], Y[:4])
    turns.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    for rows in [*batches(), slice(0, 8), slice(0, 4), *batches()]:
        alone.train_on_batch(X[rows], Y[rows])
    assert same_bits(turns, alone)
    assert turns.optimizer.iterations == alone.optimizer.iterations == 10


def test_options_that_change_between_trainings_leave_the_optimizer_alone():
    def run():
        changed, same = (regression(steps_per_execution=4) for _ in range(2))
        for model in (changed, same):
            model.fit(X, Y, batch_size=8, verbose=0)
        changed.set_infeed_queue_options(prefetch_depth=4)
        for model in (changed, same):
            model.fit(X, Y, batch_size=8, verbose=0)
        assert same_bits(changed, same)

    on(1, run)


def test_compile_goes_on_with_the_optimizer_that_it_is_given_again():
    again, same, anew = (regression() for _ in range(3))
    for model in (again, same, anew):
        model.fit(X, Y, batch_size=8, verbose=0)
    again.compile(again.optimizer, "mse", metrics=["mae"])
    anew.compile(keras.optimizers.SGD(float(anew.optimizer.learning_rate(4)), momentum=0.9), "mse")
    for model in (again, same, anew):
        model.fit(X, Y, batch_size=8, verbose=0)
    assert same_bits(again, same)
    assert not same_bits(anew, same)


def test_one_batch_is_no_weight_update_of_several(refused):
    def run():
        model = regression()
        model.set_gradient_accumulation_options(2)
        with pytest.raises(ProgramError, match=r"current `steps_per_execution` value \(set to 1\) is not divisible"):
            model.train_on_batch(X[:8], Y[:8])
        model.set_gradient_accumulation_options(1)
        model.train_on_batch(X[:8], Y[:8])

    on(1, run)


def test_a_batch_over_replicas_is_refused(refused):
    text = (
        "The provided dataset contains 1 items, but all 2 replicas are requested to run 1 steps each. Make sure the "
        "dataset contains at least 2 items."
    )
    on(2, lambda: refused(ValueError, text, lambda: regression().train_on_batch(X[:8], Y[:8])))


def test_an_optimizer_that_says_how_it_minimizes_is_refused():
    class Own(keras.optimizers.SGD):
        def minimize(self, loss, *args, **kwargs):
            raise AssertionError

    with pytest.raises(ValueError, match="The `minimize` function of the optimizer Own has been overridden"):
        regression(Own(0.1)).train_on_batch(X, Y)


def classifier():
    model = keras.Sequential([layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    return model


WEIGHTS = {0: 1.0, 1: 0.5, 2: 3.0}


@pytest.mark.parametrize("how", ["arrays", "one-hot", "with samples", "a dataset", "one batch"])
def test_classes_weigh_as_their_samples_would(how):
    one, two = classifier(), classifier()
    by_sample = np.array([WEIGHTS[each] for each in CLASSES], np.float32)
    labels, own = CLASSES, None
    if how == "one-hot":
        labels = keras.utils.to_categorical(CLASSES, 3)
        for model in (one, two):
            model.compile("sgd", "categorical_crossentropy", weighted_metrics=["accuracy"])
    if how == "with samples":
        own = np.linspace(0.5, 2.0, len(X)).astype(np.float32)
        by_sample = by_sample * own
    if how == "a dataset":
        dataset = tf.data.Dataset.from_tensor_slices((X, labels)).batch(8, drop_remainder=True)
        found = one.fit(dataset, class_weight=WEIGHTS, verbose=0).history
    elif how == "one batch":
        found = one.train_on_batch(X, labels, class_weight=WEIGHTS)
        assert found == two.train_on_batch(X, labels, by_sample)
        assert same_bits(one, two)
        return
    else:
        found = one.fit(X, labels, 8, sample_weight=own, class_weight=WEIGHTS, shuffle=False, verbose=0).history
    assert found == two.fit(X, labels, 8, sample_weight=by_sample, shuffle=False, verbose=0).history
    assert same_bits(one, two)


def test_classes_do_not_weigh_in_a_validation():
    model = classifier()
    found = model.fit(X, CLASSES, 8, class_weight=WEIGHTS, validation_split=0.25, verbose=0).history
    assert found["val_loss"] == [model.evaluate(X[24:], CLASSES[24:], 8, 0)[0]]


MISUSES = {
    "classes of several types": (
        "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, found "
        "{'0': 1.0, 1: 2.0}",
        lambda: classifier().fit(X, CLASSES, class_weight={"0": 1.0, 1: 2.0}),
    ),
    "a class that is no number": (
        "y: expected class numbers where there is a class_weight, got array([nan, nan], dtype=float32)",
        lambda: classifier().fit(X[:2], np.float32([np.nan] * 2), batch_size=2, class_weight=WEIGHTS),
    ),
    "classes that are no numbers from 0": (
        "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, found {1: 2.0}",
        lambda: classifier().fit(X, CLASSES, class_weight={1: 2.0}),
    ),
    "too few classes": (
        "class_weight: expected a weight of each class up to 2, got {0: 1.0, 1: 1.0}",
        lambda: classifier().fit(X, CLASSES, class_weight={0: 1, 1: 1}),
    ),
    "several outputs": (
        "`class_weight` is only supported for Models with a single output.",
        lambda: classifier().fit(X, {"a": CLASSES}, class_weight=WEIGHTS),
    ),
    "too many axes": (
        "`class_weight` not supported for 3+ dimensional targets.",
        lambda: classifier().fit(X, np.zeros((32, 2, 3)), class_weight=WEIGHTS),
    ),
    "no dictionary": (
        "class_weight: expected a dictionary of the weight of each class, got [1.0]",
        lambda: classifier().fit(X, CLASSES, class_weight=[1.0]),
    ),
    "a dataset as a batch": (
        "x: expected the arrays of one batch, got <",
        lambda: classifier().train_on_batch(tf.data.Dataset.from_tensors(X)),
    ),
    "no samples": (
        "Expect x to be a non-empty array or dataset.",
        lambda: classifier().test_on_batch(X[:0], CLASSES[:0]),
    ),
    "no truth": (
        "reset_metrics: expected True or False, got 'no'",
        lambda: classifier().test_on_batch(X, CLASSES, reset_metrics="no"),
    ),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse(case):
    text, action = MISUSES[case]
    with pytest.raises((ProgramError, ProgramTypeError)) as caught:
        action()
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("kind", [Sequential, Model])
def test_models_of_first_releases_accumulate_batches(kind):
    def made(accumulation_count):
        dense = layers.Dense(1, kernel_initializer="zeros")
        if kind is Sequential:
            model = Sequential([dense], accumulation_count=accumulation_count)
        else:
            first = layers.Input(shape=(4,))
            model = Model(first, dense(first), accumulation_count=accumulation_count)
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=4)
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        return model.get_weights()

    with ipu_strategy.IPUStrategy().scope():
        once, four_times = made(4), made(1)
        gradient = sum(-2 * X[rows].T @ Y[rows] / 8 for rows in batches())  # of mean squared errors, at zero weights
        np.testing.assert_allclose(once[0], -0.1 * gradient, rtol=1e-4)
        assert not np.allclose(once[0], four_times[0])
        with pytest.raises(ProgramError, match="accumulation_count: expected a whole number from 1 to"):
            made(0)
