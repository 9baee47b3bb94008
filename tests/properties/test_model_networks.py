"""What holds for every stack of layers and every way to cut it: what stages keep is found on outlines of arrays."""

import tracemalloc
from itertools import pairwise

import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.generations import GC200
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.losses import MaskedSoftmaxCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.normalisation import BatchNorm, LayerNorm
from ipusim.model.layers.outline import Outline
from ipusim.model.layers.saved_arrays import root_of
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stash import measured_bytes, outlined_bytes, saved_bytes
from ipusim.model.work import Product, VectorWork, Work
from ipusim.pricing.passes import pass_cycles
from tests.effort import draws_everything, sampled
from tests.formulas import split, with_special_points
from tests.machine_costs import work_cycles
from tests.oracles.test_model_layers import LAYERS
from tests.properties.test_backward_halves import ANYWHERE, SHAPES, workloads

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


def own_functions(layer):
    """Whether a layer is, or has within it, a Python function."""
    return isinstance(layer, PythonLayer | PythonLoss)


#: Examples of a micro-batch, and bytes of a number.
SIZES = ((1, 4), (2, 8), (6, 2))
LOSSES = {"": None, "mean": MeanSquaredError(), "softmax": SoftmaxCrossEntropy()}


@sampled(3)
@pytest.mark.parametrize("ending", LOSSES)
@pytest.mark.parametrize("name", [name for name, (layer, _) in LAYERS.items() if not own_functions(layer)])
def test_every_layer_keeps_the_same(name, ending):
    """Each loss with each cut in one size by default, so that all sizes occur with both; in all with ``--every``."""
    loss, first = LOSSES[ending], [*LOSSES].index(ending)
    layer, shape = LAYERS[name]
    tied = isinstance(layer, TiedProjection)
    before = Embedding(layer.units, shape[-1]) if tied else ActivationLayer("tanh")
    named = [
        NamedLayer("tokens" if tied else "before", before),
        NamedLayer("it", layer),
        NamedLayer("bent", Dense(6, "gelu")),
    ]
    network = Network(tuple(named), shape[:-1] if tied else shape, None if loss is None else NamedLayer("loss", loss))
    cuts = ([network.names], [network.names[:1], network.names[1:]], [network.names[:2], network.names[2:]])
    for number, groups in enumerate(cuts):
        sizes = SIZES if draws_everything() else [SIZES[(first + number) % 3]]
        for stage in build_stages(network, groups):
            for batch, itemsize in sizes:
                if "serialized m" in name and batch < 6:  # whose rows are split in three
                    continue
                assert outlined_bytes(stage, batch, itemsize) == measured_bytes(stage, batch, itemsize)


@given(workloads(), st.integers(1, 6).map(lambda half: 2 * half), st.sampled_from([2, 4, 8]))
def test_drawn_stages_keep_the_same(workload, batch, itemsize):
    for whole in workload.stages:
        for stage in (whole, *whole.clusters):
            right = measured_bytes(stage, batch, itemsize)
            assert saved_bytes(stage, batch, itemsize) == right
            if not any(own_functions(named.layer) for named in stage.layers_and_loss):
                assert outlined_bytes(stage, batch, itemsize) == right


def test_a_loss_of_the_first_positions_keeps_the_same():
    loss = NamedLayer("loss", MaskedSoftmaxCrossEntropy(2))
    network = Network((NamedLayer("scores", Dense(5)),), (4, 3), loss)
    (stage,) = build_stages(network, [network.names])
    assert outlined_bytes(stage, 3, 4) == measured_bytes(stage, 3, 4)


def test_a_function_of_ones_own_sees_arrays_alone():
    seen = []

    def own(x, w):
        seen.append(x)
        return anp.tanh(x * w)

    network = Network((NamedLayer("own", PythonLayer(own, {"w": (3,)})),), (3,))
    (stage,) = build_stages(network, [network.names])
    with pytest.raises(Exception, match="Outline"):
        outlined_bytes(stage, 2, 4)
    seen.clear()
    assert saved_bytes(stage, 2, 4).stash >= 2 * 3 * 4
    assert seen
    assert not any("Outline" in repr(x) for x in seen)


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_of_any_size_takes_no_memory(causal):
    attention = MultiHeadAttention(64, causal=causal, use_bias=False)
    layers = NamedLayer("up", Dense(65_536, "gelu")), NamedLayer("heads", attention)
    network = Network(layers, (8192, 65_536))
    (stage,) = build_stages(network, [network.names])
    tracemalloc.start()
    try:
        found = saved_bytes(stage, 64, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The input, what gelu is of, what comes out; queries, keys, values and results of the heads; scores.
    assert found.stash == (7 * 64 * 8192 * 65_536 + 64 * 64 * 8192 * 8192) * 2
    assert peak < 200_000


def lies_in(made, operands):
    """Tell in which of the operands an array's memory lies, or in none."""
    return [root_of(made) is operand for operand in operands]


OPERATIONS = {
    "sum of both": lambda a, b: a + b,
    "sum of other orders": lambda a, b: a.swapaxes(0, 2) + b.swapaxes(0, 2),
    "sum of two orders": lambda a, b: a.swapaxes(0, 1) * b.transpose(1, 0, 2),
    "number": lambda a, _: 1 - a,
    "wider number": lambda a, _: a * np.float64(2),
    "comparison": lambda a, b: ~(a > b),
    "broadcast": lambda a, b: a + b[:, :1],
    "new axis": lambda a, b: a[None] * b[..., None, :, :],
    "product": lambda a, b: a @ b.swapaxes(-1, -2),
    "product of swapped": lambda a, b: a.swapaxes(0, 1) @ b.swapaxes(0, 1).swapaxes(-1, -2),
    "product with a matrix": lambda a, b: a @ b[0].T,
    "rows": lambda a, _: a.reshape(-1, a.shape[-1]),
    "rows of swapped": lambda a, _: a.swapaxes(0, 1).reshape(-1, a.shape[-1]),
    "split": lambda a, _: a.reshape(2, 3, 2, 2),
    "view of a view": lambda a, _: a.reshape(6, 4)[1:, ::2].T,
    "mean": lambda a, _: a.mean(axis=(0, 2), keepdims=True),
    "sums": lambda a, _: np.add.reduce(a, axis=-1),
    "largest of swapped": lambda a, _: a.swapaxes(0, 2).max(axis=1),
    "stack": lambda a, b: np.stack([a, b], axis=1),
    "stack at the front": lambda a, b: np.stack([a, b]),
    "concatenate": lambda a, b: np.concatenate([a, b], axis=2),
    "concatenate at the front": lambda a, b: np.concatenate([a, b]),
    "concatenate one": lambda a, _: np.concatenate([a], axis=1),
    "pad": lambda a, _: np.pad(a, ((0, 0), (1, 2), (3, 0)), constant_values=1.0),
    "take": lambda a, _: a.take(np.array([[1, 0], [0, 1]]), axis=0),
    "chosen": lambda a, _: a[np.array([0, 1]), np.array([2, 2])],
    "like": lambda a, _: np.zeros_like(a.swapaxes(0, 2)),
    "like, in another shape": lambda a, _: np.empty_like(a.swapaxes(0, 2), shape=(5, 2, 2), order="C"),
    "triangle": lambda a, _: ~np.tri(3, dtype=bool, like=a),
    "in place": lambda a, b: np.multiply(a, b, out=a),
    "other type": lambda a, _: a.swapaxes(0, 1).astype(np.float64),
    "copy": lambda a, _: a.copy(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_makes_what_numpy_makes(name):
    arrays = [np.ones((2, 3, 4), np.float32) for _ in range(2)]
    outlines = [Outline((2, 3, 4), np.float32) for _ in range(2)]
    made, right = OPERATIONS[name](*outlines), OPERATIONS[name](*arrays)
    assert (made.shape, made.dtype, made.strides) == (right.shape, right.dtype, right.strides)
    assert lies_in(made, outlines) == lies_in(right, arrays)
    assert root_of(made).nbytes == root_of(right).nbytes


@pytest.mark.parametrize(
    "of", [np.asarray, np.linalg.inv, np.sort, bool, float, lambda a: a[a > 0], lambda a: a.cumsum(), np.divmod]
)
def test_what_is_not_known_is_refused(of):
    with pytest.raises((TypeError, AttributeError)):
        of(Outline((2, 2), np.float32))
