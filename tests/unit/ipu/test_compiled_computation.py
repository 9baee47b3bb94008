"""Computations without a pipeline or a loop that ipu_compiler compiles: what they return, learn and take."""

from types import SimpleNamespace

import numpy as np
import pytest

from ipusim.ipu.config import IPUConfig
from tests.programs import needs_tensorflow

X = np.array([[1, 2], [3, -1], [0.5, 4]], np.float32)
T = np.array([1, -2, 3], np.float32)


@pytest.fixture
def names():
    """TensorFlow 1's names in a graph of their own, and Graphcore's modules."""
    needs_tensorflow()
    from ipusim.ipu import ipu_compiler, scopes  # noqa: PLC0415
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415
    from ipusim.ipu.runtime.program_state import configure  # noqa: PLC0415

    def device(ipus):
        config = IPUConfig()
        config.auto_select_ipus = ipus
        config.configure_ipu_system()

    tf = load()
    found = SimpleNamespace(tf=tf, v1=tf.compat.v1, compile=ipu_compiler.compile, scopes=scopes, device=device)
    device(1)
    with tf.Graph().as_default():
        yield found
    configure(None)


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
    v1 = names.v1
    names.device(2 if split else 1)
    x, t = v1.placeholder(names.tf.float32, [3, 2]), v1.placeholder(names.tf.float32, [3])

    def model(x, t):
        with names.scopes.ipu_shard(0):
            y = names.tf.matmul(x, v1.get_variable("w", [2, 1], initializer=v1.ones_initializer()))
        with names.scopes.ipu_shard(1 if split else 0):
            y = names.tf.reshape(y, [3]) * v1.get_variable("v", [], initializer=v1.ones_initializer())
            loss = names.tf.reduce_mean((y - t) ** 2)
        return loss, v1.train.GradientDescentOptimizer(0.05).minimize(loss)

    fetches = names.compile(model, [x, t])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(fetches, {x: X, t: T})[0] for _ in range(4)]
        session.run(v1.global_variables_initializer())
        losses += [session.run(fetches, {x: X, t: T})[0] for _ in range(2)]
    assert losses == pytest.approx(unsplit(4) + unsplit(2), rel=1e-5)


def test_results_keep_their_structure_and_go_on_as_tensors_of_the_host(names):
    tf, v1 = names.tf, names.v1
    x = v1.placeholder(tf.float32, [2])
    several = names.compile(lambda x: [x, {"twice": x * 2, "more": (x + 1, 7)}], [x])
    (one,) = names.compile(lambda x: x * 3, [x])
    with v1.Session() as session:
        first, second = session.run(several, {x: [1, 2]})
        assert first.tolist() == [1, 2]
        assert second["twice"].tolist() == [2, 4]
        assert [each.tolist() for each in second["more"]] == [[2, 3], 7]
        assert session.run(tf.reduce_sum(one) + x, {x: [1, 2]}).tolist() == [10, 11]


def test_an_operation_alone_trains_variables_made_outside(names):
    v1 = names.v1
    w = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    x = v1.placeholder(names.tf.float32, [])
    operation = names.compile(lambda x: v1.train.GradientDescentOptimizer(0.5).minimize((w - x) ** 2), [x])
    (read,) = names.compile(lambda: w * 1)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(operation, {x: 3}) is None
        assert session.run(read) == 3


def test_replicas_take_the_same_inputs_and_the_first_gives_the_results(names):
    names.device(2)
    x = names.v1.placeholder(names.tf.float32, [2])
    fetches = names.compile(lambda x: x + 1, [x])
    with names.v1.Session() as session:
        assert session.run(fetches, {x: [1, 2]})[0].tolist() == [2, 3]
