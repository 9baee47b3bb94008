"""What replicas do together in a stage that TensorFlow traces: results and gradients against NumPy with all of them."""

import numpy as np
import pytest

from ipusim.api import functions
from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError
from tests.oracles.test_replica_collectives import RATE, averaged, gone_together
from tests.traced_training import Lazily, ipus, train

pytestmark = pytest.mark.usefixtures("tf")

cross_replica_ops, all_to_all_op = Lazily("cross_replica_ops"), Lazily("all_to_all_op")
reduce_scatter_op, replication_ops = Lazily("reduce_scatter_op"), Lazily("replication_ops")
REPLICAS, GROUP, LENGTH = 4, 2, 5
X = np.random.default_rng(5).normal(size=(REPLICAS, LENGTH)).astype(np.float32)
REDUCED = {"ADD": np.sum, "MUL": np.prod, "MIN": np.min, "MAX": np.max, "MEAN": np.mean}
REDUCED["SQUARE_ADD"] = lambda x, axis: (x**2).sum(axis)


def together(function, elements=X):
    """What a function gives in each replica, on its element."""
    return np.asarray(gone_together(function, REPLICAS, elements).losses)[0]


def by_group(x, group=GROUP):
    return x.reshape(-1, group, *x.shape[1:])


def chunks(whole):
    part = -(-whole.shape[1] // GROUP)
    return np.pad(whole, [(0, 0), (0, part * GROUP - whole.shape[1])]).reshape(REPLICAS, part)


def test_results_are_those_of_numpy():
    every = by_group(X)
    found = together(cross_replica_ops.cross_replica_sum)
    np.testing.assert_allclose(found, X.sum(0, keepdims=True).repeat(REPLICAS, 0), rtol=1e-6)
    found = together(lambda x: cross_replica_ops.cross_replica_sum(x, GROUP))
    np.testing.assert_allclose(found, every.sum(1).repeat(GROUP, 0), rtol=1e-6)
    found = together(lambda x: cross_replica_ops.cross_replica_mean(x, GROUP))
    np.testing.assert_allclose(found, every.mean(1).repeat(GROUP, 0), rtol=1e-6)
    found = together(lambda x: all_to_all_op.all_gather(x, GROUP))
    np.testing.assert_array_equal(found, every.repeat(GROUP, 0))
    found = together(lambda x: sum(all_to_all_op.all_gather([x, 2 * x], GROUP)))
    np.testing.assert_array_equal(found, 3 * every.repeat(GROUP, 0))
    square = np.arange(REPLICAS * 16.0, dtype=np.float32).reshape(REPLICAS, 4, 4)
    found = together(lambda x: all_to_all_op.all_to_all(x, 1, 0, REPLICAS), square)
    for replica, got in enumerate(found):
        right = np.concatenate([np.split(each, REPLICAS, 1)[replica] for each in square], 0)
        np.testing.assert_array_equal(got, right)
    assert together(lambda _: replication_ops.replication_index()).tolist() == [0, 1, 2, 3]
    found = together(lambda x: reduce_scatter_op.reduce_scatter(x, GROUP, "COLLECTIVE_OP_LOCAL"))
    padded = np.pad(X, [(0, 0), (0, 1)]).reshape(REPLICAS, GROUP, 3)
    own = padded[np.arange(REPLICAS), np.arange(REPLICAS) % GROUP]
    np.testing.assert_array_equal(found, own)


@pytest.mark.parametrize("operation", REDUCED)
def test_a_reduce_scatter_gives_each_replica_its_part_and_zeros_behind_the_end(operation):
    found = together(lambda x: reduce_scatter_op.reduce_scatter(x, GROUP, f"COLLECTIVE_OP_{operation}"))
    np.testing.assert_allclose(found, chunks(REDUCED[operation](by_group(X), 1)), rtol=1e-6)


def test_logical_operations_give_1_and_0_of_whole_numbers():
    x = np.array([[0, 1, 2], [0, 5, 0], [3, 3, 3], [0, 0, -7]], np.int32)
    for name, of_all in (("AND", np.all), ("OR", np.any)):
        found = together(lambda x, n=name: reduce_scatter_op.reduce_scatter(x, GROUP, f"COLLECTIVE_OP_LOGICAL_{n}"), x)
        np.testing.assert_array_equal(found, chunks(of_all(by_group(x), axis=1)))


def _summed_three_times(tf, z):
    """A loop in a stage, each of whose steps sums over the replicas of a group."""
    body = lambda step, state: (step + 1, cross_replica_ops.cross_replica_sum(tf.tanh(state), GROUP))  # noqa: E731
    return tf.while_loop(lambda step, _: step < 3, body, [0, z])[1]


def _summed_three_times_in_numpy(every):
    for _ in range(3):
        every = np.broadcast_to(np.tanh(every).sum(1, keepdims=True), every.shape)
    return every


#: Losses of a replica, and the sum of all of them, of z in each replica by group.
LEARNED = {
    "sum": (
        lambda tf, z: tf.reduce_sum(cross_replica_ops.cross_replica_sum(z, GROUP) ** 2),
        lambda every: GROUP * np.sum(every.sum(1) ** 2),
    ),
    "gather": (
        lambda tf, z: tf.reduce_sum(all_to_all_op.all_gather(z, GROUP) ** 2 * [[1.0], [2.0]]),
        lambda every: GROUP * np.sum(every**2 * np.array([[1.0], [2.0]])),
    ),
    "LOCAL": (
        lambda tf, z: tf.reduce_sum(reduce_scatter_op.reduce_scatter(z, GROUP, "COLLECTIVE_OP_LOCAL") ** 2),
        lambda every: np.sum(every[:, 0, :3] ** 2) + np.sum(every[:, 1, 3:] ** 2),
    ),
    "sum in a loop": (
        lambda tf, z: tf.reduce_sum(_summed_three_times(tf, z) ** 2),
        lambda every: np.sum(_summed_three_times_in_numpy(every) ** 2),
    ),
    **{
        name: (
            lambda tf, z, n=name: tf.reduce_sum(reduce_scatter_op.reduce_scatter(z, GROUP, f"COLLECTIVE_OP_{n}") ** 2),
            lambda every, reduce=reduce: np.sum(reduce(every, 1) ** 2),
        )
        for name, reduce in REDUCED.items()
    },
}


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_are_those_of_all_replicas_in_one_process(tf, name):
    function, whole = LEARNED[name]
    start = np.linspace(0.2, 1.2, LENGTH).astype(np.float32)

    def first(x):
        return tf.tanh(x[0] + tf.compat.v1.get_variable("v", initializer=start))

    device = ipus(2 * REPLICAS)
    done = train(
        lambda _: [first, lambda z: function(tf, z)], [X], batch=1, optimizer=averaged, device=device, repeat_count=1
    )

    def loss(v):
        return whole(by_group(np.tanh(X.astype(np.float64) + v)))

    slopes = [(loss(start + e) - loss(start - e)) / 2e-6 for e in 1e-6 * np.eye(LENGTH)]
    np.testing.assert_allclose(done.variables["v"], start - RATE * 4 * np.array(slopes) / REPLICAS, rtol=2e-5)


def test_what_is_refused(tf):
    x = np.ones(4, np.float32)
    with tf.Graph().as_default():
        for call, kind, text in (
            (lambda: cross_replica_ops.cross_replica_sum("x"), ProgramTypeError, "^x: expected a tensor of floating-"),
            (
                lambda: cross_replica_ops.cross_replica_sum(x, 0),
                ProgramError,
                "^replica_group_size: expected a whole",
            ),
            (lambda: all_to_all_op.all_gather(x, 5000), ProgramError, "a whole number from 1 to 4096, got 5000"),
            (lambda: all_to_all_op.all_to_all(x, 1, 0, 2), ProgramError, "a dimension of a tensor of rank 1, got 1"),
            (lambda: all_to_all_op.all_to_all(x, 0, 0, 3), ProgramError, "one that 3 replicas cut into equal blocks"),
            (lambda: reduce_scatter_op.reduce_scatter(x, 2, "ADD"), ProgramError, "^op: expected COLLECTIVE_OP_ADD"),
            (lambda: reduce_scatter_op.reduce_scatter(x[None], 2), ProgramError, "^x: expected a tensor of rank 1"),
        ):
            with pytest.raises(kind, match=text):
                call()
    with pytest.raises(ModelError, match="no gradient comes back through"):
        functions.reduce_scatter_gradient(np.ones(4, np.int32), np.ones(2), 2, "logical_and")
