"""Loops without a pipeline: what their bodies compute, carry on, send and learn, on one IPU and on several."""

from __future__ import annotations

import contextvars

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import autoshard, functional_ops, ipu_compiler, loops, scopes, sharding, utils
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, configure_ipu_system, get_ipu_config, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.optimizers import GradientAccumulationOptimizerV2
from ipusim.ipu.pipelining_ops import recomputation_checkpoint
from ipusim.ipu.rnn_ops import LSTMStateTuple

X = np.arange(1, 4, dtype=np.float32)


def stream():
    return IPUInfeedQueue(repeat([X, 2 * X]))


def trained(n, accumulate, split=False, rate=0.01):
    """Fit w v x to 3 x, once an element or with accumulated gradients; returns the losses."""
    outfeed = IPUOutfeedQueue()

    def body(lr, x):
        with scopes.ipu_shard(0):
            y = x * tf.get_variable("w", [], initializer="ones")
        with scopes.ipu_shard(1 if split else 0):
            loss = tf.reduce_mean((y * tf.get_variable("v", [], initializer="ones") - 3 * x) ** 2)
        optimizer = tf.train.GradientDescentOptimizer(lr)
        if accumulate > 1:
            optimizer = GradientAccumulationOptimizerV2(optimizer, accumulate)
        return lr, outfeed.enqueue(loss), optimizer.minimize(loss)

    left = loops.repeat(n, body, [rate], stream())
    assert float(left) == np.float32(rate)
    return outfeed.dequeue()


def expected(n, accumulate, rate=0.01):
    w = v = 1.0
    losses, slopes = [], np.zeros(2)
    for index in range(n):
        x = X * (1 + index % 2)
        error = w * v - 3
        losses.append(error**2 * np.mean(x**2))
        slopes += 2 * error * np.mean(x**2) * np.array([v, w])
        if (index + 1) % accumulate == 0:
            w, v = np.array([w, v]) - rate * slopes
            slopes[:] = 0
    return losses


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_loop_learns_what_plain_numpy_does(split, accumulate):
    assert trained(6, accumulate, split) == pytest.approx(expected(6, accumulate), rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_shards_share_a_variable_which_learns_from_all_of_them(accumulate):
    def learned(split):
        outfeed = IPUOutfeedQueue()

        def body(x):
            y, shared = x, []
            for place, shard in enumerate([0, 1, 2, 0, 1]):
                with scopes.ipu_shard(shard if split else 0), tf.variable_scope("same", reuse=tf.AUTO_REUSE):
                    w = tf.get_variable("w", [], initializer="ones")
                    y = y * w + (place + 1) * tf.get_variable(f"b{shard}", [], initializer="zeros")
                    shared.append(w)
            loss = tf.reduce_mean((y - 2 * x) ** 2)
            outfeed.enqueue([loss, shared[-1]])
            optimizer = GradientAccumulationOptimizerV2(tf.train.GradientDescentOptimizer(0.0001), accumulate)
            return optimizer.minimize(loss)

        loops.repeat(6, body, [], stream())
        return outfeed.dequeue()

    (losses, weights), (right, of_one) = learned(split=True), learned(split=False)
    np.testing.assert_allclose(losses, right, rtol=1e-5)
    np.testing.assert_allclose(weights, of_one, rtol=1e-6)
    assert right[-2] < right[0]
    assert of_one[-1] != 1


def test_a_sharded_body_is_cut_where_the_ipu_changes_and_sends_what_crosses():
    outfeed = IPUOutfeedQueue()

    def body(x):
        with scopes.ipu_shard(0):
            a = x * tf.get_variable("a", [], initializer="ones")
        with scopes.ipu_shard(1):
            b = a + 1
        with scopes.ipu_shard(0):
            c = b * a
        outfeed.enqueue({"c": c, "x": x})

    def compiled():
        ipu_compiler.compile(lambda: loops.repeat(2, body, None, stream()))
        return ipu_compiler.compiled()[-1]

    program = contextvars.copy_context().run(compiled)
    assert program.program.shape.mapping == (0, 1, 0)
    assert program.plan.schedule == "sharded"
    program.run()
    elements = contextvars.copy_context().run(lambda: outfeed._packed(outfeed._taken()))
    assert elements["c"].tolist() == [((x + 1) * x).tolist() for x in (X, 2 * X)]
    assert elements["x"].tolist() == [X.tolist(), (2 * X).tolist()]


@pytest.mark.parametrize("split", [False, True])
def test_io_tiles_of_a_loop_compute_nothing_and_its_feeds_wait(split):
    """They take from each IPU, and say that nothing is overlapped; it was an error."""

    def ran(tiles):
        config, outfeed = IPUConfig(), IPUOutfeedQueue()
        config.auto_select_ipus = 1 + split
        config.io_tiles.num_io_tiles, config.io_tiles.place_ops_on_io_tiles = tiles, tiles > 0
        config.configure_ipu_system()

        def body(x):
            with scopes.ipu_shard(0):
                a = x * tf.get_variable("a", [], initializer="ones")
            with scopes.ipu_shard(int(split)):
                outfeed.enqueue(a + 1)

        ipu_compiler.compile(lambda: loops.repeat(2, body, None, stream()))
        program = ipu_compiler.compiled()[-1]
        program.run()
        return program, outfeed._packed(outfeed._taken()).tolist()

    (plain, elements), (tiled, others) = (contextvars.copy_context().run(ran, tiles) for tiles in (0, 32))
    assert elements == others == [(X + 1).tolist(), (2 * X + 1).tolist()]
    assert tiled.system.ipu.tiles == plain.system.ipu.tiles - 32
    assert [note for note in tiled.notes if "place_ops_on_io_tiles will have no effect" in note]
    assert not [note for note in plain.notes if "io_tiles" in note]


@pytest.mark.parametrize("split", [False, True])
def test_a_body_sends_a_tuple_with_names(split):
    outfeed = IPUOutfeedQueue()

    def body(x):
        with scopes.ipu_shard(0):
            a = x * tf.get_variable("a", [], initializer="ones")
        with scopes.ipu_shard(int(split)):
            outfeed.enqueue(LSTMStateTuple(c=a, h=a + 1))

    loops.repeat(2, body, None, stream())
    c, h = outfeed.dequeue()
    assert c.tolist() == [X.tolist(), (2 * X).tolist()]
    assert h.tolist() == (c + 1).tolist()


def test_dropout_in_a_sharded_body_draws_anew_in_each_iteration():
    outfeed = IPUOutfeedQueue()

    def body(x):
        with scopes.ipu_shard(0):
            dropped = tf.nn.dropout(x * tf.get_variable("w", [], initializer="ones"), rate=0.5)
        with scopes.ipu_shard(1):
            loss = tf.reduce_sum(dropped)
        outfeed.enqueue(dropped)
        return tf.train.GradientDescentOptimizer(0.0).minimize(loss)

    loops.repeat(20, body, None, IPUInfeedQueue(repeat([np.ones(8, np.float32)])))
    found = outfeed.dequeue()
    assert set(np.unique(found).tolist()) == {0.0, 2.0}
    assert len(np.unique(found, axis=0)) > 10


def test_labels_of_a_sharded_body_are_those_of_each_iteration():
    outfeed = IPUOutfeedQueue()
    logits = np.float32([[5, 0, 0]])

    def body(x, labels):
        with scopes.ipu_shard(0):
            y = x * tf.get_variable("w", [], initializer="ones")
        with scopes.ipu_shard(1):
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=y))
        outfeed.enqueue([loss, tf.one_hot(labels, 3)])

    loops.repeat(2, body, None, IPUInfeedQueue([(logits, np.array([0])), (logits, np.array([2]))]))
    losses, rows = outfeed.dequeue()
    assert losses[1] - losses[0] == pytest.approx(5, rel=1e-6)
    assert rows[:, 0].argmax(axis=1).tolist() == [0, 2]


def test_what_a_loop_carries_on():
    def body(i, total, x):
        i += 1
        return i, total + x

    count, total = loops.repeat(5, body, [0, np.zeros(3, np.float32)], stream())
    assert int(count) == 5
    assert total.tolist() == (7 * X).tolist()
    left = loops.while_loop(lambda i: i < 7, lambda i, x: i + 2, [0], stream())
    assert int(left) == 8
    left = loops.while_loop(lambda i: i < 7, lambda i, x: i + 2, [0], stream(), maximum_iterations=2)
    assert int(left) == 4


def test_a_loop_returns_what_graphcores_does():
    """One tensor by itself, several in a list, and without any the operation; what is computed of it waits for it."""
    queue = IPUOutfeedQueue()
    one = ipu_compiler.compile(lambda: loops.repeat(3, lambda i: i + 1, [np.float32(0)]) / 2)
    several = ipu_compiler.compile(lambda: loops.repeat(3, lambda i, j: (i + 1, j + 2), [0, 0]))
    none = ipu_compiler.compile(lambda: loops.repeat(3, lambda: queue.enqueue(np.float32(1)), []))
    with tf.Session() as session:
        assert session.run(one) == (1.5,)
        assert session.run(several) == [3, 6]
        assert session.run(none) is None
        assert session.run(queue.dequeue()).tolist() == [1, 1, 1]


def changing_body(x, element):
    with scopes.ipu_shard(0):
        y = x + element
    with scopes.ipu_shard(1):
        return y * 2


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (lambda: loops.repeat(0, lambda x: None), ProgramError, "n: expected a whole number from 1"),
        (lambda: loops.repeat("2", lambda x: None), ProgramTypeError, "n: expected a whole number"),
        (lambda: loops.repeat(2, 3), ProgramTypeError, "body: expected a function of the loop-carried"),
        (lambda: loops.repeat(2, lambda: None, infeed_queue=[X]), ProgramTypeError, "infeed_queue is not an instance"),
        (lambda: loops.repeat(2, lambda i, x: None, [0], stream()), ProgramError, "loop-carried inputs, 1, got 0"),
        (
            lambda: trained(4, 3),
            ProgramError,
            "with 3 number of mini batches inside a loop with 4 iterations",
        ),
        (
            lambda: loops.repeat(2, lambda i, x: x, [0], stream()),
            ProgramError,
            r"tensor of shape \(\) again, got \(3,\)",
        ),
        (
            lambda: loops.repeat(2, lambda i, x: i + 0.5, [0], stream()),
            UnsupportedProgramError,
            "int32 again, got float",
        ),
        (lambda: IPUOutfeedQueue().enqueue(X), ProgramError, "enqueue: expected to be called in the body of a loop"),
        (lambda: loops.repeat(2, changing_body, [X], stream()), UnsupportedProgramError, "change is not simulated"),
        (
            lambda: loops.while_loop(lambda i: False, lambda i, x: i, [0], stream()),
            UnsupportedProgramError,
            "got 0 times",
        ),
        (lambda: loops.while_loop(1, lambda i: i, [0]), ProgramTypeError, "condition: expected a function"),
        (lambda: scopes.ipu_scope("/device:IPU:x").__enter__(), ProgramError, "device: expected a number behind IPU"),
        (lambda: scopes.ipu_shard(-1).__enter__(), ProgramError, "index: expected a whole number"),
        (lambda: scopes.partials_type(np.float16).__enter__(), UnsupportedProgramError, "give partialsType"),
        (lambda: sharding.dependencies([]), UnsupportedProgramError, "no look at a graph"),
        (lambda: autoshard.automatic_sharding(2, X, X), UnsupportedProgramError, "automatic_sharding: expected shards"),
        (autoshard.ipu_autoshard, UnsupportedProgramError, "ipu_autoshard: expected shards that the program says"),
        (lambda: configure_ipu_system(1), ProgramTypeError, "`config` must be an IPUConfig object, got <class 'int'>"),
    ],
)
def test_what_cannot_be(action, kind, text):
    with pytest.raises(kind, match=text):
        action()


def _configured():
    with pytest.raises(ProgramError.__mro__[-2], match="No IPU devices configured"):
        get_ipu_config()
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    config.auto_select_ipus = 2  # changed too late
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 4
    found = trained_pipeline()
    assert found.system.count == 4
    reset_ipu_configuration()
    assert trained_pipeline().system.count == 2


def trained_pipeline():
    from ipusim.ipu.pipelining_ops import pipeline  # noqa: PLC0415 - beside the rest

    return pipeline([lambda x: x, lambda x: x], 8, infeed_queue=stream(), outfeed_queue=IPUOutfeedQueue())


def test_a_configuration_holds_for_programs_built_after_it():
    contextvars.copy_context().run(_configured)


def test_what_has_no_effect_returns_what_it_is_given():
    function = functional_ops.outlined_function(anp.tanh)
    assert function is anp.tanh
    assert functional_ops.outlined_function(unique_sharding=True)(anp.tanh) is anp.tanh
    assert recomputation_checkpoint((X, X))[0] is X
    assert IPUStrategy().run(lambda a, b: a - b, [3], {"b": 1}) == 2
    assert not utils.running_on_ipu_model()
    utils.reset_ipu_seed(1)
    utils.move_variable_initialization_to_cpu()
    with scopes.ipu_jit_scope("a"), scopes.stochastic_rounding(True), scopes.frontend_attribute("a", "b"):
        sharding.propagate_sharding(None)
