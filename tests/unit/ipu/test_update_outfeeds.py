"""Optimizers of a program's own around another one, and outfeed queues that their apply_gradients sends to."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu import ipu_compiler, ipu_strategy, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientAccumulationOptimizerV2
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.tensorflow import keras

X = np.arange(1, 97, dtype=np.float32).reshape(48, 2) / 96
RATE = 0.5


class Around(tf.train.Optimizer):
    """Leaves everything to another optimizer, and sends the gradients that it applies."""

    def __init__(self, wrapped, queue, *more):
        super().__init__(False, "Around")
        self.wrapped, self.queue, self.calls = wrapped, queue, 0
        self.more = more[0] if more else None

    def compute_gradients(self, loss, var_list=None, **kwargs):
        return self.wrapped.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        self.calls += 1
        sent = {variable.name: gradient for gradient, variable in grads_and_vars}
        with tf.control_dependencies([self.queue.enqueue(sent)]):
            return self.wrapped.apply_gradients(grads_and_vars, global_step, name)


def infeed():
    return IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat())


def first(x):
    return x * tf.get_variable("w", initializer=np.float32(2))


def judge(y):
    return tf.reduce_mean(y * tf.get_variable("v", initializer=np.float32(1)))


def in_pipeline(optimizer, replicas=1, elements=None):
    config = IPUConfig()
    config.auto_select_ipus = 2 * replicas
    return pipeline(
        [first, judge],
        gradient_accumulation_count=4,
        repeat_count=3,
        infeed_queue=elements or infeed(),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(CrossReplicaOptimizer(optimizer), loss),
        config=config,
    )


def in_loop(optimizer):
    def body(x):
        return GradientAccumulationOptimizerV2(optimizer, 4).minimize(judge(first(x)))

    return loops.repeat(12, body, [], infeed())


@pytest.mark.parametrize("run", [in_pipeline, in_loop])
def test_what_apply_gradients_sends_is_what_the_wrapped_optimizer_applies(run):
    queue = IPUOutfeedQueue()
    program = run(Around(tf.train.GradientDescentOptimizer(RATE), queue))
    sent = {name: np.asarray(values) for name, values in queue.dequeue().items()}
    assert {name: values.shape for name, values in sent.items()} == {"w": (3,), "v": (3,)}
    for name, before in (("w", 2), ("v", 1)):
        assert program.variables[name] == pytest.approx(before - RATE * sent[name].sum(), rel=1e-5)


def test_it_trains_as_the_wrapped_optimizer_alone():
    alone = in_pipeline(tf.train.MomentumOptimizer(RATE, 0.9)).variables
    around = in_pipeline(Around(tf.train.MomentumOptimizer(RATE, 0.9), IPUOutfeedQueue())).variables
    assert alone == around


def test_the_queue_is_known_before_a_session_runs_the_program():
    queue, updates = IPUOutfeedQueue(), tf.train.GradientDescentOptimizer(RATE)
    optimizer = Around(updates, queue)
    elements = infeed()
    compiled = ipu_compiler.compile(lambda: in_pipeline(optimizer, elements=elements), [])
    assert queue.enqueued
    assert optimizer.calls == 1
    assert not updates.variables()
    sent = queue.dequeue()
    with tf.Session() as session:
        session.run(elements.initializer)
        session.run(compiled)
        assert session.run(sent)["w"].shape == (3,)


def test_a_keras_model_trains_with_one_around_an_optimizer_of_keras():
    queue = IPUOutfeedQueue()

    class AroundKeras(Around):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            weights = self.more.trainable_weights
            return list(zip(self.wrapped.get_gradients(loss, weights), weights, strict=True))

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            self.queue.enqueue({variable.name: gradient for gradient, variable in grads_and_vars})
            return self.wrapped.apply_gradients(grads_and_vars)

    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(3, name="dense", input_shape=(2,))])
        before = model.get_weights()
        model.compile(AroundKeras(keras.optimizers.SGD(RATE), queue, model), "mse", steps_per_execution=4)
        model.fit(X, np.ones((48, 3), np.float32), batch_size=12, verbose=0)
    sent = queue.dequeue()
    for weight, start in zip(model.trainable_weights, before, strict=True):
        now = start - np.float32(RATE) * np.asarray(sent[weight.name]).sum(axis=0)
        np.testing.assert_allclose(weight.numpy(), now, rtol=1e-5)


def test_several_replicas_do_not_send():
    with pytest.raises(UnsupportedProgramError, match="enqueue: expected one replica where apply_gradients sends"):
        in_pipeline(Around(tf.train.GradientDescentOptimizer(RATE), IPUOutfeedQueue()), replicas=2)


class Plain(tf.train.Optimizer):
    """Has ``count`` other optimizers."""

    def __init__(self, count):
        super().__init__(False, "Plain")
        self.others = {}
        for place in range(count):
            setattr(self, f"other_{place}", tf.train.GradientDescentOptimizer(RATE))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients(grads_and_vars, global_step, name)


@pytest.mark.parametrize("count", [0, 2])
def test_the_wrapped_optimizer_is_one_attribute(count):
    message = f"Plain: expected an optimizer of the program's own to define _resource_apply_dense.* got {count}"
    with pytest.raises(UnsupportedProgramError, match=message):
        in_pipeline(Plain(count))


def test_graphs_in_which_layers_are_tried_say_so():
    names = []

    class Named(keras.layers.Layer):
        def call(self, inputs):
            names.append(tf.compat.v1.get_default_graph().name)
            return inputs

    model = keras.Sequential([Named(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=12, verbose=0)
    assert set(names) == {"keras_scratch_graph", "graph"}
