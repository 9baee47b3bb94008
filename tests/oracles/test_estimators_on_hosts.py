"""Estimators on several simulated hosts: they learn what plain NumPy learns from the batches of all of them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from ipusim.hardware import host_network
from ipusim.ipu import horovod as hvd
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipusim.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.ipu_estimator import IPUEstimator
from ipusim.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipusim.ipu.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipusim.ipu.ipu_run_config import IPURunConfig, RunConfig
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled

RNG = np.random.default_rng(3)
X = RNG.normal(size=(8, 6, 5)).astype(np.float32)
Y = RNG.integers(0, 3, size=(8, 6)).astype(np.int32)
RATE, MOMENTUM = 0.1, 0.9
LOOP, PIPELINE = IPUEstimator, IPUPipelineEstimator


def workers():
    return IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


STRATEGIES = {"workers": workers, "horovod": IPUHorovodStrategy, "links": IPUMultiReplicaStrategy}


def samples_of_each(input_context=None):
    """The part of the samples of each mini-batch that a worker has."""
    mine = slice(None)
    if input_context:
        mine = slice(input_context.input_pipeline_id, None, input_context.num_input_pipelines)
    return tf.data.Dataset.from_tensor_slices((X[:, mine], Y[:, mine])).repeat()


def batches_of_each(input_context=None):
    """The part of the mini-batches that a worker has."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    if input_context:
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.repeat()


def drawn(input_context):
    return samples_of_each(input_context).shuffle(8)


def hidden(x, params):
    with tf.variable_scope("a"):
        h = tf.keras.layers.Dense(4, activation="tanh")(x)
    return tf.nn.dropout(h, rate=0.3) if params.get("drops") else h


def scores(h):
    with tf.variable_scope("b"):
        return tf.keras.layers.Dense(3)(h)


def loss_of(labels, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer(params):
    if params.get("adam"):
        return tf.train.AdamOptimizer(0.01)
    found = tf.train.MomentumOptimizer(params.get("rate", RATE), MOMENTUM)
    if params.get("accumulates"):
        found = ipu.optimizers.GradientAccumulationOptimizerV2(found, params["accumulates"])
    return ipu.optimizers.CrossReplicaOptimizer(found) if params.get("replicas") else found


def model_fn(features, labels, mode, params):
    logits = scores(hidden(features, params))
    loss = loss_of(labels, logits)
    if mode == "eval":
        metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1)), "last": (loss, loss)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer(params).minimize(loss))


def pipeline_fn(mode, params):
    def last(h, labels):
        loss = loss_of(labels, scores(h))
        return (loss, labels) if mode == "eval" else loss

    return IPUPipelineEstimatorSpec(
        mode,
        [lambda x, labels: (hidden(x, params), labels), last],
        params.get("count", 4),
        optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer(params), loss),
        eval_metrics_fn=lambda loss, labels: {"loss": tf.reduce_mean(loss)},
    )


class Seen(tf.estimator.SessionRunHook):
    """What a worker sees: the loss of each run, and in the end the program."""

    def __init__(self):
        self.losses = []

    def before_run(self, run_context):
        return tf.estimator.SessionRunArgs(run_context.original_args.fetches)

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))

    def end(self, session):
        (self.program,) = compiled()


def made(folder, kind=LOOP, strategy="workers", config=None, sizes=None, **params):
    """Return the estimator of one worker; None for no strategy."""
    ipus, options = (2 if kind is PIPELINE else 1), ipu.config.IPUConfig()
    replicas = params.get("replicas", 1)
    options.auto_select_ipus = ipus * replicas
    run = IPURunConfig(params.get("count", 4), options, num_replicas=replicas, num_shards=ipus)
    chosen = {"train_distribute": STRATEGIES[strategy]() if strategy else None, "save_checkpoints_steps": run[0]}
    chosen = RunConfig(run, model_dir=None if folder is None else str(folder), **chosen | (config or {}))
    return kind(pipeline_fn if kind is PIPELINE else model_fn, config=chosen, params=params, **(sizes or {}))


def trained(folder, kind, strategy="workers", input_fn=samples_of_each, steps=12, **params):
    """Train on this host; return the losses, and the program that ran."""
    hook = Seen()
    made(folder, kind, strategy, **params).train(input_fn, hooks=[hook], steps=steps)
    return hook.losses, hook.program


def saved(folder, step):
    with np.load(Path(folder) / f"model.ckpt-{step}.npz") as held:
        return {name: held[name] for name in held.files}


def of_numpy(held, x, labels):
    """Return the mean loss of a batch and its gradients, written out in float64."""
    names = "a/dense/kernel", "a/dense/bias", "b/dense_1/kernel", "b/dense_1/bias"
    first, first_bias, second, second_bias = (held[name] for name in names)
    h = np.tanh(x @ first + first_bias)
    logits = h @ second + second_bias
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    wanted = np.eye(3)[labels]
    of_logits = (chances - wanted) / len(x)
    of_hidden = of_logits @ second.T * (1 - h**2)
    gradients = x.T @ of_hidden, of_hidden.sum(0), h.T @ of_logits, of_logits.sum(0)
    return -np.log((chances * wanted).sum(1)).mean(), dict(zip(names, gradients, strict=True))


def learnt(start, runs, count):
    """Return the mean loss of each run of four mini-batches, and the variables, as plain NumPy learns them.

    Each update takes the sum of the gradients of ``count`` mini-batches of all samples, with momentum.
    """
    held = {name: array.astype(np.float64) for name, array in start.items() if name[1] == "/"}
    before = {name: np.zeros_like(array) for name, array in held.items()}
    losses = []
    for run in range(runs):
        losses.append([])
        for first in range(4 * run, 4 * run + 4, count):
            found = [of_numpy(held, X[place % 8], Y[place % 8]) for place in range(first, first + count)]
            losses[-1] += [loss for loss, _ in found]
            for name, array in before.items():
                array[...] = MOMENTUM * array + sum(gradients[name] for _, gradients in found)
                held[name] = held[name] - RATE * array
    return np.mean(losses, axis=1), held


@sampled(2)
@pytest.mark.parametrize(
    ("kind", "strategy", "hosts"),
    [(LOOP, "workers", 2), (LOOP, "horovod", 3), (LOOP, "links", 2), (PIPELINE, "workers", 3), (PIPELINE, "links", 2)],
)
def test_hosts_learn_what_numpy_learns_from_whole_batches(kind, strategy, hosts, tmp_path):
    """Every worker sees the mean loss of all, and adds its time to the Timeline of each run."""
    found = hvd.run(trained, (tmp_path, kind, strategy), np=hosts)
    losses, variables = learnt(saved(tmp_path, 0), 3, 4 if kind is PIPELINE else 1)
    for seen, program in found:
        np.testing.assert_allclose(seen, losses, rtol=1e-5)
        assert seen == found[0][0]
        for name, array in variables.items():
            np.testing.assert_allclose(program.variables[name], array, rtol=1e-4, atol=1e-6)
            np.testing.assert_array_equal(program.variables[name], saved(tmp_path, 12)[name])
        timeline = program.timeline
        updates, sums = 1 if kind is PIPELINE else 4, timeline.rows(SpanKind.HOST_SUM)
        assert sums.size == updates * (1 if strategy == "links" else 2)  # to the host and back, or over the links
        assert set(timeline.bytes[sums]) == {sum(array.size for array in variables.values()) * 4}
        calls = timeline.rows(SpanKind.HOST_CALL)  # the mean of the losses of the run before, of 4 bytes
        assert sorted(timeline.ipu[calls]) == list(range(2 if kind is PIPELINE else 1))
        assert set(timeline.end[calls]) == {host_network.sum_cycles(program.system, 4)}
        assert program.system.hosts == hosts


def samples_of_each_replica(input_context):
    """One sample of each mini-batch for each of two replicas of each worker."""
    mine = slice(2 * input_context.input_pipeline_id, 2 * input_context.input_pipeline_id + 2)
    return tf.data.Dataset.from_tensor_slices((X[:, mine].reshape(16, 1, 5), Y[:, mine].reshape(16, 1))).repeat()


@pytest.mark.parametrize("strategy", ["workers", "links"])
def test_replicas_of_all_hosts_average_what_they_have_accumulated(strategy, tmp_path):
    params = {"input_fn": samples_of_each_replica, "replicas": 2, "accumulates": 2}
    found = hvd.run(trained, (tmp_path, LOOP, strategy), params, np=3)
    losses, variables = learnt(saved(tmp_path, 0), 3, 2)
    for seen, program in found:
        np.testing.assert_allclose(seen, losses, rtol=1e-5)
        for name, array in variables.items():
            np.testing.assert_allclose(program.variables[name], array, rtol=1e-4, atol=1e-6)


def test_two_hosts_are_one_that_accumulates_twice_the_mini_batches(tmp_path):
    """Each has every other mini-batch, and the mean over hosts is half of the sum."""
    hvd.run(trained, (tmp_path / "two", PIPELINE), {"input_fn": batches_of_each, "steps": 8}, np=2)
    hvd.run(trained, (tmp_path / "one", PIPELINE), {"count": 8, "steps": 16, "rate": RATE / 2, "strategy": None})
    two, one = saved(tmp_path / "two", 8), saved(tmp_path / "one", 16)
    names = [name for name in two if name[1] == "/"]
    assert len(names) == 4
    for name in names:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [LOOP, PIPELINE])
def test_training_goes_on_from_the_chiefs_checkpoint_to_the_same_bits(kind, tmp_path, caplog):
    """Optimizer, draws of dropout and place in each worker's shuffled dataset; the chief alone saves and logs."""

    def train(folder, *steps):
        made(tmp_path / folder, kind, adam=True, drops=True).train(drawn, max_steps=steps[0])
        for each in steps[1:]:
            made(tmp_path / folder, kind, adam=True, drops=True).train(drawn, max_steps=each)

    with caplog.at_level(logging.INFO, "tensorflow"):
        hvd.run(train, ("whole", 20), np=2)
    assert caplog.text.count("Saving checkpoints for ") == 6
    assert caplog.text.count("loss = ") == caplog.text.count("Loss for final step: ") == 1
    hvd.run(train, ("parts", 4, 12), np=2)
    hvd.run(train, ("parts", 20), np=2)
    one, other = (tmp_path / folder / "model.ckpt-20.npz" for folder in ("whole", "parts"))
    assert one.read_bytes() == other.read_bytes()
    caplog.clear()
    with caplog.at_level(logging.INFO, "tensorflow"):
        hvd.run(train, ("parts", 20), np=2)
    assert "Skipping training since max_steps has already saved." in caplog.text


def test_all_workers_stop_when_one_asks_to(tmp_path):
    class Stop(tf.estimator.SessionRunHook):
        def after_run(self, run_context, run_values):
            if hvd.rank() == 1 and run_context.session.run(tf.train.get_global_step()) == 8:
                run_context.request_stop()

    def train():
        found = made(tmp_path).train(samples_of_each, hooks=[Stop()], steps=40)
        return found.get_variable_value("global_step")

    assert hvd.run(train, np=2) == [8, 8]


def test_what_an_input_function_is_told():
    told = []

    def input_fn(mode, params, input_context="none"):
        told.append((mode, params["batch_size"], str(input_context)))
        if input_context != "none":
            told.append((input_context.num_replicas_in_sync, input_context.get_per_replica_batch_size(12)))
        return batches_of_each()

    def run():
        found = made(None, sizes={"train_batch_size": 12, "eval_batch_size": 12})
        found.train(input_fn, steps=4).evaluate(input_fn, steps=4)
        return found.model_dir

    one, other = hvd.run(run, np=2)
    assert one == other  # the chief's temporary folder
    contexts = [f"tf.distribute.InputContext(input pipeline id {rank}, total: 2)" for rank in range(2)]
    assert told == [
        ("train", 6, contexts[0]),
        (2, 6),
        ("train", 6, contexts[1]),
        (2, 6),
        ("eval", 12, "none"),
        ("eval", 12, "none"),
    ]


@pytest.mark.parametrize("kind", [LOOP, PIPELINE])
def test_workers_evaluate_together_what_one_does_alone(kind, tmp_path):
    def run():
        both = tf.distribute.experimental.DistributeConfig(workers(), workers())
        found = made(tmp_path, kind, strategy=None, config={"experimental_distribute": both})
        found.train(samples_of_each, steps=4)
        together = found.evaluate(samples_of_each, steps=8)
        alone = made(tmp_path, kind, strategy=None).evaluate(samples_of_each, steps=8, name="alone")
        return together, alone

    for together, alone in hvd.run(run, np=3):
        assert together.keys() == alone.keys()
        assert together["global_step"] == 4
        assert together.get("accuracy") == alone.get("accuracy")
        for name in {"loss", "last"} & together.keys():
            np.testing.assert_allclose(together[name], alone[name], rtol=1e-6)
    held = saved(tmp_path, 4)
    losses = [of_numpy(held, x, labels)[0] for x, labels in zip(X, Y, strict=True)]
    np.testing.assert_allclose(together["loss"], np.mean(losses), rtol=1e-5)
    assert (tmp_path / "eval" / "metrics.json").exists()


@pytest.mark.parametrize("hosts", [1, 2])
def test_train_and_evaluate_trains_the_same_bits_and_evaluates_checkpoints(hosts, tmp_path):
    def run(throttle):
        found = made(tmp_path / "both")
        evaluated = []

        class Evaluated(tf.estimator.SessionRunHook):
            def end(self, session):
                evaluated.append(int(session.run(tf.train.get_global_step())))

        train = tf.estimator.TrainSpec(samples_of_each, max_steps=12 if throttle == 0 else 24, hooks=[Seen()])
        check = tf.estimator.EvalSpec(
            samples_of_each, 8, "both", [Evaluated()], start_delay_secs=0, throttle_secs=throttle
        )
        return tf.estimator.train_and_evaluate(found, train, check), evaluated

    (metrics, exports), steps = hvd.run(run, (0,), np=hosts)[0]
    assert (exports, steps, metrics["global_step"]) == ([], [4, 8, 12], 12)
    hvd.run(trained, (tmp_path / "alone", LOOP), np=hosts)
    one, other = (tmp_path / folder / "model.ckpt-12.npz" for folder in ("both", "alone"))
    assert one.read_bytes() == other.read_bytes()
    losses = [of_numpy(saved(tmp_path / "both", 12), x, labels)[0] for x, labels in zip(X, Y, strict=True)]
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)
    for rank, ((metrics, _), steps) in enumerate(hvd.run(run, (600,), np=hosts)):
        assert steps == ([] if rank else [16, 24])  # the first that has been trained, and the last
        assert (metrics is None) == (rank > 0)
    assert hvd.run(run, (0,), np=hosts)[0] == ((None, []), [])  # nothing was left to train


def test_who_a_worker_is(monkeypatch):
    def run(strategy):
        config = RunConfig(train_distribute=strategy())
        return config.task_type, config.task_id, config.is_chief, config.num_worker_replicas, config.cluster_spec

    hosts = {"worker": ["host0", "host1"]}
    assert hvd.run(run, (workers,), np=2) == [("worker", 0, True, 2, hosts), ("worker", 1, False, 2, hosts)]
    assert hvd.run(run, (IPUHorovodStrategy,), np=2) == [("worker", 0, True, 2, {}), ("worker", 1, False, 2, {})]
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}}')
    spec = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    assert hvd.run(run, (workers,), np=2) == [("chief", 0, True, 2, spec), ("worker", 0, False, 2, spec)]


def of_another_folder(folder):
    made(folder / str(hvd.rank())).train(samples_of_each, steps=4)


def of_an_evaluation_on_all(folder):
    found = made(folder, config={"eval_distribute": workers()})
    spec = tf.estimator.TrainSpec(samples_of_each, 4), tf.estimator.EvalSpec(samples_of_each, 4)
    tf.estimator.train_and_evaluate(found, *spec)


def on_the_host(folder):
    strategy = workers()
    strategy.variables_on_host = True
    made(folder, PIPELINE, strategy=None, config={"train_distribute": strategy})


WRONG = {
    "another folder": (
        of_another_folder,
        ProgramError,
        r"^model_dir: expected the same on all workers, got '.*/0' on the chief, '.*/1' here$",
    ),
    "an evaluation on all": (
        of_an_evaluation_on_all,
        UnsupportedProgramError,
        "^eval_distribute: expected None in train_and_evaluate on several hosts, as the chief evaluates there by its",
    ),
    "variables on the host": (
        on_the_host,
        UnsupportedProgramError,
        r"^Placing variables on the host is not currently supported by IPUPipelineEstimator: expected a strategy wit",
    ),
    "a batch of another size": (
        lambda folder: made(folder, sizes={"train_batch_size": 9}),
        ProgramError,
        r"^train_batch_size \(got 9\) must be divisible by num_workers \* num_replicas \(2 \* 1\)$",
    ),
    "a strategy that is none": (
        lambda folder: RunConfig(train_distribute=3),
        ProgramTypeError,
        "^train_distribute: expected a strategy of several hosts, such as IPUMultiWorkerStrategy, or None, got 3$",
    ),
    "a strategy given twice": (
        lambda folder: RunConfig(
            train_distribute=workers(),
            experimental_distribute=tf.distribute.experimental.DistributeConfig(train_distribute=workers()),
        ),
        ProgramError,
        "^Either `train_distribute` or `experimental_distribute.train_distribute` can be set.$",
    ),
    "a remote cluster": (
        lambda folder: tf.contrib.distribute.DistributeConfig(remote_cluster={"worker": ["a:1"]}),
        UnsupportedProgramError,
        "^remote_cluster: expected None, as workers are the simulated hosts of one process, got ",
    ),
    "a batch in parts": (
        lambda folder: tf.distribute.InputContext(2, 1, 2).get_per_replica_batch_size(7),
        ProgramError,
        "^The `global_batch_size` 7 is not divisible by `num_replicas_in_sync` 2 $",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_workers_are_refused(case, tmp_path):
    call, kind, text = WRONG[case]
    with pytest.raises(kind, match=text):
        hvd.run(call, (tmp_path,), np=2)


def test_an_estimator_that_was_made_before_the_hosts_is_refused(tmp_path):
    found = made(tmp_path)
    text = "train_distribute: expected an estimator that each host makes on itself, got one of 1 worker on one of 2 hos"
    with pytest.raises(ProgramStateError, match=f"^{text}"):
        hvd.run(found.train, (samples_of_each,), {"steps": 4}, np=2)
