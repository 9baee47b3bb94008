"""What an optimizer sees: a variable's whole gradient of a micro-batch, and all variables at once in the update."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationReductionMethod,
    GradientDescentOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    Optimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

COUNT = 12


def config(replicas=1, shards=2, remote=False):
    found = IPUConfig()
    found.auto_select_ipus = replicas * shards
    found.device_connection.enable_remote_buffers = remote
    found.optimizations.minimum_remote_tensor_size = 1
    return found


def train(stages, optimizer, elements, **arguments):
    return pipeline(
        stages,
        COUNT,
        infeed_queue=IPUInfeedQueue(elements),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        **arguments,
    )


@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Sequential])
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (GradientAccumulationReductionMethod.SUM, 2 - 12),
        (GradientAccumulationReductionMethod.MEAN, 2 - 1),
        (GradientAccumulationReductionMethod.RUNNING_MEAN, 2 - 1),
    ],
)
def test_a_shared_variables_gradient_is_mapped_once_on_its_sum(schedule, method, expected):
    """The loss is x + 2w: of each micro-batch the gradient is 2, which is clipped to 1."""

    def add(x):
        return x + get_variable("w", np.float64(2))

    found = train(
        [add, lambda x: 1.0 * x, add],
        MapGradientOptimizer(GradientDescentOptimizer(1.0), lambda gradient, variable: gradient.clip(-1, 1)),
        [(np.float64(0),)] * COUNT,
        device_mapping=[0, 1, 0],
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    assert found.variables["w"] == pytest.approx(expected, rel=1e-12)


def test_a_variable_of_three_stages_is_decayed_once():
    """The loss is 3w, and the decay adds w / 2: of each micro-batch 3 + 1."""

    def add(x):
        return x + get_variable("w", np.float64(2))

    found = train(
        [add, add, add],
        MapGradientOptimizer(GradientDescentOptimizer(0.5), lambda gradient, variable: gradient + 0.5 * variable),
        [(np.float64(0),)] * COUNT,
        device_mapping=[0, 0, 0],
    )
    assert found.variables["w"] == 2 - 0.5 * COUNT * 4


def clip(gradients, norm=1.0):
    """Clip by the global norm, as tf.clip_by_global_norm does."""
    total = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
    return [gradient * norm / max(total, norm) for gradient in gradients]


class Clipping(Optimizer):
    """Clips by the norm of all gradients and leaves the rest to another optimizer; notes what it was called with."""

    def __init__(self, opt):
        super().__init__(opt.rule)
        self.opt, self.calls = opt, []

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        gradients, variables = zip(*grads_and_vars, strict=True)
        self.calls.append([(gradient.copy(), variable.name) for gradient, variable in grads_and_vars])
        self.opt.apply_gradients(zip(clip(gradients), variables, strict=True))


class ClippingReplica(CrossReplicaOptimizer):
    """Clips each replica's gradients before they are averaged, and halves the variables after the update."""

    def __init__(self, opt):
        super().__init__(opt)
        self.calls = []

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        gradients, variables = zip(*grads_and_vars, strict=True)
        self.calls.append([gradient.copy() for gradient in gradients])
        super().apply_gradients(zip(clip(gradients), variables, strict=True))
        for variable in variables:
            variable.assign(variable.array / 2)


STAGES = [
    lambda x: x * get_variable("v", np.array([1.0, 2.0])),
    lambda x: (x * get_variable("w", np.array([3.0, -1.0]))).sum(),
]


def gradients(element, v, w):
    """The gradients of sum(x v w)."""
    return np.array([element * w, element * v])


def elements(count):
    return list(np.random.default_rng(5).normal(size=(count, 2)))


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_an_optimizer_is_called_once_with_all_variables(schedule):
    optimizer = Clipping(GradientDescentOptimizer(0.1))
    found = train(STAGES, optimizer, elements(2 * COUNT), repeat_count=2, pipeline_schedule=schedule)
    held = np.array([[1.0, 2.0], [3.0, -1.0]])
    for execution in range(2):
        each = elements(2 * COUNT)[execution * COUNT : (execution + 1) * COUNT]
        total = sum(gradients(element, *held) for element in each)
        assert [name for _, name in optimizer.calls[execution]] == ["v", "w"]
        np.testing.assert_allclose([gradient for gradient, _ in optimizer.calls[execution]], total, rtol=1e-12)
        held -= 0.1 * np.array(clip(total))
    assert len(optimizer.calls) == 2
    np.testing.assert_allclose([found.variables["v"], found.variables["w"]], held, rtol=1e-12)


SHARDED = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": True}


@pytest.mark.parametrize("inner", [False, True], ids=["subclass", "wrapped"])
@pytest.mark.parametrize(
    "more", [{}, SHARDED, SHARDED | {"replicated_weight_sharding": True}], ids=["", "state", "both"]
)
def test_each_replica_clips_before_the_average_or_the_mean_after_it(inner, more):
    momentum = MomentumOptimizer(0.1, 0.5)
    clipping = Clipping(momentum) if inner else ClippingReplica(momentum)
    optimizer = CrossReplicaOptimizer(clipping) if inner else clipping
    made = elements(2 * 2 * COUNT)
    found = train(STAGES, optimizer, made, repeat_count=2, config=config(2, remote=True), **more)
    held, slots = np.array([[1.0, 2.0], [3.0, -1.0]]), np.zeros((2, 2))
    for execution in range(2):
        each = made[execution * 2 * COUNT : (execution + 1) * 2 * COUNT]
        totals = [sum(gradients(element, *held) for element in each[replica::2]) for replica in range(2)]
        if inner:
            step = np.array(clip(np.mean(totals, axis=0)))
        else:
            step = np.mean([clip(total) for total in totals], axis=0)
            np.testing.assert_allclose(clipping.calls[2 * execution : 2 * execution + 2], totals, rtol=1e-12)
        slots = 0.5 * slots + step
        held = (held - 0.1 * slots) / (1 if inner else 2)
    assert len(clipping.calls) == 4
    np.testing.assert_allclose([found.variables["v"], found.variables["w"]], held, rtol=1e-12)


def test_an_optimizers_mistake_behind_the_average_is_raised():
    class Failing(GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            raise KeyError("mine")

    with pytest.raises(Exception, match="mine"):
        train(STAGES, CrossReplicaOptimizer(Failing(0.1)), elements(2 * COUNT), config=config(2))
