"""One model in YAML and in Python: the same costs, the same memory, the same times."""

from __future__ import annotations

from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipusim.ipu.runtime import layers
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.runs.execute import execute

STEP_3 = Path("scenarios/tutorial_step3_pipelining.yaml")


def dense(x, units, activation="relu"):
    return layers.layer(f"dense{units}", Dense(units, activation), x)


def first(x, labels):
    x = layers.layer("flatten", Flatten(), x)
    return dense(dense(dense(x, 256), 128), 64), labels


def second(x, labels):
    logits = dense(dense(x, 32), 10, "identity")
    return layers.loss("cel", SoftmaxCrossEntropy(), logits, labels)


def relu_dense(x, units, activate=True):
    """The same layer without its name: three NumPy calls."""
    rng = np.random.default_rng(units)
    W = get_variable(f"W{units}", rng.normal(size=(x.shape[1], units)).astype(np.float32) / 16)
    y = anp.dot(x, W) + get_variable(f"b{units}", np.zeros(units, np.float32))
    return anp.maximum(y, 0) if activate else y


def first_in_numpy(x, labels):
    x = anp.reshape(x, (len(x), -1))
    return relu_dense(relu_dense(relu_dense(x, 256), 128), 64), labels


def second_in_numpy(x, labels):
    logits = relu_dense(relu_dense(x, 32), 10, False)
    shifted = logits - anp.max(logits, axis=1, keepdims=True)
    picked = anp.sum(shifted * np.eye(10, dtype=np.float32)[labels], axis=1)
    return anp.mean(anp.log(anp.sum(anp.exp(shifted), axis=1)) - picked)


def in_python(stages, schedule="Grouped"):
    config = IPUConfig()
    config.auto_select_ipus = 2
    rng = np.random.default_rng(0)
    elements = [(rng.random((32, 28, 28), np.float32), rng.integers(0, 10, 32, np.int32)) for _ in range(16)]
    return pipeline(
        stages,
        gradient_accumulation_count=16,
        infeed_queue=IPUInfeedQueue(elements),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(GradientDescentOptimizer(0.01), loss),
        pipeline_schedule=PipelineSchedule[schedule],
        config=config,
    )


def in_yaml(schedule="Grouped"):
    changes = "pipeline.repeat_count=1", "steps=1", "use_synthetic_data=false", f"pipeline.schedule={schedule.lower()}"
    return execute(load_job(STEP_3, changes))


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_layers_take_the_same_time_and_memory_through_either_door(schedule):
    run, result = in_python([first, second], schedule), in_yaml(schedule)
    for name in ("start", "end", "kind", "ipu", "stage", "micro_batch", "time_step", "link", "bytes", "cause"):
        np.testing.assert_array_equal(getattr(run.timeline, name), getattr(result.timeline, name), err_msg=name)
    assert run.memory.peaks == result.memory.peaks
    ours, theirs = run.program.stages, result.job.program.stages
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("stash_bytes", "working_bytes", "weight_gradient_bytes", "input_bytes", "accumulator_bytes"):
            assert getattr(mine, name) == getattr(other, name), name
    assert ours[0].stash_bytes == 157_696
    assert run.summary.weight_update_cycles == result.summary.weight_update_cycles


def test_products_in_numpy_are_those_of_a_layer():
    """The images need no gradient, so that the largest kernel has one product fewer."""
    found = in_python([first_in_numpy, second_in_numpy]).program.stages
    right = in_yaml().job.program.stages
    assert sum(len(work.products) for work in right[0].backward) == 2 * 3 - 1
    for mine, other in zip(found, right, strict=True):
        for name in ("forward", "backward"):
            work, theirs = getattr(mine, name), getattr(other, name)
            assert not any(each.exchange_bytes for each in work)
            assert [each.macs for each in work if each.macs] == [each.macs for each in theirs if each.macs]
        assert mine.update == other.update


def test_a_layer_learns_in_a_function_what_it_learns_in_a_list():
    """Gradients go through the layer's own backward pass; a second loss term shows that they are taken further."""

    def stage(x, labels):
        h = layers.layer("hidden", Dense(3, "tanh"), x * get_variable("scale", np.array(2.0)), seed=4)
        return layers.loss("cel", SoftmaxCrossEntropy(), h, labels) + 0.1 * anp.sum(h**2)

    seen = {}

    class Watching(GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.update({variable.name: (gradient.copy(), variable.numpy()) for gradient, variable in grads_and_vars})

    x, labels = np.random.default_rng(1).normal(size=(5, 4)), np.array([0, 2, 1, 1, 0])
    pipeline(
        [lambda x, labels: (x, labels), stage],
        4,
        infeed_queue=IPUInfeedQueue([(x, labels)] * 4),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(Watching(0.1), loss),
    )
    W, b, scale = seen["hidden/W"][1], seen["hidden/b"][1], seen["scale"][1]

    def value(W, b, scale):
        h = np.tanh(x * scale @ W + b)
        chosen = h[np.arange(5), labels]
        return np.mean(np.log(np.exp(h).sum(axis=1)) - chosen) + 0.1 * np.sum(h**2)

    def slope(index):
        """Central differences of the loss by one of its arguments."""
        arguments = [W, b, scale]
        found = np.zeros_like(arguments[index])
        for at in np.ndindex(found.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = arguments[index].copy()
                moved[at] += step
                ends.append(value(*arguments[:index], moved, *arguments[index + 1 :]))
            found[at] = (ends[0] - ends[1]) / 2e-6
        return found

    for index, name in enumerate(["hidden/W", "hidden/b", "scale"]):
        np.testing.assert_allclose(seen[name][0], 4 * slope(index), rtol=1e-6, atol=1e-8)
