"""Programs that train on several simulated hosts: what they learn is what one host learns from the whole batch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from ipusim import ipu
from ipusim.app.scenario import load_job
from ipusim.base.errors import ProgramError, ProgramStateError, UnsupportedProgramError
from ipusim.hardware import host_network
from ipusim.ipu import config, ipu_multi_worker_strategy, optimizers, pipelining_ops
from ipusim.ipu import horovod as hvd
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipusim.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.pricing import laws
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.session import Session
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled, slowest
from tests.explained import check_explained

IMAGES = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, (4, 6)).astype(np.int32)


def multi_worker():
    return ipu_multi_worker_strategy.IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


STRATEGIES = {"horovod": IPUHorovodStrategy, "workers": multi_worker, "links": IPUMultiReplicaStrategy}


def averaging(rate, momentum):
    return optimizers.CrossReplicaOptimizer(tf.train.MomentumOptimizer(rate, momentum))


def trained(strategy, optimizer=tf.train.MomentumOptimizer, ipus=2, units=7, slower=0):
    """Train a pipeline for three runs on this host's part of each batch; return losses, variables and the program.

    Each host has so many operations more than the one before it as it is ``slower``.
    """
    share = IMAGES.shape[1] // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    made = STRATEGIES[strategy]()
    tf.set_random_seed(hvd.rank())  # the first host's variables count
    with made.scope():
        dataset = tf.data.Dataset.from_tensor_slices((IMAGES[:, mine], LABELS[:, mine])).repeat()
        infeed, outfeed = IPUInfeedQueue(dataset), IPUOutfeedQueue()

        def first(rate, images, labels):
            hidden = tf.keras.layers.Dense(units, activation="tanh")(images)
            for _ in range(slower * hvd.rank()):
                hidden = hidden * 1.0
            return rate, hidden, labels

        def second(rate, hidden, labels):
            scores = tf.keras.layers.Dense(3)(hidden)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
            return rate, tf.nn.compute_average_loss(each)

        def learn(rate, loss):
            return pipelining_ops.OptimizerFunctionOutput(optimizer(rate, 0.9), loss)

        def model(rate):
            return pipelining_ops.pipeline(
                [first, second],
                gradient_accumulation_count=4,
                inputs=[rate],
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=learn,
                name="learns",
            )

        asked = config.IPUConfig()
        asked.auto_select_ipus = ipus
        if strategy == "links":
            asked = made.update_ipu_config(asked)
        config.configure_ipu_system(asked)
        rate = tf.placeholder(np.float32, [])
        train = made.experimental_run_v2(lambda rate: ipu.ipu_compiler.compile(model, inputs=[rate]), args=[rate])
        _, losses = outfeed.dequeue()
        mean = made.reduce(tf.distribute.ReduceOp.SUM, tf.reduce_mean(losses))
        found = []
        with tf.Session() as session:
            session.run(infeed.initializer)
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train, {rate: 0.1})
                found.append(session.run(mean))
    (program,) = compiled()
    return found, program.variables, program


@cache
def trained_alone(strategy):
    """Return the losses and variables of one host."""
    ((losses, variables, _),) = hvd.run(trained, (strategy,), np=1)
    return losses, variables


@sampled(2)
@pytest.mark.parametrize(
    ("hosts", "strategy"),
    [
        pytest.param(hosts, strategy, marks=slowest if hosts == 2 and strategy != "links" else ())
        for hosts, strategy in product((2, 3), STRATEGIES)
    ],
)
def test_hosts_learn_what_one_learns_from_the_whole_batch(strategy, hosts):
    losses, variables = trained_alone(strategy)
    for found, own, _ in hvd.run(trained, (strategy,), np=hosts):
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        for name, array in variables.items():
            np.testing.assert_allclose(own[name], array, rtol=1e-4, atol=1e-6)


def test_a_loop_on_hosts():
    def program():
        with IPUHorovodStrategy().scope():
            queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(hvd.rank() + 1)).repeat())

            def body(x):
                w = ipu.get_variable("w", 1.0)
                return tf.train.GradientDescentOptimizer(0.1).minimize(w * x)

            ipu_loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [], queue))
            with tf.Session() as session:
                session.run(queue.initializer)
                session.run(tf.global_variables_initializer())
                session.run(ipu_loop)
        return compiled()[0].variables["w"]

    np.testing.assert_allclose(hvd.run(program, np=2), [1 - 2 * 0.1 * (1 + 2)] * 2, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["horovod", "links"])
def test_replicas_of_hosts_learn_alike(strategy):
    """Replicas of a host average their gradients, and take elements in turn; hosts sum theirs up."""
    (first, variables, program), (second, same, _) = hvd.run(trained, (strategy, averaging, 4), np=2)
    np.testing.assert_array_equal(first, second)
    assert program.system.replicas == 2
    for name, array in variables.items():
        np.testing.assert_array_equal(same[name], array)
    ((losses, alone, _),) = hvd.run(trained, (strategy, averaging, 4), np=1)
    np.testing.assert_allclose(first, losses, rtol=1e-5)
    for name, array in alone.items():
        np.testing.assert_allclose(variables[name], array, rtol=1e-4, atol=1e-6)


def test_the_time_of_what_hosts_do_between_runs():
    """First the variables, by a binomial tree; between runs a loss of 4 bytes, by a ring."""
    with recording(Recorder()) as recorded:
        found = hvd.run(trained, ("horovod",), np=3)
    (program,) = recorded.programs  # the first host's, which stands for all
    timeline, system = program.run(program.job.request).timeline, found[0][2].system
    latency, rate = 13_300, 1.33 / 12.5  # cycles of 10 us, and of a byte at 100 Gbit/s
    size = sum(array.nbytes for array in found[0][1].values())
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
    with pytest.raises(UnsupportedProgramError, match=r"its hosts do something together between its session runs$"):
        as_scenario(program.as_job())


@pytest.mark.parametrize("strategy", ["horovod", "links"])
def test_the_profile_of_a_host_that_waits_for_a_slower_one_has_its_waits(strategy):
    profiles = []
    for slower in (0, 20):
        with recording(Recorder()) as recorded:
            found = hvd.run(trained, (strategy, tf.train.MomentumOptimizer, 2, 7, slower), np=2)
        (program,) = recorded.programs
        profiles.append((program.run(program.job.request), [each[2].timeline for each in found]))
    (even, last), (late, (first, second)) = profiles
    assert late.job.late == (late.job.late[0],) * 3  # one for each of three runs
    assert first.makespan_cycles == second.makespan_cycles == last[0].makespan_cycles + late.job.late[0]
    assert late.timeline.makespan_cycles - even.timeline.makespan_cycles == 3 * late.job.late[0] > 0
    assert even.job.late == ()
    check_explained(late.timeline)
    with pytest.raises(UnsupportedProgramError, match="its host waits for slower ones, which a scenario does not say"):
        as_scenario(program.as_job())


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
    with pytest.raises(
        Exception, match=r"system\.host\.count: expected at most 128 hosts of 2 IPUs that sum up over links, as pod256"
    ):
        load_job(scenario, (*changes, "system.host.count=129", "system.host.sum_over=links"))


def test_hosts_that_do_not_train_together():
    def one_ends():
        return trained("horovod") if hvd.rank() == 0 else None

    with pytest.raises(
        ProgramStateError, match=r"^host 0 waits for all hosts in the first variables of the program 'le"
    ):
        hvd.run(one_ends, np=2)

    def other_networks():
        return trained("horovod", units=7 + hvd.rank())

    with pytest.raises(ProgramError, match=r"^the first variables of the program 'learns': expected the same shape on"):
        hvd.run(other_networks, np=2)
