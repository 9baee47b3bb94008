"""The worked cases from Graphcore's own pipeline tests, through the Python front door, under every legal schedule."""

from __future__ import annotations

import functools
import itertools

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientDescentOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.effort import slowest

SCHEDULES = list(PipelineSchedule)
METHODS = ["SUM", "MEAN", "RUNNING_MEAN"]


def increasing(modulus, shape, batch=None, dtype=np.float32, begin=0):
    """Yield constant tensors filled with i mod ``modulus``, a ``batch`` of them stacked where it is given."""
    values = itertools.count(begin)
    while True:
        if batch is None:
            yield np.full(shape, next(values) % modulus, dtype)
        else:
            yield np.stack([np.full(shape, next(values) % modulus, dtype) for _ in range(batch)])


def constant(value, dtype=np.float32):
    return IPUInfeedQueue(repeat([np.asarray(value, dtype)]))


def identity(*arrays):
    return arrays


def train(stages, count, infeed, optimizer, **arguments):
    """Train on the last stage's only output as loss; returns the pipeline."""
    return pipeline(
        stages,
        count,
        infeed_queue=infeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        **arguments,
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mapping", [[2, 0, 1], [2, 2, 2]])
def test_case_1_inference(schedule, mapping):
    def convolve(a, b):  # 1 x 1, from 2 channels to 2, all ones
        kernel = get_variable("kernel", np.ones((2, 2), np.float32))
        return anp.dot(a, kernel) + get_variable("bias", np.zeros(2, np.float32)) + b

    def add_up(x, c):
        return anp.sum(x) + c

    def elements():
        for a in increasing(5, (4, 4, 2), batch=2):
            yield a, (a + 10) / 2

    queue = IPUOutfeedQueue()
    pipeline(
        [
            lambda c, a, b: (convolve(a, b), c),
            add_up,
            lambda x: x,
        ],
        12,
        inputs=[10.01],
        infeed_queue=IPUInfeedQueue(elements()),
        outfeed_queue=queue,
        device_mapping=mapping,
        pipeline_schedule=schedule,
    )
    quoted = [410.01, 730.01, 650.01, 570.01, 890.01, 410.01, 730.01, 650.01, 570.01, 890.01, 410.01, 730.01]
    (found,) = queue.dequeue()  # in a list, as Graphcore's tests for TensorFlow 1 have it
    assert found == pytest.approx(quoted, rel=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_2_no_variables(schedule):
    queue = IPUOutfeedQueue()
    pipeline(
        [lambda x: x * x, lambda x: 2 * x, identity],
        6,
        infeed_queue=IPUInfeedQueue(increasing(5, (1,))),
        outfeed_queue=queue,
        pipeline_schedule=schedule,
    )
    assert queue.dequeue()[0].tolist() == [[0.0], [2.0], [8.0], [18.0], [32.0], [0.0]]


def outfeed_loss(schedule, **arguments):
    """Case 3: four stages, of which the first has w = 1; the loss is x + 1."""
    queue = IPUOutfeedQueue()
    pipeline(
        [lambda x: x * get_variable("w", 1.0), identity, identity, identity],
        8,
        infeed_queue=constant(0.0),
        outfeed_queue=queue,
        optimizer_function=lambda x: OptimizerFunctionOutput(GradientDescentOptimizer(0.01), x + 1),
        outfeed_loss=True,
        pipeline_schedule=schedule,
        **arguments,
    )
    return queue.dequeue()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_3_outfeed_loss(schedule):
    assert outfeed_loss(schedule).tolist() == [1.0] * 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_4_an_outfeed_is_summed_whatever_the_gradients_are(schedule, method):
    assert outfeed_loss(schedule, accumulate_outfeed=True, reduction_method=method).tolist() == [8.0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_4_outfeed_mask(schedule):
    queue = IPUOutfeedQueue()

    def add_one(x, y):
        return x, y + 1

    pipeline(
        [lambda x: (x, x * get_variable("w", 1.0)), add_one, add_one, add_one],
        8,
        infeed_queue=constant(1.0),
        outfeed_queue=queue,
        optimizer_function=lambda x, y: OptimizerFunctionOutput(GradientDescentOptimizer(0.01), y),
        outfeed_mask=[True, False],
        pipeline_schedule=schedule,
    )
    (only,) = queue.dequeue()
    assert only.tolist() == [4.0] * 8


class Adding(GradientDescentOptimizer):
    """Adds p to the accumulated gradient, as a user's own optimizer may."""

    p = 0.0

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        super().apply_gradients([(gradient + self.p, variable) for gradient, variable in grads_and_vars])


def times_w(x):
    return x * get_variable("w", 1.0)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_5_an_optimizer_is_applied_once(schedule, wrapped):
    adding = Adding(0.5)
    optimizer = CrossReplicaOptimizer(adding) if wrapped else adding
    adding.p = 2.0
    run = train(
        [times_w, identity], 8, constant(1.0), optimizer, outfeed_queue=IPUOutfeedQueue(), pipeline_schedule=schedule
    )
    assert run.variables["w"] == -4.0
    adding.p = 4.0
    run.run()
    assert run.variables["w"] == -10.0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_5_a_gradient_mapping_works_on_each_micro_batch(schedule):
    p = [2.0]
    optimizer = MapGradientOptimizer(GradientDescentOptimizer(0.5), lambda gradient, variable: gradient + p[0])
    run = train(
        [times_w, identity], 8, constant(1.0), optimizer, outfeed_queue=IPUOutfeedQueue(), pipeline_schedule=schedule
    )
    assert run.variables["w"] == -11.0
    p[0] = 4.0
    run.run()
    assert run.variables["w"] == -31.0


@pytest.mark.parametrize("chosen", [np.float32, lambda variable: np.float32])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_6_accumulators_wider_than_gradients(schedule, chosen):
    seen = []

    class Watching(GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = list(grads_and_vars)
            seen.extend((variable.name, variable.dtype, gradient.copy()) for gradient, variable in pairs)

    train(
        [lambda x: x * get_variable("w", np.float16(1)), identity],
        8,
        constant(65504, np.float16),
        Watching(0.5),
        outfeed_queue=IPUOutfeedQueue(),
        pipeline_schedule=schedule,
        reduction_method="MEAN",
        gradient_accumulation_dtype=chosen,
    )
    ((name, dtype, gradient),) = seen
    assert (name, dtype, gradient.dtype) == ("w", np.float16, np.float32)
    assert gradient == 65504.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("method", "losses", "weights"),
    [
        ("SUM", [4.0, -0.5], [-1.0, -4.0]),
        ("MEAN", [4.0, 2.875], [1.25, 0.5]),
        ("RUNNING_MEAN", [4.0, 2.875], [1.25, 0.5]),
    ],
)
def test_case_7_reduction_methods(schedule, method, losses, weights):
    queue = IPUOutfeedQueue()
    run = train(
        [lambda x, y: (x * get_variable("w", 2.0), y), lambda h, y: h + y],
        4,
        IPUInfeedQueue(repeat([(np.float32(1.5), np.float32(1))])),
        GradientDescentOptimizer(0.5),
        outfeed_queue=queue,
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    for expected, weight in zip(losses, weights, strict=True):
        assert queue.dequeue()[0].tolist() == [expected] * 4
        assert run.variables["w"] == weight
        run.run()


def weight(name, dtype):
    return get_variable(name, np.ones((4, 4), dtype))


def shared_weight_elements(dtype=np.float64):
    values = itertools.count()
    while True:
        pair = [next(values) % 7 for _ in range(2)]
        yield np.stack([np.full((4, 4), v, dtype) for v in pair]), np.array([v % 4 for v in pair], np.int32)


def cross_entropy(x, labels):
    logits = anp.mean(x, axis=1)
    shifted = logits - anp.max(logits, axis=1, keepdims=True)
    scores = shifted - anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
    return -anp.mean(scores[anp.arange(len(labels)), labels])


@functools.cache
def unsplit_shared_weight(count, executions):
    """The same training without a pipeline, in plain NumPy: the losses, and the weights in the end."""
    names = ["w0", "w1", "w2", "w3", "w0"]
    weights = {name: np.ones((4, 4)) for name in names}
    slots = {name: np.zeros((4, 4)) for name in names}
    losses, elements = [], shared_weight_elements()
    for _ in range(executions):
        total = {name: np.zeros((4, 4)) for name in weights}
        for _ in range(count):
            x, labels = next(elements)
            inputs = []
            for name in names:
                inputs.append(x)
                x = x @ weights[name]
            logits = x.mean(axis=1)
            scores = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares = scores / scores.sum(axis=1, keepdims=True)
            losses.append(
                float(
                    np.mean(np.log(scores.sum(axis=1)) - (logits - logits.max(axis=1, keepdims=True))[[0, 1], labels])
                )
            )
            shares[[0, 1], labels] -= 1
            gradient = np.repeat(shares[:, None, :] / 2 / 4, 4, axis=1)
            for name, before in zip(reversed(names), reversed(inputs), strict=True):
                total[name] += np.einsum("bij,bik->jk", before, gradient) / count
                gradient = gradient @ weights[name].T
        for name, gradient in total.items():
            slots[name] = 0.98 * slots[name] + gradient
            weights[name] -= 0.01 * slots[name]
    return losses, weights


SHARED = [
    (PipelineSchedule.Grouped, [0, 1, 2, 3, 0]),
    (PipelineSchedule.Sequential, [0, 0, 2, 3, 0]),
    (PipelineSchedule.Sequential, [0, 1, 2, 3, 0]),
    (PipelineSchedule.Grouped, [0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(
    ("schedule", "mapping", "method"),
    [
        *((*shared, "MEAN") for shared in SHARED),
        *(
            pytest.param(*shared, "RUNNING_MEAN", marks=slowest if place > 1 else ())
            for place, shared in enumerate(SHARED)
        ),
    ],
)
def test_case_8_shared_weight(schedule, mapping, method):
    queue = IPUOutfeedQueue()
    names = ["w0", "w1", "w2", "w3", "w0"]
    stages = [lambda x, labels, name=name: (anp.matmul(x, weight(name, np.float64)), labels) for name in names]
    stages[-1] = lambda x, labels: cross_entropy(anp.matmul(x, weight("w0", np.float64)), labels)
    run = train(
        stages,
        20,
        IPUInfeedQueue(shared_weight_elements()),
        MomentumOptimizer(0.01, 0.98),
        outfeed_queue=queue,
        repeat_count=2,
        device_mapping=mapping,
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    losses = queue.dequeue()[0]
    assert losses[:20] == pytest.approx([1.3862944] * 20, rel=1e-6)
    if method == "MEAN":
        quoted = [1802.24, 361.14115, 2359.296, 4161.536, 0.69314718, 360.448, 4718.592, 1802.24]
        assert losses[20:28] == pytest.approx(quoted, rel=1e-6)
    expected, weights = unsplit_shared_weight(20, 2)
    assert losses == pytest.approx(expected, rel=1e-6)
    for name, array in run.variables.items():
        assert array == pytest.approx(weights[name], rel=1e-6), name


@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Sequential])
@pytest.mark.parametrize("mapping", [[0, 1, 0, 0], [0, 0, 1, 0]])
def test_the_running_mean_of_a_weight_shared_by_three_stages_is_the_mean(schedule, mapping):
    """Each micro-batch has a gradient of its own, and of each stage another."""
    rng = np.random.default_rng(0)
    elements = list(rng.normal(size=(16, 3)))
    found = []

    class Watching(GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            found.extend(gradient.copy() for gradient, variable in grads_and_vars)

    def stage(x):
        return anp.tanh(x * get_variable("w", np.array([0.5, 1.0, 1.5])))

    for method in ("MEAN", "RUNNING_MEAN"):
        train(
            [stage, lambda x: 2 * x, stage, lambda x: anp.sum(stage(x))]
            if mapping[1] == 1
            else [stage, stage, lambda x: 2 * x, lambda x: anp.sum(stage(x))],
            16,
            IPUInfeedQueue(elements),
            Watching(0.0),
            outfeed_queue=IPUOutfeedQueue(),
            device_mapping=mapping,
            pipeline_schedule=schedule,
            reduction_method=method,
        )
    mean, running = found
    assert running == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(("mapping", "physical"), [(None, [0, 1, 3]), ([2, 0, 1], [2, 0, 1])])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_9_placement(schedule, mapping, physical):
    run = pipeline(
        [identity, identity, identity],
        6,
        infeed_queue=constant(1.0),
        outfeed_queue=IPUOutfeedQueue(),
        device_mapping=mapping,
        pipeline_schedule=schedule,
    )
    assert [run.system.ipus[ipu] for ipu in run.program.shape.mapping] == physical


@pytest.mark.parametrize(
    ("repeat_count", "replicas"),
    [(1, 1), (3, 2), pytest.param(1, 2, marks=slowest), pytest.param(3, 1, marks=slowest)],
)
@pytest.mark.parametrize(("mode", "accumulated"), [("ALL", False), ("LAST", False), ("ALL", True)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_case_10_outfeed_shapes(schedule, mode, accumulated, repeat_count, replicas):
    config = IPUConfig()
    config.auto_select_ipus = 2 * replicas
    queue = IPUOutfeedQueue(IPUOutfeedMode[mode])
    pipeline(
        [lambda x: x * get_variable("w", 1.0), lambda x: (x, anp.sum(x))],
        8,
        infeed_queue=IPUInfeedQueue(increasing(1000, (2, 3))),
        outfeed_queue=queue,
        optimizer_function=lambda x, total: OptimizerFunctionOutput(
            CrossReplicaOptimizer(GradientDescentOptimizer(0.0)), total
        ),
        pipeline_schedule=schedule,
        repeat_count=repeat_count,
        accumulate_outfeed=accumulated,
        config=config,
    )
    first = () if mode == "LAST" else (repeat_count,) if accumulated else (8 * repeat_count,)
    axis = (replicas,) if replicas > 1 else ()
    tensors, totals = queue.dequeue()
    assert tensors.shape == (*first, *axis, 2, 3)
    assert totals.shape == (*first, *axis)
    # Replicas take the elements of the infeed in turn, replica 0 first.
    values = np.arange(8 * repeat_count * replicas).reshape(repeat_count, 8, *axis) * 6.0
    sums = values.sum(axis=1) if accumulated else values.reshape(8 * repeat_count, *axis)
    assert totals.tolist() == (sums[-1] if mode == "LAST" else sums).tolist()
