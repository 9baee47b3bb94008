"""Functions of TensorFlow 2 that a strategy runs: loops over a data set, loops and pipelines of Graphcore's in them."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError
from tests.effort import sampled
from tests.programs import configure, hosted_names, tensorflow

RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)


@pytest.fixture
def names():
    """TensorFlow and Graphcore's names with a strategy, on a device of one IPU."""
    with hosted_names(2) as found:
        configure(found, 1)
        yield SimpleNamespace(**vars(found), strategy=found.ipu.ipu_strategy.IPUStrategy())


def dataset(tf):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).repeat()


def losses_of(names, change=lambda gradients: gradients, only=(0, 1), make=None):
    """The losses of nine updates, of gradients of ``only`` these variables that are changed first."""
    tf = names.tf
    model = names.keras.Sequential([names.keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer="ones")])
    outfeed = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizer = (make or names.keras.optimizers.SGD)(0.05)
    origins = []

    @tf.function(jit_compile=True)
    def step(iterator):
        for _ in tf.range(9):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            weights = [model.trainable_variables[place] for place in only]
            gradients = tape.gradient(loss, weights)
            origins.append([gradient.op._original_op.type for gradient in gradients])
            optimizer.apply_gradients(zip(change(gradients), weights))  # noqa: B905 - autograph's
            outfeed.enqueue(loss)

    assert names.strategy.run(step, args=[iter(dataset(tf))]) is None
    assert origins[-1] == [("MatMul", "BiasAdd")[place] for place in only]
    return outfeed.dequeue().numpy().tolist()


def expected(change=lambda gradients: gradients, train=(1, 1)):
    """The same by the formulas of the gradients."""
    w, b, losses = np.zeros((3, 1)), np.ones(1), []
    for index in range(9):
        at = slice(4 * (index % 3), 4 * (index % 3) + 4)
        error = X[at].astype(float) @ w + b - Y[at]
        losses.append(np.mean(error**2))
        gw, gb = change([2 * X[at].T @ error / 4, 2 * np.mean(error, axis=0)])
        w, b = w - 0.05 * train[0] * np.asarray(gw), b - 0.05 * train[1] * np.asarray(gb)
    return losses


def by_norm(gradients):
    """Shorten gradients by their common norm, by TensorFlow where they are its tensors."""
    if not isinstance(gradients[0], np.ndarray):
        return tensorflow().clip_by_global_norm(gradients, 1.0)[0]
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
    return [gradient / max(norm, 1.0) for gradient in gradients]


CHANGES = {
    "none": lambda gradients: gradients,
    "shortened": by_norm,
    "smaller": lambda gradients: [gradient / 2 for gradient in gradients],
    "turned": lambda gradients: [-3 * gradient + 0.1 for gradient in gradients],
    "backwards": lambda gradients: [gradient[::-1] for gradient in gradients],
}


@sampled(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_tape_trains_as_the_formulas_do_whatever_is_made_of_gradients(names, change):
    assert losses_of(names, CHANGES[change]) == pytest.approx(expected(CHANGES[change]), rel=1e-4)


def test_variables_without_a_gradient_stay(names):
    assert losses_of(names, only=(1,)) == pytest.approx(expected(train=(0, 1)), rel=1e-5)


def test_an_optimizer_of_ones_own_gets_gradients(names):
    class Halved(names.keras.optimizers.SGD):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            return super().apply_gradients([(each / 2, variable) for each, variable in grads_and_vars], *args, **kwargs)

    assert losses_of(names, make=Halved) == pytest.approx(expected(CHANGES["smaller"]), rel=1e-5)


def test_a_function_goes_on_when_it_is_called_again_with_what_it_is_given_then(names):
    tf, outfeed = names.tf, names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    class Program:
        @tf.function(jit_compile=True)
        def scaled(self, iterator, scale, bias):
            for number in tf.range(3):
                outfeed.enqueue({"at": number, "value": scale * next(iterator)["a"] + bias})

    program = Program()
    iterator = iter(tf.data.Dataset.from_tensor_slices({"a": np.arange(100.0, dtype=np.float32)}))
    assert float(next(iterator)["a"]) == 0
    for scale, bias, first in ((2.0, 0.0, 1), (10.0, 5.0, 4)):
        assert names.strategy.run(program.scaled, args=(iterator,), kwargs={"scale": scale, "bias": bias}) is None
        found = outfeed.dequeue()
        assert found["at"].numpy().tolist() == [0, 1, 2]
        assert found["value"].numpy().tolist() == [scale * (first + at) + bias for at in range(3)]
    assert float(next(iterator)["a"]) == 7  # on the host again


def test_functions_of_the_program_run_on_the_device_in_a_scope_alone(names, monkeypatch):
    tf, ran = names.tf, []
    from ipusim.ipu import ipu_strategy  # noqa: PLC0415

    run_function = ipu_strategy.run_function
    monkeypatch.setattr(ipu_strategy, "run_function", lambda *args: ran.append(args[0]) or run_function(*args))

    @tf.function
    def total(count):
        found = 0
        for number in tf.range(count):
            found = found + number
        return found

    assert int(total(4)) == 6
    on_host = tf.data.Dataset.range(5).map(lambda count: total(tf.cast(count, tf.int32)))
    with names.strategy.scope():
        assert ran == []
        assert [int(each) for each in on_host] == [0, 0, 1, 3, 6]  # what a data set computes is the host's
        assert ran == []
        assert int(total(5)) == 10
    assert ran == [total]
    assert int(names.strategy.run(lambda: total(3))) == 3
    assert int(total(3)) == 3
    assert len(ran) == 2
    with pytest.raises(ProgramTypeError, match="fn: expected a function"):
        names.strategy.run(3)


def test_no_iteration_runs_nothing(names):
    variable = names.tf.Variable(1.0)

    def never():
        for _ in names.tf.range(0):
            variable.assign(2.0)

    names.strategy.run(never)
    assert float(variable) == 1


def test_a_function_with_a_pipeline_runs_it_on_when_it_is_called_again(names):
    """With the values that it takes in the new call; AutoGraph converts the function, and not the simulator."""
    tf, ipu = names.tf, names.ipu
    converted = set()
    configure(names, 2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf))
    w, b = tf.Variable(tf.zeros([3, 1])), tf.Variable([1.0])

    @tf.function(jit_compile=True)
    def my_net(scale):
        def first(scale_of_inputs, x, y):
            callers = [step for step in inspect.stack(0) if "__autograph_generated" in step.filename]
            converted.update(step.frame.f_globals["__name__"] for step in callers)
            return scale_of_inputs * x, y

        def last(x, y):
            return tf.reduce_mean((x @ w + b - y) ** 2)

        def learn(loss):
            return ipu.pipelining_ops.OptimizerFunctionOutput(tf.compat.v1.train.GradientDescentOptimizer(0.05), loss)

        ipu.pipelining_ops.pipeline(
            [first, last],
            4,
            inputs=[scale],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=learn,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
        )

    kernel, bias, at = np.zeros((3, 1)), np.ones(1), 0
    for scale in (1.0, 2.0, 1.0):
        names.strategy.run(my_net, args=[tf.constant(scale)])
        rows = [np.arange(4 * (each % 3), 4 * (each % 3) + 4) for each in range(at, at + 4)]
        errors = [scale * X[each].astype(float) @ kernel + bias - Y[each] for each in rows]
        found = np.ravel(outfeed.dequeue())
        assert found.tolist() == pytest.approx([np.mean(error**2) for error in errors], rel=1e-5)
        kernel = kernel - 0.05 * sum(
            2 * scale * X[each].T @ error / 4 for each, error in zip(rows, errors, strict=True)
        )
        bias = bias - 0.05 * sum(2 * np.mean(error, axis=0) for error in errors)
        at += 4
    assert converted == {__name__}


def test_a_strategy_converts_a_function_under_a_traced_function_alone(names):
    """As TensorFlow's strategies do: a branch on a tensor takes its value in a converted function alone."""
    tf, strategy = names.tf, names.strategy

    def branch(x):
        return x + 1 if x > 0 else x - 1

    @tf.function
    def traced(x):
        return strategy.run(branch, args=[x])

    assert [float(traced(tf.constant(x))) for x in (2.0, -2.0)] == [3, -3]
    with tf.Graph().as_default(), pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        strategy.run(branch, args=[tf.constant(2.0)])


def test_a_queue_is_refused_where_no_function_is_traced(names):
    """Graphcore's operations of queues have kernels of the device alone."""
    numbers = names.tf.data.Dataset.range(4)
    with pytest.raises(ProgramError, match="infeed_dequeue: expected a call in a function that runs on IPUs"):
        names.ipu.ipu_infeed_queue.IPUInfeedQueue(numbers)._dequeue()


def test_what_a_loop_carries_begins_anew_in_each_call(names):
    @names.tf.function
    def my_net():
        return names.ipu.loops.repeat(2, lambda i: i + 1, [5])

    assert [int(np.ravel(names.strategy.run(my_net))[0]) for _ in range(2)] == [7, 7]
