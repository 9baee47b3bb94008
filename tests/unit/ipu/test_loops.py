"""Loops without a pipeline: what their bodies compute, carry on and send, on one IPU and on several.

What they learn is in tests/oracles/test_traced_loops.py.
"""

from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from tests.programs import configure, run

X = np.arange(1, 4, dtype=np.float32)


@pytest.fixture(autouse=True)
def _one_ipu(names):
    configure(names, 1)


def stream(names):
    data = np.stack([X, 2 * X])
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(names.tf.data.Dataset.from_tensor_slices(data).repeat())


def queue(names):
    return names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def test_a_rate_of_the_infeed_is_that_of_the_last_element(names):
    """The rate of the third element of three, times the sum of three gradients of one."""
    tf, ipu = names.tf, names.ipu
    data = tf.data.Dataset.from_tensor_slices(np.float32([1, 2, 0.5, 4, 5, 0.25]))
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), queue(names)

    def body(rate):
        loss = tf.get_variable("w", [], initializer=tf.zeros_initializer()) * tf.ones([])
        opt = ipu.optimizers.GradientAccumulationOptimizerV2(tf.train.GradientDescentOptimizer(rate), 3)
        return outfeed.enqueue(loss), opt.minimize(loss)

    found = run(names, lambda: ipu.loops.repeat(6, body, [], infeed), outfeed, [infeed])
    assert found.variables["w"] == -3 * (0.5 + 0.25)


def test_a_sharded_body_is_cut_where_the_ipu_changes_and_sends_what_crosses(names):
    tf, ipu = names.tf, names.ipu
    configure(names, 2)
    infeed, outfeed = stream(names), queue(names)

    def body(x):
        with ipu.scopes.ipu_shard(0):
            a = x * tf.get_variable("a", [], initializer=tf.ones_initializer())
        with ipu.scopes.ipu_shard(1):
            b = a + 1
        with ipu.scopes.ipu_shard(0):
            c = b * a
        return outfeed.enqueue({"c": c, "x": x})

    found = run(names, lambda: ipu.loops.repeat(2, body, [], infeed), outfeed, [infeed])
    assert found.job.plan.shape.mapping == (0, 1, 0)
    assert found.job.schedule.name == "sharded"
    assert found.sent["c"].tolist() == [((x + 1) * x).tolist() for x in (X, 2 * X)]
    assert found.sent["x"].tolist() == [X.tolist(), (2 * X).tolist()]


def test_a_loop_inside_of_a_body_is_on_the_ipu_of_its_own_body(names):
    tf, ipu = names.tf, names.ipu
    configure(names, 2)

    def found(shards):
        infeed, outfeed = stream(names), queue(names)

        def step(time, value):
            for shard in shards:
                with ipu.scopes.ipu_shard(shard):
                    value = value * 2
            return time + 1, value

        def body(x):
            return outfeed.enqueue(tf.while_loop(lambda time, _: time < 3, step, (0, x))[1])

        return run(names, lambda: ipu.loops.repeat(2, body, [], infeed), outfeed, [infeed])

    alone = found([1])
    assert (alone.job.plan.shape.mapping, alone.job.system.replicas) == ((1,), 1)
    assert alone.sent.tolist() == [(8 * X).tolist(), (16 * X).tolist()]
    with pytest.raises(UnsupportedProgramError, match=r"one IPU for the body of a loop.* got IPUs 0 and 1"):
        found([1, 0])


def test_a_loop_inside_of_a_body_runs_in_the_forward_pass_and_learns(names):
    """The loss w^3 sum(x) has the gradient 3 w^2 sum(x); sums are 6 and 12. A pass has the work of three products."""
    tf, ipu = names.tf, names.ipu
    infeed, outfeed = stream(names), queue(names)

    def body(x):
        w = tf.get_variable("w", [], initializer=tf.ones_initializer())
        powers = tf.while_loop(lambda time, _: time < 3, lambda time, value: (time + 1, value * w), (0, x))[1]
        loss = tf.reduce_sum(powers)
        return outfeed.enqueue(loss), tf.train.GradientDescentOptimizer(0.01).minimize(loss)

    found = run(names, lambda: ipu.loops.repeat(2, body, [], infeed), outfeed, [infeed])
    second = 1 - 0.01 * 3 * 6
    np.testing.assert_allclose(found.sent, [6, 12 * second**3], rtol=1e-6)
    np.testing.assert_allclose(found.variables["w"], second - 0.01 * 3 * second**2 * 12, rtol=1e-6)
    (stage,) = found.job.program.stages
    assert stage.forward[0].vector.elementwise >= 3 * 3
    assert stage.backward[0].vector.elementwise >= 3 * 3
    assert stage.stash_bytes == 12 + 3 * (12 + 4)  # x, and in each iteration the value and w


def test_dropout_in_a_sharded_body_draws_anew_in_each_iteration(names):
    tf, ipu = names.tf, names.ipu
    configure(names, 2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(8, np.float32)).repeat())
    outfeed = queue(names)

    def body(x):
        with ipu.scopes.ipu_shard(0):
            weight = tf.get_variable("w", [], initializer=tf.ones_initializer())
            dropped = tf.nn.dropout(x * weight, rate=0.5)
        with ipu.scopes.ipu_shard(1):
            loss = tf.reduce_sum(dropped)
        return outfeed.enqueue(dropped), tf.train.GradientDescentOptimizer(0.0).minimize(loss)

    found = run(names, lambda: ipu.loops.repeat(20, body, [], infeed), outfeed, [infeed]).sent
    assert set(np.unique(found).tolist()) == {0.0, 2.0}
    assert len(np.unique(found, axis=0)) > 10


def test_what_a_loop_carries_on_and_returns(names):
    """One tensor by itself, several in a list, and without any the operation."""
    tf, ipu = names.tf, names.ipu
    loops, outfeed = ipu.loops, queue(names)
    infeeds = [stream(names) for _ in range(3)]

    def until(infeed, most=None):
        return lambda: loops.while_loop(lambda i: i < 7, lambda i, x: i + 2, [0], infeed, maximum_iterations=most)

    compiled = [
        ipu.ipu_compiler.compile(each)
        for each in (
            lambda: loops.repeat(5, lambda i, total, x: (i + 1, total + x), [0, np.zeros(3, np.float32)], infeeds[0]),
            until(infeeds[1]),
            until(infeeds[2], 2),
            lambda: loops.repeat(3, lambda i: i + 1, [np.float32(0)]) / 2,
            lambda: loops.repeat(3, lambda: outfeed.enqueue(np.float32(1)), []),
            lambda: loops.while_loop(lambda i: i < 0, lambda i: i + 1, [5]),
        )
    ]
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        session.run([each.initializer for each in infeeds])
        both, last, fewer, half, nothing, at_once = (session.run(each) for each in compiled)
        assert session.run(dequeued).tolist() == [1, 1, 1]
    assert (both[0], both[1].tolist()) == (5, (7 * X).tolist())
    assert (last, fewer, half, nothing, at_once) == ((8,), (4,), (1.5,), None, (5,))


WRONG = {
    ProgramError: [
        (lambda names, loops: loops.repeat(0, lambda x: None), "n: expected a whole number from 1"),
        (
            lambda names, loops: loops.repeat(2, lambda i, x: None, [0], stream(names)),
            "loop-carried inputs, 1, got 0",
        ),
        (
            lambda names, loops: loops.repeat(2, lambda i, x: x, [np.float32(0)], stream(names)),
            r"tensor of shape \(\) again, got \(3,\)",
        ),
        (lambda names, _: names.ipu.scopes.ipu_shard(-1).__enter__(), "index: expected a whole number"),
    ],
    ProgramTypeError: [
        (lambda names, loops: loops.repeat("2", lambda x: None), "n: expected a whole number"),
        (lambda names, loops: loops.repeat(2, 3), "body: expected a function of the loop-carried"),
        (lambda names, loops: loops.repeat(2, lambda: None, infeed_queue=[X]), "infeed_queue is not an instance"),
        (lambda names, loops: loops.while_loop(1, lambda i: i, [0]), "condition: expected a function"),
    ],
    UnsupportedProgramError: [
        (lambda names, loops: loops.repeat(2, lambda i: names.tf.cast(i, "float32"), [0]), "int32 again, got float"),
        (lambda names, _: names.ipu.autoshard.automatic_sharding(2, X, X), "automatic_sharding: expected shards"),
    ],
}


@pytest.mark.parametrize(("kind", "action", "text"), [(kind, *case) for kind in WRONG for case in WRONG[kind]])
def test_what_cannot_be(names, kind, action, text):
    with pytest.raises(kind, match=text):
        action(names, names.ipu.loops)


def test_a_condition_that_depends_on_data_is_refused(names):
    infeed = stream(names)
    loop = lambda: names.ipu.loops.while_loop(  # noqa: E731
        lambda total: names.tf.reduce_sum(total) < 9, lambda total, x: total + x, [X], infeed
    )
    with pytest.raises(UnsupportedProgramError, match="a number of iterations that depends on no data"):
        run(names, loop, None, [infeed])


def test_functions_of_sharding_look_at_the_graph(names):
    tf, sharding = names.tf, names.ipu.sharding
    with names.ipu.scopes.ipu_shard(3):
        a = tf.constant(1.0, name="a")
    b = tf.identity(a, name="b")
    with tf.get_default_graph().colocate_with(a.op):
        c = tf.identity(b, name="c")
    unrelated = tf.constant(2.0)
    assert {each.name for each in sharding.dependencies([c])} == {"a", "b", "c"}
    assert unrelated.op not in sharding.dependencies([b, c.op])
    assert (sharding.has_attr(a.op, "value"), sharding.has_attr(b.op, "value")) == (True, False)
    assert (sharding.get_shard_from_colocation(c.op), sharding.get_shard_from_colocation(b.op)) == (3, None)
    sharding.propagate_sharding(tf.get_default_graph())


def test_replicas_meet_in_a_computation_without_a_loop(names):
    ops, infeed = names.ipu.cross_replica_ops, stream(names)
    configure(names, 2)
    compiled = names.ipu.ipu_compiler.compile(lambda: ops.cross_replica_sum(infeed._dequeue()))
    with names.tf.Session() as session:
        session.run(infeed.initializer)
        (found,) = session.run(compiled)
    np.testing.assert_array_equal(found, 3 * X)


def test_a_gradient_has_the_shard_of_its_operation(names):
    sharding, shard, found = names.ipu.sharding, names.ipu.scopes.ipu_shard, []

    def body(x):
        with shard(1), names.tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = x * 3.0
        z = y * 2.0
        with shard(2):
            grads = names.tf.gradients(y, x)[0], tape.gradient(y, x)
        found.extend(sharding.get_sharding(each.op) for each in (y, *grads, z))

    assert isinstance(names.ipu.ipu_compiler.compile(body, [X]), names.tf.Operation)
    assert found == [[1], [1], [1], None]


def test_a_count_may_be_a_tensor_that_each_run_feeds(names):
    tf, ipu = names.tf, names.ipu
    outfeed, count = queue(names), tf.placeholder(tf.int32, [])

    def body(x):
        return x + 1, outfeed.enqueue(x)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        loop = ipu.ipu_compiler.compile(lambda n: ipu.loops.repeat(n, body, [tf.constant(0.0)]), [count])
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        for n in (1, 3):
            assert session.run(loop, {count: n}) == (n,)
            assert np.ravel(session.run(dequeued)).tolist() == [*range(n)]


@pytest.mark.parametrize("kind", ["repeat", "while_loop"])
def test_a_loop_inside_of_a_loop_is_control_flow_of_its_body(names, kind):
    """Which changes variables, carries values on, and takes its time in each iteration of the outer loop."""
    tf, loops, outfeed = names.tf, names.ipu.loops, queue(names)

    def inner(count, total):
        return count + 1, total + tf.get_variable("total", initializer=np.float32(2)).assign_add(1)

    def outer(times, total):
        if kind == "repeat":
            _, total = loops.repeat(times, inner, [np.float32(0), total])
        else:
            _, total = loops.while_loop(lambda count, _: count < times, inner, [np.float32(0), total])
        return total, outfeed.enqueue(total)

    def found(times):
        tf.reset_default_graph()
        return run(names, lambda: loops.repeat(2, lambda total: outer(times, total), [np.float32(0)]), outfeed)

    outfeed = queue(names)
    three = found(3)
    assert three.sent.tolist() == [3 + 4 + 5, 3 + 4 + 5 + 6 + 7 + 8]
    assert three.variables["total"] == 8
    outfeed = queue(names)
    assert found(6).timeline.end.max() > three.timeline.end.max()


def test_a_loop_inside_of_a_loop_trains_and_has_no_queues_of_its_own(names):
    tf, ipu = names.tf, names.ipu

    def step():
        weight = tf.get_variable("w", initializer=np.float32(1))
        return tf.train.GradientDescentOptimizer(0.1).minimize((weight - 3) ** 2)

    found = run(names, lambda: ipu.loops.repeat(2, lambda: ipu.loops.repeat(3, step)), None)
    assert found.variables["w"] == pytest.approx(3 - 2 * 0.8**6, rel=1e-5)
    for action, text in (
        (lambda: ipu.loops.repeat(3, lambda x: x, [], stream(names)), "infeed_queue in a loop inside of a program"),
        (lambda: ipu.loops.repeat(3, lambda: queue(names).enqueue(tf.constant(1.0))), "enqueue in a loop inside"),
    ):
        tf.reset_default_graph()
        with pytest.raises(UnsupportedProgramError, match=text):
            ipu.ipu_compiler.compile(partial(ipu.loops.repeat, 2, action), [])
