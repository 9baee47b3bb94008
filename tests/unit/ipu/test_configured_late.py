"""A device that is configured after ipu_compiler.compile and before a session runs the program, as programs do."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.errors import DeviceError, ProgramError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.recording import Recorder, recording
from ipusim.timeline.kinds import SpanKind

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
        (training, {"ipus": 8}, 4),
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
