"""Optimizers of Graphcore's API: what a subclass of one's own sees, what it may change, slots, and what wraps what."""

from __future__ import annotations

import importlib

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, UnsupportedProgramError
from ipusim.ipu import get_variable, optimizers
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    FtrlOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    GradientDescentOptimizer,
    IpuOptimizer,
    LAMBOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
    ShardedOptimizer,
    TrainOp,
    Variable,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput
from ipusim.ipu.runtime.loop_body import is_operation
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras.rules import KerasRMSProp
from ipusim.model.learning.accumulating_optimizers import Adadelta, Adagrad, Ftrl
from ipusim.model.learning.adaptive_optimizers import LAMB, Adam, RMSProp
from ipusim.model.work import VectorWork, Work

COUNT, LIMIT = 8, 0.5


def first(x):
    return x * get_variable("w0", np.array([1.0, 2.0], np.float32))


def second(x):
    return anp.sum((x * get_variable("w1", np.array([0.5, -0.25], np.float32)) - 1) ** 2)


def training(run, optimizer, **output):
    """Train two variables in two stages for one execution."""
    return run(
        computational_stages=[first, second],
        gradient_accumulation_count=COUNT,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss, **output),
    )


def gradients():
    """A micro-batch's gradients by hand, at x of ones."""
    w0, w1 = np.array([1.0, 2.0]), np.array([0.5, -0.25])
    error = 2 * (w0 * w1 - 1)
    return {"w0": (w0, error * w1), "w1": (w1, error * w0)}


def stepped(change=lambda gradient: gradient, rate=0.01):
    return {name: w - rate * COUNT * change(gradient) for name, (w, gradient) in gradients().items()}


def equal(found, expected):
    assert found.variables.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found.variables[name], array, rtol=1e-5, err_msg=name)


class Clipping(IpuOptimizer):
    """Clips each micro-batch's gradients, as users of Graphcore's API write it."""

    def compute_gradients(self, loss, var_list=None, **kwargs):
        pairs = super().compute_gradients(loss, var_list, **kwargs)
        return [(anp.clip(gradient, -LIMIT, LIMIT) * 1.0, variable) for gradient, variable in pairs]


class ClippingByGlobalNorm(IpuOptimizer):
    def compute_gradients(self, loss, var_list=None, **kwargs):
        pairs = super().compute_gradients(loss, var_list, **kwargs)
        norm = anp.sqrt(sum(anp.sum(gradient**2) for gradient, _ in pairs))
        return [(gradient / norm, variable) for gradient, variable in pairs]


class InApply(IpuOptimizer):
    """Does the same where all gradients are known, and notes what it was called with."""

    def __init__(self, opt):
        super().__init__(opt)
        self.calls = []

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = list(grads_and_vars)
        self.calls.append([variable.name for _, variable in pairs])
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient, _ in pairs))
        return super().apply_gradients([(gradient / norm, variable) for gradient, variable in pairs], global_step, name)


def test_compute_gradients_of_ones_own_changes_the_gradients_of_each_micro_batch(run):
    expected = stepped(lambda gradient: np.clip(gradient, -LIMIT, LIMIT))
    found = training(run, Clipping(GradientDescentOptimizer(0.01)))
    equal(found, expected)
    mapping = MapGradientOptimizer(GradientDescentOptimizer(0.01), lambda g, _: anp.clip(g, -LIMIT, LIMIT))
    same = training(run, mapping)
    equal(same, expected)
    np.testing.assert_array_equal(found.timeline.end, same.timeline.end)  # either is one function of each gradient
    around = MapGradientOptimizer(Clipping(GradientDescentOptimizer(0.01)), lambda g, w: 2 * g + 0 * w)
    assert around.gradient_maps == 2
    equal(training(run, around), stepped(lambda gradient: 2 * np.clip(gradient, -LIMIT, LIMIT)))


def test_what_takes_all_gradients_of_a_micro_batch_is_refused(run):
    with pytest.raises(ModelError, match="compute what takes several, such as a global norm, in apply_gradients"):
        training(run, ClippingByGlobalNorm(GradientDescentOptimizer(0.01)))

    class Floating(IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            return [(gradient * float(anp.max(gradient)), variable) for gradient, variable in pairs]

    with pytest.raises(ModelError, match="compute what takes several"):
        training(run, Floating(GradientDescentOptimizer(0.01)))


def test_apply_gradients_is_called_once_with_all_pairs(run):
    optimizer = InApply(GradientDescentOptimizer(0.01))
    found = training(run, optimizer)
    assert optimizer.calls == [["w0", "w1"]]
    norm = COUNT * np.sqrt(sum(np.sum(gradient**2) for _, gradient in gradients().values()))
    equal(found, {name: w - 0.01 * COUNT * gradient / norm for name, (w, gradient) in gradients().items()})


def test_variables_that_are_left_out_stay(run):
    expected = stepped()
    kept = {"w0": expected["w0"], "w1": gradients()["w1"][0]}
    for wanted in (["w0"], [Variable("w0", np.zeros(2), {})]):
        equal(training(run, GradientDescentOptimizer(0.01), compute_gradients_kwargs={"var_list": wanted}), kept)
    equal(training(run, GradientDescentOptimizer(0.01), compute_gradients_args=(["w0"],)), kept)

    class Leaving(IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            return [(None if variable.name == "w1" else gradient, variable) for gradient, variable in pairs]

    equal(training(run, Leaving(MomentumOptimizer(0.01, 0.5))), kept)
    with pytest.raises(ProgramError, match=r"^No variables to optimize\.$"):
        training(run, GradientDescentOptimizer(0.01), compute_gradients_kwargs={"var_list": []})


def test_a_variable_of_several_stages_has_one_gradient(run):
    seen = []

    class Watching(IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            seen.append([(float(gradient), variable.name) for gradient, variable in pairs])
            return pairs

    def times_w(x):
        return x * get_variable("w", 3.0)

    run(
        computational_stages=[times_w, lambda x: anp.sum(times_w(x))],
        device_mapping=[0, 0],
        optimizer_function=lambda loss: OptimizerFunctionOutput(Watching(GradientDescentOptimizer(0.0)), loss),
    )
    assert seen == [[(2 * 2 * 3.0, "w")]] * COUNT


def test_the_example_of_map_gradients_documentation():
    optimizer = MapGradientOptimizer(GradientDescentOptimizer(0.000001), lambda grad, var: grad + 0.01 * var)

    def loss():
        a, b, c = (get_variable(name, np.array([value])) for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)))
        return a * b + a * c + b * c

    pairs = optimizer.compute_gradients(loss)
    assert [(variable.name, float(gradient[0])) for gradient, variable in pairs] == [
        ("a", pytest.approx(5.01)),
        ("b", pytest.approx(4.02)),
        ("c", pytest.approx(3.03)),
    ]
    (pair,) = ShardedOptimizer(optimizer).compute_gradients(loss, ["b"])
    assert pair[1].name == "b"


@pytest.mark.parametrize(
    ("optimizer", "names", "slots"),
    [
        (GradientDescentOptimizer(0.1), [], []),
        (MomentumOptimizer(0.1, 0.5), ["momentum"], [3.0]),
        (AdamOptimizer(0.1), ["m", "v"], [0.1 * 3, 0.001 * 9]),
        (LAMBOptimizer(0.1), ["m", "v"], [0.1 * 3, 0.001 * 9]),
        (RMSPropOptimizer(0.1), ["momentum", "rms"], [0.1 * 3 / np.sqrt(0.9 + 0.1 * 9), 0.9 + 0.1 * 9]),
        (RMSPropOptimizer(0.1, centered=True), ["mg", "momentum", "rms"], [0.3, 0.3 / np.sqrt(1.8 - 0.09), 1.8]),
        (AdagradOptimizer(0.1), ["accumulator"], [9.1]),
        (AdadeltaOptimizer(1.0, 0.9, 0.1), ["accum", "accum_update"], [0.9, 0.1 * 0.1 / 1.0 * 9]),
        (FtrlOptimizer(0.1), ["accum", "linear"], [9.1, 3 - (np.sqrt(9.1) - np.sqrt(0.1)) / 0.1 * 2]),
        (keras.optimizers.Adagrad(0.1), ["accumulator"], [9.1]),
        (keras.optimizers.Adadelta(0.1, 0.9, 0.1), ["accum_grad", "accum_var"], [0.9, 0.1 * 0.1 / 1.0 * 9]),
        (keras.optimizers.Ftrl(0.1), ["accumulator", "linear"], [9.1, 3 - (np.sqrt(9.1) - np.sqrt(0.1)) / 0.1 * 2]),
        (keras.optimizers.SGD(0.1, 0.5), ["momentum"], [-0.3]),
        (keras.optimizers.RMSprop(0.1), ["rms"], [0.1 * 9]),
        (keras.optimizers.RMSprop(0.1, centered=True), ["mg", "rms"], [0.3, 0.1 * 9]),
        (keras.optimizers.RMSprop(0.1, momentum=0.5), ["momentum", "rms"], [0.1 * 3 / np.sqrt(0.9), 0.1 * 9]),
    ],
)
def test_slots(optimizer, names, slots):
    """After a minimization of 3 w once, whose gradient is 3."""
    wrapped = IpuOptimizer(CrossReplicaOptimizer(optimizer))
    assert wrapped.get_slot_names() == names
    assert wrapped.variables() == []
    wrapped.minimize(lambda: 3 * get_variable("w", np.array(2.0)))
    found = wrapped.variables()
    assert [slot.name for slot in found] == [f"w/{name}" for name in names]
    assert [float(slot.array) for slot in found] == pytest.approx(slots)


def test_rmsprop_of_keras_without_momentum_does_less_and_keeps_one_array():
    plain, with_momentum, first = KerasRMSProp(0.1), KerasRMSProp(0.1, momentum=0.5), RMSProp(0.1)
    assert with_momentum.work(10, 4) == first.work(10, 4) == RMSProp(0.1, momentum=0.5).work(10, 4)
    assert plain.work(10, 4) == Work(vector=VectorWork(70, 0, 10, 10), sram_bytes=200, compute_sets=2)
    assert [rule.state_bytes(10, 4) for rule in (plain, with_momentum, first)] == [40, 80, 80]


def test_slots_of_a_training(run):
    optimizer, seen = MomentumOptimizer(0.01, 0.5), []

    class Watching(IpuOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            super().apply_gradients(grads_and_vars, global_step, name)
            seen.extend(
                (self.get_slot(variable, "momentum"), self.get_slot(variable, "m")) for _, variable in grads_and_vars
            )

    training(run, Watching(optimizer))
    assert [None if slot is None else slot.name for pair in seen for slot in pair] == [
        *("w0/momentum", None, "w1/momentum", None)
    ]
    for slot, (_, gradient) in zip(optimizer.variables(), gradients().values(), strict=True):
        np.testing.assert_allclose(slot.array, COUNT * gradient, rtol=1e-5)


def test_a_step_is_counted():
    step, variable = Variable("step", np.array(0), {}), Variable("w", np.array(2.0), {})
    optimizer = AdamOptimizer(0.1)
    for _ in range(3):
        optimizer.apply_gradients([(np.array(1.0), variable)], step)
    assert (int(step.array), int(variable.state["step"])) == (3, 3)
    optimizer.minimize(lambda: get_variable("w", 1.0) ** 2, global_step=step)
    assert int(step.array) == 4


def test_minimize_of_a_tensor_is_for_a_program_to_do():
    optimizer, loss = GradientDescentOptimizer(0.1), np.float32(3)
    asked = optimizer.minimize(loss, var_list=["w"], name="train")
    assert isinstance(asked, TrainOp)
    assert is_operation(asked)
    assert (asked.optimizer, asked.loss, asked.var_list, asked.global_step, asked.name) == (
        *(optimizer, loss, ["w"]),
        *(None, "train"),
    )
    with pytest.raises(UnsupportedProgramError, match="with a loss that is a function"):
        optimizer.compute_gradients(loss)


METHOD = GradientAccumulationReductionMethod


def test_what_accumulation_optimizers_ask_for():
    plain = GradientDescentOptimizer(0.1)
    assert plain.accumulation is None
    for kind in (GradientAccumulationOptimizer, CrossReplicaGradientAccumulationOptimizer):
        found = kind(plain, 4)
        assert found.accumulation == optimizers.Accumulation(4)
        assert found.cross_replica == (kind is CrossReplicaGradientAccumulationOptimizer)
        assert kind(AdamOptimizer(0.1), 4, verify_usage=False).accumulation == optimizers.Accumulation(4)
    for kind in (GradientAccumulationOptimizerV2, CrossReplicaGradientAccumulationOptimizerV2):
        found = IpuOptimizer(kind(AdamOptimizer(0.1), 4, True, None, np.float32, "mine", reduction_method="mean"))
        assert found.accumulation == optimizers.Accumulation(4, True, True, np.dtype(np.float32), METHOD.MEAN)
        assert found.cross_replica == (kind is CrossReplicaGradientAccumulationOptimizerV2)
        assert found.get_name() == "Adam"


@pytest.mark.parametrize(
    "kind",
    [
        GradientAccumulationOptimizer,
        GradientAccumulationOptimizerV2,
        CrossReplicaGradientAccumulationOptimizer,
        CrossReplicaGradientAccumulationOptimizerV2,
    ],
)
def test_a_pipeline_takes_no_accumulation_optimizer(kind, run, refused):
    optimizer = kind(GradientDescentOptimizer(0.1), 4)
    text = (
        "optimizer_function: expected no gradient accumulation optimizer in combination with pipelining, as a pipeline "
        f"always accumulates gradients: give it gradient_accumulation_count, got {kind.__name__}"
    )
    refused(ValueError, text, lambda: training(run, optimizer))
    optimizer.apply_gradients([(np.array(1.0), variable := Variable("w", np.array(2.0), {}))])
    assert float(variable.array) == pytest.approx(1.9)


def test_optimizers_are_found_on_every_path_of_graphcores():
    for name in ("cross_replica", "gradient_accumulation", "map_gradient", "sharded"):
        one, other = (importlib.import_module(f"ipusim.ipu.{path}{name}_optimizer") for path in ("", "optimizers."))
        for each in (name for name in dir(one) if name in dir(optimizers)):
            assert getattr(one, each) is getattr(other, each) is getattr(optimizers, each)


def test_names_and_defaults_of_tensorflow():
    assert AdamOptimizer().rule == Adam(0.001)
    assert RMSPropOptimizer(0.1).rule == RMSProp(0.1)
    assert LAMBOptimizer(0.1).rule == LAMB(0.1)
    assert (AdagradOptimizer(0.1).rule, AdadeltaOptimizer().rule) == (Adagrad(0.1), Adadelta(0.001))
    assert FtrlOptimizer(0.1).rule == Ftrl(0.1)
    made = AdamOptimizer(), RMSPropOptimizer(0.1), LAMBOptimizer(0.1), AdagradOptimizer(0.1), AdadeltaOptimizer()
    names = [each.get_name() for each in (*made, FtrlOptimizer(0.1))]
    assert names == ["Adam", "RMSProp", "LAMBOptimizer", "Adagrad", "Adadelta", "Ftrl"]
    assert ShardedOptimizer(AdamOptimizer(name="mine")).get_name() == "mine"
    assert ShardedOptimizer(AdamOptimizer()).name == "ShardedOptimizer"
    assert (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH) == (0, 1, 2)


SQUARES = {  # optimizers, and the values of w after three updates on w^2 from 3
    "gradient descent": (lambda: GradientDescentOptimizer(0.1), [2.4, 1.92, 1.536]),
    "Keras' gradient descent": (lambda: keras.optimizers.SGD(0.1), [2.4, 1.92, 1.536]),
    "Keras' momentum": (lambda: keras.optimizers.SGD(0.1, momentum=0.9), [2.4, 1.38, 0.186]),
    "wrapped": (lambda: IpuOptimizer(CrossReplicaOptimizer(GradientDescentOptimizer(0.1))), [2.4, 1.92, 1.536]),
}


@pytest.mark.parametrize(("optimizer", "values"), SQUARES.values(), ids=SQUARES)
def test_minimize_of_a_function_trains_the_programs_own_variable(optimizer, values):
    made, w, fixed = optimizer(), tf.Variable(3.0), tf.Variable(5.0, trainable=False)
    fixed.assign(1.0)
    found = []
    for _ in values:
        made.minimize(lambda: fixed * w * w, var_list=[w])
        found.append(w.numpy())
    np.testing.assert_allclose(found, values, rtol=1e-5)


def test_gradients_of_a_function_are_those_at_the_values_that_variables_have():
    w, b = tf.Variable(1.0), tf.Variable(2.0)
    w.assign(10.0)
    ((gradient, variable),) = GradientDescentOptimizer(0.1).compute_gradients(lambda: w * w * b, [w])
    assert (float(gradient), variable) == (40.0, w)


def test_a_variable_that_a_loss_makes_is_trained_on():
    optimizer = GradientDescentOptimizer(0.1)
    for _ in range(2):
        optimizer.minimize(lambda: tf.get_variable("w", initializer=np.float32(3)) ** 2)
    assert float(tf.trainable_variables()[0].numpy()) == pytest.approx(1.92)


def test_minimize_of_a_function_waits_for_a_session_in_a_graph():
    with tf.Session() as session:
        w = tf.get_variable("w", initializer=np.float32(3))
        train = GradientDescentOptimizer(0.1).minimize(lambda: w * w)
        session.run(tf.global_variables_initializer())
        assert session.run(w) == 3
        for value in (2.4, 1.92):
            session.run(train)
            assert session.run(w) == pytest.approx(value)
