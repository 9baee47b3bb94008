"""Loops around a body in TensorFlow's sessions, against the same training by TensorFlow alone."""

from functools import partial

import numpy as np
import pytest

from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, run

ITERATIONS, RUNS, BATCH = 6, 2, 8
#: Batches of a weight update where gradients are accumulated.
COUNT = 3
START = 3.0
RNG = np.random.default_rng(0)
FIRST, LAST = (RNG.normal(0, 0.3, shape).astype(np.float32) for shape in ((12, 16), (16, 10)))
DATA = RNG.standard_normal((240, 12)).astype(np.float32), RNG.integers(0, 10, 240).astype(np.int32)


def _data(tf):
    return tf.data.Dataset.from_tensor_slices(DATA).batch(BATCH, drop_remainder=True).repeat()


def _hidden(tf, x):
    return tf.nn.relu(tf.matmul(x, tf.get_variable("first", initializer=FIRST)))


def _loss_of(tf, hidden, labels):
    logits = tf.matmul(hidden, tf.get_variable("last", initializer=LAST))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _loss(tf, x, labels):
    return _loss_of(tf, _hidden(tf, x), labels)


def _adam(tf, loss):
    return tf.train.AdamOptimizer(0.01).minimize(loss)


def _decayed(tf, loss):
    """A learning rate that decays with a count of updates."""
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 2, 0.5)
    return tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)


def _clipped(tf, loss):
    """Gradients that are clipped by their common norm."""
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True))


def _written_out(tf, loss):
    """Gradients of ``tf.gradients``, and an update by assignments."""
    variables = tf.trainable_variables()
    pairs = zip(variables, tf.gradients(loss, variables), strict=True)
    return tf.group(*(variable.assign_sub(0.1 * gradient, read_value=False) for variable, gradient in pairs))


def _by_tensorflow(tf, training):
    """Losses and variables."""
    with tf.Graph().as_default():
        loss = _loss(tf, *tf.data.make_one_shot_iterator(_data(tf)).get_next())
        update = training(tf, loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, update])[0] for _ in range(ITERATIONS * RUNS)]
            return losses, {each.op.name: session.run(each) for each in tf.global_variables()}


def _accumulated_by_tensorflow(tf, optimizer):
    """Losses where gradients of several batches are added up by hand for each weight update."""
    with tf.Graph().as_default():
        loss = _loss(tf, *tf.data.make_one_shot_iterator(_data(tf)).get_next())
        own, variables = optimizer(), tf.trainable_variables()
        gradients = tf.gradients(loss, variables)
        sums = [tf.placeholder(tf.float32, variable.shape) for variable in variables]
        update = own.apply_gradients(list(zip(sums, variables, strict=True)))
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(ITERATIONS // COUNT):
                runs = [session.run([loss, *gradients]) for _ in range(COUNT)]
                losses += [each[0] for each in runs]
                totals = [np.sum(each, axis=0) for each in list(zip(*runs, strict=True))[1:]]
                session.run(update, dict(zip(sums, totals, strict=True)))
        return losses


def _looped(names, body, inputs=(), feeds=({},), ipus=1):
    """What a loop leaves whose body takes what is carried on and an element; it has the queue of its results first."""
    ipu = names.ipu
    configure(names, ipus)
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(_data(names.tf)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def network(*carried):
        return ipu.loops.repeat(ITERATIONS, partial(body, outfeed), list(carried), infeed)

    return run(names, network, outfeed, [infeed], feeds, inputs)


@pytest.mark.parametrize(
    ("training", "apart"), [(_adam, True), (_decayed, True), (_clipped, True), (_written_out, False)]
)
def test_a_loop_trains_as_tensorflow_does_and_a_plain_update_is_apart(names, training, apart):
    """Apart from the forward and the backward pass, on the Timeline."""
    tf = names.tf
    start = tf.placeholder(tf.float32, [])

    def body(outfeed, total, *element):
        loss = _loss(tf, *element)
        with tf.control_dependencies([training(tf, loss)]):
            loss = tf.identity(loss)
        return total + loss, outfeed.enqueue(loss)

    found = _looped(names, body, [start], [{start: START}] * RUNS)
    expected, variables = _by_tensorflow(tf, training)
    np.testing.assert_allclose(np.ravel(found.sent), expected, rtol=1e-5, atol=3e-7)
    for name, value in variables.items():
        np.testing.assert_allclose(found.variables[name], value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.results, [START + sum(expected[-ITERATIONS:])], rtol=1e-5)
    assert bool(len(found.timeline.rows(SpanKind.WEIGHT_UPDATE))) is apart


@pytest.mark.parametrize(
    "way",
    [
        "GradientAccumulationOptimizer",
        "ShardedOptimizer",
        "the mean of them",
        "an operation of Poplar",
        *(pytest.param(last, id=f"stages on IPUs 0 and {last}") for last in (0, 1)),
    ],
)
def test_gradients_are_accumulated_in_every_way_that_there_is(names, way):
    from ipusim.ipu.gen_poputil_ops import ipu_stateful_gradient_accumulate  # noqa: PLC0415 - imports TensorFlow

    tf, made, shard = names.tf, names.ipu.optimizers, names.ipu.scopes.ipu_shard

    def momentum(rate=0.1):
        return tf.train.MomentumOptimizer(rate, 0.9)

    def minimize(loss):
        if way == "an operation of Poplar":
            pairs = momentum().compute_gradients(loss)
            return momentum().apply_gradients(
                [(ipu_stateful_gradient_accumulate(each, num_mini_batches=COUNT), held) for each, held in pairs]
            )
        if way == "GradientAccumulationOptimizer":
            return made.GradientAccumulationOptimizer(momentum(), COUNT).minimize(loss)
        if way == "the mean of them":
            mean = made.GradientAccumulationOptimizerV2(momentum(COUNT * 0.1), COUNT, reduction_method="MEAN")
            return mean.minimize(loss)
        accumulating = made.GradientAccumulationOptimizerV2(momentum(), COUNT)
        wrapped = made.sharded_optimizer.ShardedOptimizer(accumulating) if way == "ShardedOptimizer" else accumulating
        return wrapped.minimize(loss)

    def body(outfeed, *element):
        if isinstance(way, str):
            loss = _loss(tf, *element)
        else:
            with shard(0):
                hidden = _hidden(tf, element[0])
            with shard([way]):
                loss = _loss_of(tf, hidden, element[1])
        return outfeed.enqueue(loss), minimize(loss)

    last = 0 if isinstance(way, str) else way
    found = _looped(names, body, ipus=last + 1)
    np.testing.assert_allclose(np.ravel(found.sent), _accumulated_by_tensorflow(tf, momentum), rtol=1e-5, atol=3e-7)
    assert (found.job.schedule.name, found.job.plan.shape.mapping) == (
        ("sharded", (0, 1)) if last else ("single", (0,))
    )


def _decaying(names, optimizer):
    """Optimizer functions between accumulation and update: weight decay, and clipping of the global norm."""
    tf = names.tf

    class Wrapped(names.ipu.optimizers.IpuOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            gradients, variables = zip(*grads_and_vars, strict=True)
            clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
            decayed = [gradient + 0.01 * variable for gradient, variable in zip(clipped, variables, strict=True)]
            return super().apply_gradients(list(zip(decayed, variables, strict=True)), global_step, name)

    return Wrapped(optimizer)


def _assigning(names, _):
    """An optimizer that writes its update out by assignments, with a slot."""
    tf = names.tf

    class Written(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Written")

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            updates = []
            for gradient, variable in grads_and_vars:
                shape = variable.shape.as_list()
                slot = tf.get_variable(f"{variable.op.name}_m", shape, initializer=tf.zeros_initializer())
                mean = 0.9 * slot + gradient
                updates += [slot.assign(mean), variable.assign(variable - 0.1 * mean)]
            return tf.group(*updates)

    return Written()


@pytest.mark.parametrize("between", [_decaying, _assigning])
def test_an_update_may_compute_with_accumulated_gradients(names, between):
    """The arithmetic belongs to the weight update, which has its work."""
    tf = names.tf

    def optimizer():
        return between(names, tf.train.GradientDescentOptimizer(0.1))

    def trained(wrap):
        def body(outfeed, *element):
            loss = _loss(tf, *element)
            accumulating = names.ipu.optimizers.GradientAccumulationOptimizerV2(wrap(), COUNT)
            return outfeed.enqueue(loss), accumulating.minimize(loss)

        return _looped(names, body)

    found = trained(optimizer)
    np.testing.assert_allclose(np.ravel(found.sent), _accumulated_by_tensorflow(tf, optimizer), rtol=1e-5)
    spans = found.timeline.rows(SpanKind.WEIGHT_UPDATE)
    assert len(spans) == ITERATIONS // COUNT
    if between is _decaying:
        tf.reset_default_graph()
        plain = trained(lambda: tf.train.GradientDescentOptimizer(0.1))
        lengths = [
            (each.timeline.end - each.timeline.start)[rows]
            for each, rows in ((found, spans), (plain, plain.timeline.rows(SpanKind.WEIGHT_UPDATE)))
        ]
        assert (lengths[0] > lengths[1]).all()
