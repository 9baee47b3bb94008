"""Infeed and outfeed queues: Graphcore's rules with their exact texts, and what goes through.

Also outfeeds that stages, bodies of loops and apply_gradients send to by themselves.
"""

import re

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.queues import IPUOutfeedMode as Mode
from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, pipelined, run

ONES = np.ones(2, np.float32)
COUNT, RATE = 4, 0.5
X = np.arange(1, 193, dtype=np.float32).reshape(96, 2) / 96


@pytest.fixture(autouse=True)
def _two_ipus(names):
    configure(names, 2)


def dataset(names, *values):
    return names.tf.data.Dataset.from_tensors(values[0] if values else ONES).repeat()


def infeed(names, *given, **named):
    """How many elements an infeed of these arguments keeps ready."""
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names), *given, **named).prefetch_depth


def outfeed(names, *given, **named):
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(*given, **named)
    return queue.outfeed_mode.value, queue.buffer_depth, queue.optimise_latency


def sent(names, stages=None, data=None, training=False, **arguments):
    """What a pipeline of two stages sends, of which the last hands on what it takes."""
    tf = names.tf

    def weighted(x):
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

    optimizer = tf.train.GradientDescentOptimizer(0.0) if training else None
    data = dataset(names) if data is None else data
    return pipelined(names, stages or [lambda x: x, weighted], data, 8, optimizer=optimizer, **arguments).sent


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ({}, False),
        ({"mode": "LAST"}, False),
        ({"stages": [lambda x: x, lambda x: (x, x)]}, False),
        ({"accumulate_outfeed": True}, False),
        ({"training": True}, False),
        ({"training": True, "outfeed_loss": True}, True),
        ({"training": True, "outfeed_loss": True, "accumulate_outfeed": True}, True),
    ],
)
def test_a_single_result_comes_by_itself_where_graphcores_does(names, arguments, alone):
    found = sent(names, **arguments)
    assert isinstance(found, np.ndarray) == alone
    elements = () if "mode" in arguments else (1,) if arguments.get("accumulate_outfeed") else (8,)
    assert (found if alone else found[-1]).shape == (*elements, 2)


def test_infeed_goes_on_from_run_to_run_and_ends(names):
    numbers = np.arange(20, dtype=np.float32)
    data = names.tf.data.Dataset.from_tensor_slices(numbers)
    found = sent(names, data=data, feeds=({}, {}))
    assert np.concatenate([each[0] for each in found]).tolist() == numbers[:16].tolist()
    names.tf.reset_default_graph()
    data = names.tf.data.Dataset.from_tensor_slices(numbers[:3])
    with pytest.raises(names.tf.errors.OutOfRangeError):
        sent(names, data=data)


def test_infeed_elements_by_name(names):
    names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names, ({"a": ONES}, ONES)))  # it may be beside an array
    data = dataset(names, {"y": np.float32(1), "x": np.float32(4)})
    (found,) = sent(names, data=data, stages=[lambda x, y: 2 * (x - y), lambda x: x])
    assert found.tolist() == [6.0] * 8


def test_an_outfeed_in_the_mode_last_gives_the_last_element_again(names):
    configure(names, 1)
    last = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(Mode.LAST)
    loop = lambda: names.ipu.loops.repeat(3, lambda i: (i + 1, last.enqueue(i)), [0])  # noqa: E731
    compiled = names.ipu.ipu_compiler.compile(loop)
    dequeued = last.dequeue()
    with names.tf.Session() as session:
        session.run(compiled)
        assert [int(session.run(dequeued)) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize(
    ("given", "depth"),
    [
        ((), 3),
        (("infeed",), 3),
        (("infeed", 0, 1, 2), 2),
        (("infeed", 2, 4, 2, 5), 5),
        ((None, 0), 3),
        ((None, 0, 2), 3),
        ((None, 1, 2, 7), 7),
        ((None, 0, None, 1, 7), 7),
        ((0, 5), 5),
        ((0, 5, True), 5),
        ((None, 5, True), 5),
    ],
)
def test_an_infeeds_positions_are_those_of_either_release(names, given, depth):
    assert infeed(names, *given) == depth


def test_an_infeeds_deprecated_names(names):
    assert infeed(names, "infeed", data_to_prefetch=2) == 2
    assert infeed(names, data_to_prefetch=2, prefetch_depth=4) == 4
    assert infeed(names, feed_name="infeed", replication_factor=2, device_ordinal=None) == 3
    assert infeed(names, None, prefetch_depth=6) == 6


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), ("ALL", 3, False)),
        (("outfeed",), ("ALL", 3, False)),
        (("outfeed", Mode.LAST), ("LAST", 3, False)),
        (("outfeed", Mode.LAST, 1, 2, 4), ("LAST", 3, False)),
        ((None, Mode.LAST, 2), ("LAST", 3, False)),
        ((None, None, 2, 4), ("ALL", 3, False)),
        ((None, None, None, None, 1), ("ALL", 3, False)),
        ((Mode.LAST, 0, 5), ("LAST", 5, False)),
        ((Mode.LAST, None, 5, True), ("LAST", 5, True)),
        ((None, 0, 5, True), ("ALL", 5, True)),
        ((None, None, 5, True), ("ALL", 5, True)),
    ],
)
def test_an_outfeeds_positions_are_those_of_either_release(names, given, found):
    assert outfeed(names, *given) == found


def test_an_outfeeds_deprecated_names(names):
    named = {"feed_name": "outfeed", "replication_factor": 2, "io_batch_size": 3}
    assert outfeed(names, outfeed_mode=Mode.LAST, **named) == ("LAST", 3, False)
    assert outfeed(names, "outfeed", buffer_depth=6) == ("ALL", 6, False)


@pytest.mark.parametrize(
    ("kind", "wrong", "text"),
    [
        (
            TypeError,
            lambda names: infeed(names, None, 5),
            "IPUInfeedQueue: expected arguments by name, because the argument after None is device_ordinal up to SDK "
            "2.1 and prefetch_depth in later releases, got 5 by position",
        ),
        (
            TypeError,
            lambda names: outfeed(names, None, None, 5),
            "IPUOutfeedQueue: expected arguments by name, because the argument after None is device_ordinal up to SDK "
            "2.1 and buffer_depth in later releases, got 5 by position",
        ),
        (
            TypeError,
            lambda names: infeed(names, 0, 5, True, 4),
            "expected at most 3 arguments, device_ordinal, prefetch_depth, optimise_latency, got 4",
        ),
        (
            TypeError,
            lambda names: outfeed(names, Mode.ALL, 0, 5, True, 4),
            "expected at most 4 arguments, outfeed_mode, device_ordinal, buffer_depth, optimise_latency, got 5",
        ),
        (ValueError, lambda names: infeed(names, "infeed", "0"), "Device ordinal must be an integer"),
        (ValueError, lambda names: outfeed(names, None, None, True), "Device ordinal must be an integer"),
        (
            ValueError,
            lambda names: infeed(names, "infeed", 0, 0),
            "replication_factor: expected a whole number from 1 to 2147483647, got 0",
        ),
        (
            ValueError,
            lambda names: outfeed(names, io_batch_size=0),
            "io_batch_size: expected a whole number from 1 to 2147483647, got 0",
        ),
    ],
)
def test_positions_that_no_release_or_both_have_and_their_values(names, kind, wrong, text):
    with pytest.raises(kind, match=re.escape(text)):
        wrong(names)


def slices(names):
    return names.tf.data.Dataset.from_tensor_slices(X).repeat()


def elements_of(names):
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(slices(names))


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
        slices(names),
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
    elements = elements_of(names)

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
    ipu, elements = names.ipu, elements_of(names)
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
        return pipelined(names, stages, slices(names), COUNT, **options)

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
    queue, elements = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), elements_of(names)

    def body(x):
        y = x * tf.get_variable("w", initializer=np.float32(2))
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(around(names, queue), COUNT)
        return optimizer.minimize(judge(names, y))

    found = run(names, lambda: ipu.loops.repeat(3 * COUNT, body, [], elements), queue, [elements])
    for name, before in (("w", 2), ("v", 1)):
        assert found.sent[name].shape == (3,)
        assert found.variables[name] == pytest.approx(before - RATE * found.sent[name].sum(), rel=1e-5)
