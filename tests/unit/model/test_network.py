import math
from dataclasses import replace

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.hardware.generations import BOW, GC2, GC200
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.evaluate import evaluate
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.layers.losses import MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.work import MeasuredWork, Product, VectorWork, Work
from ipusim.model.workload import Workload
from ipusim.pricing.passes import pass_cycles
from ipusim.pricing.planner import product as planner
from ipusim.pricing.planner.plan import plan_product
from tests.formulas import split
from tests.machine_costs import vector_operations, work_cycles

NAMES = ("flatten", "dense64", "dense32", "logits", "cel")


def network(loss=True):
    layers = (Flatten(), Dense(64, "relu"), Dense(32, "relu"), Dense(10))
    named = tuple(NamedLayer(name, layer) for name, layer in zip(NAMES, layers, strict=False))
    return Network(named, (4, 5), NamedLayer("cel", SoftmaxCrossEntropy()) if loss else None)


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        ((), (3,), "at least one layer"),
        ((NamedLayer("a", Flatten()), NamedLayer("a", Flatten())), (3,), "two layers are named 'a'"),
        ((NamedLayer("a/b", Flatten()),), (3,), "a layer name without '/', got 'a/b'"),
        ((NamedLayer("", Flatten()),), (3,), "a layer name without '/', got ''"),
        ((NamedLayer("d", Dense(2)),), (), r"layer 'd' on an input of shape \(\): a dense layer needs"),
        ((NamedLayer("f", Flatten()),), (3, 0), r"sizes from 1 upwards, got \(3, 0\)"),
    ],
)
def test_network_refuses(layers, shape, message):
    with pytest.raises(ModelError, match=message):
        Network(layers, shape)


def test_build_stages_wants_all_layers_in_order():
    with pytest.raises(ModelError, match=r"list all layers in order, flatten, .*; got \['flatten', 'logits'\]"):
        build_stages(network(), [["flatten"], ["logits"]])
    with pytest.raises(ModelError, match="stage 1 has no layers"):
        build_stages(network(), [NAMES, []])


def test_profile_of_two_stages():
    first, last = build_stages(network(), split(network(), ["dense32"]), names=["a", "b"])
    a, b = (layer_profile(s, 8, 4, label_bytes=32, training=True, optimizer=SGD(0.1)) for s in (first, last))
    assert (a.name, b.name) == ("a", "b")
    assert a.output_bytes == 8 * 64 * 4 + 32  # activations, and labels on their way to the loss
    assert b.output_bytes == 0
    assert last.result_bytes(8, 4) == 4
    assert (a.gradient_bytes, b.gradient_bytes) == (0, 8 * 64 * 4)
    counts = 20 * 64, 64
    assert a.parameter_bytes == 4 * sum(counts)
    assert a.update == tuple(Work(vector=VectorWork(2 * count), sram_bytes=12 * count, variables=1) for count in counts)
    # Nothing needs the gradient of the images: dense64 takes half the products, flatten does not run at all.
    assert [work.macs for work in a.backward] == [8 * 20 * 64, 0, 0]
    assert a.backward[1:] == tuple(Work(vector=VectorWork(count), sram_bytes=12 * count) for count in counts)
    assert [work.macs for work in b.forward] == [8 * 64 * 32, 8 * 32 * 10, 0]
    assert [work.macs for work in b.backward] == [0, 2 * 8 * 32 * 10, 2 * 8 * 64 * 32, 0, 0, 0, 0]


def test_profile_of_inference_has_no_way_back():
    first, last = build_stages(network(loss=False), split(network(loss=False), ["dense32"]))
    a, b = (layer_profile(s, 8, 2, training=False) for s in (first, last))
    assert (a.backward, a.update, a.gradient_bytes, b.gradient_bytes) == ((), (), 0, 0)
    assert a.output_bytes == 8 * 64 * 2
    assert last.result_bytes(8, 2) == 8 * 10 * 2


def test_missing_labels_and_gradients_are_named():
    first, last = build_stages(network(), split(network(), ["logits"]), names=["a", "b"])
    with pytest.raises(ModelError, match="stage 'b': the loss 'cel' needs labels, got none"):
        last.bind(last.initial_parameters(0, np.float32)).forward(np.ones((1, 32), np.float32), None)
    parameters = first.initial_parameters(0, np.float32)
    _, saved = first.bind(parameters).forward(np.ones((1, 4, 5), np.float32), None)
    with pytest.raises(ModelError, match="stage 'a': layer 'dense32' got no gradient"):
        first.bind(parameters).backward(saved, None, False, {}.__setitem__)


def test_cost_formula_by_hand():
    work = Work(vector=VectorWork(10**5), sram_bytes=10**6, exchange_bytes=10**5, itemsize=4, compute_sets=2)
    # GC200: 1472 tiles, 8 bytes of vector path, 24 bytes of memory and 4 of exchange a cycle and tile.
    launches, exchange, vector = 1230, 15, 104  # ceil of 1229.2, 14.3 (1.191 x 4 bytes), 103.7 (3.053 cycles)
    assert work_cycles(work, GC200) == launches + exchange + vector
    half = Work(vector=VectorWork(10**5), sram_bytes=10**7, exchange_bytes=10**5, itemsize=2, compute_sets=2)
    assert work_cycles(half, GC200) == launches + exchange + 284  # memory-bound: 10^7 / 35328
    assert work_cycles(half, BOW) == work_cycles(half, GC200)
    assert work_cycles(work, GC2) > work_cycles(work, GC200)
    assert work_cycles(replace(work, itemsize=8), GC200) == work_cycles(work, GC200)


def test_a_product_costs_what_its_plan_does_beside_the_vector_work():
    vector = Work(vector=VectorWork(10**5), itemsize=4)
    dense = replace(vector, products=(Product(64, 300, 200), Product(64, 200, 300, times=3)))
    plans = [plan_product(planner.Product(m=n, k=k, n=64, itemsize=4), GC200) for k, n in ((300, 200), (200, 300))]
    expected = plans[0].cycles + 3 * plans[1].cycles + work_cycles(vector, GC200) + 4 * 900  # laid out anew
    assert work_cycles(dense, GC200) == expected


def test_cost_of_measured_and_of_nothing():
    assert pass_cycles(12345, GC200) == 12345
    assert pass_cycles((), GC200) == 0
    assert work_cycles(Work(), GC200) == 0
    one = Work(vector=VectorWork(1))
    assert pass_cycles((one, MeasuredWork(cycles=7), Work()), GC200) == (615 + 1) + 7


def test_work_of_any_kind_is_something():
    asked = ({"products": (Product(1, 1, 1),)}, {"vector": VectorWork(quotients=1)}, {"sram_bytes": 1})
    assert Work(itemsize=2, compute_sets=3).is_nothing
    assert not any(Work(**each).is_nothing for each in (*asked, {"exchange_bytes": 1}))


def test_cost_is_exact_for_numbers_beyond_floating_point():
    path = 8 * GC200.tiles
    work = Work(vector=VectorWork(path * 10**18), itemsize=4)
    assert work_cycles(work, GC200) == 615 + 4 * 3053 * 10**15
    more = Work(vector=VectorWork(path * 10**18 + 1), itemsize=4)
    assert work_cycles(more, GC200) == work_cycles(work, GC200) + 1


def test_evaluate_equals_one_pass_over_everything():
    rng = np.random.default_rng(0)
    data = Dataset(rng.standard_normal((25, 4, 5)), rng.integers(0, 10, 25).astype(np.int32), 10)
    (whole,) = build_stages(network(), [NAMES])
    parameters = whole.initial_parameters(0, np.float64)
    stages = build_stages(network(), split(network(), ["dense32", "cel"]))
    own = [s.initial_parameters(0, np.float64) for s in stages]
    result = evaluate(stages, own, data, batch_size=8)
    logits = whole.bind(parameters).predict(data.x)
    assert result.samples == 25
    assert result.loss == pytest.approx(float(whole.bind(parameters).forward(data.x, data.y)[0]), rel=1e-13)
    assert result.accuracy == pytest.approx(np.mean(logits.argmax(axis=1) == data.y), rel=1e-13)


def test_evaluate_without_loss_or_classes():
    net = Network((NamedLayer("d", Dense(1)),), (2,), NamedLayer("mse", MeanSquaredError()))
    stages = build_stages(net, [net.names])
    data = Dataset(np.zeros((3, 2)), np.full((3, 1), 2.0))
    result = evaluate(stages, [stages[0].initial_parameters(0, np.float64)], data)
    assert (result.loss, result.accuracy) == (4.0, None)
    bare = build_stages(network(loss=False), [NAMES[:-1]])
    with pytest.raises(ModelError, match="cannot evaluate a network without a loss"):
        evaluate(bare, [{}], data)


def test_workload_checks_itself():
    stages = build_stages(network(), [NAMES])
    data = Dataset(np.zeros((4, 4, 5)), np.zeros(4, np.int32), 10)
    with pytest.raises(ModelError, match="the dataset is float64 but the workload computes in float32"):
        Workload(stages, Feed(data, 2))
    with pytest.raises(ModelError, match="at least one stage"):
        Workload((), Feed(data, 2))
    with pytest.raises(ModelError, match="floating-point dtype such as float32, got int32"):
        Workload(stages, Feed(data, 2), dtype=np.dtype(np.int32))
    drawn = Workload(stages, Feed(data.astype(np.float32), 2), seed=3).initial_parameters(0)
    np.testing.assert_array_equal(drawn["logits/W"], stages[0].initial_parameters(3, np.float32)["logits/W"])


@pytest.mark.parametrize(("itemsize", "held", "lanes"), [(2, 4, 1472 * 2), (4, 4, 1472 * 2), (2, 2, 1472 * 4)])
def test_accumulators_of_another_width_are_read_and_written_in_it(itemsize, held, lanes):
    (stage,) = build_stages(network(), [NAMES])
    profile = layer_profile(stage, 8, itemsize, optimizer=SGD(0.1), accumulator_itemsize=held)
    sizes = [array.size for array in stage.initial_parameters(0, np.float32).values()]
    assert len(profile.update) == len(sizes)
    for count, added, step in zip(sizes, profile.backward[-len(sizes) :], profile.update, strict=True):
        assert (vector_operations(added), added.sram_bytes) == (count, count * (itemsize + 2 * held))
        # Reads the accumulator and the weight, writes the weight.
        assert step.sram_bytes == count * (held + 2 * itemsize)
    assert (profile.accumulator_bytes, profile.accumulator_itemsize) == (
        sum(stage.parameter_sizes.values()) * held,
        held,
    )
    count = max(sizes)
    added = profile.backward[-len(sizes) + sizes.index(count)]
    # One compute set; the vector units and the memory work at once, at 24 bytes a cycle and tile.
    longest = max(math.ceil(count * 3.053 / lanes), -(-added.sram_bytes // (1472 * 24)))
    assert work_cycles(added, GC200) == 615 + longest
