"""Estimators: what they train, evaluate and predict, which hooks look on when, and what is refused in which words."""

import itertools
import json
import logging
import re

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.estimators.predictions import chosen_of
from ipusim.ipu.runtime.recording import Recorder, recording
from tests.effort import sampled
from tests.programs import configured, hosted_names

RNG = np.random.default_rng(5)
X = RNG.normal(size=(24, 4, 6)).astype(np.float32)
Y = RNG.integers(0, 3, size=(24, 4)).astype(np.int32)
#: TensorFlow 1, Graphcore's package and Keras' layers, while a test runs.
tf = ipu = layers = None


@pytest.fixture(autouse=True)
def _names():
    global tf, ipu, layers
    with hosted_names(1) as names:
        tf, ipu, layers = names.tf, names.ipu, names.keras.layers
        tf.logging.set_verbosity(tf.logging.INFO)
        yield


def data():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat()


def features():
    return tf.data.Dataset.from_tensor_slices(X).repeat()


def hidden(x, rate=0.0):
    with tf.variable_scope("a"):
        h = layers.Dense(5, activation=tf.nn.relu)(x)
    return tf.nn.dropout(h, rate=rate) if rate else h


def logits_of(h):
    with tf.variable_scope("b"):
        return layers.Dense(3)(h)


def loss_of(labels, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer_of(params):
    kind = {"adam": tf.train.AdamOptimizer, "rms": tf.train.RMSPropOptimizer}.get(params.get("optimizer"))
    found = kind(0.01) if kind else tf.train.MomentumOptimizer(0.05, 0.9)
    return ipu.optimizers.CrossReplicaOptimizer(found) if params.get("replicas") else found


def spec_of(*arguments, **options):
    return ipu.ipu_estimator.IPUEstimatorSpec(*arguments, **options)


def model_fn(features, labels, mode, params):
    logits = logits_of(hidden(features, params.get("rate", 0) if mode == "train" else 0))
    predicted = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": predicted, "logits": logits})
    loss = loss_of(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        if params.get("on_host"):
            metrics = (lambda labels, classes: {"accuracy": tf.metrics.accuracy(labels, classes)}, [labels, predicted])
            return spec_of(mode, loss=loss, eval_metrics=metrics)
        metrics = {"accuracy": tf.metrics.accuracy(labels, predicted), "last": (loss, loss)}
        return spec_of(mode, loss=loss, eval_metric_ops=metrics)
    return spec_of(mode, loss=loss, train_op=optimizer_of(params).minimize(loss))


def pipeline_fn(mode, params):
    def first(x, labels=None):
        h = hidden(x, params.get("rate", 0) if mode == "train" else 0)
        return h if labels is None else (h, labels)

    def last(h, labels=None):
        logits = logits_of(h)
        if mode == tf.estimator.ModeKeys.TRAIN:
            return loss_of(labels, logits)
        if mode == tf.estimator.ModeKeys.EVAL:
            return loss_of(labels, logits), tf.argmax(logits, axis=1), labels
        return {"classes": tf.argmax(logits, axis=1), "logits": logits}

    def learn(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer_of(params), loss)

    def metrics(loss, classes, labels):
        return {"accuracy": tf.metrics.accuracy(labels, classes), "loss": tf.reduce_mean(loss)}

    return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
        mode, [first, last], 4, optimizer_function=learn, eval_metrics_fn=metrics, **params.get("options", {})
    )


LOOP, PIPELINE = "a loop", "a pipeline"
KINDS = pytest.mark.parametrize("kind", [LOOP, PIPELINE])


def estimator(
    folder, kind=LOOP, *, iterations=4, replicas=1, function=None, warm=None, config=None, run=None, **params
):
    shards = 2 if kind == PIPELINE else 1
    device = configured(auto_select_ipus=shards * replicas, device_connection__enable_remote_buffers=True)
    options = {"num_replicas": replicas, "num_shards": shards} | (run or {})
    run = ipu.ipu_run_config.IPURunConfig(iterations, device, **options)
    chosen = {"save_checkpoints_steps": iterations, "keep_checkpoint_max": None, "model_dir": str(folder)}
    chosen = ipu.ipu_run_config.RunConfig(run, **chosen | (config or {}))
    made = ipu.ipu_pipeline_estimator.IPUPipelineEstimator if kind == PIPELINE else ipu.ipu_estimator.IPUEstimator
    function = function or (pipeline_fn if kind == PIPELINE else model_fn)
    params |= {"replicas": True} if replicas > 1 else {}
    return made(function, config=chosen, params=params, warm_start_from=warm)


def saved(folder, step):
    prefix = str(folder / f"model.ckpt-{step}")
    return {name: tf.train.load_variable(prefix, name) for name, _ in tf.train.list_variables(prefix)}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.asarray(one[name]).tobytes() == np.asarray(other[name]).tobytes(), name


def alone(accumulated, initial):
    """Losses and variables of eight updates by TensorFlow alone, from initial values by name."""
    with tf.Graph().as_default():
        x, labels = tf.data.make_one_shot_iterator(data()).get_next()
        loss, optimizer = loss_of(labels, logits_of(hidden(x))), optimizer_of({})
        pairs = optimizer.compute_gradients(loss)
        fed = [tf.placeholder(variable.dtype, variable.shape) for _, variable in pairs]
        train = optimizer.apply_gradients([(each, variable) for each, (_, variable) in zip(fed, pairs, strict=True)])
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for variable in tf.trainable_variables():
                variable.load(initial[variable.op.name], session)
            for _ in range(8):
                sums = None
                for _ in range(accumulated):
                    found, gradients = session.run([loss, [gradient for gradient, _ in pairs]])
                    losses.append(found)
                    sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
                session.run(train, dict(zip(fed, sums, strict=True)))
            return losses, {variable.op.name: session.run(variable) for variable in tf.trainable_variables()}


@KINDS
def test_losses_and_variables_are_those_of_tensorflow_alone(kind, tmp_path, caplog):
    accumulated = 4 if kind == PIPELINE else 1
    found = estimator(tmp_path, kind, iterations=accumulated, config={"log_step_count_steps": 1})
    with caplog.at_level(logging.INFO, "tensorflow"):
        found.train(data, steps=8 * accumulated)
    logged = [float(each) for each in re.findall(r"loss = ([\d.e-]+), step", caplog.text)]
    losses, variables = alone(accumulated, saved(tmp_path, 0))
    np.testing.assert_allclose(logged, np.reshape(losses, (8, -1)).mean(axis=1), rtol=1e-5, atol=3e-7)
    for name, value in variables.items():
        np.testing.assert_allclose(found.get_variable_value(name), value, rtol=1e-4, atol=1e-6)


OFFLOADED = {"offload_weight_update_variables": True}
#: Estimators that resume: their kind, replicas and parameters.
RESUMED = {
    "a loop": (LOOP, 1, {"optimizer": "adam"}),
    "a loop in replicas": (LOOP, 2, {}),
    "a pipeline": (PIPELINE, 1, {"optimizer": "adam"}),
    "a pipeline in replicas": (PIPELINE, 2, {}),
    "a pipeline with offloaded state": (PIPELINE, 1, {"optimizer": "rms", "options": OFFLOADED}),
}


@sampled(2)
@pytest.mark.parametrize("case", RESUMED)
def test_training_goes_on_from_a_checkpoint_to_the_same_bits(case, tmp_path):
    """Variables and slots of the optimizer; a data set begins anew, as in TensorFlow."""
    kind, replicas, params = RESUMED[case]

    def same():
        return tf.data.Dataset.from_tensors((X[0], Y[0])).repeat()

    tf_keras = pytest.importorskip("tf_keras")

    def made(folder):
        tf_keras.utils.set_random_seed(1)
        return estimator(tmp_path / folder, kind, replicas=replicas, **params)

    made("whole").train(same, steps=12)
    made("parts").train(same, steps=4)
    assert_same(saved(tmp_path / "parts", 4), saved(tmp_path / "whole", 4))
    made("parts").train(same, max_steps=12)
    assert_same(saved(tmp_path / "parts", 12), saved(tmp_path / "whole", 12))


def test_training_that_is_interrupted_goes_on_from_its_last_checkpoint(tmp_path):
    class Interrupt(tf.estimator.SessionRunHook):
        def before_run(self, run_context):
            if run_context.session.run(self.step) == 12:
                raise KeyboardInterrupt

        def begin(self):
            self.step = tf.train.get_global_step()

    found = estimator(tmp_path, config={"save_checkpoints_steps": 8})
    with pytest.raises(KeyboardInterrupt):
        found.train(data, hooks=[Interrupt()], steps=16)
    assert found.latest_checkpoint() == str(tmp_path / "model.ckpt-8")
    found.train(data, max_steps=16)
    found.train(data, max_steps=16)
    assert found.get_variable_value("global_step") == 16


def sharded_fn(features, labels, mode, params):
    """The model on two IPUs, with gradients accumulated over mini-batches, from a dictionary of arrays."""
    with ipu.scopes.ipu_shard(0):
        h = hidden(features["x"])
    with ipu.scopes.ipu_shard(1):
        loss = loss_of(features["y"], logits_of(h))
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(tf.train.AdamOptimizer(0.01), 2)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def test_a_sharded_loop_accumulates_gradients(tmp_path):
    run = ipu.ipu_run_config.IPURunConfig(4, configured(auto_select_ipus=2), num_shards=2)
    config = ipu.ipu_run_config.RunConfig(run, model_dir=str(tmp_path))
    found = ipu.ipu_estimator.IPUEstimator(sharded_fn, config=config, params={})
    found.train(lambda: tf.data.Dataset.from_tensor_slices({"x": X, "y": Y}).repeat(), steps=8)
    assert found.get_variable_value("beta1_power") == pytest.approx(0.9**5)  # four updates, and its first value


def untrained_fn(features, labels, mode, params):
    """A model with state that is not trained: moving statistics, and a count."""
    count = tf.get_variable("seen", [], tf.int32, tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([tf.assign_add(count, 1)]):
        h = tf.layers.batch_normalization(hidden(features), training=mode == "train")
    loss = loss_of(labels, logits_of(h))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer_of(params).minimize(loss))


def test_state_that_is_not_trained_is_saved_and_restored(tmp_path):
    found = estimator(tmp_path, function=untrained_fn)
    found.train(data, steps=4).train(data, steps=4)
    assert found.get_variable_value("seen") == 8
    assert found.get_variable_value("batch_normalization/moving_mean").any()


def forward(held, x, labels):
    """The unsplit model in plain NumPy."""
    h = np.maximum(x @ held["a/dense/kernel"] + held["a/dense/bias"], 0)
    logits = h @ held["b/dense_1/kernel"] + held["b/dense_1/bias"]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logits, -np.take_along_axis(log, labels[..., None], axis=-1).mean()


@sampled(2)
@KINDS
@pytest.mark.parametrize("replicas", [1, 2])
def test_evaluation_and_predictions_are_those_of_the_unsplit_model(kind, replicas, tmp_path):
    found = estimator(tmp_path, kind, replicas=replicas)
    found.train(data, steps=4)
    seen = 8 * replicas
    logits, loss = forward(saved(tmp_path, 4), X[:seen], Y[:seen])
    classes = logits.argmax(axis=-1)
    metrics = found.evaluate(data, steps=8)
    assert metrics["global_step"] == 4
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], np.mean(classes == Y[:seen]), rtol=1e-6)
    assert [path.name[:6] for path in (tmp_path / "eval").iterdir()] == ["events"]
    predicted = list(found.predict(features, num_predictions=4 * seen))
    np.testing.assert_array_equal([each["classes"] for each in predicted], classes.ravel())
    np.testing.assert_allclose([each["logits"] for each in predicted], logits.reshape(-1, 3), rtol=2e-5, atol=1e-6)
    batches = found.predict(features, predict_keys=["classes"], yield_single_examples=False, num_predictions=2)
    assert [each.keys() for each in batches] == [{"classes"}, {"classes"}]


@pytest.mark.parametrize(
    ("keys", "error", "told"),
    [
        *((keys, TypeError, "^predict_keys: expected a list of names, got ") for keys in ("classes", [5])),
        (["none"], ProgramError, "^Expected to run at least one output from "),
    ],
)
def test_predict_keys_are_names_of_predictions(keys, error, told):
    with pytest.raises(error, match=told):
        chosen_of({"classes": 1, "logits": 2}, keys)


def test_metrics_on_the_host_are_those_on_the_ipu(tmp_path):
    here, there = (estimator(tmp_path, on_host=each) for each in (False, True))
    here.train(data, steps=4)
    one, other = here.evaluate(data, steps=8), there.evaluate(data, steps=8, name="host")
    assert one["accuracy"] == pytest.approx(other["accuracy"])
    assert one["loss"] == pytest.approx(other["loss"])
    _, last = forward(saved(tmp_path, 4), X[7], Y[7])
    np.testing.assert_allclose(one["last"], last, rtol=1e-5)


def test_what_is_untrained_is_evaluated_with_initial_variables(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "tensorflow"):
        assert estimator(tmp_path).evaluate(data, steps=4)["global_step"] == 0
    assert f"Could not find trained model in model_dir: {tmp_path}, running initialization to evaluate." in caplog.text


def test_predictions_end_with_the_dataset(tmp_path):
    found = estimator(tmp_path).predict(lambda: tf.data.Dataset.from_tensor_slices(X[:4]))
    assert len(list(found)) == 16


def decaying_fn(mode):
    """A pipeline whose step size follows the global step, which comes to it as an input."""

    def first(step, x, labels):
        return step, hidden(x), labels

    def last(step, h, labels):
        return step, loss_of(labels, logits_of(h))

    def learn(step, loss):
        rate = 0.1 / (1 + tf.cast(step, tf.float32))
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(rate), loss)

    inputs = [tf.train.get_global_step()]
    return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
        mode, [first, last], 4, optimizer_function=learn, inputs=inputs
    )


def test_a_step_size_follows_the_global_step(tmp_path):
    estimator(tmp_path, PIPELINE, function=decaying_fn).train(data, steps=12)
    steps = [saved(tmp_path, step)["a/dense/kernel"] for step in (0, 4, 8)]
    first, second = (np.abs(new - old).max() for old, new in itertools.pairwise(steps))
    assert 0 < second < first / 2


def test_hooks_are_called_in_tensorflows_order(tmp_path):
    calls = []

    class Hook(tf.estimator.SessionRunHook):
        def __init__(self, name):
            self._name = name

        def begin(self):
            self._step = tf.train.get_global_step()
            calls.append(f"{self._name} begin")

        def after_create_session(self, session, coord):
            calls.append(f"{self._name} created {session.run(self._step)}")

        def before_run(self, run_context):
            calls.append(f"{self._name} before")

        def after_run(self, run_context, run_values):
            calls.append(f"{self._name} after {run_context.session.run(self._step)}")

        def end(self, session):
            calls.append(f"{self._name} end")

    class Listener(tf.estimator.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            calls.append(f"before save {global_step_value}")

        def after_save(self, session, global_step_value):
            calls.append(f"after save {global_step_value}")

        def end(self, session, global_step_value):
            calls.append(f"saved all {global_step_value}")

    def model(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(training_hooks=(Hook("model's"),))

    found = estimator(tmp_path, function=model)
    found.train(data, hooks=[Hook("one"), Hook("two")], steps=8, saving_listeners=[Listener()])
    names = ("one", "two", "model's")
    assert calls == [
        *(f"{name} begin" for name in names),
        *("before save 0", "after save 0"),
        *(f"{name} created 0" for name in names),
        *(f"{name} before" for name in names),
        *("before save 4", "after save 4"),
        *(f"{name} after 4" for name in names),
        *(f"{name} before" for name in names),
        *("before save 8", "after save 8"),
        *(f"{name} after 8" for name in names),
        "saved all 8",
        *(f"{name} end" for name in names),
    ]


@KINDS
def test_calls_take_hooks_and_a_checkpoint_and_an_evaluation_its_own_folder(kind, tmp_path):
    class Counted(tf.estimator.SessionRunHook):
        began = 0

        def begin(self):
            self.began += 1

    of_calls, of_model = Counted(), Counted()
    hooks = dict.fromkeys(("training_hooks", "evaluation_hooks", "prediction_hooks"), (of_model,))

    def model(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(**hooks)

    def pipeline(mode, params):
        return pipeline_fn(mode, params)._replace(**hooks)

    found = estimator(tmp_path, kind, function=pipeline if kind == PIPELINE else model)
    found.train(data, steps=4, hooks=[of_calls])
    early = found.latest_checkpoint()
    found.train(data, steps=4)
    late = found.latest_checkpoint()
    assert {"global_step", "a/dense/kernel"} <= {*found.get_variable_names()}
    assert (of_calls.began, of_model.began) == (1, 2)
    for step, path in ((4, early), (8, late)):
        metrics = found.evaluate(data, steps=4, checkpoint_path=path, name="mine", hooks=[of_calls])
        assert metrics["global_step"] == step
    assert (of_calls.began, of_model.began) == (3, 4)
    predicted = [next(found.predict(features, checkpoint_path=path, hooks=[of_calls])) for path in (early, late)]
    assert (of_calls.began, of_model.began) == (5, 6)
    one, other, last = (each["logits"].tolist() for each in (*predicted, next(found.predict(features))))
    assert one != other == last
    assert [str(path) for path in tmp_path.glob("eval*")] == [found.eval_dir("mine")]
    assert callable(found.model_fn)


def test_an_estimators_queue_prefetches_as_deep_as_it_is_asked_to(tmp_path):
    with recording(Recorder()) as recorder:
        estimator(tmp_path, run={"prefetch_depth": 5}).train(data, steps=4)
    assert [each.job.program.infeed.prefetch_depth for each in recorder.programs] == [5]


def test_the_losses_of_an_estimator_are_summed_up_in_the_type_that_is_asked_for(tmp_path, monkeypatch):
    from ipusim.ipu import ipu_pipeline_estimator  # noqa: PLC0415 - which imports TensorFlow

    dtypes, pipeline = [], ipu_pipeline_estimator.pipelining_ops.pipeline

    def run(accumulate_outfeed_dtype, **arguments):
        dtypes.append(accumulate_outfeed_dtype)
        return pipeline(accumulate_outfeed_dtype=accumulate_outfeed_dtype, **arguments)

    monkeypatch.setattr(ipu_pipeline_estimator.pipelining_ops, "pipeline", run)
    estimator(tmp_path, PIPELINE, options={"loss_accumulator_dtype": np.float64}).train(data, steps=4)
    assert dtypes == [np.float64]


def test_stages_of_an_estimator_are_where_they_are_mapped(tmp_path):
    found = estimator(tmp_path, PIPELINE, options={"device_mapping": [0, 0]})
    with pytest.raises(ValueError, match="requires 1 devices"):
        found.train(data, steps=4)


def test_a_hook_stops_training_and_one_that_fails_ends_nothing(tmp_path):
    ended = []

    class Stop(tf.estimator.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

        def end(self, session):
            ended.append(True)

    class Fail(tf.estimator.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise OSError("no more")

    found = estimator(tmp_path)
    found.train(data, hooks=[Stop()], steps=16)
    assert found.latest_checkpoint() == str(tmp_path / "model.ckpt-4")
    with pytest.raises(OSError, match="no more"):
        found.train(data, hooks=[Stop(), Fail()], steps=16)
    assert ended == [True]


def test_values_from_inside_the_loop_are_logged(tmp_path, caplog):
    lines = []

    def model(features, labels, mode, params):
        found, hook = model_fn(features, labels, mode, params), ipu.ipu_session_run_hooks.IPULoggingTensorHook
        every = hook(every_n_iter=2, logging_mode=hook.LoggingMode.ALL)
        last = hook(at_end=True, formatter=lambda values: lines.append(values) or "formatted")
        operations = [every.log({"size": tf.reduce_sum(features)}), last.log([found.loss])]
        return found._replace(train_op=tf.group(found.train_op, *operations), training_hooks=(every, last))

    with caplog.at_level(logging.INFO, "tensorflow"):
        estimator(tmp_path, function=model, iterations=2).train(data, steps=6)
    logged = [each.message for each in caplog.records if each.message.startswith("size = ")]
    sums = X[:6].sum(axis=(1, 2))
    assert [np.fromstring(line[8 : line.index("]")], sep=" ").size for line in logged] == [2, 4]
    np.testing.assert_allclose(np.fromstring(logged[0][8:-1], sep=" "), sums[:2], rtol=1e-5)
    assert [[(name[-2:], value.shape) for name, value in each.items()] for each in lines] == [[(":0", ())]]
    assert "formatted" in caplog.text
    (events,) = tmp_path.glob("*tfevents*")
    tags = [value.tag for event in tf.train.summary_iterator(str(events)) for value in event.summary.value]
    assert "loss" in tags


def test_a_host_call_gets_the_tensors_of_each_run(tmp_path):
    """The host applies gradients: the variables are TensorFlow's."""

    def model(features, labels, mode, params):
        loss = loss_of(labels, logits_of(hidden(features)))
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)

        def apply(*gradients):
            return optimizer.apply_gradients(zip(gradients, variables, strict=True))

        return spec_of(mode, loss=loss, train_op=tf.identity(loss), host_call=(apply, list(gradients)))

    found = estimator(tmp_path, iterations=1, function=model)
    found.train(data, steps=3)
    kernels = [saved(tmp_path, step)["a/dense/kernel"] for step in range(4)]
    assert all((old != new).any() for old, new in itertools.pairwise(kernels))
    with pytest.raises(ProgramError, match="host_call is not allowed for iterations_per_loop > 1"):
        estimator(tmp_path / "two", function=model).train(data, steps=4)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path):
    def model(features, labels, mode, params):
        return model_fn(features * np.float32("nan"), labels, mode, params)

    with pytest.raises(tf.estimator.NanLossDuringTrainingError, match="NaN loss during training"):
        estimator(tmp_path, function=model).train(data, steps=4)


def test_warm_starts(tmp_path):
    estimator(tmp_path / "one").train(data, steps=4)
    before = saved(tmp_path / "one", 4)
    settings = tf.estimator.WarmStartSettings(str(tmp_path / "one" / "model.ckpt-4"), vars_to_warm_start="a/")
    for folder, given in (("all", str(tmp_path / "one")), ("some", settings)):
        estimator(tmp_path / folder, warm=given).train(data, steps=4)
        at_first = saved(tmp_path / folder, 0)
        assert at_first["global_step"] == 0
        np.testing.assert_array_equal(at_first["a/dense/kernel"], before["a/dense/kernel"])
        assert (at_first["b/dense_1/kernel"] == before["b/dense_1/kernel"]).all() == (folder == "all")


def test_batch_sizes_are_those_of_all_replicas(tmp_path):
    sizes = []

    def input_fn(params):
        sizes.append(params["batch_size"])
        return data()

    config = estimator(tmp_path, replicas=2).config
    made = ipu.ipu_estimator.IPUEstimator
    made(model_fn, config=config, params={"replicas": True}, train_batch_size=8).train(input_fn, steps=4)
    predicted = made(model_fn, config=config, params={}, predict_batch_size=6).predict(
        lambda params: sizes.append(params["batch_size"]) or features(), yield_single_examples=False
    )
    next(predicted)
    assert sizes == [4, 3]
    with pytest.raises(ProgramError, match=r"train_batch_size \(got 3\) must be divisible by num_workers \* num_repl"):
        made(model_fn, config=config, train_batch_size=3)


def test_replicas_that_train_by_themselves_are_refused(tmp_path):
    found = estimator(tmp_path, replicas=2)
    found._params.clear()
    with pytest.raises(ProgramError, match="This is not a valid replicated training graph because no IpuCrossRepl"):
        found.train(data, steps=4)


def test_training_and_evaluation_in_turns(tmp_path):
    steps = []

    class Evaluated(tf.estimator.SessionRunHook):
        def begin(self):
            self.step = tf.train.get_global_step()

        def end(self, session):
            steps.append(int(session.run(self.step)))

    spec = tf.estimator.EvalSpec(data, 4, hooks=[Evaluated()], throttle_secs=0)
    found = estimator(tmp_path, PIPELINE)
    metrics, exports = tf.estimator.train_and_evaluate(found, tf.estimator.TrainSpec(data, 12), spec)
    assert (steps, exports) == ([4, 8, 12], [])
    assert metrics["global_step"] == 12
    assert tf.estimator.train_and_evaluate(found, tf.estimator.TrainSpec(data, 12), spec) == (None, [])


def test_summaries_of_the_host_are_written(tmp_path):
    def model(mode):
        tf.summary.scalar("step", tf.train.get_global_step())
        return pipeline_fn(mode, {})

    estimator(tmp_path, PIPELINE, function=model, config={"save_summary_steps": 1}).train(data, steps=8)
    (events,) = tmp_path.glob("events*")
    tags = {value.tag for event in tf.train.summary_iterator(str(events)) for value in event.summary.value}
    assert tags >= {"step"}


def test_an_estimator_of_the_host_trains(tmp_path):
    def model(features, labels, mode):
        loss = loss_of(labels, logits_of(hidden(features["x"])))
        train = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"m": tf.metrics.mean(loss)})

    def read():
        return tf.data.Dataset.from_tensor_slices(({"x": X[0]}, Y[0])).batch(4).repeat()

    found = tf.estimator.Estimator(model, str(tmp_path))
    before = found.evaluate(read, steps=1)
    after = found.train(read, steps=20).evaluate(read, steps=1)
    assert after["m"] == after["loss"] < before["loss"]
    assert after["global_step"] == 20


def test_a_checkpoint_of_an_earlier_ipusim_is_refused_by_name(tmp_path):
    np.savez(tmp_path / "model.ckpt-4.npz", w=np.ones(2))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    with pytest.raises(ProgramError, match=r"model\.ckpt-4: expected one of TensorFlow's Saver, got NumPy arrays"):
        estimator(tmp_path).train(data, steps=4)
    tf.Variable(1.0)
    saver, session = tf.train.Saver(), tf.Session()
    with pytest.raises(ProgramError, match=r"NumPy arrays of an earlier ipusim in model\.ckpt"):
        saver.restore(session, str(tmp_path / "model.ckpt-4"))


CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
OF_CLUSTER = ("master", "task_type", "task_id", "num_ps_replicas", "num_worker_replicas", "is_chief")
#: The environment, those attributes of a configuration, and its cluster.
CLUSTERS = {
    "nothing": ({}, ("", "worker", 0, 0, 1, True, {})),
    "a worker": (
        {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}},
        ("host4:2222", "worker", 1, 2, 4, False, CLUSTER),
    ),
    "the chief": (
        {"cluster": CLUSTER, "task": {"type": "chief", "index": 0}},
        ("host0:2222", "chief", 0, 2, 4, True, CLUSTER),
    ),
    "an evaluator": (
        {"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}},
        ("", "evaluator", 0, 0, 0, False, {}),
    ),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_a_configuration_reads_the_cluster_of_the_environment(case, monkeypatch):
    """The examples of TensorFlow's documentation of RunConfig."""
    given, expected = CLUSTERS[case]
    monkeypatch.setenv("TF_CONFIG", json.dumps(given))
    found = ipu.ipu_run_config.RunConfig()
    assert tuple(getattr(found, name) for name in OF_CLUSTER) == expected[:-1]
    assert (found.cluster_spec.as_dict(), found.evaluation_master) == (expected[-1], "")
    if found.num_worker_replicas > 1:
        with pytest.raises(UnsupportedProgramError, match="TF_CONFIG: expected one worker of a RunConfig with"):
            ipu.ipu_estimator.IPUEstimator(model_fn, "unused", ipu.ipu_run_config.RunConfig())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bogus", r'expected {"cluster": {"worker": \["host:port", ...\]}, "task": ...} in JSON, got .bogus'),
        ("[]", r"expected {.* in JSON, got '\[\]'"),
        ('{"cluster": 1}', "expected a dictionary for 'cluster', got 1"),
        (
            '{"cluster": {"chief": ["a"], "worker": 5}, "task": {"type": "chief", "index": 0}}',
            "expected a list of addresses for each type of task of the cluster, got {'chief': ",
        ),
        (
            '{"cluster": {"chief": ["a"]}, "task": {"type": ["chief"], "index": 0}}',
            r"expected a text for the type of the task, got \['chief'\]",
        ),
        ('{"task": {"index": true}}', "expected a whole number from 0 for the index of the task, got True"),
        ('{"task": {"index": -1}}', "expected a whole number from 0 for the index of the task, got -1"),
        ('{"task": {"type": "ps"}}', "If cluster is not set in TF_CONFIG, task_type must be worker or chief, got 'ps'"),
        ('{"cluster": {"worker": ["a"]}}', "If `cluster` is set in TF_CONFIG, task type and index must be set"),
        (
            '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}',
            "it must have one `chief` node",
        ),
        (
            '{"cluster": {"chief": ["a"]}, "task": {"type": "worker", "index": 0}}',
            "expected a type of task in the cluster, chief, got 'worker'",
        ),
        (
            '{"cluster": {"chief": ["a"], "worker": ["b", "c"]}, "task": {"type": "worker", "index": 2}}',
            "expected an index of the task below 2, the cluster's number of tasks of type 'worker', got 2",
        ),
    ],
)
def test_a_cluster_that_does_not_go_together_is_refused(text, told, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ProgramError, match=f"TF_CONFIG: .*{told}"):
        ipu.ipu_run_config.RunConfig()
