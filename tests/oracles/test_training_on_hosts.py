"""Programs and estimators on several simulated hosts: what they learn is what one host learns from the whole batch."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.hardware import host_network
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.pricing import laws
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.session import Session
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from tests.effort import rarest, sampled
from tests.programs import needs_tensorflow, on_hosts
from tests.run_checks import check_explained

needs_tensorflow(at_import=True)

#: A pipeline that trains for three runs on each host's part of each batch, in several ways.
TRAINED = """
import json
WAYS = json.loads({ways!r})
IMAGES = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, (4, 6)).astype(np.int32)

def strategy_of(name):
    if name == "workers":
        return IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    return PopDistStrategy() if name == "links" else IPUHorovodStrategy()

def optimizer(rate, average):
    optimizer = tf.train.MomentumOptimizer(rate, 0.9)
    return ipu.optimizers.CrossReplicaOptimizer(optimizer) if average else optimizer

def trained(strategy, average=False, ipus=2, units=7, slower=0):
    share = IMAGES.shape[1] // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    made = strategy_of(strategy)
    tf.set_random_seed(1 + hvd.rank())  # the first host's variables count
    units += hvd.rank() * (strategy == "other")
    with made.scope():
        dataset = tf.data.Dataset.from_tensor_slices((IMAGES[:, mine], LABELS[:, mine])).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def first(rate, images, labels):
            hidden = tf.layers.dense(images, units, tf.tanh, name="first")
            for _ in range(slower * hvd.rank()):
                hidden = tf.sin(hidden)
            return rate, hidden, labels

        def second(rate, hidden, labels):
            scores = tf.layers.dense(hidden, 3, name="second")
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
            return rate, tf.nn.compute_average_loss(each)

        def model(rate):
            return ipu.pipelining_ops.pipeline(
                [first, second], gradient_accumulation_count=4, inputs=[rate], infeed_queue=infeed,
                outfeed_queue=outfeed, name="learns",
                optimizer_function=lambda rate, loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                    optimizer(rate, average), loss
                ),
            )

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        if strategy == "links":
            made.update_ipu_config(config)
        config.configure_ipu_system()
        rate = tf.placeholder(np.float32, [])
        train = made.experimental_run_v2(lambda rate: ipu.ipu_compiler.compile(model, inputs=[rate]), args=[rate])
        _, losses = outfeed.dequeue()
        mean = made.reduce(tf.distribute.ReduceOp.SUM, tf.reduce_mean(losses))
        found = []
        with tf.Session() as session:
            session.run(infeed.initializer)
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train, {{rate: 0.1}})
                found.append(session.run(mean))
            return found, session.run(tf.trainable_variables())

def program():
    found = []
    for way in WAYS:
        with tf.Graph().as_default():
            found.append(trained(**way))
    return found
"""


def trained(count, *ways):
    """Train in several ways, one after another; return the results of each host, and the first host's programs."""
    with recording(Recorder()) as recorded:
        found = on_hosts(TRAINED.format(ways=json.dumps(ways)), count)
    return found, recorded.programs


STRATEGIES = [{"strategy": name} for name in ("horovod", "workers", "links")]
REPLICATED = [{"strategy": name, "average": True, "ipus": 4} for name in ("horovod", "links")]


@cache
def trained_alone():
    """Return the losses and variables of one host under each strategy."""
    return trained(1, *STRATEGIES)[0][0]


@pytest.mark.parametrize("hosts", [pytest.param(2, marks=rarest), 3])
def test_hosts_learn_what_one_learns_from_the_whole_batch(hosts):
    found, _ = trained(hosts, *STRATEGIES)
    for host in found:
        for (own_losses, own), (losses, variables) in zip(host, trained_alone(), strict=True):
            np.testing.assert_allclose(own_losses, losses, rtol=1e-5)
            for array, expected in zip(own, variables, strict=True):
                np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-6)


def test_replicas_of_hosts_learn_alike():
    """Replicas of a host average their gradients, and take elements in turn; hosts sum theirs up."""
    (first, second), programs = trained(2, *REPLICATED)
    (alone,), _ = trained(1, *REPLICATED)
    assert [program.job.system.replicas for program in programs] == [2, 2]
    for (losses, variables), (same, others), (whole, expected) in zip(first, second, alone, strict=True):
        np.testing.assert_array_equal(losses, same)
        np.testing.assert_allclose(losses, whole, rtol=1e-5)
        for array, other, want in zip(variables, others, expected, strict=True):
            np.testing.assert_array_equal(other, array)
            np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-6)


def test_the_time_of_what_hosts_do_between_runs():
    """First the variables, by a binomial tree; between runs a loss of 4 bytes, by a ring."""
    found, (program,) = trained(3, STRATEGIES[0])
    timeline, system = program.run(program.job.request).timeline, program.job.system
    latency, rate = 13_300, 1.33 / 12.5  # cycles of 10 us, and of a byte at 100 Gbit/s
    size = sum(array.nbytes for array in found[0][0][1])
    first = 2 * (latency + ceil(size * rate))
    loss = 2 * 2 * (latency + ceil(2 * rate))
    assert (host_network.broadcast_cycles(system, size), host_network.sum_cycles(system, 4)) == (first, loss)
    calls = timeline.rows(SpanKind.HOST_CALL)
    assert [int(timeline.end[row] - timeline.start[row]) for row in calls] == [first, first, loss, loss, loss, loss]
    assert timeline.start[calls[0]] == 0
    network = [
        (int(timeline.bytes[row]), int(timeline.end[row] - timeline.start[row]))
        for row in timeline.rows(SpanKind.HOST)
        if timeline.link[row] == HostTrack.NETWORK
    ]
    assert [each for each in network if each[0] in (4, size) and each[1] in (first, loss)] == [
        (size, first),
        (4, loss),
        (4, loss),
    ]
    with pytest.raises(UnsupportedProgramError, match="its hosts exchange tensors or weights between its"):
        as_scenario(program.as_job())


@sampled(2)
@pytest.mark.parametrize("strategy", ["horovod", "links"])
def test_the_profile_of_a_host_that_waits_for_a_slower_one_has_its_waits(strategy):
    programs = [trained(2, {"strategy": strategy, "slower": slower})[1][0] for slower in (0, 20)]
    even, late = [program.run(program.job.request) for program in programs]
    assert late.job.late == (late.job.late[0],) * 3  # one for each of three runs
    assert late.timeline.makespan_cycles - even.timeline.makespan_cycles == 3 * late.job.late[0] > 0
    assert even.job.late == ()
    check_explained(late.timeline)
    with pytest.raises(UnsupportedProgramError, match="its host waits for slower ones, which a scenario cannot"):
        as_scenario(programs[1].as_job())


@pytest.mark.parametrize(
    ("law", "cycles"),
    [(laws.NETWORK_SUM, 6 * (20 + 8)), (laws.NETWORK_GATHER, 3 * (20 + 30)), (laws.NETWORK_BROADCAST, 2 * (20 + 30))],
)
def test_collectives_between_runs_take_their_closed_forms(law, cycles):
    """Of 30 bytes on four hosts at 1 GB/s and 1 GHz, with 20 ns from host to host."""
    changes = ("system.host.count=4", "system.host.network=1 GB/s", "system.clock=1 GHz", "numerics=off", "steps=2")
    job = load_job(Path("scenarios/tutorial_step3_pipelining.yaml"), changes)
    system = replace(job.system, host=replace(job.system.host, network_ns=Fraction(20)))
    job = replace(job.whole, system=system)  # which a shorter run would not know
    between = {job.program.repeat_count: (HostExchange(law, 30),) * 2}
    longer = Session(replace(job, between=between)).run(job.executions)
    check_explained(longer)  # it is explained to the cycle
    assert longer.makespan_cycles - Session(job).run(job.executions).makespan_cycles == 2 * cycles
    assert between[job.program.repeat_count][0].cycles(replace(job.system, hosts=1)) == 0


def test_over_links_the_sum_is_an_all_reduce_of_the_ipus_of_all_hosts():
    """It takes what as many replicas of one device take, and needs no host."""
    changes = ("system.name=pod64", "system.auto_select_ipus=2", "numerics=off")
    scenario = Path("scenarios/tutorial_step3_pipelining.yaml")
    hosts = load_job(scenario, (*changes, "system.host.count=4", "system.host.sum_over=links"))
    whole = load_job(scenario, (*changes[:1], "system.auto_select_ipus=8", "numerics=off"))
    by_hosts = hosts.costs.host_sum
    assert (by_hosts.write, by_hosts.network, by_hosts.read) == (0, 0, 0)
    summed, want = by_hosts.over_links, whole.costs.gradient_sum
    assert (summed.cost.total_cycles, summed.bytes, summed.algorithm) == (
        want.cost.total_cycles,
        want.bytes,
        want.algorithm,
    )
    timeline = Session(hosts).run(1)
    (row,) = timeline.rows(SpanKind.HOST_SUM)
    assert timeline.end[row] - timeline.start[row] == want.cost.total_cycles
    assert not [row for row in timeline.rows(SpanKind.HOST) if timeline.link[row] == HostTrack.NETWORK]
    with pytest.raises(Exception, match=r"system\.host\.count: expected at most 128 hosts of 2 IPUs .* because pod256"):
        load_job(scenario, (*changes, "system.host.count=129", "system.host.sum_over=links"))


def test_hosts_that_do_not_train_together():
    waits = "host 0 waits for all hosts in the first variables of the program 'learns', but host 1 has ended"
    with pytest.raises(ProgramError, match=f"{re.escape(waits)}$"):
        on_hosts(TRAINED.format(ways='[{"strategy": "horovod"}]') + "WAYS = WAYS[hvd.rank():]", 2)
    text = r"the first variables of the program 'learns': expected the same shape on"
    with pytest.raises(ProgramError, match=text):
        trained(2, {"strategy": "other"})


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
