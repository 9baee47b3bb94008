"""Models of tf_keras in a strategy's scope, with Graphcore's options and pipeline stages of them."""

from functools import cache

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.keras import PipelineStage
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule
from tests.keras_models import LateKeras, in_strategy
from tests.programs import needs_tensorflow

BATCH, COUNT, KERAS = 8, 4, LateKeras()


@pytest.fixture
def keras():
    needs_tensorflow()
    return KERAS


def _layers(k):
    return [k.layers.Dense(16, "relu"), k.layers.Dense(24, "tanh"), k.layers.Dense(10, "softmax")]


def _sequential(k):
    model = k.Sequential(_layers(k))
    model.set_pipeline_stage_assignment([0, 0, 1])
    return model


def _functional(k):
    first, second, last = _layers(k)
    inputs = k.Input((12,))
    with PipelineStage(0):
        x = second(first(inputs))
    with PipelineStage(1):
        return k.Model(inputs, last(x))


def _subclassed(k):
    class Subclassed(k.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = _layers(k)

        def call(self, x):
            with PipelineStage(0):
                x = self.second(self.first(x))
            with PipelineStage(1):
                return self.last(x)

    return Subclassed()


MODELS = {"sequential": _sequential, "functional": _functional, "subclassed": _subclassed}


def _data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH * COUNT * 4, 12)).astype(np.float32), rng.integers(0, 10, BATCH * COUNT * 4)


def _compiled(k, model, **options):
    model.compile(k.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    return model


@cache
def _alone(keras):
    """History and predictions of the same model by tf_keras alone, with a batch for each weight update."""
    x, y = _data()
    keras.utils.set_random_seed(1)
    model = _compiled(keras, keras.Sequential(_layers(keras)))
    history = model.fit(x, y, BATCH * COUNT, epochs=2, verbose=0, shuffle=False).history
    return history, model.predict(x, verbose=0)


#: Of a model, or one without stages: its options, and the replicas that share each batch of tf_keras alone.
WAYS = {
    **{name: (name, {}, 1) for name in MODELS},
    "results summed up": ("sequential", {"accumulate_outfeed": True}, 1),
    "replicas": ("sequential", {"gradient_accumulation_dtype": np.float64}, 2),
    "replicas without stages": (None, {"dtype": np.float64}, 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_on_ipus_trains_as_with_larger_batches(keras, way):
    """Metrics are of all replicas, and no larger dtype of accumulators changes them."""
    name, options, replicas = WAYS[way]
    x, y = _data()

    def trained():
        keras.utils.set_random_seed(1)
        model = MODELS[name](keras) if name else keras.Sequential(_layers(keras))
        configure = model.set_pipelining_options if name else model.set_gradient_accumulation_options
        configure(COUNT, gradient_accumulation_reduction_method="mean", **options)
        _compiled(keras, model, steps_per_execution=COUNT * (3 - replicas))
        history = model.fit(x, y, BATCH // replicas, epochs=2, verbose=0, shuffle=False).history
        stages = [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] if name else []
        evaluated = model.evaluate(x, y, BATCH, verbose=0)
        return history, model.predict(x, BATCH, verbose=0), evaluated, stages, model.train_function.timelines

    history, predicted, evaluated, stages, timelines = in_strategy(replicas * (2 if name else 1), trained)
    expected, expected_predicted = _alone(keras)
    for metric, values in expected.items():
        np.testing.assert_allclose(history[metric], values, rtol=1e-5)
    np.testing.assert_allclose(predicted, expected_predicted, rtol=1e-5, atol=3e-7)
    assert evaluated[1] == pytest.approx(np.mean(np.argmax(expected_predicted, axis=1) == y), rel=1e-5)
    assert stages == [0, 0, 1] * bool(name)
    assert set(timelines[0].ipu.tolist()) >= {0, *[1] * bool(name)}


def test_one_batch_is_for_all_stages_of_a_subclass(keras):
    """Its stages, which leave no room for a second replica, are known when the batch has come."""
    x, _ = _data()

    def predicted():
        model = _subclassed(keras)
        model.set_pipelining_options(COUNT, pipeline_schedule=PipelineSchedule.Sequential)
        _compiled(keras, model)
        return model.predict_on_batch(x), model(x)

    np.testing.assert_allclose(*in_strategy(2, predicted), rtol=1e-5)


def _half_assigned(k):
    first, second, last = _layers(k)
    inputs = k.Input((12,))
    with PipelineStage(0):
        x = first(inputs)
    return k.Model(inputs, last(second(x)))


def _own_step(k):
    class Own(k.Sequential):
        def train_step(self, data):
            return {}

    model = Own(_layers(k))
    model.set_pipeline_stage_assignment([0, 0, 1])
    model.set_pipelining_options(COUNT)
    return model


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (_sequential, ProgramError, "`gradient_accumulation_steps_per_replica` has not been set"),
        (_half_assigned, ProgramError, "must have an associated pipeline stage"),
        (_own_step, ProgramStateError, "The function `train_step` for the model own has been overridden"),
    ],
)
def test_what_graphcore_refuses_is_refused_in_its_words(keras, make, error, text):
    keras.backend.clear_session()
    with pytest.raises(error, match=text):
        in_strategy(2, lambda: _compiled(keras, make(keras)).fit(*_data(), BATCH, verbose=0))


def test_options_are_of_models_in_a_scope(keras):
    with pytest.raises(ProgramStateError, match="made in the scope of an IPUStrategy"):
        keras.Sequential().set_pipelining_options(2)


def test_a_step_takes_a_batch_for_each_replica(keras):
    x, y = _data()

    def fit(batch, **options):
        _compiled(keras, keras.Sequential(_layers(keras)), steps_per_execution=3).fit(x, y, batch, verbose=0, **options)

    for batch, options, text in (
        (128, {}, "contains 1 items, but all 2 replicas are requested to run 1 steps each. Make sure the dataset"),
        (8, {}, "must be a divisor of the number of batches in the dataset provided to this replica."),
        (8, {"steps_per_epoch": 9}, r"generate at least 18 batches \(currently it can only generate 16 batches\)"),
    ):
        with pytest.raises(ProgramError, match=text):
            in_strategy(2, lambda: fit(batch, **options))  # noqa: B023 - runs at once


@pytest.mark.parametrize("kind", ["train", "test", "predict"])
def test_asynchronous_callbacks_are_called_for_each_step(keras, kind):
    x, y = _data()
    seen = []

    class Steps(keras.callbacks.Callback):
        def begin(self, step, logs=None):
            seen.append(f"begin {step}")

        def end(self, step, logs=None):
            seen.append(f"end {step}" if "loss" in logs or logs["outputs"].shape == (BATCH, 10) else "other")

    for when in ("begin", "end"):
        setattr(Steps, f"on_{kind}_batch_{when}", getattr(Steps, when))

    def run():
        model = _compiled(keras, keras.Sequential(_layers(keras)), steps_per_execution=4)
        model.set_asynchronous_callbacks(True)
        method = {"train": model.fit, "test": model.evaluate, "predict": model.predict}[kind]
        method(x, *(() if kind == "predict" else (y,)), batch_size=BATCH, verbose=0, callbacks=[Steps()])

    in_strategy(1, run)
    assert seen == [f"{when} {step}" for step in range(16) for when in ("begin", "end")]


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_a_pipelined_model_of_the_first_releases_trains_as_a_model_with_stages(keras, kind):
    from ipusim.ipu.keras import models  # noqa: PLC0415 - which imports TensorFlow

    x, y = np.random.default_rng(0).random((2 * COUNT * BATCH, 12), np.float32), np.arange(2 * COUNT * BATCH) % 10

    def trained(early):
        keras.utils.set_random_seed(3)
        first, second, last = _layers(keras)
        if not early:
            model = MODELS[kind](keras)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=COUNT)
        elif kind == "sequential":
            model = models.SequentialPipelineModel([[first, second], [last]], gradient_accumulation_count=COUNT)
        else:
            inputs = keras.Input((12,))
            with PipelineStage(0):
                hidden = second(first(inputs))
            with PipelineStage(1):
                model = models.PipelineModel(inputs, last(hidden), pipeline_depth=COUNT, device_mapping=[0, 1])
        options = {} if early else {"steps_per_execution": COUNT}
        model.compile("sgd", "sparse_categorical_crossentropy", **options)
        return model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0).history["loss"]

    assert in_strategy(2, trained, True) == in_strategy(2, trained, False)
