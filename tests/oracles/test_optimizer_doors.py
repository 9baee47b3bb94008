"""One training in YAML and in Python: with each optimizer the same losses, and the same time."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    CrossReplicaOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    LAMBOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
    ShardedOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.runtime import layers
from ipusim.runs.execute import execute
from tests.effort import sampled

TEXT = """\
system: {name: m2000, auto_select_ipus: IPUS}
data: {type: digits}
model:
  layers:
    - {name: flatten, type: flatten}
    - {name: hidden, type: dense, units: 16, activation: tanh}
    - {name: logits, type: dense, units: 10}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  splits: [logits]
  micro_batch_size: 8
  gradient_accumulation_count: 4
  repeat_count: 6
optimizer: OPTIMIZER
"""
DECAYED = "beta_1: 0.8, beta_2: 0.9, epsilon: 0.001"
OPTIMIZERS = {
    "{type: sgd, learning_rate: 0.1}": lambda: GradientDescentOptimizer(0.1),
    "{type: momentum, learning_rate: 0.1, momentum: 0.5}": lambda: MomentumOptimizer(0.1, 0.5),
    "{type: momentum, learning_rate: 0.1, momentum: 0.5, nesterov: true}": (
        lambda: MomentumOptimizer(0.1, 0.5, use_nesterov=True)
    ),
    "{type: adagrad, learning_rate: 0.1, initial_accumulator: 0.2}": lambda: AdagradOptimizer(0.1, 0.2),
    "{type: adadelta, learning_rate: 1, rho: 0.9, epsilon: 0.001}": lambda: AdadeltaOptimizer(1, 0.9, 0.001),
    # Of a first sum that is small, as FTRL takes weights for those of the gradients before it.
    "{type: ftrl, learning_rate: 0.1, initial_accumulator: 1.0e-8, l1: 0.001, beta: 0.1}": lambda: FtrlOptimizer(
        0.1, initial_accumulator_value=1e-8, l1_regularization_strength=0.001, beta=0.1
    ),
    "{type: adam, learning_rate: 0.01}": lambda: AdamOptimizer(0.01),
    f"{{type: adam, learning_rate: 0.01, {DECAYED}}}": lambda: AdamOptimizer(0.01, 0.8, 0.9, 0.001),
    "{type: lamb, learning_rate: 0.01}": lambda: LAMBOptimizer(0.01),
    f"{{type: lamb, learning_rate: 0.01, {DECAYED}, weight_decay: 0.01, exclude_from_weight_decay: [/b]}}": (
        lambda: LAMBOptimizer(0.01, 0.01, 0.8, 0.9, 0.001, ["/b"])
    ),
    "{type: rmsprop, learning_rate: 0.01}": lambda: RMSPropOptimizer(0.01),
    "{type: rmsprop, learning_rate: 0.01, decay: 0.8, momentum: 0.5, epsilon: 0.001, centered: true}": (
        lambda: RMSPropOptimizer(0.01, 0.8, 0.5, 0.001, centered=True)
    ),
    "{type: sgd, learning_rate: 0.1, map_gradient: {clip_by_value: 0.01}}": lambda: MapGradientOptimizer(
        ShardedOptimizer(GradientDescentOptimizer(0.1)), lambda gradient, _: anp.clip(gradient, -0.01, 0.01)
    ),
}


def function_of(stage, initial):
    """Return a scenario's stage as a function, its variables beginning at the scenario's."""

    def run(x, labels):
        for name, array in initial.items():
            get_variable(name, array)
        for named in stage.named_layers:
            x = layers.layer(named.name, named.layer, x)
        return (x, labels) if stage.loss is None else layers.loss("cel", stage.loss.layer, x, labels)

    return run


def in_python(job, optimizer):
    workload, replicas, queue = job.workload(0), job.system.replicas, IPUOutfeedQueue()
    count = 4 * 6 * replicas
    config = IPUConfig()
    config.machine, config.auto_select_ipus = "m2000", job.system.count
    wrapped = CrossReplicaOptimizer(optimizer) if replicas > 1 else optimizer
    found = pipeline(
        [function_of(stage, workload.initial_parameters(at)) for at, stage in enumerate(workload.stages)],
        4,
        repeat_count=6,
        infeed_queue=IPUInfeedQueue([workload.feed.element(index) for index in range(count)]),
        outfeed_queue=queue,
        optimizer_function=lambda loss: OptimizerFunctionOutput(wrapped, loss),
        config=config,
    )
    return found, queue.dequeue()[0]


@sampled(2)
@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("text", OPTIMIZERS)
def test_an_optimizer_learns_the_same_through_either_door(text, ipus, tmp_path):
    path = tmp_path / "doors.yaml"
    path.write_text(TEXT.replace("OPTIMIZER", text).replace("IPUS", str(ipus)))
    job = load_job(path)
    right = execute(job)
    found, losses = in_python(job, OPTIMIZERS[text]())
    np.testing.assert_array_equal(losses.ravel(), [each.loss for each in right.learning.losses])
    assert losses[-4:].mean() < losses[:4].mean()
    if "map_gradient" not in text:  # a function counts as one operation an element, a value's two bounds as two
        np.testing.assert_array_equal(found.timeline.end, right.timeline.end)
    assert found.memory.peaks == job.memory.peaks
