"""Estimators on several simulated hosts: they learn what one host learns from whole batches."""

import json

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from tests.programs import needs_tensorflow, on_hosts

needs_tensorflow(at_import=True)

ESTIMATOR = """
import json, os, tempfile
HERE = {folder!r}
X = np.random.default_rng(0).normal(size=(8, 6, 5)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, (8, 6)).astype(np.int32)
TOLD = []
STRATEGIES = {{
    "workers": lambda: IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver()),
    "horovod": IPUHorovodStrategy, "links": PopDistStrategy,
}}

def input_fn(input_context=None):
    mine = slice(None)
    if input_context:
        TOLD.append((input_context.num_input_pipelines, input_context.input_pipeline_id))
        mine = slice(input_context.input_pipeline_id, None, input_context.num_input_pipelines)
    return tf.data.Dataset.from_tensor_slices((X[:, mine], Y[:, mine])).repeat()

def model_fn(features, labels, mode):
    scores = tf.layers.dense(tf.layers.dense(features, 4, tf.tanh), 3)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
    if mode == "eval":
        accuracy = tf.metrics.accuracy(labels, tf.argmax(scores, axis=1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={{"accuracy": accuracy}})
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

class Seen(tf.estimator.SessionRunHook):
    def __init__(self, last=10**9):
        self.losses, self.last = [], last

    def before_run(self, run_context):
        return tf.estimator.SessionRunArgs(run_context.original_args.fetches[1])

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))
        if len(self.losses) == self.last and hvd.rank() == hvd.size() - 1:
            run_context.request_stop()

def made(name, strategy, **options):
    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4)
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=run, model_dir=os.path.join(HERE, name), tf_random_seed=3, train_distribute=strategy, **options
    )
    return ipu.ipu_estimator.IPUEstimator(model_fn, config=config)

def program():
    found = {{}}
    for name in {names}:
        estimator, seen = made(name, STRATEGIES[name]()), Seen()
        estimator.train(input_fn, hooks=[seen], steps=8)
        kernel = [each for each in estimator.get_variable_names() if each.endswith("kernel")]
        found[name] = seen.losses, [estimator.get_variable_value(each) for each in sorted(kernel)]
    strategy = STRATEGIES["workers"]()
    estimator, seen = made("stopped", strategy, eval_distribute=strategy), Seen(3)
    estimator.train(input_fn, hooks=[seen], steps=40)
    config = estimator.config
    found["stopped"] = len(seen.losses), estimator.evaluate(input_fn, steps=8)
    found["told"] = TOLD
    found["who"] = config.task_type, config.task_id, config.is_chief, config.num_worker_replicas
    return found
"""
NAMES = ["workers", "horovod", "links"]


def ran(folder, count):
    return on_hosts(ESTIMATOR.format(folder=str(folder), names=json.dumps(NAMES)), count)


def test_hosts_learn_what_one_learns_from_whole_batches(tmp_path):
    """Every worker sees the mean loss of all, one stops all, and they evaluate together."""
    (alone,) = ran(tmp_path / "one", 1)
    hosts = ran(tmp_path / "two", 2)
    for rank, host in enumerate(hosts):
        for name in NAMES:
            (losses, kernels), (whole, expected) = host[name], alone[name]
            np.testing.assert_allclose(losses, whole, rtol=1e-5)
            assert len(losses) == 2
            for kernel, want in zip(kernels, expected, strict=True):
                np.testing.assert_allclose(kernel, want, rtol=1e-4, atol=1e-6)
        runs, metrics = host["stopped"]
        assert (runs, metrics["global_step"]) == (3, 12)
        for name, value in alone["stopped"][1].items():
            np.testing.assert_allclose(metrics[name], value, rtol=1e-4)
        assert set(host["told"]) == {(2, rank)}
        assert host["who"] == ("worker", rank, rank == 0, 2)
    assert hosts[0]["stopped"] == hosts[1]["stopped"]


MISUSE = """
def program():
    config = ipu.ipu_run_config.RunConfig(train_distribute=IPUHorovodStrategy(), eval_distribute=IPUHorovodStrategy())
    estimator = ipu.ipu_estimator.IPUEstimator(lambda features, labels: None, config=config)
    data = lambda params=None: tf.data.Dataset.from_tensors(1.0)
    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(data), tf.estimator.EvalSpec(data))
"""


def test_workers_evaluate_on_the_chief_alone():
    text = "eval_distribute: expected None in train_and_evaluate on several hosts, because the chief evaluates"
    with pytest.raises(ProgramError, match=f"host 0: {text}"):
        on_hosts(MISUSE, 2)
