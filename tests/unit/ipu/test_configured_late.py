"""A device that is configured after ipu_compiler.compile and before a session runs the program, as programs do."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import DeviceError, OutOfMemoryError, ProgramError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.timeline.kinds import SpanKind
from tests.effort import slowest

X = np.random.default_rng(2).normal(2.0, 3.0, (64, 2, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def none_configured():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def configure(ipus, group=1, recompute=False):
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.allow_recompute = recompute
    config.norms.experimental.distributed_batch_norm_replica_group_size = group
    config.configure_ipu_system()


def normalise(x):
    return tf.keras.layers.BatchNormalization(name="norm")(x)


def judge(y):
    return tf.reduce_mean(tf.square(y * tf.get_variable("w", initializer=np.ones(3, np.float32)) - 1.0))


def optimizer():
    return CrossReplicaOptimizer(GradientDescentOptimizer(0.1))


def training(infeed, outfeed):
    return pipeline(
        [normalise, judge],
        gradient_accumulation_count=4,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer(), loss),
    )


def loop(infeed, outfeed):
    def body(x):
        loss = judge(normalise(x))
        return outfeed.enqueue(loss), optimizer().minimize(loss)

    return loops.repeat(3, body, infeed_queue=infeed)


def alone(*_):
    return tf.constant(X[0]) * 2


def ran(make, late, **asked):
    """Return what is dequeued in two runs, what a session run gives, and the program's job and timeline."""
    tf.reset_default_graph()
    reset_ipu_configuration()
    infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()
    if not late:
        configure(**asked)
    fetched = ipu_compiler.compile(lambda: make(infeed, outfeed), [])
    dequeued = outfeed.dequeue() if outfeed.enqueued else []
    initial = tf.global_variables_initializer()
    if late:
        configure(**asked)
    with recording(Recorder()) as recorder, tf.Session() as session:
        session.run([initial, infeed.initializer])
        results = [(session.run(fetched), session.run(dequeued)) for _ in range(2)]
    (program,) = recorder.programs
    return results, program.job, program.run(program.job.request).timeline


@pytest.mark.parametrize(
    ("make", "asked", "replicas"),
    [
        pytest.param(training, {"ipus": 8}, 4, marks=slowest),
        (training, {"ipus": 8, "group": 4}, 4),
        (training, {"ipus": 2, "recompute": True}, 1),
        (loop, {"ipus": 4, "group": 2}, 4),
        (alone, {"ipus": 2}, 2),
    ],
)
def test_a_device_configured_after_compile_is_the_one_that_runs(make, asked, replicas):
    early, before, timeline = ran(make, late=False, **asked)
    late, job, timeline_late = ran(make, late=True, **asked)
    assert job.system.replicas == before.system.replicas == replicas
    assert job.plan.shape.recompute is before.plan.shape.recompute is asked.get("recompute", False)
    np.testing.assert_equal(late, early)
    assert timeline_late.end.max() == timeline.end.max()
    for kind in SpanKind:
        assert len(timeline_late.rows(kind)) == len(timeline.rows(kind))


def test_a_device_that_is_too_small_is_refused_by_the_session():
    infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()
    fetched = ipu_compiler.compile(lambda: training(infeed, outfeed), [])
    configure(1)
    with tf.Session() as session:
        session.run(infeed.initializer)
        with pytest.raises((DeviceError, ProgramError), match="1 IPU"):
            session.run(fetched)


def test_the_second_program_of_an_infeed_must_have_as_many_replicas_on_the_device():
    infeed, outfeed, other = (
        IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()),
        IPUOutfeedQueue(),
        IPUOutfeedQueue(),
    )
    first = ipu_compiler.compile(lambda: training(infeed, outfeed), [])
    second = ipu_compiler.compile(lambda: loop(infeed, other), [])
    configure(4)
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(first)
        with pytest.raises(ProgramError, match="already been setup with a replication factor of 2 when it should have"):
            session.run(second)


def test_a_restored_program_runs_on_the_device_configured_after_compile(tmp_path):
    infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()
    fetched = ipu_compiler.compile(lambda: training(infeed, outfeed), [])
    saver = tf.train.Saver()
    configure(4)
    with recording(Recorder()) as recorder, tf.Session() as session:
        session.run(infeed.initializer)
        path = saver.save(session, str(tmp_path / "saved"))
        saver.restore(session, path)
        session.run(fetched)
    assert recorder.programs[0].job.system.replicas == 2


def passing(infeed, outfeed):
    return pipeline([lambda x: x[:1], lambda x: x], 4, infeed_queue=infeed, outfeed_queue=outfeed)


def offloading(infeed, outfeed):
    return pipeline(
        [normalise, judge],
        gradient_accumulation_count=4,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        offload_weight_update_variables=True,
        optimizer_function=lambda loss: OptimizerFunctionOutput(
            CrossReplicaOptimizer(tf.train.MomentumOptimizer(0.1, 0.9)), loss
        ),
    )


def queues(elements=X):
    return IPUInfeedQueue(repeat(list(elements))), IPUOutfeedQueue()


def remote(ipus):
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.device_connection.enable_remote_buffers = True
    config.configure_ipu_system()


def test_what_the_smallest_device_refuses_may_run_on_one_that_is_configured_later():
    infeed, outfeed = queues()
    fetched, dequeued = ipu_compiler.compile(lambda: offloading(infeed, outfeed), []), outfeed.dequeue()
    initial = tf.global_variables_initializer()
    remote(4)
    with recording(Recorder()) as recorder, tf.Session() as session:
        session.run([initial, infeed.initializer])
        session.run(fetched)
        (losses,) = session.run(dequeued)
    assert losses.shape == (4, 2)
    job = recorder.programs[0].job
    assert job.program.offload.weight_update_variables
    assert job.system.replicas == 2


@pytest.mark.parametrize(
    ("make", "elements", "kind", "text"),
    [
        (offloading, X, ProgramError, "does not support remote memory"),
        (passing, np.zeros((1, 240_000_000), np.float32), OutOfMemoryError, "Out of memory on IPU 0"),
    ],
)
def test_what_no_device_takes_is_refused_by_the_session_and_by_what_asks_for_the_device(make, elements, kind, text):
    infeed, outfeed = queues(elements)
    fetched = ipu_compiler.compile(lambda: make(infeed, outfeed), [])
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        for _ in range(2):
            with pytest.raises(kind, match=text):
                session.run(fetched)
    with pytest.raises(kind, match=text):
        ipu_compiler.compiled()[-1].system  # noqa: B018 - reading it raises
    configure(2)
    infeed, outfeed = queues(elements)
    with pytest.raises(kind, match=text):  # a device that is configured says it at once
        ipu_compiler.compile(lambda: make(infeed, outfeed), [])


def results_of(configured, session, infeed, outfeed, make):
    """Return what three runs give, with a configuration before each, and the jobs that ran."""
    fetched, dequeued = ipu_compiler.compile(lambda: make(infeed, outfeed), []), outfeed.dequeue()
    session.run([tf.global_variables_initializer(), infeed.initializer])
    found = []
    for before in configured:
        before()
        session.run(fetched)
        found.append(session.run(dequeued))
    return found


@pytest.mark.parametrize("make", [training, offloading, loop])
def test_a_program_that_has_run_goes_on_on_the_device_that_is_configured_then(make):
    def runs(*configured):
        reset_ipu_configuration()
        tf.reset_default_graph()
        with recording(Recorder()) as recorder, tf.Session() as session:
            found = results_of(configured, session, *queues(), make)
        return found, [each.job for each in recorder.programs]

    def nothing():
        pass

    alone, (_,) = runs(lambda: remote(2), nothing, nothing)
    other = IPUConfig()
    other.auto_select_ipus, other.machine = 2, "bow_pod16"
    other.device_connection.enable_remote_buffers = True
    found, jobs = runs(lambda: remote(2), other.configure_ipu_system, lambda: remote(2))
    assert [each.system.name for each in jobs] == ["m2000", "bow_pod16", "m2000"]
    np.testing.assert_equal(found, alone)  # variables, optimizer and infeed go on
    again, kept = runs(lambda: remote(2), lambda: remote(2), nothing)
    np.testing.assert_equal(again, alone)
    assert len(kept) == 1  # the same configuration is no other
    replicated, jobs = runs(lambda: remote(2), lambda: remote(4), nothing)
    assert [each.system.replicas for each in jobs] in ([1, 2], [2, 4])
    np.testing.assert_equal(replicated[0], alone[0])


def test_a_program_stays_as_it_is_where_the_device_is_too_small():
    infeed, outfeed = queues()
    configure(2)
    with tf.Session() as session:
        fetched, dequeued = ipu_compiler.compile(lambda: training(infeed, outfeed), []), outfeed.dequeue()
        session.run([tf.global_variables_initializer(), infeed.initializer])
        session.run(fetched)
        configure(1)
        for _ in range(2):
            with pytest.raises(DeviceError, match="1 IPUs and 2 shards"):
                session.run(fetched)
        configure(2)
        session.run(fetched)
        assert session.run(dequeued)[0].shape == (8,)


def test_a_function_of_a_strategy_goes_on_on_the_device_that_is_configured_then():
    infeed, outfeed = queues()
    strategy = IPUStrategy()

    @tf.function
    def step():
        loop(infeed, outfeed)

    with recording(Recorder()) as recorder, strategy.scope():
        for ipus in (1, 4, 4):
            configure(ipus)
            strategy.run(step)
    assert [(each.job.system.count, each.ran) for each in recorder.programs] == [(1, 1), (4, 2)]


def test_a_keras_model_goes_on_on_the_device_that_is_configured_then():
    def fitted(*ipus):
        reset_ipu_configuration()
        with recording(Recorder()) as recorder, IPUStrategy().scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,), kernel_initializer="ones")])
            model.compile(tf.keras.optimizers.SGD(0.01, momentum=0.5), "mse", steps_per_execution=4)
            losses = []
            for count in ipus:
                configure(count)
                data = tf.data.Dataset.from_tensor_slices((X[:, 0], X[:, 0, :1])).batch(2, drop_remainder=True)
                losses += model.fit(data, epochs=1, verbose=0, shuffle=False).history["loss"]
        return losses, [each.job.system.replicas for each in recorder.programs], int(model.optimizer.iterations)

    alone, (one,), updates = fitted(1, 1, 1)
    losses, replicas, fewer = fitted(1, 4, 4)
    assert (one, replicas) == (1, [1, 4])
    assert losses[0] == alone[0] > losses[1] > losses[2]
    assert losses[1:] != alone[1:]
    assert (updates, fewer) == (3 * 32, 32 + 2 * 8)
