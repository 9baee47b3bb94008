"""What holds for every stack of layers and every way to cut it."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.generations import GC200
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.normalisation import BatchNorm, LayerNorm
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.work import Product, VectorWork, Work
from ipusim.pricing.passes import pass_cycles
from tests.formulas import split, with_special_points
from tests.machine_costs import work_cycles
from tests.properties.test_backward_halves import ANYWHERE, SHAPES

#: Layers behind those that keep the shape of images and sequences: of rows.
OF_ROWS = [layer for layer in ANYWHERE if isinstance(layer, Dense | ActivationLayer | LayerNorm | BatchNorm | Dropout)]


@st.composite
def networks(draw):
    shape = draw(st.sampled_from(sorted(SHAPES)))
    first, second = (draw(st.lists(st.sampled_from(layers), max_size=4)) for layers in (SHAPES[shape], OF_ROWS))
    stack = [*first, Flatten(), *second, Dense(3)]
    named = tuple(NamedLayer(f"layer{i}", layer) for i, layer in enumerate(stack))
    frozen = draw(st.just(frozenset()) | st.frozensets(st.sampled_from([layer.name for layer in named])))
    return Network(named, shape, NamedLayer("cel", SoftmaxCrossEntropy()), frozen)


@st.composite
def networks_with_splits(draw):
    network = draw(networks())
    cuts = draw(st.lists(st.sampled_from(network.names[1:]), unique=True))
    return network, sorted(cuts, key=network.names.index)


@given(networks(), st.integers(1, 4), st.sampled_from([np.float32, np.float64]))
def test_shapes_and_dtypes_are_what_the_network_says(network, batch, dtype):
    rng = np.random.default_rng(0)
    x = with_special_points(rng.standard_normal((batch, *network.input_shape))).astype(dtype)
    for named, shape, after in zip(network.layers, network.shapes, network.shapes[1:], strict=False):
        parameters = named.layer.initial_parameters(shape, rng, dtype)
        assert {key: a.shape for key, a in parameters.items()} == named.layer.parameter_shapes(shape)
        y, saved = named.layer.forward(parameters, x)
        assert (y.shape, y.dtype) == ((batch, *after), dtype)
        grad_x, gradients = named.layer.backward(parameters, saved, y)
        assert (grad_x.shape, grad_x.dtype) == (x.shape, dtype)
        assert {k: (a.shape, a.dtype) for k, a in gradients.items()} == {
            k: (a.shape, dtype) for k, a in parameters.items()
        }
        x = y


@given(networks_with_splits(), st.integers(0, 2**32))
def test_any_split_gives_identical_weights_losses_and_gradients_and_the_same_cost(case, seed):
    network, splits = case
    groups = split(network, splits)
    check_profiles(network, groups)
    assert tuple(name for group in groups for name in group) == network.names
    assert [group[0] for group in groups[1:]] == splits
    (whole,) = build_stages(network, [network.names])
    stages = build_stages(network, groups)
    assert tuple(stage.layers for stage in stages) == groups
    right = whole.initial_parameters(seed, np.float64)
    parameters = [stage.initial_parameters(seed, np.float64) for stage in stages]
    assert {k: a.tobytes() for own in parameters for k, a in own.items()} == {k: a.tobytes() for k, a in right.items()}

    rng = np.random.default_rng(1)
    x, labels = with_special_points(rng.standard_normal((2, *network.input_shape))), rng.integers(0, 3, 2)
    right_loss, saved = whole.bind(right).forward(x, labels)
    right_gradients = {}
    _ = whole.bind(right).backward(saved, None, False, right_gradients.__setitem__)
    kept, gradients, grad = [], {}, None
    for stage, own in zip(stages, parameters, strict=True):
        x, saved = stage.bind(own).forward(x, labels)
        kept.append(saved)
    assert x == right_loss
    for i in reversed(range(len(stages))):
        more = {}
        needed = stages[i].needs_input_gradient
        grad = stages[i].bind(parameters[i]).backward(kept[i], grad, needed, more.__setitem__)
        assert (grad is not None) == needed
        gradients |= more
    assert gradients.keys() == right_gradients.keys()
    for key, value in right_gradients.items():
        np.testing.assert_array_equal(gradients[key], value)


def check_profiles(network, groups):
    """Hold that the profiles of stages add up to the network's."""
    stages = build_stages(network, groups)
    (whole,) = build_stages(network, [network.names])
    profiles = [layer_profile(s, 2, 4, 8) for s in stages]
    right = layer_profile(whole, 2, 4, 8)
    assert sum(p.parameter_bytes for p in profiles) == right.parameter_bytes
    assert sum(p.untrained_bytes for p in profiles) == right.untrained_bytes
    assert tuple(w for p in profiles for w in p.forward) == right.forward
    assert sum(pass_cycles(p.forward, GC200) for p in profiles) == pass_cycles(right.forward, GC200)
    for before, after in pairwise(profiles):
        sent = before.output_bytes - 8 if learns(network, before.layers[-1]) else 0
        assert after.gradient_bytes == sent


def learns(network, last):
    """Tell whether a layer up to ``last`` has parameters that are not frozen."""
    before = network.names[: network.names.index(last) + 1]
    shapes = zip(network.layers, network.shapes, strict=False)
    having = {named.name for named, shape in shapes if named.layer.parameter_shapes(shape)}
    return bool((having - network.frozen).intersection(before))


@given(st.integers(1, 30), st.integers(0, 2**63), st.data())
def test_every_epoch_of_a_feed_takes_distinct_samples(samples, seed, data):
    batch = data.draw(st.integers(1, samples))
    dataset = Dataset(np.arange(samples, dtype=np.float32)[:, None], np.arange(samples, dtype=np.int32), samples)
    feed = Feed(dataset, batch, seed)
    for epoch in range(2):
        start = epoch * feed.epoch_elements
        seen = [int(v) for i in range(start, start + feed.epoch_elements) for v in feed.element(i)[1]]
        assert len(set(seen)) == len(seen) == samples // batch * batch


counts = st.integers(0, 10**12)
sides = st.integers(0, 10**4)
products = st.lists(st.builds(Product, sides, sides, sides), max_size=3).map(tuple)
vectors = st.builds(VectorWork, counts, counts, counts, counts)
works = st.builds(Work, products, vectors, counts, counts, st.sampled_from([2, 4, 8]))


@given(works, works)
def test_more_work_never_takes_less_time(work, more):
    both = Work(
        work.products + more.products,
        work.vector + more.vector,
        work.sram_bytes + more.sram_bytes,
        work.exchange_bytes + more.exchange_bytes,
        work.itemsize,
    )
    assert 0 <= work_cycles(work, GC200) <= work_cycles(both, GC200)
