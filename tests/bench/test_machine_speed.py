"""What simulating costs beyond SimPy's own events, and what its arithmetic costs beyond NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from threadpoolctl import threadpool_limits

from ipusim.hardware.build import build_system
from ipusim.machine.durations import durations
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.simulate import simulate
from ipusim.model.feed import Feed
from ipusim.model.layers import Dense, Flatten
from ipusim.model.losses import SoftmaxCrossEntropy
from ipusim.model.network import NamedLayer, Network
from ipusim.model.optimizers import SGD
from ipusim.model.profile import StageProfile
from ipusim.model.stage import build_stages
from ipusim.model.synthetic import synthetic_classes
from ipusim.model.workload import Workload
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.schedules.registry import find
from ipusim.timeline.timeline import SpanKind

IPUS, COUNT = 64, 1024


def test_grouped_64_ipus_1024_micro_batches(ratio):
    shape = PlanShape(tuple(range(IPUS)), COUNT)
    profiles = tuple(StageProfile(f"s{i}", 1000 + i % 7, 2000, 100, 4096, 4096) for i in range(IPUS))
    program = PipelineProgram(profiles, shape)
    system = build_system("pod64", mapping=shape.mapping)
    plan = find("grouped").plan(shape)
    links = len(durations(plan, program, system).links)
    operations = len(plan.table)
    assert operations == 131_072
    assert links == 2 * (IPUS - 1)

    def bare():
        env = simpy.Environment()

        def process(times, cycles):
            for _ in range(times):
                yield env.timeout(cycles)

        for _ in range(IPUS):
            env.process(process(operations // IPUS, 10))
        for _ in range(links):
            env.process(process(plan.emitted, 7))
        env.run()

    timelines = []
    found = ratio(
        "64 IPUs x 1024 micro-batches, Plan included",
        lambda: timelines.append(simulate(find("grouped").plan(shape), program, system)),
        bare,
    )
    timeline = timelines[-1]
    kinds = {kind: len(timeline.rows(kind)) for kind in SpanKind}
    assert kinds[SpanKind.FORWARD] + kinds[SpanKind.BACKWARD] == operations
    assert kinds[SpanKind.SYNC] == kinds[SpanKind.EXCHANGE] == plan.emitted
    assert kinds[SpanKind.LINK] == links * plan.emitted
    assert kinds[SpanKind.SYNC_WAIT] > plan.emitted * (IPUS // 2)
    assert found <= 2.5


def plain_loop(weights, feed, count, executions, rate):
    """Train the tutorial's model by hand-written NumPy: one loop, no stages."""
    names = ["dense256", "dense128", "dense64", "dense32", "logits"]
    losses = []
    for execution in range(executions):
        total = {name: np.zeros_like(array) for name, array in weights.items()}
        for micro_batch in range(count):
            x, y = feed.element(execution * count + micro_batch)
            h = x.reshape(len(x), -1)
            inputs = []
            for name in names:
                inputs.append(h)
                h = h @ weights[f"{name}/W"]
                h += weights[f"{name}/b"]
                if name != "logits":
                    np.maximum(h, 0, out=h)
            h -= h.max(axis=1, keepdims=True)
            rows = np.arange(len(y))
            exp = np.exp(h)
            norm = exp.sum(axis=1, keepdims=True)
            losses.append((np.log(norm[:, 0]) - h[rows, y]).mean())
            grad = exp / norm
            grad[rows, y] -= 1
            grad /= np.float32(len(y))
            for index in range(len(names) - 1, -1, -1):
                name = names[index]
                total[f"{name}/W"] += inputs[index].T @ grad
                total[f"{name}/b"] += grad.sum(axis=0)
                if index:
                    grad = grad @ weights[f"{name}/W"].T
                    grad *= inputs[index] > 0
        for name, array in weights.items():
            np.subtract(array, np.float32(rate) * total[name], out=array)
    return losses


@pytest.mark.parametrize("schedule", ["grouped", "sequential"])
def test_arithmetic_of_the_tutorials_model(ratio, schedule):
    batch, count, executions, rate = 32, 16, 10, 0.01
    layers = [NamedLayer("flatten", Flatten())]
    layers += [NamedLayer(f"dense{units}", Dense(units, "relu")) for units in (256, 128, 64, 32)]
    layers.append(NamedLayer("logits", Dense(10)))
    network = Network(tuple(layers), (28, 28), NamedLayer("cel", SoftmaxCrossEntropy()))
    stages = build_stages(network, [["flatten", "dense256", "dense128", "dense64"], ["dense32", "logits", "cel"]])
    dataset = synthetic_classes((28, 28), 10, 5120).astype(np.float32)
    feed, optimizer = Feed(dataset, batch), SGD(rate)
    workload = Workload(stages, feed, optimizer)
    shape = PlanShape((0, 1), count)
    profiles = tuple(stage.profile(batch, 4, feed.label_bytes, True, optimizer) for stage in stages)
    program = PipelineProgram(
        profiles, shape, schedule, executions, "SUM", Infeed(feed.element_bytes), Outfeed(4), batch
    )
    system = build_system("m2000", mapping=shape.mapping)
    results = {}

    def ours():
        executor = NumpyExecutor(shape, workload)
        simulate(find(schedule).plan(shape), program, system, executor=executor)
        results["ours"] = executor.results

    def bare():
        weights = {name: array for i in range(2) for name, array in workload.initial_parameters(i).items()}
        results["bare"] = plain_loop(weights, feed, count, executions, rate)

    with threadpool_limits(limits=1, user_api="blas"):
        found = ratio(f"tutorial's model, {schedule}, 160 micro-batches", ours, bare)
    assert len(results["ours"]) == count * executions
    np.testing.assert_allclose(results["ours"], results["bare"], rtol=1e-3)
    assert found <= 1.2
