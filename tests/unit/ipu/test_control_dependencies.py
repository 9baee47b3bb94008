"""What runs before or beside a program: control dependencies, computations without a loop, what a session feeds.

Also tensors of the host that a loop's body or a computation uses without being given them. A stage of a pipeline may
not, as test_graphcore_texts has it.
"""

import numpy as np
import pytest

from ipusim.base.errors import ProgramTypeError, UnsupportedProgramError
from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, run

X = np.float32([[1, 2], [3, -1], [0.5, 4]])
T = np.float32([1, -2, 3])
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2) / 8


@pytest.fixture(autouse=True)
def _one_ipu(names):
    configure(names, 1)


def test_a_print_comes_before_what_waits_for_it(names, capsys):
    tf, x = names.tf, names.tf.placeholder(np.float32, [2])
    printed = names.ipu.internal_ops.print_tensor(x * 3, name="before")
    with tf.control_dependencies([printed]):
        after = tf.identity(x) + 1
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run([after, after * 2], {x: [1, 2]}), [[2, 3], [4, 6]])
    assert capsys.readouterr().err == "before: [3., 6.]\n"  # once in a run


def test_a_program_comes_before_what_waits_for_it(names):
    tf, queue = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    loop = names.ipu.loops.repeat
    ran = names.ipu.ipu_compiler.compile(lambda: loop(2, lambda x: (x + 1, queue.enqueue(x)), [np.float32(0)]))
    with tf.control_dependencies(list(ran)):
        last = tf.reduce_sum(queue.dequeue())
    with tf.Session() as session:
        assert session.run(last) == 1


def test_an_effect_that_no_kernel_has_is_refused_where_only_a_control_dependency_asks_for_it(names):
    def body(x):
        with names.tf.control_dependencies([names.tf.io.write_file("seen.txt", "seen")]):
            return names.tf.identity(x)

    ipu = names.ipu
    with pytest.raises(UnsupportedProgramError, match="node 'WriteFile': operation WriteFile is not simulated"):
        ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [np.float32(0)]))


def test_a_computation_that_sends_is_a_loop_of_one_iteration(names):
    """As a loop, it takes simulated time, learns, and goes on from run to run; shapes may change."""
    tf, outfeed = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    x = tf.placeholder(np.float32, [None, 3])

    def computed(x):
        w = tf.get_variable("w", initializer=np.ones((3, 2), np.float32))
        y = tf.matmul(x, w)
        loss = tf.reduce_sum(tf.square(y))
        learn = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([learn]):
            return y, outfeed.enqueue(loss), loss

    elements = [np.float32([[1, 2, 3]]), np.float32([[1, 0, 0], [0, 2, 0]])]
    ran = run(names, computed, outfeed, inputs=[x], feeds=[{x: each} for each in elements])
    w, sent = np.ones((3, 2)), []
    for each in elements:
        y = each @ w
        sent.append([np.sum(y**2)])
        w = w - 0.1 * each.T @ (2 * y)
    np.testing.assert_allclose(ran.sent, sent, rtol=1e-5)
    np.testing.assert_allclose(ran.variables["w"], w, rtol=1e-5)
    np.testing.assert_allclose(ran.results[0], y, rtol=1e-5)
    np.testing.assert_allclose(ran.results[-1], sent[-1][0], rtol=1e-5)
    kinds = [each[2] for each in ran.spans]
    assert {SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.WEIGHT_UPDATE} <= set(kinds)


def test_a_computation_returns_what_the_first_replica_has(names):
    from ipusim.ipu import gen_poputil_ops  # noqa: PLC0415 - which imports TensorFlow

    tf, outfeed = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    configure(names, 2)

    def computed(x):
        index = tf.cast(names.ipu.replication_ops.replication_index(), tf.float32)
        return x + index, outfeed.enqueue(gen_poputil_ops.ipu_replication_normalise(2 * x * (1 + index)))

    x = tf.placeholder(np.float32, [2])
    ran = run(names, computed, outfeed, inputs=[x], feeds=[{x: [3, 4]}])
    np.testing.assert_array_equal(ran.sent, [[[3, 4], [6, 8]]])
    np.testing.assert_array_equal(ran.results[0], [3, 4])


def unsplit(steps):
    """Return the losses of w v x against t in NumPy."""
    w, v, losses = np.ones(2), 1.0, []
    for _ in range(steps):
        y = X @ w
        error = 2 * (y * v - T) / 3
        losses.append(np.mean((y * v - T) ** 2))
        w, v = w - 0.05 * v * X.T @ error, v - 0.05 * error @ y
    return losses


@pytest.mark.parametrize("split", [False, True])
def test_a_computation_learns_from_what_the_session_feeds(names, split):
    tf, shard = names.tf, names.ipu.scopes.ipu_shard
    configure(names, 1 + split)
    x, t = tf.placeholder(np.float32, [3, 2]), tf.placeholder(np.float32, [3])

    def model(x, t):
        with shard(0):
            y = tf.matmul(x, tf.get_variable("w", [2, 1], initializer=tf.ones_initializer()))
        with shard(int(split)):
            y = tf.reshape(y, [3]) * tf.get_variable("v", [], initializer=tf.ones_initializer())
            loss = tf.reduce_mean((y - t) ** 2)
        return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)

    fetches = names.ipu.ipu_compiler.compile(model, [x, t])
    with tf.Session() as session:
        for steps in (4, 2):
            session.run(tf.global_variables_initializer())
            losses = [session.run(fetches, {x: X, t: T})[0] for _ in range(steps)]
            assert losses == pytest.approx(unsplit(steps), rel=1e-5)


def test_an_operation_alone_trains_variables_made_outside(names):
    tf, compiled = names.tf, names.ipu.ipu_compiler.compile
    w = tf.get_variable("w", [], initializer=tf.ones_initializer(), use_resource=True)
    x = tf.placeholder(np.float32, [])
    operation = compiled(lambda x: tf.train.GradientDescentOptimizer(0.5).minimize((w - x) ** 2), [x])
    (read,) = compiled(lambda: w * 1)
    nested = compiled(lambda x: [x, {"more": (x + 1, 7)}], [x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(operation, {x: 3}) is None
        assert session.run([read, read + x], {x: 3}) == [3, 6]  # on the host, too
        assert session.run(nested, {x: 3}) == [3, {"more": (4, 7)}]


def test_a_computation_with_a_loop_sends_behind_the_loop_too(names):
    outfeed = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    total = lambda: names.ipu.loops.repeat(2, lambda x: x + 1, [np.float32(0)])  # noqa: E731
    assert run(names, lambda: outfeed.enqueue(total()), outfeed).sent.tolist() == [2]


def test_a_placeholder_with_a_default_may_be_fed_or_not(names):
    tf, outfeed = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    factor = []

    def body(x):
        factor.append(tf.placeholder_with_default(np.float32(3), []))
        return x + 1, outfeed.enqueue(x * factor[0])

    compiled = names.ipu.ipu_compiler.compile(lambda: names.ipu.loops.repeat(3, body, [np.float32(1)]))
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        for feed, expected in (({}, [3, 6, 9]), ({factor[0]: 2}, [2, 4, 6]), ({}, [3, 6, 9])):
            session.run(compiled, feed)
            assert session.run(dequeued).tolist() == expected


def test_a_dropout_of_keras_without_training_learns_nothing_by_itself(names):
    """In TensorFlow 1 the learning phase is a placeholder, whose default is inference."""
    tf, outfeed = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    computed = lambda x: outfeed.enqueue(names.keras.layers.Dropout(0.5)(x))  # noqa: E731
    x = tf.placeholder(np.float32, [4])
    ran = run(names, computed, outfeed, inputs=[x], feeds=[{x: np.ones(4)}])
    np.testing.assert_array_equal(ran.sent, [np.ones(4)])


def test_operations_have_the_attributes_of_the_compiler_that_their_scopes_set(names):
    tf, scope = names.tf, names.ipu.scopes.frontend_attribute

    def attributes():
        operation = tf.no_op()
        if not names.ipu.sharding.has_attr(operation, "_XlaFrontendAttributes"):
            return None
        from tensorflow.compiler.xla.xla_data_pb2 import FrontendAttributes  # noqa: PLC0415

        return dict(FrontendAttributes.FromString(operation.get_attr("_XlaFrontendAttributes")).map)

    assert attributes() is None
    with scope("a", "1"):
        with scope("b", "2", restore_to="3"), scope("a", "4"):
            assert attributes() == {"a": "4", "b": "2"}
        assert attributes() == {"a": "1", "b": "3"}
    assert attributes() is None
    with pytest.raises(ProgramTypeError, match="attribute_value: expected"), scope("a", 1):
        pass


def queues(names):
    ipu, data = names.ipu, names.tf.data.Dataset.from_tensor_slices(ROWS).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def trained(names, captured, shards=(0, 0)):
    """The losses of a loop in three runs, whose placeholders its body captures or takes as inputs."""
    tf, ipu = names.tf, names.ipu
    tf.reset_default_graph()
    configure(names, 1 + max(shards))
    rate, factor = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [2])
    infeed, outfeed = queues(names)

    def body(rate, factor, x):
        with ipu.scopes.ipu_shard(shards[0]):
            y = x * tf.get_variable("w", initializer=np.ones(2, np.float32)) * factor + 2 * factor
        with ipu.scopes.ipu_shard(shards[1]):
            loss = tf.reduce_mean(tf.square(y)) + tf.reduce_sum(factor[1] - x)
            sent = outfeed.enqueue(loss)
        return sent, tf.train.GradientDescentOptimizer(rate).minimize(loss)

    def net():
        if captured:
            return ipu.loops.repeat(4, lambda x: body(rate, factor * 1, x), infeed_queue=infeed)
        given = [rate, factor * 1]
        return ipu.loops.repeat(4, lambda r, f, x: (r, f, *body(r, f, x)), given, infeed_queue=infeed)

    feeds = [{rate: 0.1 * (step + 1), factor: [1 + step, 2]} for step in range(3)]
    return np.array(run(names, net, outfeed, [infeed], feeds).sent)


def test_a_body_computes_with_what_a_run_feeds_as_with_inputs(names):
    captured = trained(names, captured=True)
    np.testing.assert_array_equal(captured, trained(names, captured=False))
    np.testing.assert_allclose(captured, trained(names, captured=True, shards=(0, 1)), rtol=1e-6)
    assert len(np.unique(captured)) == captured.size


def test_a_computation_captures_as_well(names):
    tf = names.tf
    fed, given = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    fetched = names.ipu.ipu_compiler.compile(lambda x: x + fed, [given])
    with tf.Session() as session:
        for number in (1, 2):
            (found,) = session.run(fetched, {given: [3, 4], fed: [number, 0]})
            np.testing.assert_array_equal(found, [3 + number, 4])
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"):
            session.run(fetched, {given: [3, 4]})
