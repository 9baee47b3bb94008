"""Outfeed queues that stages, bodies of loops and apply_gradients send to by themselves."""

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, pipelined, run

COUNT, RATE = 4, 0.5
X = np.arange(1, 193, dtype=np.float32).reshape(96, 2) / 96


def dataset(names):
    return names.tf.data.Dataset.from_tensor_slices(X).repeat()


def infeed(names):
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names))


def judge(names, y):
    return names.tf.reduce_mean(y * names.tf.get_variable("v", initializer=np.float32(1)))


def trained(names, queue, replicas=1, recompute=False, training=True):
    """Two runs of a pipeline of two stages, the first of which sends to a queue."""
    tf = names.tf

    def first(x):
        y = x * tf.get_variable("w", initializer=np.float32(2))
        sent = [] if queue is None else [queue.enqueue({"y": y, "both": [x, tf.reduce_sum(x)]})]
        with tf.control_dependencies(sent):
            return tf.identity(y)

    optimizer = names.ipu.optimizers.CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(RATE))
    return pipelined(
        names,
        [first, lambda y: judge(names, y)],
        dataset(names),
        COUNT,
        ipus=2 * replicas,
        device={"allow_recompute": recompute},
        optimizer=optimizer if training else None,
        queue=queue,
        feeds=[{}, {}],
        repeat_count=2,
    )


@pytest.mark.parametrize(("replicas", "training", "recompute"), [(1, True, True), (2, True, False), (2, False, False)])
def test_a_stage_sends_the_values_of_each_micro_batch(names, replicas, training, recompute):
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    found = trained(names, queue, replicas, recompute, training)
    each = 2 * COUNT * replicas
    for number, sent in enumerate(found.sent):
        taken = X[number * each : (number + 1) * each].reshape((-1, replicas, 2) if replicas > 1 else (-1, 2))
        np.testing.assert_equal(sent["both"][0], taken)
        np.testing.assert_allclose(sent["both"][1], taken.sum(axis=-1), rtol=1e-6)
        assert number or np.allclose((sent["y"] / taken)[:COUNT], 2)
        assert np.allclose((sent["y"] / taken)[-1], 2) is not training  # weights are updated between executions


def test_what_a_stage_sends_is_copied_to_the_host_while_its_ipu_waits(names):
    plain = trained(names, None)
    names.tf.reset_default_graph()
    sending = trained(names, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue())
    assert not len(plain.timeline.rows(SpanKind.OUTSIDE))
    assert len(sending.timeline.rows(SpanKind.OUTSIDE)) == 2 * COUNT
    assert sending.timeline.end.max() > plain.timeline.end.max()
    (call,) = sending.job.program.stages[0].forward_host_calls
    assert (call.sent_bytes, call.returned_bytes) == (2 * 8 + 4, 0)


def test_a_body_sends_to_a_second_queue(names):
    tf, ipu = names.tf, names.ipu
    configure(names, 1)
    queues = ipu.ipu_outfeed_queue
    first, second = queues.IPUOutfeedQueue(), queues.IPUOutfeedQueue(outfeed_mode=queues.IPUOutfeedMode.LAST)
    elements = infeed(names)

    def body(x):
        sends = first.enqueue({"x": x}), second.enqueue([x * 2])
        return (*sends, tf.train.GradientDescentOptimizer(RATE).minimize(judge(names, x)))

    compiled = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, [], elements))
    inspected, last = first.dequeue(), second.dequeue()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), elements.initializer])
        for number in range(2):
            session.run(compiled)
            np.testing.assert_equal(session.run(inspected)["x"], X[3 * number : 3 * number + 3])
            np.testing.assert_equal(session.run(last), [2 * X[3 * number + 2]])


def test_several_queues_of_a_sharded_loop_are_refused(names):
    ipu, elements = names.ipu, infeed(names)
    queues = [ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2)]

    def body(x):
        with ipu.scopes.ipu_shard(0):
            y = x * 2
        with ipu.scopes.ipu_shard(1):
            return queues[0].enqueue(y), queues[1].enqueue(y * 2)

    with pytest.raises(UnsupportedProgramError, match="expected one outfeed queue in a sharded loop, got several"):
        ipu.loops.repeat(3, body, [], elements)


def around(names, queue):
    """An optimizer that leaves everything to another one, and sends the gradients that it applies."""
    tf = names.tf

    class Around(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Around")
            self.wrapped = tf.train.GradientDescentOptimizer(RATE)

        def compute_gradients(self, loss, var_list=None, **kwargs):
            return self.wrapped.compute_gradients(loss, var_list=var_list, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            sent = {variable.op.name: gradient for gradient, variable in grads_and_vars}
            with tf.control_dependencies([queue.enqueue(sent)]):
                return self.wrapped.apply_gradients(grads_and_vars, global_step, name)

    return Around()


def test_what_apply_gradients_of_a_pipeline_sends_is_what_the_wrapped_optimizer_applies(names):
    def ran(replicas):
        queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        stages = [lambda x: x * names.tf.get_variable("w", initializer=np.float32(2)), lambda y: judge(names, y)]
        optimizer = names.ipu.optimizers.CrossReplicaOptimizer(around(names, queue))
        options = {"ipus": 2 * replicas, "optimizer": optimizer, "queue": queue, "repeat_count": 3}
        return pipelined(names, stages, dataset(names), COUNT, **options)

    found = ran(1)
    assert {name: values.shape for name, values in found.sent.items()} == {"w": (3,), "v": (3,)}
    for name, before in (("w", 2), ("v", 1)):
        assert found.variables[name] == pytest.approx(before - RATE * found.sent[name].sum(), rel=1e-5)
    names.tf.reset_default_graph()
    with pytest.raises(UnsupportedProgramError, match="enqueue: expected one replica where apply_gradients sends"):
        ran(2)


def test_what_apply_gradients_of_a_loop_sends_is_what_the_wrapped_optimizer_applies(names):
    tf, ipu = names.tf, names.ipu
    configure(names, 1)
    queue, elements = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), infeed(names)

    def body(x):
        y = x * tf.get_variable("w", initializer=np.float32(2))
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(around(names, queue), COUNT)
        return optimizer.minimize(judge(names, y))

    found = run(names, lambda: ipu.loops.repeat(3 * COUNT, body, [], elements), queue, [elements])
    for name, before in (("w", 2), ("v", 1)):
        assert found.sent[name].shape == (3,)
        assert found.variables[name] == pytest.approx(before - RATE * found.sent[name].sum(), rel=1e-5)
