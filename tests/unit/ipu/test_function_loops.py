"""Loops over tf.range in functions that a strategy runs: what they compute, what they refuse, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import loops, optimizers, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue, eager
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipusim.ipu.rnn_ops import LSTMStateTuple

X = np.random.default_rng(5).normal(size=(12, 3)).astype(np.float32)
Y = X @ np.float32([[1], [-2], [0.5]]) + 1


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).repeat()


def predicted(x):
    return x @ tf.get_variable("w", [3, 1], initializer="zeros") + tf.get_variable("b", [1], initializer="ones")


def squares(x, y):
    return tf.reduce_mean((predicted(x) - y) ** 2)


def taped(optimizer, change=lambda gradients: gradients, only=None, queue=None):
    """Return a function whose loop trains with a tape, and the queue of its losses."""
    outfeed = IPUOutfeedQueue() if queue is None else queue

    @tf.function(jit_compile=True)
    def step(count, iterator):
        for _ in tf.range(count):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                w = tf.get_variable("w", [3, 1], initializer="zeros")
                b = tf.get_variable("b", [1], initializer="ones")
                loss = tf.reduce_mean((x @ w + b - y) ** 2)
            variables = [w, b] if only is None else [{"w": w, "b": b}[name] for name in only]
            optimizer.apply_gradients(zip(change(tape.gradient(loss, variables)), variables, strict=True))
            outfeed.enqueue(loss)

    return step, outfeed


def losses_of(optimizer, count=9, **asked):
    step, outfeed = taped(optimizer, **asked)
    IPUStrategy().run(step, args=[count, iter(dataset())])
    return outfeed.dequeue().tolist()


def expected(rate, count=9, change=lambda gradients: gradients, train=(1, 1)):
    """The same by the formulas of the gradients."""
    w, b, losses = np.zeros((3, 1)), np.ones(1), []
    for index in range(count):
        at = slice(4 * (index % 3), 4 * (index % 3) + 4)
        error = X[at].astype(float) @ w + b - Y[at]
        losses.append(np.mean(error**2))
        gw, gb = change([2 * X[at].T @ error / 4, 2 * np.mean(error, axis=0)])
        w, b = w - rate * train[0] * gw, b - rate * train[1] * gb
    return losses


def sgd(rate):
    return optimizers.GradientDescentOptimizer(rate)


class Around(tf.keras.layers.Layer):
    """A layer of another, which it calls."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)


def built():
    layer = tf.keras.layers.Dense(1)
    layer.build((None, 3))
    return layer


@pytest.mark.parametrize("make", [lambda layer: layer, Around])
def test_a_layer_s_variables_are_those_of_its_first_call_in_a_function(make):
    """It trains to the same bits as one that is built before, and has its weights on the host then."""

    def trained(layer):
        optimizer = tf.keras.optimizers.SGD(0.1)

        @tf.function(jit_compile=True)
        def step(iterator):
            for _ in tf.range(5):
                x, y = next(iterator)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((layer(x) - y) ** 2)
                weights = layer.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

        iterator = iter(dataset())
        for _ in range(2):
            IPUStrategy().run(step, args=[iterator])
        return layer.get_weights()

    layer = make(tf.keras.layers.Dense(1))
    assert layer.weights == []
    found, wanted = trained(layer), trained(make(built()))
    assert [each.name for each in layer.weights] == ["dense/kernel", "dense/bias"]
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)
    layer.set_weights([0 * each for each in found])
    assert not np.concatenate([each.ravel() for each in layer.get_weights()]).any()
    with pytest.raises(ProgramError, match=r"^value: expected the shape \(1,\) of variable 'dense/bias', got \(2,\)"):
        layer.set_weights([found[0], np.ones(2)])


def test_a_tape_trains_as_the_formulas_and_as_minimize_do():
    outfeed = IPUOutfeedQueue()

    def body(x, y):
        loss = squares(x, y)
        return [outfeed.enqueue(loss), sgd(0.1).minimize(loss)]

    loops.repeat(9, body, None, IPUInfeedQueue(dataset()))
    found = losses_of(sgd(0.1))
    assert found == outfeed.dequeue().tolist()
    assert found == pytest.approx(expected(0.1), rel=1e-5)


def by_norm(gradients):
    norm = anp.sqrt(sum(anp.sum(gradient**2) for gradient in gradients))
    return [gradient / anp.maximum(norm, 1.0) for gradient in gradients]


@pytest.mark.parametrize(
    "change",
    [
        lambda gradients: [gradient / 2 for gradient in gradients],
        lambda gradients: [-3 * gradient + 0.1 for gradient in gradients],
        lambda gradients: [anp.clip(gradient, -0.1, 0.1) for gradient in gradients],
        lambda gradients: [gradient[::-1] for gradient in gradients],
        lambda gradients: [np.concatenate(LSTMStateTuple(gradients[0], gradients[0]))[2:5], gradients[1]],
        by_norm,
    ],
)
def test_what_a_body_computes_from_gradients(change):
    assert losses_of(sgd(0.05), change=change) == pytest.approx(expected(0.05, change=change), rel=1e-4)


def test_variables_without_a_gradient_stay():
    assert losses_of(sgd(0.1), only=["b"]) == pytest.approx(expected(0.1, train=(0, 1)), rel=1e-5)
    half = losses_of(sgd(0.1), change=lambda gradients: [None, gradients[1] * 1])
    assert half == losses_of(sgd(0.1), only=["b"])


def test_minimize_of_a_function_of_one_variable():
    outfeed = IPUOutfeedQueue()

    @tf.function
    def step(iterator):
        for _ in tf.range(9):
            x, y = next(iterator)
            b = tf.get_variable("b", [1], initializer="ones")
            sgd(0.1).minimize(partial(squares_with, x, y, b), var_list=[b])

    def squares_with(x, y, b):
        loss = tf.reduce_mean((x @ tf.get_variable("w", [3, 1], initializer="zeros") + b - y) ** 2)
        outfeed.enqueue(loss)
        return loss

    IPUStrategy().run(step, args=[iter(dataset())])
    assert outfeed.dequeue().tolist() == losses_of(sgd(0.1), only=["b"])


@pytest.mark.parametrize("wanted", [None, ["b"]])
def test_compute_gradients_in_the_body_of_a_loop(wanted):
    outfeed = IPUOutfeedQueue()

    def body(x, y):
        loss = squares(x, y)
        pairs = sgd(0.1).compute_gradients(loss, var_list=wanted)
        assert [variable.name for _, variable in pairs] == (wanted or ["w", "b"])
        with tf.control_dependencies([sgd(0.1).apply_gradients((g * 2, v) for g, v in pairs)]):
            return [outfeed.enqueue(loss)]

    loops.repeat(9, body, None, IPUInfeedQueue(dataset()))
    twice = losses_of(sgd(0.2), only=wanted)
    assert outfeed.dequeue().tolist() == pytest.approx(twice, rel=1e-5)


def test_minimize_trains_the_variables_that_it_is_given():
    outfeed = IPUOutfeedQueue()

    def body(x, y):
        loss = squares(x, y)
        return [outfeed.enqueue(loss), sgd(0.1).minimize(loss, var_list=["b"])]

    loops.repeat(9, body, None, IPUInfeedQueue(dataset()))
    assert outfeed.dequeue().tolist() == losses_of(sgd(0.1), only=["b"])


def test_an_optimizer_of_ones_own_gets_gradients_with_their_values():
    class Halved(optimizers.MomentumOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append(name)
            super().apply_gradients([(gradient / np.float32(2), variable) for gradient, variable in grads_and_vars])

    seen, outfeed = [], IPUOutfeedQueue()
    own = Halved(0.1, 0.9)

    @tf.function
    def step(iterator):
        for _ in tf.range(9):
            x, y = next(iterator)
            loss = squares(x, y)
            own.apply_gradients(own.compute_gradients(loss), name="own")
            outfeed.enqueue(loss)

    IPUStrategy().run(step, args=[iter(dataset())])
    assert seen == ["own"] * 9
    halved = losses_of(optimizers.MomentumOptimizer(0.1, 0.9), change=lambda gradients: [g / 2 for g in gradients])
    assert outfeed.dequeue().tolist() == pytest.approx(halved, rel=1e-6)


def test_gradients_are_accumulated_as_in_any_loop():
    """Twelve mini-batches of four samples, three to an update: as many updates as by whole epochs of twelve."""
    found = losses_of(optimizers.GradientAccumulationOptimizerV2(sgd(0.1), 3), count=12)
    w, b, means = np.zeros((3, 1)), np.ones(1), []
    for _ in range(4):
        error = X.astype(float) @ w + b - Y
        means.append(np.mean(error**2))
        w, b = w - 0.1 * 3 * 2 * X.T @ error / 12, b - 0.1 * 3 * 2 * np.mean(error, axis=0)
    assert np.mean(np.reshape(found, (4, 3)), axis=1).tolist() == pytest.approx(means, rel=1e-5)


@pytest.fixture
def two_replicas():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


def test_replicas_average_the_gradients_that_the_body_has_changed(two_replicas):
    changes = [lambda gradients: gradients, lambda gradients: [gradient / 2 for gradient in gradients]]
    for change, rate in zip(changes, (0.1, 0.05), strict=True):
        found = np.array(losses_of(optimizers.CrossReplicaOptimizer(sgd(0.1)), count=6, change=change))
        assert found.shape == (6, 2)
        w, b = np.zeros((3, 1)), np.ones(1)
        for index, pair in enumerate(found):
            rows = np.arange(8 * index, 8 * index + 8) % 12
            error = X[rows].astype(float) @ w + b - Y[rows]
            assert np.mean(pair) == pytest.approx(np.mean(error**2), rel=1e-5)
            w, b = w - rate * 2 * X[rows].T @ error / 8, b - rate * 2 * np.mean(error, axis=0)


def test_a_function_runs_on_when_it_is_called_again_with_what_it_is_given_then():
    outfeed = IPUOutfeedQueue()

    @tf.function
    def scaled(iterator, scale, bias):
        for number in tf.range(3):
            outfeed.enqueue((number, scale * next(iterator) + bias))

    strategy = IPUStrategy()
    iterator = iter(tf.data.Dataset.range(100))
    assert next(iterator) == 0
    for scale, bias, first in ((2.0, np.int32(0), 1), (10.0, np.int32(5), 4)):
        assert strategy.run(scaled, args=(iterator,), kwargs={"scale": scale, "bias": bias}) is None
        numbers, found = outfeed.dequeue()
        assert numbers.tolist() == [0, 1, 2]
        assert found.tolist() == [scale * (first + at) + bias for at in range(3)]
    assert int(iterator.get_next()) == 7  # on the host again
    for scale in (3.0,):
        strategy.run(scaled, args=(iterator,), kwargs={"scale": scale, "bias": np.int32(0)})
    assert outfeed.dequeue()[1].tolist() == [24, 27, 30]


def test_elements_come_as_the_dataset_has_them_and_methods_are_functions():
    outfeed = IPUOutfeedQueue()

    class Program:
        @tf.function(jit_compile=True)
        def run(self, iterator):
            for _ in tf.range(2):
                element = next(iterator)
                outfeed.enqueue({"sum": element["a"] + element["b"], "first": element["a"]})

    elements = tf.data.Dataset.from_tensor_slices({"a": np.arange(2), "b": np.array([10, 20])})
    IPUStrategy().run(Program().run, args=[iter(elements)])
    assert {name: found.tolist() for name, found in outfeed.dequeue().items()} == {"sum": [10, 21], "first": [0, 1]}


def test_a_range_elsewhere_is_an_array():
    outfeed = IPUOutfeedQueue()

    @tf.function
    def step():
        offsets = tf.range(3) * 2
        for _ in tf.range(1):
            outfeed.enqueue(sum(offset for offset in offsets) + offsets + tf.range(3))

    assert IPUStrategy().run(lambda: [int(each) for each in tf.range(4)]) == [0, 1, 2, 3]
    IPUStrategy().run(step)
    assert outfeed.dequeue().tolist() == [[6, 9, 12]]
    assert list(tf.range(2)) == [0, 1]


def test_where_a_function_runs():
    """On the device by a strategy, or in its scope; else, and in the data of what runs there, on the host."""
    outfeed = IPUOutfeedQueue()

    @tf.function
    def total(count):
        found = 0
        for number in tf.range(count):
            found = found + number
        return np.int64(found)

    @tf.function
    def doubled(count, data):
        for _ in tf.range(count):
            element = next(data)
            outfeed.enqueue(2 * element + total(3))

    assert total(4) == 6
    doubled_on_host = tf.data.Dataset.range(5).map(total)
    with IPUStrategy().scope():
        doubled(5, iter(doubled_on_host))
        with pytest.raises(UnsupportedProgramError, match=r"total: expected a loop over tf\.range that begins each"):
            total(4)
    assert outfeed.dequeue().tolist() == [2 * sum(range(each)) + 3 for each in range(5)]

    def stage(x):
        return x + total(2)

    ipu_strategy, results = IPUStrategy(), IPUOutfeedQueue()
    data = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(1)).repeat())
    ipu_strategy.run(lambda: pipeline([stage, lambda x: x], 4, infeed_queue=data, outfeed_queue=results))
    assert results.dequeue()[0].tolist() == [2.0] * 4


def test_no_iteration_runs_nothing():
    def never():
        for _ in tf.range(0):
            raise AssertionError

    IPUStrategy().run(never)


@pytest.mark.parametrize("count", [2, 5])
def test_a_loop_over_another_number_of_numbers_is_refused_when_it_is_called_again(count):
    outfeed, strategy = IPUOutfeedQueue(), IPUStrategy()

    def loop(first, count):
        for number in tf.range(first, first + count):
            outfeed.enqueue(number)

    for first in (0, 4):
        strategy.run(loop, args=(np.int32(first), np.int32(3)))
        assert outfeed.dequeue().tolist() == [first, first + 1, first + 2]
    text = rf"loop: expected a loop over 3 numbers, as in its first call, got {count}: an int of Python's"
    with pytest.raises(ModelError, match=text):
        strategy.run(loop, args=(np.int32(0), np.int32(count)))


@dataclass
class Counting:
    """A function that equals others of its kind, and has no hash."""

    outfeed: IPUOutfeedQueue = field(default_factory=IPUOutfeedQueue, compare=False)

    def __call__(self, first):
        for number in tf.range(2):
            self.outfeed.enqueue(first + number)


def test_objects_without_a_hash_are_functions_of_their_own():
    strategy, several = IPUStrategy(), [Counting(), Counting()]
    for first in (0, 5):
        for each in several:
            strategy.run(each, args=[np.int32(first)])
            assert each.outfeed.dequeue().tolist() == [first, first + 1]


def body_with(code):
    """Return a function of an iterator, an outfeed and an optimizer whose source is ``code``."""
    text = "def step(it, q, opt):\n" + "\n".join(f"    {line}" for line in code.splitlines())
    names = {"tf": tf, "loops": loops, "squares": squares}
    exec(text, names)
    return names["step"]


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (
            "t = 0\nfor _ in tf.range(3):\n  t += 1\n",
            UnsupportedProgramError,
            "step: expected .*got t carried from one",
        ),
        ("for _ in tf.range(3):\n  q = it\n", UnsupportedProgramError, "got q carried"),
        ("for _ in tf.range(3):\n  break\n", UnsupportedProgramError, "runs to its end, got a break or a return in it"),
        ("for _ in tf.range(3):\n  return\n", UnsupportedProgramError, "runs to its end, got a break or a return in"),
        ("for i in tf.range(9):\n  q.enqueue(i)\n  if i > 4: break\n", ModelError, "runs to its end, got a break"),
        ("for _ in tf.range(3): pass\nfor _ in tf.range(3): pass", UnsupportedProgramError, "got two: put each into"),
        ("q.enqueue(1)\nfor _ in tf.range(3): pass", UnsupportedProgramError, "outfeed, before the loop"),
        ("for _ in tf.range(3): pass\nq.enqueue(1)", UnsupportedProgramError, "outfeed, behind the loop"),
        ("for _ in tf.range(3):\n  loss = 1\nreturn loss", UnsupportedProgramError, "return nothing: enqueue its res"),
        ("next(it)\nfor _ in tf.range(3): pass", UnsupportedProgramError, r"step: expected next\(iterator\) inside of"),
        ("for _ in tf.range(3): next(it), next(it)", UnsupportedProgramError, r"expected next\(iterator\) once in an"),
        (
            "for _ in tf.range(3):\n  with tf.GradientTape() as tape:\n    x, y = next(it)\n  tape.watch(x)",
            UnsupportedProgramError,
            "tensor: expected variables to watch",
        ),
        (
            "for _ in tf.range(3):\n  with tf.GradientTape() as t:\n    l = squares(*next(it))\n  t.gradient(l, l)",
            ProgramTypeError,
            "sources: expected variables",
        ),
        (
            "for _ in tf.range(3):\n  l = squares(*next(it))\n  opt.apply_gradients([(l, l)])",
            ProgramTypeError,
            "grads_and_vars: expected pairs of a gradient and a variable, got",
        ),
        (
            "for _ in tf.range(3):\n  l = squares(*next(it))\n  g = opt.compute_gradients(l)\n  float(g[0][0])",
            UnsupportedProgramError,
            "a gradient in the body of a loop has no value before",
        ),
        (
            "for _ in tf.range(3):\n  l = squares(*next(it))\n  g, h = opt.compute_gradients(l), "
            "opt.compute_gradients(l * 2)\n  opt.apply_gradients([(g[0][0] + h[0][0], g[0][1])])",
            UnsupportedProgramError,
            "expected gradients of one loss in an iteration, got those of 2",
        ),
        (
            "for _ in tf.range(3):\n  l = squares(*next(it))\n  opt.minimize(l)\n  opt.minimize(l)",
            UnsupportedProgramError,
            "expected one optimizer's minimize in a loop, got two",
        ),
    ],
)
def test_what_is_no_loop_on_the_device(code, kind, text):
    with pytest.raises(kind, match=text):
        IPUStrategy().run(body_with(code), args=[iter(dataset()), IPUOutfeedQueue(), sgd(0.1)])


def test_changed_gradients_that_are_accumulated_are_refused():
    accumulating = optimizers.GradientAccumulationOptimizerV2(sgd(0.1), 3)
    with pytest.raises(UnsupportedProgramError, match="change them in a MapGradientOptimizer"):
        losses_of(accumulating, change=lambda gradients: [gradient / 2 for gradient in gradients])


def test_results_on_the_host_have_the_values_of_plain_arrays():
    value = np.float32([[1.5, 2], [3, 4]])
    found = eager(value)
    assert repr(found) == repr(value)
    assert str(found[0, 0]) == "1.5"
    assert type(found.numpy()) is np.ndarray
    assert type(eager(np.float32(2.5)).numpy()) is np.float32
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    total = 0.0
    for element in eager(np.float32([1, 2, 4])):
        total += element
    assert total / 2 == 3.5
    assert ((found + 1) * found).numpy().tolist() == ((value + 1) * value).tolist()
    assert type(found * value) is np.ndarray  # plain arrays make plain ones
    found += 1
    assert found.numpy().tolist() == value.tolist()  # it shares its memory


def test_a_function_with_a_pipeline_runs_it_on_when_it_is_called_again():
    """With the functions, and the values that they take, of the new call."""
    outfeed, infeed = IPUOutfeedQueue(), IPUInfeedQueue(dataset())

    @tf.function(jit_compile=True)
    def my_net(scale, rate):
        def first(scale_of_inputs, x, y):
            return scale_of_inputs * x, y

        def last(x, y):
            return scale * tf.reduce_mean((predicted(x) - y) ** 2)

        def learn(loss):
            return OptimizerFunctionOutput(sgd(rate), loss)

        pipeline(
            [first, last],
            3,
            inputs=[scale],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=learn,
            device_mapping=[0, 0],
            pipeline_schedule=PipelineSchedule.Sequential,
        )

    strategy = IPUStrategy()
    w, b = np.zeros((3, 1)), np.ones(1)
    for scale, rate in ((1.0, 0.1), (2.0, 0.05), (1.0, 0.1)):
        strategy.run(my_net, args=(scale, rate))
        error = scale * X.astype(float) @ w + b - Y
        losses = scale * np.mean(error.reshape(3, 4) ** 2, axis=1)
        assert outfeed.dequeue()[0].tolist() == pytest.approx(losses.tolist(), rel=1e-5)
        w = w - rate * scale * 2 * (scale * X).T @ error / 4
        b = b - rate * scale * 2 * np.sum(error, axis=0) / 4


@pytest.mark.parametrize("split", [False, True])
def test_a_function_with_a_loop_runs_it_on_when_it_is_called_again(split):
    numbers = tf.data.Dataset.range(100).map(lambda number: tf.cast(number, tf.float32))
    outfeed, infeed = IPUOutfeedQueue(), IPUInfeedQueue(numbers.batch(1))

    def my_net(scale):
        def body(x):
            with scopes.ipu_shard(0):
                y = x * scale
            with scopes.ipu_shard(1 if split else 0):
                outfeed.enqueue(y + 1)

        loops.repeat(3, body, [], infeed)

    strategy = IPUStrategy()
    for call, scale in enumerate((1.0, 10.0)):
        strategy.run(my_net, args=[scale])
        assert outfeed.dequeue().ravel().tolist() == [scale * (3 * call + at) + 1 for at in range(3)]


def test_a_function_that_makes_its_queues_makes_its_programs_anew():
    def my_net():
        outfeed = IPUOutfeedQueue()
        count = loops.repeat(2, lambda i: [i + 1, outfeed.enqueue(i)], [5])
        return outfeed.dequeue().tolist(), int(count)

    strategy = IPUStrategy()
    assert strategy.run(my_net) == strategy.run(my_net) == ([5, 6], 7)


def test_what_a_loop_carries_begins_anew_in_each_call():
    def my_net():
        return int(loops.repeat(2, lambda i: i + 1, [5]))

    strategy = IPUStrategy()
    assert strategy.run(my_net) == strategy.run(my_net) == 7
