"""Pipelined training gives what a plain loop over the unsplit model gives.

The loop below is written out by hand: it shares no layer, loss or optimizer with ipusim.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from ipusim.hardware.build import build_system
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.effort import sampled, slowest
from tests.formulas import split
from tests.plans import price_and_run

BATCH, COUNT, EXECUTIONS, CLASSES = 3, 24, 2, 4
DENSE = (
    ("d1", 7, "relu"),
    ("d2", 6, "tanh"),
    ("d3", 5, "identity"),
    ("d4", 6, "relu"),
    ("logits", CLASSES, "identity"),
)
NAMES = ("flatten", *(name for name, _, _ in DENSE), "cel")
RATE, MOMENTUM = 0.05, 0.9
#: What the loop gives, by what it begins with: the same for every way to split the model.
LOOPS = {}


def network() -> Network:
    layers = (NamedLayer("flatten", Flatten()), *(NamedLayer(n, Dense(u, a)) for n, u, a in DENSE))
    return Network(layers, (2, 3), NamedLayer("cel", SoftmaxCrossEntropy()))


@cache
def dataset() -> Dataset:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 2, 3))
    return Dataset(x, rng.integers(0, CLASSES, 40).astype(np.int32), CLASSES)


def plain_loop(weights, feed, reduction, momentum, count=COUNT):
    """Return losses and final weights of the whole model trained by a loop, float64: once for the same weights."""
    key = *((name, array.tobytes()) for name, array in sorted(weights.items())), reduction, momentum, count
    if key not in LOOPS:
        LOOPS[key] = looped(weights, feed, reduction, momentum, count)
    return LOOPS[key]


def looped(weights, feed, reduction, momentum, count):
    weights = {name: array.copy() for name, array in weights.items()}
    velocity = {name: np.zeros_like(array) for name, array in weights.items()}
    losses = []
    for execution in range(EXECUTIONS):
        total = {name: np.zeros_like(array) for name, array in weights.items()}
        for micro_batch in range(count):
            x, y = feed.element(execution * count + micro_batch)
            inputs, outputs = [], []
            h = x.reshape(len(x), -1)
            for name, _, activation in DENSE:
                inputs.append(h)
                h = h @ weights[f"{name}/W"] + weights[f"{name}/b"]
                h = {"relu": lambda z: np.where(z > 0, z, 0), "tanh": np.tanh, "identity": lambda z: z}[activation](h)
                outputs.append(h)
            exp = np.exp(h - h.max(axis=1, keepdims=True))
            probability = exp / exp.sum(axis=1, keepdims=True)
            losses.append(-np.log(probability[np.arange(len(y)), y]).mean())
            grad = probability
            grad[np.arange(len(y)), y] -= 1
            grad = grad / len(y)
            for (name, _, activation), h_in, h_out in reversed(list(zip(DENSE, inputs, outputs, strict=True))):
                if activation == "relu":
                    grad = grad * (h_out > 0)
                elif activation == "tanh":
                    grad = grad * (1 - h_out**2)
                scale = 1 if reduction == "SUM" else 1 / count
                total[f"{name}/W"] += scale * (h_in.T @ grad)
                total[f"{name}/b"] += scale * grad.sum(axis=0)
                grad = grad @ weights[f"{name}/W"].T
        for name, array in weights.items():
            if momentum:
                velocity[name] = MOMENTUM * velocity[name] + total[name]
                array[...] -= RATE * velocity[name]
            else:
                array[...] -= RATE * total[name]
    return losses, weights


def simulated(schedule, splits, mapping, reduction="SUM", optimizer=None, recompute=False, inline=False, count=COUNT):
    groups = split(network(), splits)
    stages = build_stages(network(), groups)
    feed = Feed(dataset(), BATCH, seed=3)
    optimizer = optimizer or SGD(RATE)
    workload = Workload(stages, feed, optimizer, reduction, np.dtype(np.float64), seed=11)
    profiles = tuple(layer_profile(s, BATCH, 8, feed.label_bytes, True, optimizer) for s in stages)
    shape = PlanShape(mapping=mapping, micro_batches=count, recompute=recompute, recompute_inline=inline)
    program = PipelineProgram(
        profiles, shape, schedule, EXECUTIONS, reduction, Infeed(feed.element_bytes), Outfeed(8), BATCH
    )
    executor = NumpyExecutor(shape, workload)
    initial = {name: array.copy() for name, array in executor.weights().items()}
    system = build_system("c2_server", mapping=mapping)
    price_and_run(plan_of(find(schedule), shape), program, system, executor=executor)
    return [float(loss) for (loss,) in executor.results], executor.weights(), initial, feed


def assert_equal(result, reduction="SUM", momentum=False):
    losses, weights, initial, feed = result
    right_losses, right_weights = plain_loop(initial, feed, reduction, momentum, len(losses) // EXECUTIONS)
    np.testing.assert_allclose(losses, right_losses, rtol=1e-12)
    assert weights.keys() == right_weights.keys()
    for name, array in weights.items():
        np.testing.assert_allclose(array, right_weights[name], rtol=1e-12, atol=1e-15, err_msg=name)
        assert not np.array_equal(array, initial[name])


EVERY_SPLIT = [splits for cuts in range(4) for splits in combinations(NAMES[1:], cuts)]
PIPELINED = ("grouped", "interleaved", "popart", "sequential", "sharded")


def in_turn():
    """Yield every split under every schedule; by default two schedules of each, another two of the next."""
    for place, (splits, (turn, schedule)) in enumerate(product(filter(None, EVERY_SPLIT), enumerate(PIPELINED))):
        rest = (turn - 2 * (place // len(PIPELINED))) % len(PIPELINED) > 1
        yield pytest.param(schedule, splits, marks=slowest if rest else (), id=f"{'-'.join(splits)}-{schedule}")


@sampled(2)
@pytest.mark.parametrize(("schedule", "splits"), [*in_turn()])
def test_every_split_and_schedule(schedule, splits):
    stages = len(splits) + 1
    assert_equal(simulated(schedule, splits, tuple(range(stages)), count=4 * stages))


def test_the_model_has_seven_layers_and_forty_one_cuts_into_up_to_four_stages():
    assert len(NAMES) == 7
    assert len(EVERY_SPLIT) == 1 + 6 + 15 + 20


@pytest.mark.parametrize("splits", EVERY_SPLIT[:7], ids="-".join)
def test_single_ipu(splits):
    assert_equal(simulated("single", splits, (0,) * (len(splits) + 1)))


@pytest.mark.parametrize(
    ("schedule", "mapping"),
    [
        ("grouped", (3, 1, 0, 2)),
        ("grouped", (0, 1, 1, 0)),
        ("grouped", (2, 2, 2, 2)),
        ("interleaved", (1, 0, 3, 2)),
        ("sequential", (0, 0, 1, 1)),
        ("sequential", (3, 2, 3, 2)),
        ("sharded", (0, 2, 0, 1)),
    ],
)
def test_device_mappings(schedule, mapping):
    assert_equal(simulated(schedule, ("d1", "d3", "logits"), mapping))


@pytest.mark.parametrize("schedule", PIPELINED)
@pytest.mark.parametrize("reduction", ["SUM", "MEAN"])
def test_reductions_and_momentum(schedule, reduction):
    result = simulated(schedule, ("d2", "d4"), (0, 1, 2), reduction, Momentum(RATE, MOMENTUM))
    assert_equal(result, reduction, momentum=True)


@pytest.mark.parametrize("schedule", ["grouped", "interleaved"])
def test_recomputation_changes_no_bit(schedule):
    plain = simulated(schedule, ("d1", "d3", "logits"), (0, 1, 2, 3))
    again = simulated(schedule, ("d1", "d3", "logits"), (0, 1, 2, 3), recompute=True)
    assert plain[0] == again[0]
    assert all(np.array_equal(plain[1][name], again[1][name]) for name in plain[1])


@pytest.mark.parametrize("schedule", ["grouped", "sequential", "sharded"])
def test_recomputation_inside_the_backward_pass_changes_no_bit(schedule):
    plain = simulated(schedule, ("d1", "d3", "logits"), (0, 1, 2, 3))
    again = simulated(schedule, ("d1", "d3", "logits"), (0, 1, 2, 3), inline=True)
    assert plain[0] == again[0]
    assert all(np.array_equal(plain[1][name], again[1][name]) for name in plain[1])
