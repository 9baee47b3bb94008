"""Estimators: what they train, evaluate and predict, which hooks look on when, and what is refused in which words."""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipusim.ipu.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipusim.ipu.ipu_run_config import IPURunConfig, RunConfig
from ipusim.ipu.ipu_session_run_hooks import IPULoggingTensorHook
from ipusim.ipu.tensorflow.keras import layers
from tests.effort import runs_slowest, sampled

RNG = np.random.default_rng(5)
X = RNG.normal(size=(24, 4, 6)).astype(np.float32)
Y = RNG.integers(0, 3, size=(24, 4)).astype(np.int32)


def data():
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(24).repeat()


def in_order():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat()


def hidden(x, rate):
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


def model_fn(features, labels, mode, params):
    logits = logits_of(hidden(features, params.get("rate", 0) if mode == "train" else 0))
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"classes": tf.argmax(logits, axis=1), "logits": logits}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = loss_of(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        predicted = tf.argmax(logits, axis=1)
        if params.get("on_host"):
            metrics = (lambda labels, classes: {"accuracy": tf.metrics.accuracy(labels, classes)}, [labels, predicted])
            return IPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
        return IPUEstimatorSpec(
            mode, loss=loss, eval_metric_ops={"accuracy": tf.metrics.accuracy(labels, predicted), "last": (loss, loss)}
        )
    return IPUEstimatorSpec(mode, loss=loss, train_op=optimizer_of(params).minimize(loss))


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

    return IPUPipelineEstimatorSpec(
        mode,
        [first, last],
        gradient_accumulation_count=params.get("count", 4),
        optimizer_function=learn,
        eval_metrics_fn=metrics,
        **params.get("options", {}),
    )


def configuration(ipus):
    found = ipu.config.IPUConfig()
    found.auto_select_ipus = ipus
    found.device_connection.type = ipu.utils.DeviceConnectionType.ON_DEMAND
    found.device_connection.enable_remote_buffers = True
    return found


def estimator(folder, kind=IPUEstimator, *, iterations=None, replicas=1, function=None, config=None, **params):
    shards = 2 if kind is IPUPipelineEstimator else 1
    iterations = iterations or (4 if shards > 1 else 2)
    run = IPURunConfig(iterations, configuration(shards * replicas), num_replicas=replicas, num_shards=shards)
    chosen = {"save_checkpoints_steps": iterations, "keep_checkpoint_max": None} | (config or {})
    chosen = RunConfig(run, model_dir=str(folder), **chosen)
    function = function or (pipeline_fn if kind is IPUPipelineEstimator else model_fn)
    return kind(function, config=chosen, params=params | ({"replicas": True} if replicas > 1 else {}))


def saved(folder, step):
    with np.load(Path(folder) / f"model.ckpt-{step}.npz") as held:
        return {name: held[name] for name in held.files}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


class Look(tf.estimator.SessionRunHook):
    """Keeps the program that an estimator has compiled."""

    def end(self, session):
        (self.program,) = compiled()


def assert_same_run(one, other):
    for name in ("start", "end", "kind", "ipu", "stage", "micro_batch"):
        np.testing.assert_array_equal(getattr(one.timeline, name), getattr(other.timeline, name))
    assert_same(one.variables, other.variables)


OFFLOADED = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": True}
#: Estimators that resume: their kind, replicas and parameters.
RESUMED = {
    "a loop": (IPUEstimator, 1, {"rate": 0.3, "optimizer": "adam"}),
    "a loop in replicas": (IPUEstimator, 2, {"rate": 0.3}),
    "a pipeline": (IPUPipelineEstimator, 1, {"rate": 0.3, "optimizer": "adam"}),
    "a pipeline in replicas with sharded state": (
        IPUPipelineEstimator,
        2,
        {"rate": 0.3, "options": OFFLOADED},
    ),
    "a pipeline with offloaded state": (
        IPUPipelineEstimator,
        1,
        {"optimizer": "rms", "options": {"offload_weight_update_variables": True}},
    ),
}


@sampled(2)
@pytest.mark.parametrize("case", RESUMED)
def test_training_goes_on_from_every_checkpoint_to_the_same_bits(case, tmp_path):
    """Variables, optimizer, draws of dropout, place in a shuffled dataset that is gone through more than once."""
    kind, replicas, params = RESUMED[case]
    whole = estimator(tmp_path / "whole", kind, replicas=replicas, **params)
    each = whole.config.ipu_run_config.iterations_per_loop
    runs = 4 if runs_slowest() else 3
    whole.train(data, steps=runs * each)
    for step in range(each, runs * each, each):
        again = tmp_path / f"from {step}"
        estimator(again, kind, replicas=replicas, **params).train(data, steps=step)
        assert_same(saved(again, step), saved(tmp_path / "whole", step))
        estimator(again, kind, replicas=replicas, **params).train(data, max_steps=runs * each)
        assert_same(saved(again, runs * each), saved(tmp_path / "whole", runs * each))


def test_training_that_is_interrupted_goes_on_from_its_last_checkpoint(tmp_path):
    class Interrupt(tf.estimator.SessionRunHook):
        def before_run(self, run_context):
            if run_context.session.run(tf.train.get_global_step()) == 6:
                raise KeyboardInterrupt

    estimator(tmp_path / "whole", rate=0.3).train(data, steps=10)
    again = estimator(tmp_path / "parts", rate=0.3, config={"save_checkpoints_steps": 4})
    with pytest.raises(KeyboardInterrupt):
        again.train(data, hooks=[Interrupt()], steps=10)
    assert again.latest_checkpoint() == str(tmp_path / "parts" / "model.ckpt-4")
    again.train(data, max_steps=10)
    assert_same(saved(tmp_path / "parts", 10), saved(tmp_path / "whole", 10))


def test_training_on_deletes_nothing_outside_of_the_model_folder(tmp_path):
    folder = tmp_path / "model_dir"
    config = {"keep_checkpoint_max": 1}
    estimator(folder, config=config).train(data, steps=2)
    (tmp_path / "victim.npz").write_bytes(b"somebody's")
    with (folder / "checkpoint").open("a") as listed:
        listed.write(f'all_model_checkpoint_paths: "{tmp_path}/victim"\nall_model_checkpoint_paths: "../victim"\n')
    estimator(folder, config=config).train(data, steps=4)
    assert (tmp_path / "victim.npz").read_bytes() == b"somebody's"
    assert [path.name for path in folder.glob("*.npz")] == ["model.ckpt-6.npz"]


def test_training_goes_on_to_the_same_bits_in_another_process(tmp_path):
    """It begins in one of its own, with another hash seed than here, where it goes on."""
    code = (
        "import sys; from tests.integration.test_estimators import *\n"
        "estimator(sys.argv[1], IPUPipelineEstimator, rate=0.3, optimizer='adam').train(data, steps=4)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "parts")], check=True)
    for folder, steps in (("parts", 8), ("whole", 12)):
        estimator(tmp_path / folder, IPUPipelineEstimator, rate=0.3, optimizer="adam").train(data, steps=steps)
    assert_same(saved(tmp_path / "parts", 12), saved(tmp_path / "whole", 12))
    one, other = (tmp_path / folder / "model.ckpt-12.npz" for folder in ("parts", "whole"))
    assert one.read_bytes() == other.read_bytes()


def sharded_fn(features, labels, mode, params):
    """The model on two IPUs, with gradients accumulated over mini-batches, from a dictionary of arrays."""
    with ipu.scopes.ipu_shard(0):
        h = hidden(features["x"], 0.3)
    with ipu.scopes.ipu_shard(1):
        loss = loss_of(features["y"], logits_of(h))
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(tf.train.AdamOptimizer(0.01), 2)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def test_a_sharded_loop_that_accumulates_goes_on_to_the_same_bits(tmp_path):
    def named():
        return tf.data.Dataset.from_tensor_slices({"x": X, "y": Y}).shuffle(24).repeat()

    def trained(folder, *steps):
        run = IPURunConfig(4, configuration(2), num_shards=2)
        for each in steps:
            config = RunConfig(run, model_dir=str(tmp_path / folder), save_checkpoints_steps=4)
            IPUEstimator(sharded_fn, config=config, params={}).train(named, steps=each)
        return saved(tmp_path / folder, 12)

    assert_same(trained("parts", 4, 8), trained("whole", 12))


def untrained_fn(features, labels, mode, params):
    """A model with state that is not trained: moving statistics, which each replica has for itself, and a count."""
    count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([tf.assign_add(count, 1)]):
        h = layers.BatchNormalization()(hidden(features, 0), training=mode == "train")
    loss = loss_of(labels, logits_of(h))
    if mode == "eval":
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"count": (count, count)})
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer_of(params).minimize(loss))


@pytest.mark.parametrize("replicas", [1, 2])
def test_state_that_is_not_trained_goes_on_in_each_replica(replicas, tmp_path):
    whole = estimator(tmp_path / "whole", replicas=replicas, function=untrained_fn)
    whole.train(data, steps=6)
    again = estimator(tmp_path / "parts", replicas=replicas, function=untrained_fn)
    again.train(data, steps=2).train(data, steps=4)
    found = saved(tmp_path / "whole", 6)
    assert_same(saved(tmp_path / "parts", 6), found)
    assert found["count"] == 6
    own = [name for name in found if name.startswith("ipusim/replica 1/") and "moving_mean" in name]
    assert len(own) == replicas - 1


def test_a_dataset_that_ends_begins_anew_in_the_next_training(tmp_path):
    def finite():
        return tf.data.Dataset.from_tensor_slices((X[:4], Y[:4]))

    found = estimator(tmp_path, iterations=4)
    found.train(finite, steps=4).train(finite, steps=4)
    whole = estimator(tmp_path / "whole", iterations=4)
    whole.train(lambda: finite().repeat(), steps=8)
    assert_same(saved(tmp_path, 8), saved(tmp_path / "whole", 8))


def forward(held, x, labels):
    """The unsplit model in plain NumPy."""
    h = np.maximum(x @ held["a/dense/kernel"] + held["a/dense/bias"], 0)
    logits = h @ held["b/dense_1/kernel"] + held["b/dense_1/bias"]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logits, -np.take_along_axis(log, labels[..., None], axis=-1).mean()


@pytest.mark.parametrize("kind", [IPUEstimator, IPUPipelineEstimator])
@pytest.mark.parametrize("replicas", [1, 2])
def test_evaluation_and_predictions_are_those_of_the_unsplit_model(kind, replicas, tmp_path):
    found = estimator(tmp_path, kind, replicas=replicas)
    found.train(data, steps=4)
    seen = 8 * replicas
    logits, loss = forward(saved(tmp_path, 4), X[:seen], Y[:seen])
    classes = logits.argmax(axis=-1)
    metrics = found.evaluate(in_order, steps=8)
    assert metrics["global_step"] == 4
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], np.mean(classes == Y[:seen]), rtol=1e-6)
    written = json.loads((tmp_path / "eval" / "metrics.json").read_text())
    assert written["global_step"] == 4
    assert found.eval_dir("test") == str(tmp_path / "eval_test")

    def features():
        return tf.data.Dataset.from_tensor_slices(X).repeat()

    predicted = list(found.predict(features, num_predictions=4 * seen))
    np.testing.assert_array_equal([each["classes"] for each in predicted], classes.ravel())
    np.testing.assert_allclose([each["logits"] for each in predicted], logits.reshape(-1, 3), rtol=2e-5, atol=1e-6)
    batches = found.predict(features, predict_keys=["classes"], yield_single_examples=False, num_predictions=2)
    assert [each.keys() for each in batches] == [{"classes"}, {"classes"}]


@pytest.mark.parametrize("keys", [5, "classes", [5]])
def test_names_of_predictions_are_a_list(keys, tmp_path, refused):
    found = estimator(tmp_path).predict(lambda: tf.data.Dataset.from_tensor_slices(X[:2]), predict_keys=keys)
    refused(TypeError, f"predict_keys: expected a list of names, got {keys!r}", lambda: next(found))


def test_metrics_on_the_host_are_those_on_the_ipu(tmp_path):
    here, there = (estimator(tmp_path, on_host=each) for each in (False, True))
    here.train(data, steps=2)
    one, other = here.evaluate(in_order, steps=4), there.evaluate(in_order, steps=4, name="host")
    assert one["accuracy"] == other["accuracy"]
    assert one["loss"] == other["loss"]
    _, last = forward(saved(tmp_path, 2), X[3], Y[3])
    np.testing.assert_allclose(one["last"], last, rtol=1e-5)


def test_what_is_untrained_is_evaluated_with_initial_variables(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "tensorflow"):
        assert estimator(tmp_path).evaluate(in_order, steps=2)["global_step"] == 0
    assert f"Could not find trained model in model_dir: {tmp_path}, running initialization to evaluate." in caplog.text


def test_predictions_end_with_the_dataset_in_an_error(tmp_path):
    found = estimator(tmp_path).predict(lambda: tf.data.Dataset.from_tensor_slices(X[:2]))
    assert len([next(found) for _ in range(8)]) == 8
    with pytest.raises(ValueError, match="the infeed's dataset ended after 2 elements"):
        next(found)


def test_an_estimator_runs_the_program_of_the_loop_and_of_the_pipeline(tmp_path):
    """The same Timeline and losses as the program that is written with a session."""
    look = Look()
    estimator(tmp_path, IPUPipelineEstimator, iterations=8).train(in_order, hooks=[look], steps=8)
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    spec = pipeline_fn("train", {})
    own = ipu.pipelining_ops.pipeline(
        spec.computational_stages,
        4,
        repeat_count=2,
        infeed_queue=ipu.ipu_infeed_queue.IPUInfeedQueue(in_order()),
        outfeed_queue=queue,
        optimizer_function=spec.optimizer_function,
        outfeed_loss=True,
        accumulate_outfeed=True,
        config=configuration(2),
    )
    assert_same_run(look.program, own)


def test_an_estimator_runs_the_loop_that_sends_its_losses(tmp_path):
    """The same Timeline as the loop that is written with a session."""
    look, queue = Look(), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    estimator(tmp_path, iterations=4).train(in_order, hooks=[look], steps=4)

    def body(x, labels):
        found = model_fn(x, labels, "train", {})
        with tf.control_dependencies([found.train_op]):
            return queue.enqueue(found.loss)

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(in_order())
    operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, body, [], infeed))
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(operation)
    own = compiled()[-1]
    assert_same_run(look.program, own)


def decaying_fn(mode):
    """A pipeline whose step size follows the global step, which comes to it as an input."""

    def first(step, x, labels):
        return step, hidden(x, 0), labels

    def last(step, h, labels):
        return step, loss_of(labels, logits_of(h))

    def learn(step, loss):
        rate = 0.1 / (1 + tf.cast(step, tf.float32))
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(rate), loss)

    inputs = [tf.train.get_global_step()]
    return IPUPipelineEstimatorSpec(mode, [first, last], 4, optimizer_function=learn, inputs=inputs)


def test_a_step_size_follows_the_global_step(tmp_path):
    whole = estimator(tmp_path / "whole", IPUPipelineEstimator, function=decaying_fn)
    whole.train(in_order, steps=12)
    parts = estimator(tmp_path / "parts", IPUPipelineEstimator, function=decaying_fn)
    parts.train(in_order, steps=4).train(in_order, steps=8)
    assert_same(saved(tmp_path / "parts", 12), saved(tmp_path / "whole", 12))
    steps = [saved(tmp_path / "whole", step)["a/dense/kernel"] for step in (0, 4, 8)]
    first, second = (np.abs(new - old).max() for old, new in itertools.pairwise(steps))
    assert 0 < second < first / 2


def test_hooks_are_called_in_tensorflows_order(tmp_path):
    calls = []

    class Hook(tf.estimator.SessionRunHook):
        def __init__(self, name):
            self._name = name

        def begin(self):
            calls.append(f"{self._name} begin")

        def after_create_session(self, session, coord):
            calls.append(f"{self._name} created {session.run(tf.train.get_global_step())}")

        def before_run(self, run_context):
            calls.append(f"{self._name} before")
            return tf.estimator.SessionRunArgs({"step": tf.train.get_global_step()})

        def after_run(self, run_context, run_values):
            step = run_context.session.run(tf.train.get_global_step())
            calls.append(f"{self._name} after {run_values.results['step']} {step}")

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
        found = model_fn(features, labels, mode, params)
        return found._replace(training_hooks=(Hook("model's"),))

    found = estimator(tmp_path, function=model)
    found.train(data, hooks=[Hook("one"), Hook("two")], steps=4, saving_listeners=[Listener()])
    names = ("one", "two", "model's")
    assert calls == [
        *(f"{name} begin" for name in names),
        *("before save 0", "after save 0"),
        *(f"{name} created 0" for name in names),
        *(f"{name} before" for name in names),
        *("before save 2", "after save 2"),
        *(f"{name} after 0 2" for name in names),
        *(f"{name} before" for name in names),
        *("before save 4", "after save 4"),
        *(f"{name} after 2 4" for name in names),
        "saved all 4",
        *(f"{name} end" for name in names),
    ]


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
    found.train(data, hooks=[Stop()], steps=8)
    assert found.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    with pytest.raises(OSError, match="no more"):
        found.train(data, hooks=[Stop(), Fail()], steps=8)
    assert ended == [True]


def test_values_from_inside_the_loop_are_logged(tmp_path, caplog):
    lines = []

    def model(features, labels, mode, params):
        found = model_fn(features, labels, mode, params)
        every = IPULoggingTensorHook(every_n_iter=2, logging_mode=IPULoggingTensorHook.LoggingMode.ALL)
        last = IPULoggingTensorHook(at_end=True, formatter=lambda values: lines.append(values) or "formatted")
        operations = [every.log({"size": tf.reduce_sum(features)}), last.log([found.loss])]
        return found._replace(train_op=tf.group(found.train_op, *operations), training_hooks=(every, last))

    with caplog.at_level(logging.INFO, "tensorflow"):
        estimator(tmp_path, function=model).train(in_order, steps=6)
    logged = [each.message for each in caplog.records if each.message.startswith("size = ")]
    sums = X[:6].sum(axis=(1, 2))
    assert [np.fromstring(line[8 : line.index("]")], sep=" ").size for line in logged] == [2, 4]
    np.testing.assert_allclose(np.fromstring(logged[0][8:-1], sep=" "), sums[:2], rtol=1e-5)
    assert len(lines) == 1
    assert lines[0]["tensor_0"].shape == ()
    assert "formatted" in caplog.text


def test_a_hook_logs_in_a_loop_of_ones_own():
    hook = IPULoggingTensorHook(every_n_iter=1)

    def body(x):
        return hook.log({"x": x})

    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X[:2]))
    operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [], queue))
    hook.begin()
    with tf.Session() as session:
        session.run(queue.initializer)
        session.run(operation)
        np.testing.assert_array_equal(hook._values(session)["x"], X[1])


def test_a_host_call_gets_the_tensors_of_each_run(tmp_path):
    seen = []

    def model(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(host_call=(seen.append, [tf.reduce_sum(features)]))

    estimator(tmp_path, iterations=1, function=model).train(in_order, steps=3)
    np.testing.assert_allclose(seen, X[:3].sum(axis=(1, 2)), rtol=1e-5)
    with pytest.raises(ProgramError, match="host_call is not allowed for iterations_per_loop > 1"):
        estimator(tmp_path / "two", function=model).train(in_order, steps=2)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path):
    def model(features, labels, mode, params):
        return model_fn(features * np.float32("nan"), labels, mode, params)

    with pytest.raises(tf.estimator.NanLossDuringTrainingError, match="NaN loss during training"):
        estimator(tmp_path, function=model).train(data, steps=2)


def test_warm_starts(tmp_path):
    estimator(tmp_path / "one").train(data, steps=2)
    before = saved(tmp_path / "one", 2)
    settings = tf.estimator.WarmStartSettings(str(tmp_path / "one" / "model.ckpt-2"), vars_to_warm_start="a/")
    for folder, given in (("all", str(tmp_path / "one")), ("some", settings)):
        warm = IPUEstimator(model_fn, tmp_path / folder, estimator(tmp_path / folder).config, {}, given)
        warm.train(data, steps=2)
        at_first = saved(tmp_path / folder, 0)
        assert at_first["global_step"] == 0
        assert not at_first["optimizer/a/dense/kernel"].any()
        np.testing.assert_array_equal(at_first["a/dense/kernel"], before["a/dense/kernel"])
        assert (at_first["b/dense_1/kernel"] == before["b/dense_1/kernel"]).all() == (folder == "all")


def test_variables_of_the_latest_checkpoint(tmp_path):
    found = estimator(tmp_path)
    with pytest.raises(ProgramError, match=f"Couldn't find trained model at {tmp_path}."):
        found.get_variable_names()
    found.train(data, steps=2)
    assert found.get_variable_names()[:3] == ["a/dense/bias", "a/dense/kernel", "b/dense_1/bias"]
    np.testing.assert_array_equal(found.get_variable_value("a/dense/bias"), saved(tmp_path, 2)["a/dense/bias"])
    with pytest.raises(ProgramError, match="Key a/dense/bia not found in checkpoint; did you mean a/dense/bias"):
        found.get_variable_value("a/dense/bia")


def test_batch_sizes_are_those_of_all_replicas(tmp_path):
    sizes = []

    def input_fn(params):
        sizes.append(params["batch_size"])
        return in_order()

    config = estimator(tmp_path, replicas=2).config
    IPUEstimator(model_fn, config=config, params={"replicas": True}, train_batch_size=8).train(input_fn, steps=2)
    assert sizes == [4]
    with pytest.raises(ProgramError, match=r"train_batch_size \(got 3\) must be divisible by num_workers \* num_repl"):
        IPUEstimator(model_fn, config=config, train_batch_size=3)


def test_the_caller_s_programs_and_configuration_stay_as_they_are(tmp_path):
    before = compiled()
    estimator(tmp_path).train(data, steps=2)
    assert compiled() == before
    assert tf.train.get_global_step() is None


CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
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
    given, (master, kind, place, servers, workers, chief, cluster) = CLUSTERS[case]
    monkeypatch.setenv("TF_CONFIG", json.dumps(given))
    found = RunConfig()
    assert (found.master, found.evaluation_master) == (master, "")
    assert (found.task_type, found.task_id, found.is_chief) == (kind, place, chief)
    assert (found.num_ps_replicas, found.num_worker_replicas, found.cluster_spec) == (servers, workers, cluster)
    if workers > 1:
        with pytest.raises(UnsupportedProgramError, match="TF_CONFIG: expected one worker of a RunConfig with"):
            IPUEstimator(model_fn, "unused", RunConfig())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bogus", r'expected {"cluster": {"worker": \["host:port", ...\]}, "task": ...} in JSON, got .bogus'),
        ('{"cluster": 1}', "expected a dictionary for 'cluster', got 1"),
        (
            '{"cluster": {"chief": ["a"], "worker": 5}, "task": {"type": "chief", "index": 0}}',
            "expected a list of addresses for each type of task of the cluster, got {'chief': ",
        ),
        (
            '{"cluster": {"chief": ["a"]}, "task": {"type": ["chief"], "index": 0}}',
            r"expected a text as type of its task, got \['chief'\]",
        ),
        ('{"task": {"index": true}}', "expected a whole number from 0 as index of its task, got True"),
        ('{"task": {"index": -1}}', "expected a whole number from 0 as index of its task, got -1"),
        ('{"task": {"type": "ps"}}', "If cluster is not set in TF_CONFIG, task_type must be worker or chief, got 'ps'"),
        ('{"cluster": {"worker": ["a"]}}', "If `cluster` is set in TF_CONFIG, task type and index must be set"),
        (
            '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}',
            "it must have one `chief` node",
        ),
        (
            '{"cluster": {"chief": ["a"]}, "task": {"type": "worker", "index": 0}}',
            "expected chief as type of its task, as its cluster has them, got 'worker'",
        ),
        (
            '{"cluster": {"chief": ["a"], "worker": ["b", "c"]}, "task": {"type": "worker", "index": 2}}',
            "expected one of its cluster's 2 tasks of 'worker', counted from 0, as index of its task, got 2",
        ),
    ],
)
def test_a_cluster_that_does_not_go_together_is_refused(text, told, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ProgramError, match=f"TF_CONFIG: .*{told}"):
        RunConfig()


def test_estimators_are_imported_when_used():
    code = "import sys, ipusim.ipu, ipusim.ipu.tensorflow; print([m for m in sys.modules if 'estimator' in m])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
