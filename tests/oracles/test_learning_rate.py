"""A learning rate that is a tensor, on its way through the stages, as in Graphcore's training samples."""

from __future__ import annotations

import re

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientDescentOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

WIDTH, BATCH, COUNT = 6, 3, 8


def weights(seed):
    return np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)) / 4


def elements(count):
    rng = np.random.default_rng(4)
    return [(rng.normal(size=(BATCH, WIDTH)), rng.normal(size=(BATCH, WIDTH))) for _ in range(count)]


def stage1(learning_rate, x, labels):
    return learning_rate, anp.tanh(anp.dot(x, get_variable("w0", weights(0)))), labels


def stage2(learning_rate, x, labels):
    return learning_rate, anp.mean((anp.dot(x, get_variable("w1", weights(1))) - labels) ** 2)


def optimizer_function(learning_rate, loss):
    return OptimizerFunctionOutput(GradientDescentOptimizer(learning_rate=learning_rate), loss)


def train(first, count=2 * COUNT, **arguments):
    queue = IPUOutfeedQueue()
    given = {
        "computational_stages": [stage1, stage2],
        "gradient_accumulation_count": COUNT,
        "inputs": [first],
        "infeed_queue": IPUInfeedQueue(repeat(elements(count))),
        "outfeed_queue": queue,
        "optimizer_function": optimizer_function,
    }
    return pipeline(**(given | arguments)), queue


def unsplit(rates, momentum=0.0, replicas=1, count=2 * COUNT, limit=np.inf):
    """The same training in plain NumPy, one execution at each rate: losses and weights."""
    w0, w1 = weights(0), weights(1)
    slots, losses, stream = [0.0, 0.0], [], 0
    for rate in rates:
        total = [np.zeros_like(w0), np.zeros_like(w1)]
        for _ in range(COUNT * replicas):
            x, labels = elements(count)[stream % count]
            stream += 1
            hidden = np.tanh(x @ w0)
            error = hidden @ w1 - labels
            losses.append(np.mean(error**2))
            grad = 2 * error / error.size
            total[1] += np.clip(hidden.T @ grad, -limit, limit) / replicas
            total[0] += np.clip(x.T @ (grad @ w1.T * (1 - hidden**2)), -limit, limit) / replicas
        slots = [momentum * slot + gradient for slot, gradient in zip(slots, total, strict=True)]
        w0, w1 = w0 - rate * slots[0], w1 - rate * slots[1]
    return np.array(losses), {"w0": w0, "w1": w1}


def equal(found, expected):
    assert found.variables.keys() == expected.keys()
    for name, array in expected.items():
        assert found.variables[name] == pytest.approx(array, rel=1e-10), name


RATES = [np.float64(0.5), np.float64(0.125), np.float64(0.0), np.float64(0.25)]


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_each_run_learns_at_the_rate_that_it_is_given(schedule):
    found, queue = train(RATES[0], pipeline_schedule=schedule)
    for rate in RATES[1:]:
        found.run([rate])
    losses, expected = unsplit(RATES)
    equal(found, expected)
    sent, per_micro_batch = queue.dequeue()
    assert sent.tolist() == np.repeat(RATES, COUNT).tolist()
    assert per_micro_batch == pytest.approx(losses, rel=1e-10)


def test_a_rate_stays_until_another_one_is_given():
    found, _ = train(RATES[0], repeat_count=2)
    found.run(RATES[1])
    found.run()
    equal(found, unsplit([RATES[0]] * 2 + [RATES[1]] * 4)[1])


def test_wrapped_optimizers_of_replicas_learn_at_the_rate_of_each_run():
    limit = 0.02

    def function(learning_rate, loss):
        inner = MomentumOptimizer(learning_rate, momentum=0.5)
        clipped = MapGradientOptimizer(inner, lambda gradient, variable: anp.clip(gradient, -limit, limit))
        return OptimizerFunctionOutput(CrossReplicaOptimizer(clipped), loss)

    config = IPUConfig()
    config.auto_select_ipus = 4
    found, _ = train(RATES[0], optimizer_function=function, config=config)
    for rate in RATES[1:]:
        found.run([rate])
    assert found.system.replicas == 2
    equal(found, unsplit(RATES, momentum=0.5, replicas=2, limit=limit)[1])


def test_a_rate_of_the_infeed_is_that_of_the_last_micro_batch():
    scheduled = [(np.float64(1 / (1 + index)), *element) for index, element in enumerate(elements(2 * COUNT))]
    found, _ = train(None, inputs=None, infeed_queue=IPUInfeedQueue(scheduled), repeat_count=2)
    equal(found, unsplit([1 / COUNT, 1 / (2 * COUNT)])[1])


def test_a_mapping_sees_the_rate_of_each_run():
    def function(learning_rate, loss):
        opt = MapGradientOptimizer(GradientDescentOptimizer(1.0), lambda gradient, variable: gradient * learning_rate)
        return OptimizerFunctionOutput(opt, loss)

    found, _ = train(RATES[0], optimizer_function=function)
    for rate in RATES[1:]:
        found.run([rate])
    equal(found, unsplit(RATES)[1])


@pytest.mark.parametrize(("rate", "dtype"), [(0.5, np.float32), (1, np.int32), (np.float16(0.5), np.float16)])
def test_a_number_of_python_is_a_tensor_as_in_tensorflow(rate, dtype):
    found, queue = train(rate)
    equal(found, unsplit([float(rate)])[1])
    assert queue.dequeue()[0].dtype == dtype


@pytest.mark.parametrize(
    ("inputs", "kind", "text"),
    [
        ([], ProgramError, "inputs: expected 1 values as in the pipeline's own, got 0"),
        ([0.1, 0.2], ProgramError, "inputs: expected 1 values as in the pipeline's own, got 2"),
        (
            [np.ones(3)],
            ProgramError,
            "inputs[0]: expected shape () as in the pipeline's own, got (3,)",
        ),
        (["fast"], ProgramTypeError, "inputs[0]: expected an array or a number, got 'fast'"),
    ],
)
def test_inputs_of_another_form_are_refused_before_anything_runs(inputs, kind, text):
    found, _ = train(RATES[0])
    before = found.variables
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        found.run(inputs)
    equal(found, before)
    found.run([RATES[1]])
    equal(found, unsplit(RATES[:2])[1])


def test_a_rate_that_cannot_be_is_refused():
    found, _ = train(RATES[0])
    with pytest.raises(ModelError, match=r"expected a learning rate of 0 or more, got -1\.0"):
        found.run([-1.0])
    with pytest.raises(ProgramError, match=r"learning_rate: expected a number, .* and not of shape \(2,\), got"):
        train(np.ones(2))
    with pytest.raises(ProgramTypeError, match=r"learning_rate: expected a number, .* got 'fast'"):
        GradientDescentOptimizer("fast")


def test_the_optimizer_is_of_one_kind():
    calls = []

    def function(learning_rate, loss):
        calls.append(loss)
        opt = GradientDescentOptimizer(0.1) if len(calls) < 8 else MomentumOptimizer(0.1, 0.9)
        return OptimizerFunctionOutput(opt, loss)

    with pytest.raises(ModelError, match="expected one kind of optimizer in all micro-batches, got Momentum"):
        train(RATES[0], optimizer_function=function)
