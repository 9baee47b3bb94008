"""The worked cases from Graphcore's own pipeline tests, as programs on TensorFlow, under every legal schedule."""

import functools

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import value_and_grad

from ipusim.ipu.runtime.pipeline_options import PipelineSchedule
from tests.effort import rarest, slowest
from tests.formulas import cross_entropy
from tests.programs import pipelined

SCHEDULES = list(PipelineSchedule)
METHODS = ["SUM", "MEAN", "RUNNING_MEAN"]
by_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def increasing(count, modulus, shape, batch=None):
    """Return so many constant tensors filled with i mod ``modulus``, a ``batch`` of them stacked where it is given."""
    numbers = np.arange(count * (batch or 1)) % modulus
    numbers = numbers.reshape(count, *([] if batch is None else [batch]), *[1] * len(shape))
    return np.broadcast_to(numbers, numbers.shape[: numbers.ndim - len(shape)] + tuple(shape)).astype(np.float32)


def identity(*tensors):
    return tensors


def ran(names, stages, count, elements, **arguments):
    """Run a pipeline over elements, an array of each tensor, again and again."""
    return pipelined(names, stages, names.tf.data.Dataset.from_tensor_slices(elements).repeat(), count, **arguments)


def weight(tf, value, name="w"):
    """A variable by its first value, the same in all stages that ask for it."""
    array = np.asarray(value, getattr(value, "dtype", np.float32))
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return tf.get_variable(name, dtype=array.dtype, initializer=array)


def times_w(tf, value=1.0):
    return lambda x: x * weight(tf, value)


def constant(value, dtype=np.float32):
    return np.asarray([value], dtype)


@by_schedule
@pytest.mark.parametrize("mapping", [[2, 0, 1], [2, 2, 2]])
def test_case_1_inference(names, schedule, mapping):
    tf = names.tf

    def convolve(a, b):  # 1 x 1, from 2 channels to 2, all ones
        kernel, bias = weight(tf, np.float32([[[[1, 1], [1, 1]]]]), "kernel"), weight(tf, np.float32([0, 0]), "b")
        return tf.nn.conv2d(a, kernel, 1, "SAME") + bias + b

    a = increasing(12, 5, (4, 4, 2), batch=2)
    found = ran(
        names,
        [lambda c, a, b: (convolve(a, b), c), lambda x, c: tf.reduce_sum(x) + c, lambda x: x],
        12,
        (a, (a + 10) / 2),
        inputs=[tf.constant(10.01)],
        device_mapping=mapping,
        pipeline_schedule=schedule,
        ipus=4,
    )
    quoted = [410.01, 730.01, 650.01, 570.01, 890.01, 410.01, 730.01, 650.01, 570.01, 890.01, 410.01, 730.01]
    (sent,) = found.sent  # in a list, as Graphcore's tests for TensorFlow 1 have it
    assert sent == pytest.approx(quoted, rel=1e-6)


def outfeed_loss(names, schedule, **arguments):
    """Case 3: four stages, of which the first has w = 1; the loss is x + 1."""
    tf, made = names.tf, names.ipu.pipelining_ops.OptimizerFunctionOutput
    stages = [times_w(tf), identity, identity, identity]
    named = {"outfeed_loss": True, "pipeline_schedule": schedule, **arguments}
    named["optimizer_function"] = lambda x: made(tf.train.GradientDescentOptimizer(0.01), x + 1)
    return ran(names, stages, 8, constant(0.0), **named).sent


@pytest.mark.parametrize("method", METHODS)
@by_schedule
def test_case_4_an_outfeed_is_summed_whatever_the_gradients_are(names, schedule, method):
    assert outfeed_loss(names, schedule, accumulate_outfeed=True, reduction_method=method).tolist() == [8.0]


@by_schedule
def test_case_4_outfeed_mask(names, schedule):
    first, add_one = times_w(names.tf), lambda x, y: (x, y + 1)
    found = ran(
        names,
        [lambda x: (x, first(x)), add_one, add_one, add_one],
        8,
        constant(1.0),
        optimizer=lambda: names.tf.train.GradientDescentOptimizer(0.01),
        outfeed_mask=[True, False],
        pipeline_schedule=schedule,
    )
    (only,) = found.sent
    assert only.tolist() == [4.0] * 8


def adding(tf, p, rate=0.5):
    """An optimizer of a user's own, which adds p to the accumulated gradient."""

    class Adding(tf.train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = [(gradient + p, variable) for gradient, variable in grads_and_vars]
            return super().apply_gradients(pairs, global_step, name)

    return Adding(rate)


@pytest.mark.parametrize(("kind", "last"), [("own", -10.0), ("wrapped", -10.0), ("mapped", -31.0)])
@by_schedule
def test_case_5_an_optimizer_is_applied_once_and_a_map_to_each_micro_batch(names, schedule, kind, last):
    """By hand: 1 - (8 + 2) / 2 = -4 and -4 - (8 + 4) / 2; mapped 1 - 8 (1 + 2) / 2 = -11 and -11 - 8 (1 + 4) / 2."""
    tf, optimizers = names.tf, names.ipu.optimizers
    p = tf.placeholder(tf.float32, [])

    def optimizer():
        if kind == "mapped":
            plain = tf.train.GradientDescentOptimizer(0.5)
            return optimizers.MapGradientOptimizer(plain, lambda gradient, variable: gradient + p)
        return optimizers.CrossReplicaOptimizer(adding(tf, p)) if kind == "wrapped" else adding(tf, p)

    stages, feeds = [times_w(tf), identity], [{p: 2.0}, {p: 4.0}]
    found = ran(names, stages, 8, constant(1.0), optimizer=optimizer, feeds=feeds, pipeline_schedule=schedule)
    assert [np.ravel(each)[0] for each in found.sent] == [1.0, -4.0 if kind != "mapped" else -11.0]
    assert found.variables["w"] == last


@pytest.mark.parametrize("chosen", [np.float32, lambda variable: np.float32])
@by_schedule
def test_case_6_accumulators_wider_than_gradients(names, schedule, chosen):
    tf = names.tf
    seen = tf.get_variable("seen", [], initializer=tf.zeros_initializer(), trainable=False)

    class Watching(tf.train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            ((gradient, variable),) = grads_and_vars
            assert (variable.op.name, variable.dtype.base_dtype, gradient.dtype) == ("w", tf.float16, tf.float32)
            return seen.assign(gradient)

    found = ran(
        names,
        [times_w(tf, np.float16(1)), identity],
        8,
        constant(65504, np.float16),
        optimizer=lambda: Watching(0.5),
        pipeline_schedule=schedule,
        reduction_method="MEAN",
        gradient_accumulation_dtype=chosen,
    )
    assert found.variables["seen"] == 65504.0


@by_schedule
@pytest.mark.parametrize(
    ("method", "losses", "weight_after"),
    [("SUM", [4.0, -0.5], -4.0), ("MEAN", [4.0, 2.875], 0.5), ("RUNNING_MEAN", [4.0, 2.875], 0.5)],
)
def test_case_7_reduction_methods(names, schedule, method, losses, weight_after):
    first = times_w(names.tf, 2.0)
    found = ran(
        names,
        [lambda x, y: (first(x), y), lambda h, y: h + y],
        4,
        (constant(1.5), constant(1)),
        optimizer=lambda: names.tf.train.GradientDescentOptimizer(0.5),
        feeds=({}, {}),
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    assert [each[0].tolist() for each in found.sent] == [[loss] * 4 for loss in losses]
    assert found.variables["w"] == weight_after


def shared_weight_elements(count):
    pairs = np.arange(2 * count).reshape(count, 2) % 7
    return np.broadcast_to(pairs[:, :, None, None], (count, 2, 4, 4)).astype(float), (pairs % 4).astype(np.int32)


@functools.cache
def unsplit_shared_weight(count, executions):
    """The same training without a pipeline, with autograd's gradients: the losses, and the weights in the end."""
    layers = ["w0", "w1", "w2", "w3", "w0"]
    weights, slots = ({name: start((4, 4)) for name in layers} for start in (np.ones, np.zeros))

    def loss_of(weights, x, labels):
        for name in layers:
            x = x @ weights[name]
        return cross_entropy(anp.mean(x, axis=1), labels)

    losses, elements = [], zip(*shared_weight_elements(count * executions), strict=True)
    for _ in range(executions):
        found = [value_and_grad(loss_of)(weights, *next(elements)) for _ in range(count)]
        losses += [float(loss) for loss, _ in found]
        for name in weights:
            slots[name] = 0.98 * slots[name] + np.mean([gradients[name] for _, gradients in found], axis=0)
            weights[name] = weights[name] - 0.01 * slots[name]
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
def test_case_8_shared_weight(names, schedule, mapping, method):
    tf, layers = names.tf, ["w0", "w1", "w2", "w3", "w0"]

    def multiplied(x, name):
        return tf.einsum("bij,jk->bik", x, weight(tf, np.ones((4, 4)), name))

    def last(x, labels):
        logits = tf.reduce_mean(multiplied(x, "w0"), axis=1)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    found = ran(
        names,
        [*(lambda x, labels, name=name: (multiplied(x, name), labels) for name in layers[:-1]), last],
        20,
        shared_weight_elements(40),
        optimizer=lambda: tf.train.MomentumOptimizer(0.01, 0.98),
        repeat_count=2,
        device_mapping=mapping,
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    losses = found.sent[0]
    assert losses[:20] == pytest.approx([1.3862944] * 20, rel=1e-6)
    if method == "MEAN":
        quoted = [1802.24, 361.14115, 2359.296, 4161.536, 0.69314718, 360.448, 4718.592, 1802.24]
        assert losses[20:28] == pytest.approx(quoted, rel=1e-6)
    expected, weights = unsplit_shared_weight(20, 2)
    assert losses == pytest.approx(expected, rel=1e-6)
    for name, array in weights.items():
        assert found.variables[name] == pytest.approx(array, rel=1e-6), name


@pytest.mark.parametrize(("mapping", "physical"), [(None, [0, 1, 3]), ([2, 0, 1], [2, 0, 1])])
@by_schedule
def test_case_9_placement(names, schedule, mapping, physical):
    stages = [identity, identity, identity]
    found = ran(names, stages, 6, constant(1.0), device_mapping=mapping, pipeline_schedule=schedule).job
    assert [found.system.ipus[ipu] for ipu in found.program.shape.mapping] == physical


@pytest.mark.parametrize(
    ("repeat_count", "replicas"),
    [(1, 1), (3, 2), pytest.param(1, 2, marks=rarest), pytest.param(3, 1, marks=rarest)],
)
@pytest.mark.parametrize(("mode", "accumulated"), [("ALL", False), ("LAST", False), ("ALL", True)])
@by_schedule
def test_case_10_outfeed_shapes(names, schedule, mode, accumulated, repeat_count, replicas):
    tf = names.tf
    found = ran(
        names,
        [times_w(tf), lambda x: (x, tf.reduce_sum(x))],
        8,
        increasing(8 * repeat_count * replicas, 1000, (2, 3)),
        optimizer=lambda: names.ipu.optimizers.CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(0.0)),
        pipeline_schedule=schedule,
        repeat_count=repeat_count,
        accumulate_outfeed=accumulated,
        mode=mode,
        ipus=2 * replicas,
    )
    first = () if mode == "LAST" else (repeat_count,) if accumulated else (8 * repeat_count,)
    axis = (replicas,) if replicas > 1 else ()
    tensors, totals = found.sent
    assert tensors.shape == (*first, *axis, 2, 3)
    assert totals.shape == (*first, *axis)
    # Replicas take the elements of the infeed in turn, replica 0 first.
    values = np.arange(8 * repeat_count * replicas).reshape(repeat_count, 8, *axis) * 6.0
    sums = values.sum(axis=1) if accumulated else values.reshape(8 * repeat_count, *axis)
    assert totals.tolist() == (sums[-1] if mode == "LAST" else sums).tolist()
