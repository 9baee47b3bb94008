"""What is known when a session runs: the device, which may be configured then, and how much is fed to a program."""

from types import SimpleNamespace

import numpy as np
import pytest

from ipusim.base.errors import DeviceError, OutOfMemoryError, ProgramError
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, run

X = np.random.default_rng(2).normal(2.0, 3.0, (64, 2, 3)).astype(np.float32)


def judge(tf, y):
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)
    return tf.reduce_mean(tf.square(y * w - 1.0))


def training(names, infeed, outfeed):
    tf, ipu = names.tf, names.ipu

    def learn(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.01), loss)

    return ipu.pipelining_ops.pipeline(
        [lambda x: x * 2.0, lambda y: judge(tf, y)],
        gradient_accumulation_count=4,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=learn,
    )


def loop(names, infeed, outfeed):
    def body(x):
        loss = judge(names.tf, x)
        return outfeed.enqueue(loss), names.tf.train.GradientDescentOptimizer(0.01).minimize(loss)

    return names.ipu.loops.repeat(4, body, infeed_queue=infeed)


@pytest.fixture
def laid_out(names):
    """Compiles a program in a graph of its own; returns what runs it in a session, and what was recorded of it."""
    tf, ipu = names.tf, names.ipu
    with tf.Graph().as_default(), tf.Session() as session, recording(Recorder()) as recorder:

        def call(make):
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat())
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            compiled = ipu.ipu_compiler.compile(lambda: make(names, infeed, outfeed))
            dequeued = outfeed.dequeue()
            session.run([tf.global_variables_initializer(), infeed.initializer])

            def run():
                session.run(compiled)
                return session.run(dequeued)

            return SimpleNamespace(run=run, session=session, recorder=recorder)

        yield call


@pytest.mark.parametrize(("make", "ipus"), [(training, 2), (loop, 1)])
@pytest.mark.parametrize("attributes", [{}, {"allow_recompute": True}])
def test_a_device_configured_after_compile_is_the_one_that_runs(names, laid_out, make, ipus, attributes):
    results, jobs = [], []
    for late in (False, True):
        names.ipu.config.reset_ipu_configuration()
        if not late:
            configure(names, ipus, **attributes)
        with names.tf.variable_scope(f"late{late}"):
            program = laid_out(make)
        if late:
            configure(names, ipus, **attributes)
        results.append([program.run() for _ in range(2)])
        jobs.append(program.recorder.programs[-1].job)
    np.testing.assert_equal(*results)
    assert jobs[0].plan.shape.recompute is jobs[1].plan.shape.recompute
    assert jobs[0].system == jobs[1].system
    assert jobs[0].costs.passes == jobs[1].costs.passes


def test_a_program_goes_on_where_another_device_is_configured(names, laid_out):
    """Its variables and its place in the infeed are as they were; the runs are those of two programs."""
    configure(names, 2)
    program = laid_out(training)
    moved = [program.run()]
    configure(names, 4, allow_recompute=True, selection_order=names.ipu.utils.SelectionOrder.SNAKE)
    with pytest.raises((ProgramError, NotImplementedError), match="replicas that learn by themselves"):
        program.run()
    configure(names, 2, allow_recompute=True)
    moved.append(program.run())
    assert [each.job.plan.shape.recompute for each in program.recorder.programs] == [False, True]
    with names.tf.variable_scope("stays"):
        stays = laid_out(training)
    np.testing.assert_allclose(np.concatenate(moved), np.concatenate([stays.run(), stays.run()]), rtol=1e-6)


def test_inference_goes_on_in_as_many_replicas_as_the_next_device_has(names, laid_out):
    def make(names, infeed, outfeed):
        stages = [lambda x: x, lambda x: x + 1]
        return names.ipu.pipelining_ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed)

    program, shapes = laid_out(make), []
    for ipus in (2, 4):
        configure(names, ipus)
        shapes.append(program.run()[0].shape)
    assert shapes == [(4, 2, 3), (4, 2, 2, 3)]


def test_a_device_that_is_too_small_is_refused_by_the_session(names, laid_out):
    program = laid_out(training)
    configure(names, 1)
    with pytest.raises((DeviceError, ProgramError), match="1 IPU"):
        program.run()


def test_what_no_device_takes_is_refused_with_a_remedy_by_the_session(names, laid_out):
    configure(names, 1, machine="c2_server")  # whose IPUs have 304 MB each

    def large(names, infeed, outfeed):
        tf = names.tf
        weight = tf.get_variable("large", [3, 30_000_000], initializer=tf.zeros_initializer(), use_resource=True)
        return names.ipu.loops.repeat(1, lambda x: outfeed.enqueue(tf.reduce_sum(weight)), infeed_queue=infeed)

    with pytest.raises(OutOfMemoryError, match=r"IPU 0: .* Cut the model into more computational_stages"):
        laid_out(large).run()


BATCHES = (3, 500, 3, 1)
W = np.linspace(-1, 1, 8).astype(np.float32).reshape(2, 4)


def data(batch):
    return np.random.default_rng(batch).normal(size=(batch, 2)).astype(np.float32)


@pytest.mark.parametrize("kind", ["loop", "pipeline"])
def test_a_program_is_laid_out_for_what_it_is_fed(names, kind):
    tf, ipu = names.tf, names.ipu
    configure(names, 1 if kind == "loop" else 2)
    x = tf.placeholder(tf.float32, [None, 2])
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.arange(1, 41, dtype=np.float32)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def weights():
        return tf.get_variable("w", initializer=W)

    def loop(x):
        body = lambda total, x, one: (total + tf.matmul(x, weights()) * one, x)  # noqa: E731
        return ipu.loops.repeat(2, body, [tf.matmul(x, W) * 0, x], infeed)

    def pipeline(x):
        stages = [lambda x, one: x * one, lambda x: tf.matmul(x, weights())]
        return ipu.pipelining_ops.pipeline(stages, 4, inputs=[x], infeed_queue=infeed, outfeed_queue=outfeed)

    feeds = [{x: data(batch)} for batch in BATCHES]
    is_loop = kind == "loop"
    found = run(names, loop if is_loop else pipeline, None if is_loop else outfeed, [infeed], feeds, [x])
    if is_loop:
        last = 7 + 8  # elements of the fourth run
        np.testing.assert_allclose(found.results[0], data(1) @ W * last, rtol=1e-5)
        return
    for number, (batch, (sent,)) in enumerate(zip(BATCHES, found.sent, strict=True)):
        expected = [data(batch) @ W * (4 * number + place) for place in (1, 2, 3, 4)]
        np.testing.assert_allclose(sent, expected, rtol=1e-5, atol=1e-5)
    sent = found.timeline.rows(SpanKind.OUTFEED)
    assert set(found.timeline.bytes[sent].tolist()) == {1 * 4 * 4}
