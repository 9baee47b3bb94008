"""Collectives in traced stages, in loops too, on replicas of the machine: losses of the same training in NumPy."""

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute, functions, runs
from tests.programs import tensorflow
from tests.traced_steps import Model, build, initial_values, micro_batches

pytestmark = pytest.mark.usefixtures("tf")

BATCH, COUNT, UPDATES, REPLICAS, RATE = 8, 4, 3, 2, 0.05


def _sum_of_replicas(x):
    """The sum of a tensor over all replicas, whose gradient is the sum of gradients."""
    from ipusim.ipu.graph.own_nodes import add_node  # noqa: PLC0415
    from ipusim.ipu.graph.registry import Entry  # noqa: PLC0415

    @tensorflow().custom_gradient
    def summed(value):
        entry = Entry(lambda node: lambda array: np.asarray(functions.all_reduce(np.asarray(array))))
        (result,) = add_node(entry, [value], [(value.dtype, value.shape)], "sum_of_replicas")
        return result, _sum_of_replicas

    return summed(x)


def _model(steps):
    tf = tensorflow()
    dense = tf.keras.layers.Dense

    def first(x, labels):
        def body(step, state):
            return step + 1, _sum_of_replicas(state) / REPLICAS

        return tf.while_loop(lambda step, _: step < steps, body, [0, dense(16, "tanh")(x)])[1], labels

    def last(x, labels):
        logits = dense(10)(x)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    shapes = [((BATCH, 12), np.float32), ((BATCH,), np.int32)]
    return Model([first, last], shapes, lambda v1: v1.train.GradientDescentOptimizer(RATE))


def _losses_of_numpy(initial, batches):
    """The losses of all replicas in order: the mean of their activations goes on, as often as it is taken."""
    first, bias, second, shift = (value.astype(np.float64) for value in initial.values())
    losses = []
    for update in range(UPDATES):
        sums = [np.zeros_like(each) for each in (first, bias, second, shift)]
        for number in range(COUNT):
            fed = batches[(update * COUNT + number) * REPLICAS :][:REPLICAS]
            hidden = [np.tanh(x @ first + bias) for x, _ in fed]
            mean, back = sum(hidden) / REPLICAS, []
            for _, labels in fed:
                logits = mean @ second + shift
                shares = np.exp(logits - logits.max(1, keepdims=True))
                shares /= shares.sum(1, keepdims=True)
                rows = np.arange(BATCH)
                losses.append(-np.log(shares[rows, labels]).mean())
                shares[rows, labels] -= 1
                sums[2] += mean.T @ shares / BATCH
                sums[3] += shares.sum(0) / BATCH
                back.append(shares @ second.T / BATCH)
            for (x, _), value in zip(fed, hidden, strict=True):
                arriving = sum(back) / REPLICAS * (1 - value**2)
                sums[0] += x.T @ arriving
                sums[1] += arriving.sum(0)
        for value, total in zip((first, bias, second, shift), sums, strict=True):
            np.subtract(value, RATE * total / REPLICAS, out=value)
    return losses


@pytest.mark.parametrize("steps", [1, 3])
def test_replicas_meet_in_loops_forward_and_backward(steps):
    from ipusim.ipu.graph.traced_functions import StepFunctions  # noqa: PLC0415

    model = _model(steps)
    built, batches = build(model), micro_batches(model, COUNT * UPDATES * REPLICAS)
    initial = initial_values(built)
    options = {
        "system": {"name": "m2000", "auto_select_ipus": 2 * REPLICAS},
        "pipeline": {"gradient_accumulation_count": COUNT, "repeat_count": UPDATES, "device_mapping": [0, 1]},
        "use_synthetic_data": True,
    }
    traced = StepFunctions("program", built.step, initial, lambda index: batches[index], averages=True)
    run = execute(assemble(Request(runs.validate(options), functions=traced)))
    profile = run.job.program.stages[0]
    assert len(profile.forward_collectives) == len(profile.backward_collectives) == steps
    losses = [
        each.loss
        for each in sorted(run.learning.losses, key=lambda each: (each.execution, each.micro_batch, each.replica))
    ]
    np.testing.assert_allclose(losses, _losses_of_numpy(initial, batches), rtol=1e-6)
