"""What halves of a backward pass ask of an IPU, and what stages keep, against the shapes written out by hand."""

from collections import Counter
from itertools import pairwise

import autograd.numpy as anp
import pytest

from ipusim.hardware.generations import GC200
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.add import Add
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.layer import LayerCost
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stash import saved_bytes
from ipusim.model.work import MeasuredWork, Product, VectorWork, Work, WorkSequence
from ipusim.pricing.passes import pass_cycles
from tests.properties.test_backward_halves import BATCH, SHAPES, WIDTH

EVERY = [(layer, shape) for shape, layers in SHAPES.items() for layer in layers]
EVERY.append((TiedProjection(5, "tokens"), (3, WIDTH)))
#: Layers, the shape of a sample, and where they are cut.
CLASSIFIER = ([Flatten(), Dense(64, "relu"), Dense(32, "relu"), Dense(10)], (4, 5), (2,))


def leaves(work):
    if isinstance(work, WorkSequence):
        for part in work.parts:
            yield from leaves(part)
    else:
        yield work


def launched(work):
    return sum(leaf.compute_sets for leaf in leaves(work) if not leaf.is_nothing)


def stages(layers, shape, cuts=(), loss=SoftmaxCrossEntropy()):  # noqa: B008 - which has no state
    """The stages of a model that is cut before layers of these numbers."""
    named = tuple(NamedLayer(f"l{index}", layer) for index, layer in enumerate(layers))
    network = Network(named, shape, loss and NamedLayer("loss", loss))
    edges = [0, *cuts, len(network.names)]
    return build_stages(network, [network.names[start:end] for start, end in pairwise(edges)])


@pytest.mark.parametrize(("layer", "shape"), EVERY, ids=lambda each: type(each).__name__)
def test_halves_do_what_the_whole_does(layer, shape):
    """The same arithmetic in all, in as many compute sets; memory no less, for what goes from one to the other."""
    cost = layer.cost(shape, BATCH, 4)
    whole, (first, second) = cost.backward, cost.halves
    assert Counter(first.products + second.products) == Counter(whole.products)
    assert first.vector + second.vector == whole.vector
    assert first.sram_bytes + second.sram_bytes >= whole.sram_bytes
    assert first.exchange_bytes + second.exchange_bytes >= whole.exchange_bytes
    assert launched(first) + launched(second) == launched(whole)
    assert {leaf.convolution for leaf in (*leaves(first), *leaves(second)) if leaf.macs} == {
        leaf.convolution for leaf in leaves(whole) if leaf.macs
    }
    assert sum(pass_cycles((half,), GC200) for half in cost.halves) >= pass_cycles((whole,), GC200)
    if not layer.parameter_shapes(shape):
        assert (first, second.is_nothing) == (whole, True)
    skipped = layer.cost(shape, BATCH, 4, need_input_gradient=False)
    if layer.parameter_shapes(shape) and not isinstance(layer, PythonLayer):
        assert skipped.halves.weights == skipped.backward
        assert skipped.halves.input.is_nothing


def test_dense_halves_by_hand():
    """Relu's g is written by the first half; the sum for the bias are two compute sets of the second."""
    first, second = Dense(10, "relu").cost((20,), batch=32, itemsize=4).halves
    x, y, weights = 32 * 20, 32 * 10, 20 * 10
    assert first == Work(
        (Product(32, 10, 20),),
        VectorWork(2 * y),
        sram_bytes=4 * (y + y + weights + x + y),
        compute_sets=1,
    )
    assert second == Work(
        (Product(20, 32, 10),),
        VectorWork(reductions=y),
        sram_bytes=4 * (x + y + weights + 10),
        compute_sets=2,
    )
    plain, _ = Dense(10).cost((20,), batch=32, itemsize=4).halves
    assert plain.sram_bytes == 4 * (y + weights + x)
    for parts in Dense(10, "identity", True, 5, "b_rows").cost((20,), batch=32, itemsize=4).halves:
        assert [product.times for product in parts.products] == [5]
        assert parts.macs == 32 * 20 * 10
        assert parts.sram_bytes == 4 * (x + y + weights + 4 * x + (10 if parts.vector else 0))


def test_what_cannot_be_taken_apart_is_all_of_it_first():
    measured = LayerCost(MeasuredWork(cycles=10), MeasuredWork(cycles=20))
    layer = PythonLayer(lambda x, s: x * s, {"s": (3,)}, stated_cost=measured)
    first, second = layer.cost((3,), 2, 4).halves
    assert (first, second.is_nothing) == (MeasuredWork(cycles=20), True)


def test_a_first_stage_goes_back_no_further_than_its_own_weights_need():
    """Its first layer with weights leaves all to the second half; the one before it is not reached."""
    layers = [ActivationLayer("tanh"), Dense(6, "relu"), ActivationLayer("gelu"), Dense(3)]
    first, last = stages(layers, (5,), cuts=(3,))
    profile = layer_profile(first, 2, 4, optimizer=SGD(0.1))
    assert profile.backward_input == (layers[2].cost((6,), 2, 4).backward,)
    whole = layers[1].cost((5,), 2, 4, need_input_gradient=False).backward
    assert profile.backward_weights == (whole, *profile.backward[-2:])
    assert profile.halves == (profile.backward_input, profile.backward_weights)
    profile = layer_profile(last, 2, 4, optimizer=SGD(0.1))
    loss, dense = SoftmaxCrossEntropy().cost((3,), 2, 4), layers[3].cost((6,), 2, 4)
    assert profile.backward_input == (loss.backward, dense.halves.input)
    assert profile.backward_weights == (dense.halves.weights, *profile.backward[-2:])


def test_a_stage_without_weights_has_nothing_left():
    first, middle, last = stages([Dense(4), ActivationLayer("relu"), Dense(3)], (5,), cuts=(1, 2))
    profile = layer_profile(middle, 2, 4, optimizer=SGD(0.1))
    assert profile.halves == (profile.backward, ())
    assert profile.rest_bytes == 0
    assert not any(layer_profile(each, 2, 4, training=False).halves[0] for each in (first, middle, last))
    alone = stages([ActivationLayer("relu")], (5,))[0]
    assert layer_profile(alone, 2, 4, optimizer=SGD(0.1)).halves[1] == ()


@pytest.mark.parametrize("batch", [1, 2, 32])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_what_stays_between_halves_of_a_classifier(batch, itemsize):
    first, second = stages(*CLASSIFIER)
    # Of a first stage's first layer all: its input, relu's output, and the gradient of that.
    assert saved_bytes(first, batch, itemsize).rest_bytes == batch * (20 + 64 + 64) * itemsize
    # The inputs of both layers and the gradients behind their products; labels and probabilities are gone.
    assert saved_bytes(second, batch, itemsize).rest_bytes == batch * (64 + 32 + 32 + 10) * itemsize
    profile = layer_profile(second, batch, itemsize, optimizer=SGD(0.1))
    assert profile.rest_bytes == saved_bytes(second, batch, itemsize).rest_bytes
    assert layer_profile(second, batch, itemsize, training=False).rest_bytes is None


def test_what_stays_of_tokens_sums_and_functions():
    def gains(x, s):
        return x * anp.exp(s)

    layers = [Embedding(9, 4), Dense(4), Add("l0"), PythonLayer(gains, {"s": (3, 4)})]
    (stage,) = stages(layers, (3,), loss=None)
    # Whole numbers and their rows' gradient, which is the sum of both ways'; x of the product, which stands in the sum,
    # and the gradient behind it; of the function the gradient of its parameter, however many samples.
    assert saved_bytes(stage, 5, 4).rest_bytes == 5 * (3 * 4 + 12 * 4 + 12 * 4 + 12 * 4) + 12 * 4


@pytest.mark.parametrize("batch", [1, 2, 3, 32])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_stash_of_a_classifier_cut_in_two(batch, itemsize):
    first, second = stages(*CLASSIFIER)
    # The input and the relu's output; then the input, the next relu's output, which is also the logits'
    # input, the probabilities, and of each row its number (int64) and its label (int32).
    assert saved_bytes(first, batch, itemsize).stash == batch * (20 + 64) * itemsize
    assert saved_bytes(second, batch, itemsize).stash == batch * ((64 + 32 + 10) * itemsize + 8 + 4)


def test_profile_holds_what_the_stage_holds():
    batch, label_bytes = 16, 16 * 8
    first, second = (
        layer_profile(stage, batch, 4, label_bytes, optimizer=Momentum(0.1, 0.9)) for stage in stages(*CLASSIFIER)
    )
    weights = [4 * (20 * 64 + 64), 4 * (64 * 32 + 32 + 32 * 10 + 10)]
    assert [profile.parameter_bytes for profile in (first, second)] == weights
    assert [profile.state_bytes for profile in (first, second)] == weights
    assert [profile.accumulator_bytes for profile in (first, second)] == weights
    assert [profile.weight_gradient_bytes for profile in (first, second)] == [weights[0], 4 * (64 * 32 + 32)]
    assert first.input_bytes == 4 * batch * 20 + label_bytes
    assert second.input_bytes == 4 * batch * 64 + label_bytes == first.output_bytes
    assert first.working_bytes == 4 * batch * (20 + 64)
    assert second.working_bytes == 4 * batch * (64 + 32)
    assert first.stash_bytes == 4 * batch * (20 + 64)


def test_sgd_has_no_state_and_inference_keeps_nothing():
    first, _ = stages(*CLASSIFIER)
    assert layer_profile(first, 8, 4, optimizer=SGD(0.1)).state_bytes == 0
    inference = layer_profile(first, 8, 4, training=False)
    assert inference.stash_bytes == inference.accumulator_bytes == inference.weight_gradient_bytes == 0
    assert inference.working_bytes == 4 * 8 * (20 + 64)


def test_embedding_keeps_ids():
    (stage,) = stages([Embedding(100, 8), PositionEmbedding()], (6,), loss=None)
    assert (saved_bytes(stage, 3, 4).stash, saved_bytes(stage, 3, 8).stash) == (3 * 6 * 4, 3 * 6 * 4)


def test_python_functions_keep_what_their_gradient_reads():
    """Of tanh(x @ W): x, for the gradient of W, and the result, for that of tanh; W is no part of it."""

    def layer(x, W):
        return anp.tanh(x @ W)

    def loss(x, labels):
        return anp.mean((x - labels) ** 2)

    (stage,) = stages([PythonLayer(layer, {"W": (5, 7)})], (5,), loss=None)
    assert saved_bytes(stage, 9, 4).stash == 9 * 4 * (5 + 7)
    (whole,) = stages([PythonLayer(layer, {"W": (5, 7)})], (5,), loss=PythonLoss(loss, label_shape=(7,)))
    more = saved_bytes(whole, 9, 4).stash - 9 * 4 * (5 + 7)
    assert more >= 9 * 4 * 7  # the difference, at least
