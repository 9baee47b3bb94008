"""Outfeed queues that stages of a pipeline, and bodies of loops, send to beside the one of their results."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import ipu_compiler, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled

X = np.arange(96, dtype=np.float32).reshape(48, 2)
COUNT = 4


def infeed():
    return IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat())


def judge(y):
    return tf.reduce_mean(y * tf.get_variable("v", initializer=np.float32(1)))


def learn(loss):
    return OptimizerFunctionOutput(CrossReplicaOptimizer(GradientDescentOptimizer(0.5)), loss)


def trained(queue, replicas=1, recompute=False, training=True):
    """Return the pipeline, whose first stage sends to ``queue`` where there is one, after two executions."""

    def first(x):
        y = x * tf.get_variable("w", initializer=np.float32(2))
        if queue is None:
            return y
        with tf.control_dependencies([queue.enqueue({"y": y, "both": (x, tf.reduce_sum(x))})]):
            return tf.identity(y)

    config = IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2 * replicas, recompute
    return pipeline(
        [first, judge],
        gradient_accumulation_count=COUNT,
        repeat_count=2,
        infeed_queue=infeed(),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=learn if training else None,
        config=config,
    )


@sampled(2)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_stage_sends_the_values_of_each_micro_batch(replicas, training, recompute):
    queue = IPUOutfeedQueue()
    program = trained(queue, replicas, recompute, training)
    for run in range(2):
        sent = queue.dequeue()
        taken = X[: 2 * COUNT * replicas] if not run else X[2 * COUNT * replicas : 4 * COUNT * replicas]
        taken = taken.reshape((-1, replicas, 2) if replicas > 1 else (-1, 2))
        np.testing.assert_equal(np.asarray(sent["both"][0]), taken)
        np.testing.assert_equal(np.asarray(sent["both"][1]), taken.sum(axis=-1))
        factor = np.asarray(sent["y"]) / np.where(taken, taken, 1)
        assert factor.reshape(-1)[-1] == 2 or training  # weights are updated between the executions
        assert run or np.all(factor[:COUNT][taken[:COUNT] > 0] == 2)
        assert queue.dequeue()["y"].shape[0] == 0
        program.run()


def test_what_a_stage_sends_is_copied_to_the_host_while_its_ipu_waits():
    plain, sending = trained(None), trained(IPUOutfeedQueue())
    assert not len(plain.timeline.rows(SpanKind.OUTSIDE))
    outside = sending.timeline.rows(SpanKind.OUTSIDE)
    assert len(outside) == 2 * COUNT
    assert sending.timeline.end.max() > plain.timeline.end.max()
    (call,) = sending.session.job.costs.host_calls[next(iter(sending.session.job.costs.host_calls))]
    assert call.call.sent_bytes == 2 * 8 + 4
    assert not call.call.returned_bytes


def test_a_body_sends_to_a_second_queue():
    first, second = IPUOutfeedQueue(), IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)

    def body(x):
        sends = first.enqueue({"x": x}), second.enqueue([x * 2])
        return (*sends, GradientDescentOptimizer(0.5).minimize(judge(x)))

    data = infeed()
    fetched = ipu_compiler.compile(lambda: loops.repeat(3, body, infeed_queue=data), [])
    inspected, last = first.dequeue(), second.dequeue()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), data.initializer])
        for run in range(2):
            session.run(fetched)
            np.testing.assert_equal(session.run(inspected)["x"], X[3 * run : 3 * run + 3])
            np.testing.assert_equal(session.run(last), [2 * X[3 * run + 2]])


def test_a_stage_sends_once_to_a_queue_and_no_other_program_does():
    queue = IPUOutfeedQueue()

    def twice(x):
        queue.enqueue(x)
        queue.enqueue(x)
        return x

    with pytest.raises(ProgramError, match="An outfeed can only be enqueued once"):
        pipeline([twice, judge], COUNT, infeed_queue=infeed(), outfeed_queue=IPUOutfeedQueue())
    trained(queue)
    with pytest.raises(ProgramError, match="An outfeed can only be enqueued once"):
        trained(queue)
    with pytest.raises(ProgramError, match="in the body of a loop or in a stage of a pipeline"):
        IPUOutfeedQueue().enqueue(X)


def test_a_queue_says_in_each_call_of_a_stage_whether_it_has_been_sent_to():
    queue = IPUOutfeedQueue()

    def first(x):
        for _ in range(2):  # as a layer that is called in two places
            if not queue.enqueued:
                queue.enqueue(x)
        return x

    pipeline([first, judge], COUNT, infeed_queue=infeed(), outfeed_queue=IPUOutfeedQueue())
    assert queue.enqueued
    np.testing.assert_equal(np.asarray(queue.dequeue()), X[:COUNT])


def test_several_queues_of_a_sharded_loop_are_refused():
    def body(x):
        with scopes.ipu_shard(0):
            y = x * 2
        with scopes.ipu_shard(1):
            return IPUOutfeedQueue().enqueue(y), IPUOutfeedQueue().enqueue(y * 2)

    with pytest.raises(UnsupportedProgramError, match="expected one outfeed queue in a sharded loop, got several"):
        loops.repeat(3, body, infeed_queue=infeed())
