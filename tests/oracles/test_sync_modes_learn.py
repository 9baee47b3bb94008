"""Training learns the same however IPUs wait for each other, in whatever legal order: that of the unsplit model.

The loop that is the right answer shares no layer, loss or optimizer with ipusim; its gradients are autograd's.
"""

import random
from functools import cache

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import value_and_grad

from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.workload import Workload
from ipusim.pipeline.check import check_plan
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.order import CopyRule
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from tests.effort import seeds
from tests.formulas import cross_entropy, split
from tests.orders import passes_of, random_mapping, random_order, read
from tests.plans import price_and_run

BATCH, EXECUTIONS, CLASSES = 3, 2, 4
DENSE = (
    ("d1", 7, "relu"),
    ("d2", 6, "tanh"),
    ("d3", 5, "identity"),
    ("d4", 6, "relu"),
    ("logits", CLASSES, "identity"),
)
NAMES = ("flatten", *(name for name, _, _ in DENSE), "cel")
RATE = 0.05
ACTIVATIONS = {"relu": lambda z: anp.where(z > 0, z, 0), "tanh": anp.tanh, "identity": lambda z: z}
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


def plain_loop(weights, feed, reduction, count):
    """Return losses and final weights of the whole model trained by a loop, float64: once for the same weights."""
    key = *((name, array.tobytes()) for name, array in sorted(weights.items())), reduction, count
    if key not in LOOPS:
        LOOPS[key] = looped(weights, feed, reduction, count)
    return LOOPS[key]


def loss_of(weights, x, labels):
    h = anp.reshape(x, (len(x), -1))
    for name, _, activation in DENSE:
        h = ACTIVATIONS[activation](h @ weights[f"{name}/W"] + weights[f"{name}/b"])
    return cross_entropy(h, labels)


def looped(weights, feed, reduction, count):
    weights = {name: array.copy() for name, array in weights.items()}
    losses, scale = [], 1 if reduction == "SUM" else 1 / count
    for execution in range(EXECUTIONS):
        total = {name: np.zeros_like(array) for name, array in weights.items()}
        for micro_batch in range(count):
            loss, gradients = value_and_grad(loss_of)(weights, *feed.element(execution * count + micro_batch))
            losses.append(loss)
            for name, gradient in gradients.items():
                total[name] += scale * gradient
        for name in weights:
            weights[name] = weights[name] - RATE * total[name]
    return losses, weights


def assert_equal(result, reduction="SUM"):
    losses, weights, initial, feed = result
    right_losses, right_weights = plain_loop(initial, feed, reduction, len(losses) // EXECUTIONS)
    np.testing.assert_allclose(losses, right_losses, rtol=1e-12)
    assert weights.keys() == right_weights.keys()
    for name, array in weights.items():
        np.testing.assert_allclose(array, right_weights[name], rtol=1e-12, atol=1e-15, err_msg=name)
        assert not np.array_equal(array, initial[name])


MODES = list(Sync)


def trained(order, sync, splits, *, reduction="SUM", overlap=True, system="c2_server"):
    """Losses, weights, initial weights and the feed of a training in the order that ``order(shape)`` gives."""
    stages = build_stages(network(), split(network(), splits))
    feed = Feed(dataset(), BATCH, seed=3)
    optimizer = SGD(RATE)
    workload = Workload(stages, feed, optimizer, reduction, np.dtype(np.float64), seed=11)
    profiles = tuple(layer_profile(each, BATCH, 8, feed.label_bytes, True, optimizer) for each in stages)
    shape = order.shape
    feeds = Infeed(feed.element_bytes), Outfeed(8)
    program = PipelineProgram(
        profiles, shape, order.schedule, EXECUTIONS, reduction, *feeds, BATCH, overlap_copies=overlap
    )
    executor = NumpyExecutor(shape, workload)
    initial = {name: array.copy() for name, array in executor.weights().items()}
    plan = lower(order, sync)
    check_plan(plan)
    price_and_run(plan, program, build_system(system, mapping=shape.mapping), executor=executor)
    ends = (shape.mapping[-1], shape.mapping[0]) if shape.mirrored else (shape.mapping[-1],)  # who take turns
    made = [map(read, passes_of(order)[ipu]) for ipu in ends]
    out = [[micro for letter, stage, micro in own if (letter, stage) == ("F", shape.stages - 1)] for own in made]
    last = [micro for turn in zip(*out, strict=True) for micro in turn]
    losses = np.empty((EXECUTIONS, shape.micro_batches))
    losses[:, last] = np.reshape([float(loss) for (loss,) in executor.results], losses.shape)
    return losses.ravel().tolist(), executor.weights(), initial, feed


def shape_of(mapping, **options):
    """Return a shape of four micro-batches a stage, of which every schedule has whole rounds."""
    return PlanShape(mapping=mapping, micro_batches=4 * len(mapping), **options)


SPLITS = [("d2",), ("cel",), ("d1", "d4"), ("d3", "logits"), ("d1", "d3", "logits"), ("d2", "d3", "cel")]


@pytest.mark.parametrize("seed", seeds(16))
def test_any_legal_order_learns_what_the_whole_model_does(seed):
    rng = random.Random(seed)
    splits = rng.choice(SPLITS)
    options = rng.choice(({}, {"recompute": True}, {"recompute_inline": True}))
    stages = len(splits) + 1
    if mirrored := stages % 2 == 0 and rng.random() < 0.3:
        half = rng.randint(1, stages // 2)
        mapping = tuple(min(stage, half - 1) for stage in range(stages // 2))
        mapping += tuple(2 * half - 1 - ipu for ipu in reversed(mapping))
    else:
        mapping = random_mapping(rng, stages, rng.randint(1, 4))
    shape = shape_of(mapping, mirrored=mirrored, **options)
    order = random_order(rng, shape)
    if rng.random() < 0.3:
        order.copy_rule = rng.choice((CopyRule.EACH_STAGE, CopyRule.CROSSING))
    reduction = rng.choice(("SUM", "MEAN", "RUNNING_MEAN"))
    for sync in MODES:
        result = trained(order, sync, splits, reduction=reduction, overlap=rng.random() < 0.5)
        assert_equal(result, "SUM" if reduction == "SUM" else "MEAN")
