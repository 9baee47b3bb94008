"""Models of tf_keras on simulated IPUs, against the same training by tf_keras alone."""

import numpy as np
import pytest

from ipusim.api import learning
from ipusim.ipu.runtime.recording import Recorder, recording
from tests.effort import rarest
from tests.keras_models import Placed, build, keras
from tests.programs import tensorflow

pytestmark = pytest.mark.usefixtures("tf")

BATCH, STEPS, CLASSES = 8, 12, 10


def _data(shape, classes=CLASSES, words=None):
    """A function that draws so many samples, of numbers or of words, and their labels."""

    def drawn(count=BATCH * STEPS):
        rng = np.random.default_rng(0)
        x = rng.integers(0, words, (count, *shape)) if words else rng.standard_normal((count, *shape)).astype("f4")
        return x, rng.integers(0, classes, count)

    return drawn


_vectors, _images, _texts = _data((12,)), _data((8, 8, 3)), _data((12,), 2, words=50)


def _compiled(model, optimizer, **options):
    loss = "binary_crossentropy" if model.output_shape[-1] == 1 else "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
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
        k.layers.SimpleRNN(6, return_sequences=True),
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


@pytest.mark.parametrize(("name", "steps"), [("mlp", 4), ("cnn", 1), pytest.param("lstm", 4, marks=rarest)])
def test_trains_evaluates_and_predicts_as_tf_keras_does(name, steps):
    make, data = MODELS[name]
    x, y = data()
    models = [build(lambda k: make(k, steps_per_execution=steps), placed) for placed in (Placed(), None)]
    models[1].run_eagerly = name == "lstm"  # which TensorFlow takes longer to trace than to train
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


def _accumulated(model, x, y, count):
    """Train a model of tf_keras alone with the mean of the gradients of so many batches for each update."""
    tf = tensorflow()
    losses = []

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True), None)
        return loss, tape.gradient(loss, model.trainable_variables)

    total = None
    for start in range(0, len(x), BATCH):
        loss, found = gradients(x[start : start + BATCH], y[start : start + BATCH])
        found = [gradient / count for gradient in map(tf.convert_to_tensor, found)]
        losses.append(float(loss))
        total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        if len(losses) % count == 0:
            model.optimizer.apply_gradients(zip(total, model.trainable_variables, strict=True))
            total = None
    return losses


#: Stages of the calls of each model, two or three; accumulation counts that their schedules take.
STAGES = {"mlp": ([0, 0, 1], 4), "cnn": ([0, 0, 0, 1, 1, 1, 1, 1, 1], 4), "lstm": ([0, 0, 1, 2], 6)}


@pytest.mark.parametrize("name", ["cnn", "lstm", pytest.param("mlp", marks=rarest)])
def test_a_pipelined_model_trains_with_accumulated_gradients(name):
    make, data = MODELS[name]
    stages, count = STAGES[name]
    x, y = data(BATCH * 2 * count)
    placed = Placed(stages, accumulation=count, reduction="MEAN")
    model, plain = (build(lambda k: make(k, steps_per_execution=count), each) for each in (placed, None))
    expected = _accumulated(plain, x, y, count)
    history = model.fit(x, y, BATCH, verbose=0, shuffle=False)
    assert history.history["loss"][0] == pytest.approx(np.mean(expected), rel=1e-5)
    _weights_are_equal(model.get_weights(), plain.get_weights())
    _weights_are_equal(_slots(model), _slots(plain))
    rest = x[: BATCH * count], y[: BATCH * count]
    np.testing.assert_allclose(
        model.evaluate(*rest, BATCH, verbose=0), plain.evaluate(*rest, BATCH, verbose=0), rtol=1e-5
    )
    np.testing.assert_allclose(
        model.predict(rest[0], BATCH, verbose=0), plain.predict(rest[0], BATCH, verbose=0), rtol=1e-5, atol=3e-7
    )
    assert len(model.train_function.timelines) == 1


def _own_step(k):
    """A model with a step of its own: it clips gradients by their common norm, and branches on a value."""
    tf = tensorflow()

    class Clipping(k.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = k.layers.Dense(16, "relu"), k.layers.Dense(CLASSES, "softmax")

        def call(self, x):
            x = self.first(x)
            if tf.reduce_sum(x) > 50:
                x = x * 0.5
            return self.last(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compiled_loss(y, predicted)
            gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.5)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.compiled_metrics.update_state(y, predicted)
            return {**{metric.name: metric.result() for metric in self.metrics}, **self.more(norm)}

        def more(self, norm):
            return {}

    class Telling(Clipping):
        """Returns a result that depends on gradients: its update cannot be apart from the pass before it."""

        def more(self, norm):
            return {"norm": norm}

    return Clipping, Telling


@pytest.mark.parametrize("number", [0, 1])
def test_a_step_of_the_models_own_runs(number):
    x, y = _vectors()

    def make(k):
        model = _own_step(k)[number]()
        model.compile(k.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    found = []
    for placed in (Placed(), None):
        model = build(make, placed)
        found.append((model.fit(x, y, BATCH, verbose=0, shuffle=False), model.get_weights()))
    (ours, weights), (expected, expected_weights) = found
    _histories_are_equal(ours, expected)
    _weights_are_equal(weights, expected_weights)


def test_gradients_are_not_accumulated_where_results_depend_on_them():
    from ipusim.base.errors import UnsupportedProgramError  # noqa: PLC0415

    def make(k):
        model = _own_step(k)[1]()
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
        return model

    with pytest.raises(UnsupportedProgramError, match=r"Telling\.train_step: expected one apply_gradients"):
        build(make, Placed(accumulation=4)).fit(*_vectors(), BATCH, verbose=0)


def test_callbacks_are_tf_keras_own():
    x, y = _vectors()

    def trained(placed):
        model = build(_mlp, placed)
        k, seen = keras(), []
        callbacks = [
            k.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
            k.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
            k.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append((epoch, sorted(logs)))),
        ]
        history = model.fit(x, y, BATCH, epochs=12, verbose=0, shuffle=False, validation_split=0.2, callbacks=callbacks)
        return history, seen, model.get_weights()

    ours, expected = trained(Placed()), trained(None)
    assert 1 < len(ours[1]) < 12
    assert ours[1] == expected[1]
    _histories_are_equal(ours[0], expected[0])
    _weights_are_equal(ours[2], expected[2])


def test_single_batches_are_executed():
    x, y = _vectors()
    models = [build(_mlp, placed) for placed in (Placed(), None)]
    for size in (BATCH, 3):
        found = [
            (*model.train_on_batch(x[:size], y[:size]), *model.test_on_batch(x[:size], y[:size])) for model in models
        ]
        np.testing.assert_allclose(*found, rtol=1e-5)
        predicted = [model.predict_on_batch(x[:size]) for model in models]
        np.testing.assert_allclose(*predicted, rtol=1e-5, atol=3e-7)


@pytest.mark.parametrize("stages", [None, [0, 0, 1]])
def test_tensorflow_executes_no_node_of_a_model(stages, monkeypatch):
    """While a program of a model runs, TensorFlow executes nothing: it may read variables before, and assign behind."""
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    load()
    from tensorflow.python.eager import execute  # noqa: PLC0415

    ran, run = [], DeviceProgram.run

    def refuse(*arguments, **keywords):
        raise AssertionError(f"TensorFlow executed {arguments[0]}")

    def running(program, *arguments):
        with monkeypatch.context() as patched:
            for name in ("TFE_Py_Execute", "TFE_Py_FastPathExecute"):
                patched.setattr(execute.pywrap_tfe, name, refuse)
            ran.append(program.name)
            return run(program, *arguments)

    monkeypatch.setattr(DeviceProgram, "run", running)
    x, y = _vectors()
    model = build(lambda k: _mlp(k, steps_per_execution=4), Placed(stages, accumulation=4))
    model.fit(x, y, BATCH, verbose=0)
    model.evaluate(x, y, BATCH, verbose=0)
    model.predict(x, BATCH, verbose=0)
    assert {name.rpartition("_")[2] for name in ran} == {"train", "test", "predict"}
    assert len(ran) == 3 * STEPS // 4


@pytest.mark.parametrize(
    ("name", "options", "rule", "slots"),
    [
        ("SGD", {}, learning.SGD(0.25), 1),
        ("SGD", {"momentum": 0.5, "nesterov": True}, learning.Momentum(0.25, 0.5, nesterov=True), 1),
        ("Adam", {"beta_1": 0.5, "epsilon": 1e-3}, learning.Adam(0.25, 0.5, epsilon=1e-3), 2),
        ("RMSprop", {"rho": 0.5, "epsilon": 1e-3}, learning.RMSProp(0.25, 0.5, epsilon=1e-3), 1),
        ("Adagrad", {"epsilon": 1e-3}, learning.Adagrad(0.25, epsilon=1e-3), 1),
        ("Adadelta", {"rho": 0.5, "epsilon": 1e-3}, learning.Adadelta(0.25, 0.5, epsilon=1e-3), 2),
    ],
)
def test_an_optimizer_has_its_numbers_and_its_slots_in_each_stage(name, options, rule, slots):
    def make(k):
        model = k.Sequential([k.layers.Dense(16, "tanh", input_shape=(12,)), k.layers.Dense(CLASSES, "softmax")])
        model.compile(getattr(k.optimizers, name)(0.25, **options), "sparse_categorical_crossentropy")
        return model

    model = build(make, Placed([0, 1], schedule="sequential"))
    with recording(Recorder()) as recorder:
        model.train_on_batch(*(each[:BATCH] for each in _vectors()))
    functions = recorder.programs[0].job.request.functions
    assert functions.step.rule == rule
    stages = recorder.programs[0].job.program.stages
    assert [stage.state_bytes for stage in stages] == [slots * stage.parameter_bytes for stage in stages]
