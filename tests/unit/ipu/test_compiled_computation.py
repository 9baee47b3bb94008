"""Computations without a pipeline or a loop that ipu_compiler compiles: what they return, learn, take and cost."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, UnsupportedProgramError
from ipusim.ipu import ipu_compiler, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, reset_ipu_configuration
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.runtime.recording import Recorder, recording
from ipusim.timeline.kinds import SpanKind

X = np.array([[1, 2], [3, -1], [0.5, 4]], np.float32)
T = np.array([1, -2, 3], np.float32)


def placeholders():
    return tf.placeholder(tf.float32, [3, 2]), tf.placeholder(tf.float32, [3])


def model(x, t, split=False):
    """Return the loss of w v x against t, and what trains it."""
    with scopes.ipu_shard(0):
        y = tf.matmul(x, tf.get_variable("w", [2, 1], initializer="ones"))
    with scopes.ipu_shard(1 if split else 0):
        y = tf.reshape(y, [3]) * tf.get_variable("v", [], initializer="ones")
        loss = tf.reduce_mean((y - t) ** 2)
    return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)


def unsplit(steps):
    """Return the losses of the same in NumPy."""
    w, v, losses = np.ones(2), 1.0, []
    for _ in range(steps):
        y = X @ w
        error = 2 * (y * v - T) / 3
        losses.append(np.mean((y * v - T) ** 2))
        w, v = w - 0.05 * v * X.T @ error, v - 0.05 * error @ y
    return losses


@pytest.mark.parametrize("split", [False, True])
def test_a_computation_learns_from_what_the_session_feeds(split):
    x, t = placeholders()
    fetches = ipu_compiler.compile(lambda x, t: model(x, t, split), [x, t])
    with recording(Recorder()) as recorder, tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run(fetches, {x: X, t: T})[0] for _ in range(4)]
        session.run(tf.global_variables_initializer())
        losses += [session.run(fetches, {x: X, t: T})[0] for _ in range(2)]
    assert losses == pytest.approx(unsplit(4) + unsplit(2), rel=1e-5)
    (program,) = recorder.programs
    assert program.ran == 6
    assert program.job.plan.shape.mapping == ((0, 1) if split else (0,))
    assert program.job.program.name == "<lambda>"


def test_each_run_takes_and_gives_other_values_through_host_copies_that_cost_time():
    def ended(width):
        x = tf.placeholder(tf.float32, [width])
        (doubled,) = ipu_compiler.compile(lambda x: x * 2, [x])
        with recording(Recorder()) as recorder, tf.Session() as session:
            for value in (1, 2):
                np.testing.assert_array_equal(session.run(doubled, {x: [value] * width}), [2 * value] * width)
        return recorder.programs[0].run(recorder.programs[0].job.request).timeline

    small, large = ended(8), ended(800_000)
    for kind in (SpanKind.INFEED, SpanKind.OUTFEED):
        cycles = [int((timeline.end - timeline.start)[timeline.rows(kind)].sum()) for timeline in (small, large)]
        assert 0 < 100 * cycles[0] < cycles[1]


def test_results_keep_their_structure_and_go_on_as_tensors_of_the_host():
    x = tf.placeholder(tf.float32, [2])
    several = ipu_compiler.compile(lambda x: [x, {"twice": x * 2, "more": (x + 1, 7)}, tf.no_op()], [x])
    named = ipu_compiler.compile(lambda x: {"x": x}, [x])
    (one,) = ipu_compiler.compile(lambda x: x * 3, [x])
    with tf.Session() as session:
        first, second = session.run(several, {x: [1, 2]})
        assert first.tolist() == [1, 2]
        assert second["twice"].tolist() == [2, 4]
        assert [each.tolist() for each in second["more"]] == [[2, 3], 7]
        assert second["more"][1].dtype == np.int32
        assert session.run(named, {x: [1, 2]})["x"].tolist() == [1, 2]
        assert session.run(tf.reduce_sum(one) + x, {x: [1, 2]}).tolist() == [10, 11]


def test_an_operation_alone_trains_variables_made_outside():
    w = tf.Variable(np.float32(1), name="w")
    x = tf.placeholder(tf.float32, [])

    def train(x):
        return tf.train.GradientDescentOptimizer(0.5).minimize((w.read_value() - x) ** 2)

    operation = ipu_compiler.compile(train, [x])
    (read,) = ipu_compiler.compile(lambda: w * 1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(operation, {x: 3}) is None
        assert session.run(read) == 3


def test_replicas_take_the_same_inputs_and_the_first_gives_the_results():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    try:
        x = tf.placeholder(tf.float32, [2])
        fetches = ipu_compiler.compile(lambda x: x + 1, [x])
        with tf.Session() as session:
            assert session.run(fetches, {x: [1, 2]})[0].tolist() == [2, 3]
    finally:
        reset_ipu_configuration()


def test_shards_that_compute_nothing_give_what_they_take():
    def computation(x):
        with scopes.ipu_shard(0):
            y = x
        with scopes.ipu_shard(1):
            return y, 3.0

    x = tf.placeholder(tf.float32, [2])
    fetches = ipu_compiler.compile(computation, [x])
    with tf.Session() as session:
        assert [each.tolist() for each in session.run(fetches, {x: [1, 2]})] == [[1, 2], 3]


def test_a_computation_that_enqueues_sends_to_its_own_queue():
    queue = IPUOutfeedQueue()
    program = ipu_compiler.compile(lambda: queue.enqueue(tf.ones([2])))
    dequeue = queue.dequeue()
    with tf.Session() as session:
        session.run(program)
        session.run(program)
        assert session.run(dequeue).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(UnsupportedProgramError, match="to enqueue all its results, got 1"):
        ipu_compiler.compile(lambda: (IPUOutfeedQueue().enqueue(X), X * 2))


def test_what_fails_says_where_and_what_holds_a_loop_says_that_of_its_own():
    with pytest.raises(ModelError, match=r"test_compiled_computation\.py:\d+: KeyError: 'no'"):
        ipu_compiler.compile(lambda: {}["no"])
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(ProgramError, match=r"expected as many tensors as there are loop-carried inputs, 1, got 2"):
        ipu_compiler.compile(lambda x: loops.repeat(2, lambda x: (x, x), [x]), [x])
    with pytest.raises(KeyError):
        ipu_compiler.compile(lambda: [loops.repeat(2, lambda: None), {}["no"]])


def test_results_are_tensors():
    with pytest.raises(UnsupportedProgramError, match="expected tensors and operations as its results, got 'text'"):
        ipu_compiler.compile(lambda: [np.ones(2), "text"])


def test_variables_of_a_first_trial_on_tensors_of_the_host_are_forgotten():
    def computation(x):
        w = tf.get_variable("alone", [2], initializer="ones")
        return tf.matmul(x, tf.reshape(w, [2, 1]))

    x, _ = placeholders()
    fetches = ipu_compiler.compile(computation, [x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(session.run(fetches, {x: X})[0][:, 0], X.sum(axis=1))
    assert [each.name for each in tf.global_variables() if each.name.startswith("alone")] == ["alone"]


def test_a_strategy_runs_a_function_without_a_loop_on_the_device():
    @tf.function
    def step(x, factor=2.0):
        w = tf.get_variable("w", [], initializer="ones")
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((factor * w * x - 3 * x) ** 2)
        tf.train.GradientDescentOptimizer(0.01).apply_gradients([(tape.gradient(loss, w), w)])
        return {"loss": loss, "sum": tf.reduce_sum(x)}

    with recording(Recorder()) as recorder, IPUStrategy().scope() as strategy:
        given = [T, 2 * T, T]
        found = [strategy.run(step, [each], {"factor": 3.0}) for each in given]
    w = 1.0
    assert all(isinstance(each, dict) for each in found)
    for each, x in zip(found, given, strict=True):
        assert float(each["loss"]) == pytest.approx(np.mean((3 * w * x - 3 * x) ** 2), rel=1e-5, abs=1e-9)
        assert each["sum"].numpy() == x.sum()
        w -= 0.01 * np.mean(2 * (3 * w - 3) * 3 * x**2)
    (program,) = recorder.programs
    assert (program.ran, program.job.program.name) == (3, "step")


def test_a_function_that_only_does_something_on_the_host_is_called_there_each_time():
    seen = []

    @tf.function
    def note(text):
        seen.append(text)

    with recording(Recorder()) as recorder, IPUStrategy().scope() as strategy:
        strategy.run(note, ["a"])
        before = len(seen)
        strategy.run(note, ["a"])
    assert len(seen) == before + 1
    assert all(program.ran == 1 for program in recorder.programs)


def test_what_the_device_does_not_take_is_said_in_a_function_of_a_strategy():
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, x))
        return tape.gradient(loss, x)

    with (
        IPUStrategy().scope() as strategy,
        pytest.raises(ModelError, match=r"computation\.py:\d+: ValueError: shapes"),
    ):
        strategy.run(step, [X])
