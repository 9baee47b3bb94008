"""Keras' fit, evaluate and predict: the order of callbacks, metrics by a second formulation, data, and options."""

from __future__ import annotations

import logging
import re
import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import FileError, ProgramError, ProgramStateError, ProgramTypeError
from ipusim.ipu import ipu_strategy
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers
from tests.devices import on
from tests.effort import runs_slowest

RNG = np.random.default_rng(5)
X = RNG.normal(size=(64, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 64)


@pytest.fixture(autouse=True)
def warnings_logged(caplog):
    """Log warnings, which the installed TensorFlow turns off for its logger when another test imports it."""
    caplog.set_level(logging.WARNING, logger="tensorflow")


def regression(steps=1, metrics=None, optimizer=None, **options):
    model = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dense(1)])
    model.compile(optimizer or keras.optimizers.SGD(0.05), "mse", metrics=metrics, steps_per_execution=steps, **options)
    return model


def pipelined(model, stages, count=4, **options):
    model.set_pipeline_stage_assignment(stages)
    model.set_pipelining_options(count, **options)
    return model


class Noting(keras.callbacks.Callback):
    """Notes each call of a hook."""

    def __init__(self):
        self.calls, self.threads = [], set()

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(*given):  # always with logs, as in Keras
            number, logs = given if len(given) == 2 else (None, *given)
            self.calls.append((name, number, sorted(logs)))
            self.threads.add(threading.get_ident())

        return note


def test_callbacks_are_called_in_keras_order():
    """As Keras documents it; with several steps in an execution before its first and after its last."""
    noting = Noting()
    model = regression(steps=2)
    model.fit(X, Y, batch_size=16, epochs=2, verbose=0, validation_data=(X[:32], Y[:32]), callbacks=[noting])
    training = [
        ("on_train_batch_begin", 0, []),
        ("on_train_batch_end", 1, ["loss"]),
        ("on_train_batch_begin", 2, []),
        ("on_train_batch_end", 3, ["loss"]),
    ]
    validation = [
        ("on_test_begin", None, []),
        ("on_test_batch_begin", 0, []),
        ("on_test_batch_end", 1, ["loss"]),
        ("on_test_end", None, ["loss"]),
    ]
    expected = [("on_train_begin", None, [])]
    for epoch in range(2):
        expected += [("on_epoch_begin", epoch, []), *training, *validation]
        expected.append(("on_epoch_end", epoch, ["loss", "val_loss"]))
    assert noting.calls == [*expected, ("on_train_end", None, ["loss", "val_loss"])]
    noting.calls.clear()
    model.predict(X[:32], batch_size=16, callbacks=[noting])
    assert [(name, number) for name, number, _ in noting.calls] == [
        ("on_predict_begin", None),
        ("on_predict_batch_begin", 0),
        ("on_predict_batch_end", 1),
        ("on_predict_end", None),
    ]
    assert noting.threads == {threading.get_ident()}


@pytest.mark.parametrize("validated", [{}, {"validation_data": (X, Y)}])
def test_epochs_that_never_come_cost_nothing(validated):
    """Whoever lets a callback end a training asks for as many as there may be."""
    stop = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(model, "stop_training", True))
    model = regression()
    history = model.fit(X, Y, batch_size=8, epochs=2**31 - 1, verbose=0, callbacks=[stop], **validated)
    assert history.epoch == [0]


def test_functions_as_hooks_take_what_keras_gives_them():
    seen = []
    hooks = {
        "on_train_begin": seen.append,
        "on_epoch_begin": lambda epoch, told: seen.append((epoch, told)),
        "on_train_batch_begin": lambda batch, logs: seen.append((batch, logs)),
    }
    regression().fit(X, Y, batch_size=64, verbose=0, callbacks=[keras.callbacks.LambdaCallback(**hooks)])
    assert seen == [{}, (0, {}), (0, {})]


def test_a_callback_is_told_once_whose_it_is():
    """Of the model and the parameters, also where a validation is in the training."""
    told = []

    class Told(keras.callbacks.Callback):
        def set_model(self, model):
            told.append(model)

        def set_params(self, params):
            told.append(params)

    model = regression(2)
    model.fit(X, Y, 16, epochs=2, verbose=0, validation_data=(X, Y), callbacks=Told())
    assert told == [model, {"verbose": 0, "epochs": 2, "steps": 4}]


@pytest.mark.parametrize("stages", [None, [0, 1]])
def test_asynchronous_callbacks_are_called_for_every_step_in_another_thread(stages):
    noting, seen = Noting(), []
    model = regression(steps=4)
    if stages:
        pipelined(model, stages)
    model.set_asynchronous_callbacks(True)
    seeing = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[noting, seeing])
    steps = [(name, number) for name, number, _ in noting.calls if "_batch_" in name]
    assert steps == [(name, step) for step in range(4) for name in ("on_train_batch_begin", "on_train_batch_end")]
    assert len(noting.threads) == 2
    again = regression(steps=4)
    if stages:
        pipelined(again, stages)
    assert again.fit(X, Y, batch_size=16, verbose=0).history["loss"] == [seen[-1]]


def test_what_a_callback_raises_in_its_thread_is_raised_by_fit():
    def fail(batch, logs):
        raise KeyError("mine")

    model = regression(steps=2)
    model.set_asynchronous_callbacks(True)
    with pytest.raises(KeyError, match="mine"):
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=fail)])


@pytest.mark.parametrize("how", ["one IPU", "pipelined", "summed up", "two replicas"])
def test_evaluation_by_a_second_formulation(how):
    """Loss and metrics of what predict gives, in NumPy; weighted ones too."""
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")]
    weights = np.linspace(0.5, 2.0, 64).astype(np.float32)

    def run():
        model = keras.Sequential([layers.Dense(5, activation="relu"), layers.Dense(3, activation="softmax")])
        model.compile(
            "sgd",
            "sparse_categorical_crossentropy",
            metrics=metrics,
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="weighted")],
            steps_per_execution=2,
        )
        if how in ("pipelined", "summed up"):
            pipelined(model, [0, 1], accumulate_outfeed=how == "summed up")
        found = model.evaluate(X, CLASSES, 8, 0, sample_weight=weights, return_dict=True)
        return found, model.predict(X, batch_size=8), model

    found, p, model = on({"one IPU": 1}.get(how, 2), run)
    own = -np.log(p[np.arange(64), CLASSES])
    ranks = (p > p[np.arange(64), CLASSES][:, None]).sum(axis=1)
    right = (p.argmax(axis=1) == CLASSES).astype(float)  # the first of equal ones
    assert found["loss"] == pytest.approx(np.mean(own * weights), rel=1e-5)
    assert found["accuracy"] == pytest.approx(right.mean())
    assert found["top2"] == pytest.approx((ranks < 2).mean())
    assert found["weighted"] == pytest.approx((right * weights).sum() / weights.sum(), rel=1e-5)
    assert model.metrics_names == list(found) == ["loss", "accuracy", "top2", "weighted"]
    assert model.pipeline.system.replicas == (2 if how == "two replicas" else 1)
    np.testing.assert_allclose(p, model(X), rtol=1e-5)


Y_TRUE = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], np.float32)
Y_PRED = np.array([[0.2, 0.7], [0.4, 0.9], [0.6, 0.1]], np.float32)
#: Of each loss what NumPy gives for the arrays above.
LOSSES = {
    "mse": lambda t, p: ((t - p) ** 2).mean(),
    "mae": lambda t, p: np.abs(t - p).mean(),
    "binary_crossentropy": lambda t, p: -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(),
    "categorical_crossentropy": lambda t, p: -(t * np.log(p / p.sum(1, keepdims=True))).sum(1).mean(),
    "huber": lambda t, p: (0.5 * (t - p) ** 2).mean(),
    "log_cosh": lambda t, p: np.log(np.cosh(t - p)).mean(),
    "hinge": lambda t, p: np.maximum(1 - np.where(t == 0, -1, t) * p, 0).mean(),
    "poisson": lambda t, p: (p - t * np.log(p)).mean(),
    "kl_divergence": lambda t, p: (np.clip(t, 1e-7, 1) * np.log(np.clip(t, 1e-7, 1) / p)).sum(1).mean(),
}


#: Names of losses that are not those of their texts.
LONG = {"mse": "mean_squared_error", "mae": "mean_absolute_error", "huber": "huber_loss"}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_by_a_second_formulation(name):
    loss = keras.losses.loss_of(name)
    assert float(loss(Y_TRUE, Y_PRED)) == pytest.approx(LOSSES[name](Y_TRUE, Y_PRED), rel=1e-5)
    each = loss.call(Y_TRUE, Y_PRED)
    assert np.shape(each) == (3,)
    own = LONG.get(name, name)
    assert (loss.name, getattr(keras.losses, own.removesuffix("_loss")).__name__) == (own, own.removesuffix("_loss"))
    total = type(loss)(reduction="sum")(Y_TRUE, Y_PRED)
    assert float(total) == pytest.approx(3 * LOSSES[name](Y_TRUE, Y_PRED), rel=1e-5)
    weights = np.array([1.0, 0.0, 2.0], np.float32)
    assert float(loss(Y_TRUE, Y_PRED, weights)) == pytest.approx(float((np.asarray(each) * weights).mean()), rel=1e-5)


#: Weights of three sequences of three steps, in all shapes that weigh them, and what each of the steps weighs.
WEIGHTS = {
    "one for all": (2.0, np.full((3, 3), 2)),
    "of samples": (np.float32([1, 0, 2]), np.float32([[1] * 3, [0] * 3, [2] * 3])),
    "of samples in rows": (np.float32([[1], [0], [2]]), np.float32([[1] * 3, [0] * 3, [2] * 3])),
    "of steps": (np.arange(9).reshape(3, 3), np.arange(9).reshape(3, 3)),
    "of steps in rows": (np.arange(9).reshape(3, 3, 1), np.arange(9).reshape(3, 3)),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_of_samples_are_those_of_all_of_their_steps(kind):
    """Of the loss in a program and on the host, and of a metric, which divides by their sum."""
    given, expected = WEIGHTS[kind]
    x, y = X[:36].reshape(3, 3, 16), Y[:18].reshape(3, 3, 2)
    model = keras.Sequential([layers.Dense(2, input_shape=(3, 16))])
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    difference = model.predict(x, batch_size=3) - y
    squares, sizes = (difference**2).mean(-1), np.abs(difference).mean(-1)
    assert float(keras.losses.MeanSquaredError()(y, difference + y, given)) == pytest.approx(
        float((squares * expected).mean()), rel=1e-5
    )
    if np.ndim(given):
        found = model.evaluate(x, y, 3, 0, sample_weight=given)
        means = float((squares * expected).mean()), float((sizes * expected).sum() / expected.sum())
        assert found == pytest.approx(means, rel=1e-5)


def test_cross_entropies_of_logits_are_those_of_their_probabilities():
    logits = RNG.normal(size=(6, 3)).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([0, 2, 1, 1, 0, 2])
    one_hot = np.eye(3, dtype=np.float32)[labels]
    expected = -np.log(p[np.arange(6), labels]).mean()
    for kind, shown in (("SparseCategoricalCrossentropy", labels), ("CategoricalCrossentropy", one_hot)):
        loss = getattr(keras.losses, kind)
        assert float(loss(from_logits=True)(shown, logits)) == pytest.approx(expected, rel=1e-5)
        assert float(loss()(shown, p)) == pytest.approx(expected, rel=1e-5)
    smoothed = keras.losses.CategoricalCrossentropy(label_smoothing=0.3)(one_hot, p)
    assert float(smoothed) == pytest.approx(-((one_hot * 0.7 + 0.1) * np.log(p)).sum(1).mean(), rel=1e-5)
    binary = keras.losses.BinaryCrossentropy(from_logits=True)(one_hot, logits)
    sigmoid = 1 / (1 + np.exp(-logits))
    assert float(binary) == pytest.approx(
        -(one_hot * np.log(sigmoid) + (1 - one_hot) * np.log(1 - sigmoid)).mean(), rel=1e-5
    )


def test_metrics_of_the_host_by_a_second_formulation():
    precision, recall, root = keras.metrics.Precision(), keras.metrics.Recall(), keras.metrics.RootMeanSquaredError()
    for metric in (precision, recall, root):
        metric.update_state(Y_TRUE[:1], Y_PRED[:1])
        metric.update_state(Y_TRUE[1:], Y_PRED[1:])
    says, yes = Y_PRED > 0.5, Y_TRUE == 1
    assert precision.result() == pytest.approx((says & yes).sum() / says.sum())
    assert recall.result() == pytest.approx((says & yes).sum() / yes.sum())
    assert root.result() == pytest.approx(np.sqrt(((Y_TRUE - Y_PRED) ** 2).mean()))
    root.reset_state()
    assert root.result() == 0.0
    assert keras.metrics.BinaryAccuracy()(Y_TRUE, Y_PRED) == pytest.approx((says == yes).mean())
    assert keras.metrics.CategoricalAccuracy()(Y_TRUE, Y_PRED) == pytest.approx(
        (Y_TRUE.argmax(1) == Y_PRED.argmax(1)).mean()
    )


def test_batches_of_the_host_count_by_their_samples():
    metric = keras.metrics.MeanAbsoluteError()
    metric.update_state(Y_TRUE[:1], Y_PRED[:1])
    metric.update_state(Y_TRUE[1:], Y_PRED[1:])
    assert metric.result() == pytest.approx(np.abs(Y_TRUE - Y_PRED).mean())


@pytest.mark.parametrize(
    ("kind", "labels"), [("TopKCategoricalAccuracy", np.eye(4)), ("SparseTopKCategoricalAccuracy", np.arange(4))]
)
def test_how_many_are_likely_comes_first(kind, labels):
    metric = getattr(keras.metrics, kind)(3, "of three")
    assert metric(labels, np.tile(np.float32([4, 3, 2, 1]), (4, 1))) == 0.75
    assert metric.name == "of three"
    assert type(metric).from_config(metric.get_config())(labels[:2], np.float32([[1, 2, 3, 4]] * 2)) == 0.5


def test_fit_goes_on_where_the_one_before_ended():
    """Two fits of an epoch are one of two, with the optimizer's moments, in programs of other sizes too."""
    once, twice, other = (regression(2, optimizer=keras.optimizers.Adam(0.05)) for _ in range(3))
    both = once.fit(X, Y, batch_size=16, epochs=2, verbose=0, shuffle=False).history["loss"]
    parts = [twice.fit(X, Y, batch_size=16, verbose=0, shuffle=False).history["loss"][0] for _ in range(2)]
    assert both == parts
    assert twice.pipeline is twice.pipeline
    other.fit(X, Y, batch_size=16, verbose=0, shuffle=False)
    other.evaluate(X, Y, batch_size=32, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16).take(2)
    first_half = other.fit(dataset, verbose=0).history["loss"]
    assert len(first_half) == 1
    assert int(float(other.optimizer.iterations)) == 6


def test_batches_of_several_sizes_train_with_one_momentum():
    """Programs that take turns: each goes on from the one before, as one optimizer in NumPy does."""
    model = keras.Sequential([layers.Dense(1, use_bias=False, input_shape=(4,))])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    (w,) = model.get_weights()
    velocity = np.zeros_like(w)
    for size in (16, 32, 16, 8, 32):
        model.fit(X, Y, size, verbose=0, shuffle=False)
        for start in range(0, 64, size):
            x, y = X[start : start + size], Y[start : start + size]
            velocity = 0.9 * velocity - 0.01 * 2 * x.T @ (x @ w - y) / size
            w = w + velocity
        np.testing.assert_allclose(model.get_weights()[0], w, rtol=1e-4, atol=1e-6)


def test_a_program_built_before_options_have_changed_runs_no_more():
    """Neither where another one has been built since."""
    model = regression(4)
    for size, updates in ((16, 4), (8, 2), (16, 1)):
        before = int(float(model.optimizer.iterations))
        model.fit(X, Y, size, verbose=0)
        assert int(float(model.optimizer.iterations)) - before == updates
        if size == 16:
            model.set_gradient_accumulation_options(4)


def test_functions_are_metrics_by_their_names():
    model = regression(metrics=[keras.losses.mean_absolute_error, keras.losses.log_cosh, keras.losses.huber])
    names = list(model.evaluate(X, Y, 16, verbose=0, return_dict=True))
    assert names == ["loss", "mean_absolute_error", "log_cosh", "huber"]


def test_arrays_of_several_inputs_are_whatever_is_an_array():
    """Such as a table's columns, which tell of an array alone."""

    class Table:
        def __init__(self, array):
            self.array = array

        def __array__(self, dtype=None, copy=None):
            return self.array

        def __len__(self):
            return len(self.array)

    inputs = [keras.Input((4,)), keras.Input((4,))]
    model = keras.Model(inputs, layers.Subtract()(inputs))
    found = model.predict([Table(X), Table(X * 2)], batch_size=16)
    np.testing.assert_allclose(found, -X, rtol=1e-6)


def test_functions_of_ones_own_get_labels_in_the_rows_of_predictions():
    """Else (batch,) less (batch, 1) would be the differences of each sample from all others."""
    model = regression()
    model.compile("sgd", lambda y, p: tf.square(y - p), metrics=[lambda y, p: tf.abs(y - p)])
    found = model.evaluate(X, Y[:, 0], 16, verbose=0)
    difference = model.predict(X, batch_size=16) - Y
    assert found == pytest.approx([(difference**2).mean(), np.abs(difference).mean()], rel=1e-5)


def test_a_loss_that_is_not_reduced_is_trained_on_as_its_sum():
    """Its gradient is 16 times that of the mean of a batch of 16, as an update with 16 times the step size."""
    reduced, each = (keras.Sequential([layers.Dense(1, input_shape=(4,))], name) for name in ("reduced", "each"))
    for model, reduction, rate in ((reduced, "auto", 0.16), (each, "none", 0.01)):
        model.compile(keras.optimizers.SGD(rate), keras.losses.MeanSquaredError(reduction), steps_per_execution=2)
    found = [model.fit(X, Y, batch_size=16, epochs=2, verbose=0).history["loss"] for model in (reduced, each)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_weights_set_between_trainings_are_those_that_train():
    model = regression(2)
    model.fit(X, Y, batch_size=16, verbose=0)
    zero = [np.zeros_like(each) for each in model.get_weights()]
    model.set_weights(zero)
    assert model.evaluate(X, Y, batch_size=16, verbose=0) == pytest.approx(float((Y**2).mean()), rel=1e-5)
    model.layers[1].trainable = False
    model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(X, Y, batch_size=16, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[2], zero[2])


def test_step_sizes_follow_schedules_and_callbacks():
    """A schedule of updates, a schedule of epochs, and the optimizer itself: the same losses."""
    halving = keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5, staircase=True)
    scheduled = regression(2, optimizer=keras.optimizers.SGD(halving))
    called, by_hand = regression(2, optimizer=keras.optimizers.SGD(0.1)), regression(2)
    expected = scheduled.fit(X, Y, batch_size=16, epochs=3, verbose=0).history["loss"]
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate)
    history = called.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=[scheduler]).history
    assert (history["loss"], history["lr"]) == (expected, [0.1, 0.05, 0.025])
    found = []
    for epoch, rate in enumerate((0.1, 0.05, 0.025)):
        keras.backend.set_value(by_hand.optimizer.lr, rate)
        found += by_hand.fit(X, Y, batch_size=16, initial_epoch=epoch, epochs=epoch + 1, verbose=0).history["loss"]
    assert found == expected
    assert keras.backend.get_value(by_hand.optimizer.learning_rate) == np.float32(0.025)


@pytest.mark.parametrize("kind", [keras.optimizers.Adam, keras.optimizers.RMSprop])
def test_without_an_epsilon_it_is_that_of_keras(kind):
    found = []
    for epsilon in (None, 1e-7):
        model = regression(optimizer=kind(0.01, epsilon=epsilon))
        found.append(model.fit(X, Y, batch_size=16, epochs=2, verbose=0).history["loss"])
    assert found[0] == found[1]


def test_clipped_gradients_are_shorter():
    plain, clipped = (
        regression(optimizer=keras.optimizers.SGD(1.0)),
        regression(optimizer=keras.optimizers.SGD(1.0, global_clipnorm=0.01)),
    )
    for model in (plain, clipped):
        model.build((None, 4))
        before = model.get_weights()
        model.fit(X, Y, batch_size=64, verbose=0)
        moved = [after - at for after, at in zip(model.get_weights(), before, strict=True)]
        model.length = float(np.sqrt(sum((each**2).sum() for each in moved)))
    assert plain.length > 0.1
    assert clipped.length == pytest.approx(0.01, rel=1e-3)


def test_training_ends_early_and_the_best_is_kept(tmp_path):
    model = regression(2, optimizer=keras.optimizers.SGD(0.05))
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=2, restore_best_weights=True)
    path = str(tmp_path / "weights-{epoch:02d}-{loss:.3f}")
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    kept = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    history = model.fit(X, Y, batch_size=16, epochs=9, verbose=0, callbacks=[stopping, logger, kept])
    assert history.epoch == [0, 1, 2]
    assert (stopping.stopped_epoch, stopping.best_epoch) == (2, 0)
    files = sorted(each.name for each in tmp_path.glob("weights-*"))
    assert files == [f"weights-{epoch + 1:02d}-{loss:.3f}" for epoch, loss in enumerate(history.history["loss"])]
    with np.load(tmp_path / files[0]) as best:
        np.testing.assert_array_equal(model.get_weights()[0], best["dense/kernel"])
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert rows == ["epoch,loss", *(f"{epoch},{loss}" for epoch, loss in enumerate(history.history["loss"]))]


@pytest.mark.parametrize("name", ["{nothing}", "{}", "{0}", "{epoch:no}", "{epoch", "{epoch.no}", "{epoch[0]}"])
def test_a_checkpoint_s_name_of_what_there_is_not_is_refused(name, tmp_path):
    kept = keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=True)
    text = f'^Failed to format this callback filepath: "{re.escape(str(tmp_path / name))}". Reason: .+; what stands in '
    with pytest.raises(ProgramError, match=text + r"braces may be \{epoch\} or \{loss\}$"):
        regression(2).fit(X, Y, batch_size=16, verbose=0, callbacks=[kept])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: keras.callbacks.ModelCheckpoint(5, save_weights_only=True), "filepath"),
        (lambda: keras.callbacks.ModelCheckpoint(5), "filepath"),
        (lambda: keras.callbacks.CSVLogger(5), "filename"),
    ],
)
def test_what_is_no_path_is_refused(make, argument):
    with pytest.raises(ProgramTypeError, match=f"^{argument}: expected a path, got 5$"):
        make()


def test_a_log_that_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "none" / "log.csv"
    with pytest.raises(FileError, match=f"^CSVLogger: cannot write {re.escape(str(path))}: No such file or directory$"):
        _fit(callbacks=[keras.callbacks.CSVLogger(path)])()


def test_a_plateau_makes_the_step_size_smaller(capsys):
    model = regression(2)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9, verbose=1)
    rates = model.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=[plateau]).history["lr"]
    assert rates == [0.05, 0.05, 0.025]
    assert "Epoch 2: ReduceLROnPlateau reducing learning rate to 0.025." in capsys.readouterr().out


def test_epochs_that_are_not_validated_count_for_no_callback(tmp_path):
    """What watches val_loss waits for the next one that is; a log has an empty place."""
    stopping = keras.callbacks.EarlyStopping(patience=1, min_delta=1e9)
    plateau = keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=1e9)
    kept = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}", save_best_only=True, save_weights_only=True)
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    callbacks = [plateau, logger, kept, stopping]
    given = {"validation_data": (X, Y), "validation_freq": 2, "callbacks": callbacks}
    history = regression(2).fit(X, Y, batch_size=16, epochs=9, verbose=0, **given).history
    assert [len(history[name]) for name in ("loss", "val_loss")] == [4, 2]
    assert history["lr"] == [0.05, 0.05, 0.05, 0.05]
    assert (stopping.stopped_epoch, sorted(each.name for each in tmp_path.iterdir())) == (3, ["2", "4", "log.csv"])
    rows = [each.split(",") for each in (tmp_path / "log.csv").read_text().splitlines()]
    assert rows[0] == ["epoch", "loss", "lr", "val_loss"]
    assert [row[3] for row in rows[1:]] == ["", str(history["val_loss"][0]), "", str(history["val_loss"][1])]


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (
            "EarlyStopping",
            {},
            "Early stopping conditioned on metric `val_loss` which is not available. Available metrics are: loss,mae",
        ),
        (
            "ReduceLROnPlateau",
            {},
            "Learning rate reduction is conditioned on metric `val_loss` which is not available. Available metrics "
            "are: loss,mae,lr",
        ),
        (
            "ModelCheckpoint",
            {"filepath": "never", "save_best_only": True, "save_weights_only": True},
            "Can save best model only with val_loss available, skipping.",
        ),
    ],
)
def test_a_callback_goes_on_without_the_value_that_it_watches(kind, options, text, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = getattr(keras.callbacks, kind)(**options)
    history = regression(metrics=["mae"]).fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[callback]).history
    assert len(history["loss"]) == 2
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [text] * 2
    assert list(tmp_path.iterdir()) == []


def test_the_progress_is_plain_lines_where_there_is_no_terminal(capsys):
    model = regression(2, metrics=["mae"])
    model.fit(X, Y, batch_size=16, epochs=2, verbose=2)
    loss, error = model.evaluate(X, Y, batch_size=16)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["Epoch 1/2", "Epoch 2/2", lines[4]]
    time = lines[1].split(" - ")[1]
    assert lines[1].startswith(f"4/4 - {time} - loss: ")
    assert lines[4] == f"4/4 [{'=' * 30}] - {lines[4].split(' - ')[1]} - loss: {loss:.4f} - mae: {error:.4f}"


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    regression(2).fit(X, Y, batch_size=16)
    assert f"4/4 [{'=' * 30}]" in capsys.readouterr().out


def test_datasets_are_arrays_in_batches():
    """Of an element, of two and three; with steps where they have no end; validation by a share."""
    model, other = regression(2), regression(2)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    expected = model.fit(X, Y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    assert other.fit(dataset.repeat(), epochs=2, steps_per_epoch=4, verbose=0).history == expected
    np.testing.assert_array_equal(model.predict(dataset), model.predict(X, batch_size=16))
    split, given = regression(2), regression(2)
    found = split.fit(X, Y, batch_size=16, validation_split=0.5, verbose=0, shuffle=False).history
    assert given.fit(X[:32], Y[:32], 16, verbose=0, shuffle=False, validation_data=(X[32:], Y[32:])).history == found


@pytest.mark.parametrize("batch_size", [16, 5])
def test_a_batch_size_beside_a_dataset_has_no_effect(batch_size):
    model, other = regression(2), regression(2)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    expected = model.fit(dataset, epochs=2, verbose=0).history
    assert other.fit(dataset, batch_size=batch_size, epochs=2, verbose=0).history == expected
    assert other.evaluate(dataset, batch_size=batch_size, verbose=0) == model.evaluate(dataset, verbose=0)
    np.testing.assert_array_equal(other.predict(dataset, batch_size=batch_size), model.predict(dataset))


def test_a_functional_model_in_stages_trains_as_one_on_one_ipu():
    """What skips stages travels; the losses are those without a pipeline, with as many batches an update."""

    def model():
        x = keras.Input((4,))
        h = layers.Dense(3, activation="tanh")(x)
        g = layers.Dense(3)(h)
        return keras.Model(x, layers.Dense(1)(layers.Concatenate()([g, x, h])))

    one, several = model(), model()
    one.set_gradient_accumulation_options(6, "mean")
    assignment = several.get_pipeline_stage_assignment()
    for each, stage in zip(assignment, (0, 1, 2, 2), strict=True):
        each.pipeline_stage = stage
    several.set_pipeline_stage_assignment(assignment)
    several.set_pipelining_options(6, [0, 1, 1], gradient_accumulation_reduction_method="mean")
    for each in (one, several):
        each.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=6)
    found = [each.fit(X[:48], Y[:48], batch_size=8, epochs=3, verbose=0).history["loss"] for each in (one, several)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert several.pipeline.program.shape.mapping == (0, 1, 1)
    several.reset_pipeline_stage_assignment()
    several.fit(X[:48], Y[:48], batch_size=8, verbose=0)
    assert several.pipeline.program.shape.mapping == (0,)


@settings(max_examples=5 if runs_slowest() else 3, deadline=None, derandomize=True)
@given(cuts=st.sets(st.integers(1, 4), min_size=1, max_size=3), skips=st.booleans())
def test_however_a_model_is_cut_its_losses_are_the_same(cuts, skips):
    """The stages of a pipeline change the time alone; what skips a layer travels as far as it is needed."""
    x = keras.Input((4,))
    h = layers.Dense(3, activation="tanh")(x)
    for _ in range(3):
        g = layers.Dense(3)(h)
        h = layers.Lambda(lambda pair: pair[0] + pair[1])([g, h]) if skips else layers.Activation("relu")(g)
    model = keras.Model(x, layers.Dense(1)(h))
    stage_of = [sum(place > 2 * cut - 1 for cut in cuts) for place in range(len(model.graph.nodes))]
    stages = sorted(set(stage_of))
    losses = []
    before = model.get_weights()
    for pipelining in (False, True):
        model.set_weights(before)
        if pipelining:
            found = model.get_pipeline_stage_assignment()
            for each, stage in zip(found, stage_of, strict=True):
                each.pipeline_stage = stages.index(stage)
            model.set_pipeline_stage_assignment(found)
        count = 2 * len(stages)
        model.set_gradient_accumulation_options(count)
        model.set_pipelining_options(count)
        model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=count)
        history = model.fit(X[: 4 * count], Y[: 4 * count], batch_size=4, epochs=2, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_labels_become_rows(refused):
    np.testing.assert_array_equal(keras.utils.to_categorical([[0], [2]]), [[1, 0, 0], [0, 0, 1]])
    refused(
        ValueError,
        "y: expected class numbers from 0 to 1, got 0 to 2",
        lambda: keras.utils.to_categorical([0, 2], 2),
    )
    assert keras.activations.relu(np.float32([-1, 2])).tolist() == [0, 2]
    assert keras.activations.softmax(np.zeros((1, 4), np.float32)).tolist() == [[0.25] * 4]


def _fit(**changes):
    def run():
        model = changes.pop("model", None) or regression(changes.pop("steps", 1))
        given = {"x": X, "y": Y, "batch_size": 16, "verbose": 0} | changes
        return model.fit(**given)

    return run


def _in_strategy(action):
    def run():
        with ipu_strategy.IPUStrategy().scope():
            return action()

    return run


def wide(loss):
    model = keras.Sequential([layers.Dense(2, activation="softmax")])
    model.compile("sgd", loss)
    return model


def _without_accumulation():
    model = regression(2)
    model.set_pipeline_stage_assignment([0, 1])
    _fit(model=model)()


def _with_an_unknown_loss():
    model = regression()
    model.compile("sgd", "mess")
    _fit(model=model)()


def _with_a_step_of_ones_own():
    class Mine(keras.Sequential):
        def train_step(self, data):
            return {}

    model = Mine([layers.Dense(1)], "mine")
    model.compile("sgd", "mse")
    _fit(model=model)()


MISUSES = {
    "momentum above 1": (
        ProgramError,
        "momentum: expected a number from 0 to 1, got 2.0",
        lambda: keras.optimizers.SGD(momentum=2.0),
    ),
    "no number of epochs to wait": (
        ProgramTypeError,
        "patience: expected a whole number, got 'a'",
        lambda: keras.callbacks.ReduceLROnPlateau(patience="a"),
    ),
    "rows of several lengths": (
        ProgramTypeError,
        "data: expected an array or a number, got [[1, 2], [3]]",
        _fit(x=[[1, 2], [3]]),
    ),
    "four arrays that validate": (
        ProgramError,
        "validation_data: expected (x, y), (x, y, sample_weight) or a dataset, got (1, 2, 3, 4)",
        _fit(validation_data=(1, 2, 3, 4)),
    ),
    "labels of as many elements in other axes": (
        ProgramError,
        "y_true: expected labels for predictions of shape (3, 2), got (2, 3)",
        lambda: keras.losses.MeanAbsoluteError()(Y_TRUE.T, Y_PRED),
    ),
    "a label for each sample where there are several predictions": (
        ProgramError,
        "y_true: expected labels for predictions of shape (2, 2), got (2,)",
        _fit(model=wide("mse"), y=Y[:, 0], batch_size=2),
    ),
    "class numbers for the loss of shares": (
        ProgramError,
        "y_true: expected a share for each class, shape (16, 2); of class numbers take the sparse loss and metrics, "
        "got (16, 1)",
        _fit(model=wide("categorical_crossentropy"), y=CLASSES[:, None]),
    ),
    "class numbers for the accuracy of shares": (
        ProgramError,
        "y_true: expected a share for each class, shape (3, 2); of class numbers take the sparse loss and metrics, "
        "got (3, 1)",
        lambda: keras.metrics.CategoricalAccuracy()([[0], [1], [1]], Y_PRED),
    ),
    "weights of other steps": (
        ProgramError,
        "sample_weight: expected weights for values of shape (3,), got (3, 2)",
        lambda: keras.losses.MeanSquaredError()(Y_TRUE, Y_PRED, Y_TRUE),
    ),
    "a partial batch": (
        ProgramError,
        "The provided set of data has a partial batch, which could result in data being dropped. Either adjust the "
        "`batch_size` of your model (currently set to 24) or pad your dataset to ensure there are no partial batches.",
        _in_strategy(_fit(batch_size=24)),
    ),
    "executions that are no divisor": (
        ProgramError,
        "`steps_per_execution` must be a divisor of the number of batches in the dataset provided.",
        _fit(steps=3),
    ),
    "a dataset without an end": (
        ProgramError,
        "When providing an infinite dataset, you must specify the number of steps to run (if you did not intend to "
        "create an infinite dataset, make sure to not call `repeat()` on the dataset).",
        _fit(x=tf.data.Dataset.from_tensor_slices((X, Y)).batch(16).repeat(), y=None, batch_size=None),
    ),
    "labels beside a dataset": (
        ProgramError,
        "`y` argument is not supported when using dataset as input.",
        _fit(x=tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)),
    ),
    "a generator": (
        ProgramError,
        "The provided set of data is of type `generator` which is not compatible with the IPU's requirement to know "
        "the data shape ahead of time. Please use `tf.data.Dataset.from_generator()` to specify the shape of your "
        "data.",
        _fit(x=(each for each in X)),
    ),
    "other lengths": (
        ProgramError,
        "Data cardinality is ambiguous: sizes 64, 32. Make sure all arrays contain the same number of samples.",
        _fit(y=Y[:32]),
    ),
    "no labels": (
        ProgramError,
        "Target data is missing. Your model was compiled with a loss, and therefore expects target data to be provided "
        "in `fit()`.",
        _fit(y=None),
    ),
    "not compiled": (
        ProgramStateError,
        "You must compile your model before training/testing. Use `model.compile(optimizer, loss)`.",
        _fit(model=keras.Sequential([layers.Dense(1)])),
    ),
    "no gradient accumulation": (
        ProgramError,
        "The model which you are attempting to train is pipelined, however `gradient_accumulation_steps_per_replica` "
        "has not been set through `set_pipelining_options()`. You need to set this value as pipelined models will "
        "perform gradient accumulation when training.",
        _without_accumulation,
    ),
    "executions of part of an update": (
        ProgramError,
        "The pipelined model has been configured to use gradient accumulation for training, however the current "
        "`steps_per_execution` value (set to 1) is not divisible by `gradient_accumulation_steps_per_replica` (4). You "
        "need to adjust either `steps_per_execution` or `gradient_accumulation_steps_per_replica` to make sure that "
        "`steps_per_execution` is divisible by `gradient_accumulation_steps_per_replica`.",
        _fit(model=pipelined(regression(1), [0, 1])),
    ),
    "an unknown loss": (
        ProgramError,
        "Unknown loss function: mess. Expected one of KLD, MAE, MAPE, MSE, MSLE, binary_crossentropy, "
        "categorical_crossentropy, cosine_similarity, hinge, huber, huber_loss, kl_divergence, kld, "
        "kullback_leibler_divergence, log_cosh, logcosh, mae, mape, mean_absolute_error, "
        "mean_absolute_percentage_error, mean_squared_error, mean_squared_logarithmic_error, mse, msle, poisson, "
        "sparse_categorical_crossentropy",
        _with_an_unknown_loss,
    ),
    "an unknown metric": (
        ProgramError,
        "Unknown metric function: mas. Expected one of accuracy, binary_accuracy, binary_crossentropy, "
        "categorical_accuracy, categorical_crossentropy, mae, mape, mean_absolute_error, "
        "mean_absolute_percentage_error, mean_squared_error, mean_squared_logarithmic_error, mse, msle, "
        "sparse_categorical_accuracy, sparse_categorical_crossentropy, sparse_top_k_categorical_accuracy, "
        "top_k_categorical_accuracy",
        _fit(model=regression(metrics=["mas"])),
    ),
    "no data": (ProgramError, "Expect x to be a non-empty array or dataset.", _fit(x=None)),
    "epochs below none": (
        ProgramError,
        "epochs: expected a whole number from 0 to 2147483647, got -1",
        _fit(epochs=-1),
    ),
    "validation every 0 epochs": (
        ProgramError,
        "validation_freq: expected a whole number from 1 to 2147483647, got 0",
        _fit(validation_freq=0),
    ),
    "validation after a text": (
        ProgramTypeError,
        "validation_freq: expected a whole number, got 'ab'",
        _fit(validation_freq=[2, "ab"]),
    ),
    "more than all for validation": (
        ProgramError,
        "validation_split: expected a share from 0 to 1, got 1.5",
        _fit(validation_split=1.5),
    ),
    "less than nothing for validation": (
        ProgramError,
        "validation_split: expected a finite number from 0, got -0.5",
        _fit(validation_split=-0.5),
    ),
    **{
        f"{name} in no steps": (
            ProgramError,
            "decay_steps: expected a number above 0, got 0",
            partial(getattr(keras.optimizers.schedules, name), 0.1, 0, 0.5),
        )
        for name in ("CosineDecay", "ExponentialDecay", "InverseTimeDecay", "PolynomialDecay")
    },
    "a rate that is a word": (
        ProgramTypeError,
        "initial_learning_rate: expected a number, got 'a'",
        lambda: keras.optimizers.schedules.ExponentialDecay("a", 1, 0.5),
    ),
    "a rate beyond all": (
        ProgramError,
        "decay_rate: expected a finite number, got inf",
        lambda: keras.optimizers.schedules.InverseTimeDecay(0.1, 1, float("inf")),
    ),
    "rates that are words": (
        ProgramTypeError,
        "values: expected a number, got 'a'",
        lambda: keras.optimizers.schedules.PiecewiseConstantDecay([1], ["a", 0.1]),
    ),
    "an unknown optimizer": (
        ProgramError,
        "Unknown optimizer: adamw. Expected one of adadelta, adagrad, adam, ftrl, lamb, rmsprop, sgd",
        lambda: regression(optimizer="adamw"),
    ),
    "eagerly": (
        ProgramStateError,
        "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling `compile`.",
        lambda: regression(run_eagerly=True),
    ),
    "no callback": (
        ProgramTypeError,
        "callbacks: expected callbacks such as keras.callbacks.EarlyStopping(), got 3",
        _fit(callbacks=[3]),
    ),
    **{
        f"{name} beside a schedule": (
            ProgramError,
            f"{name}: expected an optimizer whose learning_rate is a number, which a callback can set, got the "
            "schedule CosineDecay",
            lambda made=made: _fit(
                model=regression(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 4))),
                callbacks=[made()],
            )(),
        )
        for name, made in (
            ("LearningRateScheduler", lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1)),
            ("ReduceLROnPlateau", lambda: keras.callbacks.ReduceLROnPlateau("loss")),
        )
    },
    "a step of one's own": (
        ProgramStateError,
        "The function `train_step` for the model mine has been overridden. This is not supported: write a loop with "
        "ipu.loops or a pipeline instead.",
        _with_a_step_of_ones_own,
    ),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse(case, refused):
    kind, text, action = MISUSES[case]
    refused(kind, text, action)
