"""The layers of transformers, CNNs and RNNs: what holds for all of them, their starts, refusals and costs."""

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.hardware.generations import GC200
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.model.functions.python_layer import PythonLayer
from ipusim.model.layers.activations import ACTIVATIONS
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.concatenate import Concatenate
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.dropout import Dropout, keep_mask
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.glu import GLU
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layer import LayerCost, inner_sizes
from ipusim.model.layers.layers import ActivationLayer, Dense, Reshape
from ipusim.model.layers.losses import MaskedSoftmaxCrossEntropy, SoftmaxCrossEntropy
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.network import NamedLayer
from ipusim.model.layers.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.positions import TakePositions
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.saved_arrays import saved_arrays
from ipusim.model.layers.space_to_depth import SpaceToDepth
from ipusim.model.layers.squeeze_excite import SqueezeExcite
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.layers.transposed_convolution import Conv2DTranspose
from ipusim.model.layers.window_attention import WindowAttention
from ipusim.model.work import Convolution, MeasuredWork, Product, VectorWork, Work
from tests.machine_costs import vector_operations, work_cycles

KEY = (3, 14)

LAYERS = {
    "activation": (ActivationLayer("gelu"), (5,)),
    "relu": (ActivationLayer("relu"), (5,)),
    "dense": (Dense(4, "tanh"), (5,)),
    "serialized": (Dense(4, "swish", True, 3, "a_columns"), (5,)),
    "glu": (GLU(), (5, 6)),
    "dropout": (Dropout(0.4), (5, 3)),
    "take positions": (TakePositions(2), (5, 3)),
    "batch norm": (BatchNorm(), (3, 5)),
    "position embedding": (PositionEmbedding(), (4, 3)),
    "layer norm": (LayerNorm(), (3, 5)),
    "group norm": (GroupNorm(), (2, 3, 4)),
    "instance norm": (InstanceNorm(), (3, 2, 4)),
    "conv": (Conv2D(3, (2, 3), (2, 1), "same", "tanh"), (4, 5, 2)),
    "conv in groups": (Conv2D(4, (2, 3), (2, 1), "same", "tanh", groups=2), (4, 5, 2)),
    "depthwise": (DepthwiseConv2D((2, 3), (2, 1), "same", 2, "tanh"), (4, 5, 2)),
    "transposed conv": (Conv2DTranspose(3, (2, 3), (2, 1), "same", "tanh"), (4, 5, 2)),
    "conv of sequences": (Conv1D(3, 2, 1, "same", "gelu"), (4, 2)),
    "max pool": (MaxPool2D((3, 2), (1, 2), "same"), (4, 5, 2)),
    "average pool": (AveragePool2D((3, 2), (1, 2), "same"), (4, 5, 2)),
    "lstm": (LSTM(3, return_sequences=True), (4, 2)),
    "gru": (GRU(3), (4, 2)),
    "augru": (AUGRU(3, masked=True), (4, 4)),
    "attention": (MultiHeadAttention(2, causal=True, dropout=0.2), (3, 4)),
    "relative attention": (RelativeMultiHeadAttention(2, causal=True, dropout=0.2), (3, 4)),
    "window attention": (WindowAttention(2, dropout=0.2, window=2, shift=1), (4, 2, 4)),
    "squeeze and excite": (SqueezeExcite(2, "tanh"), (3, 2, 4)),
    "space to depth": (SpaceToDepth(), (4, 2, 3)),
    "tied projection": (TiedProjection(5, "tokens"), (3, 4)),
    "python": (PythonLayer(lambda x, s: x * s, {"s": (5,)}), (3, 5)),
    "residual": (Residual((NamedLayer("a", Dense(4, "relu")), NamedLayer("b", Dropout(0.5)))), (3, 4)),
}


#: Those that multiply by a kernel, and then apply an activation.
WITH_A_KERNEL = [name for name, (layer, _) in LAYERS.items() if {"activation", "use_bias"} <= {*dir(layer)}]
#: What the statistics of five channels take, forward and backward.
STATISTICS = VectorWork(3 * 5, transcendentals=5), VectorWork(2 * 5)
LAST_SUM = VectorWork(), VectorWork(reductions=3 * 5)


def arrays(saved):
    if isinstance(saved, np.ndarray):
        yield saved
    elif isinstance(saved, tuple | list):
        for inner in saved:
            yield from arrays(inner)


@pytest.mark.parametrize("name", WITH_A_KERNEL)
def test_a_backward_pass_reads_what_the_forward_pass_has_kept_for_it(name):
    """Beyond that, it reads and writes as much whatever the activation is."""
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    parameters = layer.initial_parameters(shape, rng, np.float32)
    x, beyond = rng.standard_normal((3, *shape)).astype(np.float32), set()
    for activation in ACTIVATIONS:
        with contextlib.suppress(ModelError):  # a recurrent layer has some of them alone
            other = replace(layer, activation=activation)
            kept = saved_arrays(other.forward(parameters, x)[1], parameters)
            beyond.add(other.cost(shape, 3, 4).backward.sram_bytes - sum(array.nbytes for array in kept))
    assert len(beyond) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_dtype_is_preserved(name, dtype):
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    parameters = layer.initial_parameters(shape, rng, dtype)
    x = rng.standard_normal((3, *shape)).astype(dtype)
    y, saved = layer.forward(parameters, x, KEY)
    grad_x, gradients = layer.backward(parameters, saved, y)
    assert {a.dtype for a in (y, grad_x, *parameters.values(), *gradients.values())} == {np.dtype(dtype)}
    assert {a.dtype for a in arrays(saved)} <= {np.dtype(dtype)}


@pytest.mark.parametrize("name", LAYERS)
def test_passes_change_neither_their_inputs_nor_what_was_saved(name):
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    parameters = layer.initial_parameters(shape, rng, np.float64)
    x, grad = rng.standard_normal((3, *shape)), rng.standard_normal((3, *layer.output_shape(shape)))
    for array in (x, grad, *parameters.values()):
        array.flags.writeable = False
    y, saved = layer.forward(parameters, x, KEY)
    for array in (y, *arrays(saved)):
        array.flags.writeable = False
    once, again = layer.backward(parameters, saved, grad), layer.backward(parameters, saved, grad)
    np.testing.assert_array_equal(once[0], again[0])
    for key, gradient in once[1].items():
        np.testing.assert_array_equal(gradient, again[1][key])
        assert gradient.flags.writeable
    same, _ = layer.forward(parameters, x, KEY)
    np.testing.assert_array_equal(same, y)


@pytest.mark.parametrize("name", LAYERS)
def test_more_samples_cost_in_proportion_and_a_skipped_gradient_never_more(name):
    layer, shape = LAYERS[name]
    one, two = layer.cost(shape, 3, 4), layer.cost(shape, 6, 4)
    for once, twice in ((one.forward, two.forward), (one.backward, two.backward)):
        # Of batch normalisation the statistics are as many for any number of samples, and so are positions' keys, and
        # the sums of gradients of a window's pairs of positions in their table; a sum over n samples adds n - 1 times.
        pairs = {"window attention": (VectorWork(), VectorWork(2 * 16)), "batch norm": STATISTICS, "python": LAST_SUM}
        same = pairs.get(name, (VectorWork(),) * 2)[twice is two.backward]
        keys = 3 * 4 * 4 if name == "relative attention" else 0
        expected = 2 * once.macs - keys, 2 * once.vector - same, once.compute_sets
        assert (twice.macs, twice.vector, twice.compute_sets) == expected
        assert once.sram_bytes < twice.sram_bytes <= 2 * once.sram_bytes
    skipped = layer.cost(shape, 3, 4, need_input_gradient=False)
    assert skipped.forward == one.forward
    assert work_cycles(skipped.backward, GC200) <= work_cycles(one.backward, GC200)
    assert work_cycles(one.forward, GC200) > 0


def test_dropout_drops_the_share_and_keeps_the_mean():
    x = np.ones((200, 500))
    y, _ = Dropout(0.3).forward({}, x, KEY)
    assert set(np.unique(y)) == {0, 1 / 0.7}
    assert (y == 0).mean() == pytest.approx(0.3, abs=0.005)


def test_a_mask_depends_on_its_key_alone():
    first = keep_mask((1, 2, 3), (40, 5), 0.5)
    np.testing.assert_array_equal(first, keep_mask((1, 2, 3), (40, 5), 0.5))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 2, 3, 0), (1, 2), (0, 1, 2, 3)):
        assert not np.array_equal(first, keep_mask(other, (40, 5), 0.5))


def test_without_a_key_nothing_is_dropped():
    x = np.ones((2, 3, 4))
    assert Dropout(0.9).forward({}, x)[0] is x
    layer = MultiHeadAttention(2, dropout=0.9)
    parameters = layer.initial_parameters((3, 4), np.random.default_rng(0), np.float64)
    plain, _ = MultiHeadAttention(2).forward(parameters, x)
    np.testing.assert_array_equal(layer.forward(parameters, x)[0], plain)
    assert not np.array_equal(layer.forward(parameters, x, KEY)[0], plain)


def test_layers_of_one_block_draw_masks_of_their_own():
    block = Residual((NamedLayer("a", Dropout(0.5)), NamedLayer("b", Dropout(0.5))))
    x = np.ones((2, 50))
    y, _ = block.forward({}, x, KEY)
    assert set(np.unique(y)) == {1, 5}
    assert (y == 5).mean() == pytest.approx(0.25, abs=0.12)  # both kept; it were half if the masks were one


def test_attention_is_stable_for_huge_scores():
    layer = MultiHeadAttention(1, use_bias=False)
    parameters = {name: np.eye(2) * 1e3 for name in ("Wq", "Wk", "Wv", "Wo")}
    y, saved = layer.forward(parameters, np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    assert np.isfinite(y).all()
    assert np.isfinite(layer.backward(parameters, saved, y)[0]).all()


def test_starts():
    rng = np.random.default_rng(0)
    table = Embedding(50, 40).initial_parameters((3,), rng, np.float32)["W"]
    assert table.shape == (50, 40)
    assert 0.0499 < np.abs(table).max() <= np.float32(0.05)
    norm = LayerNorm().initial_parameters((3, 4), rng, np.float64)
    assert {name: array.tolist() for name, array in norm.items()} == {"gamma": [1.0] * 4, "beta": [0.0] * 4}
    assert DepthwiseConv2D((3, 2), depth_multiplier=2).parameter_shapes((9, 9, 5)) == {"W": (3, 2, 5, 2), "b": (10,)}
    assert LSTM(2).initial_parameters((5, 3), rng, np.float64)["b"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert LSTM(2, unit_forget_bias=False).initial_parameters((5, 3), rng, np.float64)["b"].tolist() == [0] * 8


@pytest.mark.parametrize(
    "layer",
    [LSTM(6), GRU(6), Dense(7), MultiHeadAttention(2), Conv2D(3, (2, 2)), DepthwiseConv2D((2, 2)), Embedding(5, 4)],
)
def test_every_dtype_starts_from_the_same_draws(layer):
    shape = (4, 4, 2) if isinstance(layer, Conv2D | DepthwiseConv2D) else (4, 4)
    single, double = (layer.initial_parameters(shape, np.random.default_rng(3), d) for d in (np.float32, np.float64))
    for name, array in single.items():
        np.testing.assert_array_equal(array, double[name].astype(np.float32))


def table_rows(*ids):
    return Embedding(5, 2).forward({"W": np.zeros((5, 2))}, np.array([ids]))


REFUSED = {
    "fractions for ids": (lambda: table_rows(0.0, 1.0), "needs whole numbers as its input, got float64"),
    "an id too many": (lambda: table_rows(0, 5), "needs ids from 0 to 4, got 5"),
    "an id below": (lambda: table_rows(-1, 0), "needs ids from 0 to 4, got -1"),
    "no dense units": (lambda: Dense(0), "at least 1 unit, got 0"),
    "dense scalars": (lambda: Dense(3).output_shape(()), "got a scalar for each sample"),
    "no rows": (lambda: Embedding(0, 3), "at least 1 x 1, got 0 x 3"),
    "positions of what": (lambda: PositionEmbedding().output_shape((3,)), "input of two axes, got 1"),
    "epsilon": (lambda: LayerNorm(0), "epsilon above 0, got 0"),
    "scalar": (lambda: LayerNorm().output_shape(()), "at least one axis, got a scalar"),
    "no tied units": (lambda: TiedProjection(0, "tokens"), "at least 1 unit, got 0"),
    "tied scalars": (lambda: TiedProjection(2, "tokens").output_shape(()), "at least one axis, got a scalar"),
    "odd halves": (lambda: GLU().output_shape((2, 3)), r"an even number of elements to halve, got \(2, 3\)"),
    "blocks beyond the image": (
        lambda: SpaceToDepth().output_shape((4, 3, 2)),
        r"whose height and width 2 divides, got \(4, 3, 2\)",
    ),
    "windows of a sequence": (lambda: WindowAttention(1).output_shape((49, 2)), r"7 divides, got \(49, 2\)"),
    "a whole window": (
        lambda: WindowAttention(1, window=3, shift=3),
        "a shift from 0 and below a window .* got 3 and 3",
    ),
    "heads in windows": (
        lambda: WindowAttention(3, window=1).output_shape((1, 1, 4)),
        "divides the input's 4 elements",
    ),
    "gates of nothing": (lambda: SqueezeExcite(0), "at least 1 unit, got 0"),
    "gates of one position": (lambda: SqueezeExcite(1).output_shape((4,)), "of positions and channels, got 1 axes"),
    "no axes": (lambda: Reshape(()), r"a shape of sizes from 1 upwards, got \(\)"),
    "no size": (lambda: Reshape((3, 0)), r"a shape of sizes from 1 upwards, got \(3, 0\)"),
    "other elements": (
        lambda: Reshape((3, 2)).output_shape((7,)),
        r"expected a shape of the input's 7 elements, got \(3, 2\) of 6",
    ),
    "no positions": (lambda: TakePositions(0), "at least 1 position to take, got 0"),
    "few positions": (lambda: TakePositions(6).output_shape((5, 4)), r"at least 6 positions to take, got shape \(5, 4"),
    "loss of none": (lambda: MaskedSoftmaxCrossEntropy(0), "the loss of at least 1 position, got 0"),
    "few logits": (
        lambda: MaskedSoftmaxCrossEntropy(3).check_labels((2, 4), np.zeros((1, 3), int)),
        r"logits of at least 3 positions and an axis of classes, got shape \(2, 4\)",
    ),
    "few labels": (
        lambda: MaskedSoftmaxCrossEntropy(3).check_labels((3, 4), np.zeros((1, 2), int)),
        r"labels of at least 3 positions for each sample, got shape \(2,\)",
    ),
    "labels of others": (
        lambda: MaskedSoftmaxCrossEntropy(1).check_labels((3, 4), np.array([[4, 0, 0]])),
        "labels from 0 to 3, got label 4",
    ),
    "groups": (lambda: GroupNorm(groups=3).output_shape((2, 4)), "divides the 4 channels, got 3"),
    "no places": (lambda: InstanceNorm().output_shape((4,)), "at least two axes, got one"),
    "rate": (lambda: Dropout(1), "dropout rate from 0 and below 1, got 1"),
    "activation": (lambda: ActivationLayer("gulu"), "unknown activation 'gulu': expected one of identity, relu"),
    "filters": (lambda: Conv2D(0, (1, 1)), "at least 1 filter, got 0"),
    "transposed filters": (lambda: Conv2DTranspose(0, (1, 1)), "at least 1 filter, got 0"),
    "no image to make larger": (
        lambda: Conv2DTranspose(1, (1, 1)).output_shape((4, 4)),
        r"height, width and channels, got .* shape \(4, 4\)",
    ),
    "crop to nothing": (
        lambda: Concatenate("a", (0, 2)),
        r"a crop to a height and a width of at least 1, got \(0, 2\)",
    ),
    "larger crop": (
        lambda: Concatenate("a", (3, 2)).with_source_shape((2, 5, 4)).output_shape((3, 2, 1)),
        r"at least \[3, 2\] in height and width, got the output of a with \[2, 5, 4\]",
    ),
    "other axes": (
        lambda: Concatenate("a").with_source_shape((5, 4)).output_shape((3, 4)),
        r"the axes \[3\] before the last axis, got the output of a with \[5, 4\]",
    ),
    "unknown beside": (lambda: Concatenate("a").output_shape((3, 4)), "only a network provides the output of 'a'"),
    "join alone": (
        lambda: Concatenate("a").forward({}, np.ones((1, 2))),
        "only a stage joins the output of 'a' with its input",
    ),
    "groups of filters": (lambda: Conv2D(4, (1, 1), groups=3), "divides the 4 filters, got 3"),
    "groups of channels": (
        lambda: Conv2D(4, (1, 1), groups=2).output_shape((5, 5, 3)),
        "divides the 3 channels, got 2",
    ),
    "multiplier": (lambda: DepthwiseConv2D((1, 1), depth_multiplier=0), "multiplier of at least 1, got 0"),
    "short sequence": (lambda: Conv1D(1, 3).output_shape((2, 4)), "no shorter than the window of 3 steps, got 2"),
    "no sequence": (lambda: Conv1D(1, 3).output_shape((2, 4, 1)), r"steps and channels, got .* shape \(2, 4, 1\)"),
    "kernel": (lambda: Conv2D(1, (0, 1)), r"two sizes and two strides of at least 1, got \(0, 1\)"),
    "padding": (lambda: Conv2D(1, (1, 1), padding="full"), "unknown padding 'full'"),
    "no image": (lambda: MaxPool2D().output_shape((4, 4)), r"height, width and channels, got .* shape \(4, 4\)"),
    "units": (lambda: GRU(0), "at least 1 unit, got 0"),
    "nothing but a score": (lambda: AUGRU(2).output_shape((3, 1)), "time steps of more than 1 elements, .* got 1"),
    "no room for labels": (lambda: CTC(0), "room for at least 1 label in a sample, got 0"),
    "blank": (lambda: CTC(1, 4).check_labels((3, 4), np.zeros((1, 1), int)), "a blank among 4 classes, got class 4"),
    "ctc of one axis": (lambda: CTC(1).check_labels((4,), np.zeros((1, 1), int)), r"two axes, .* got shape \(4,\)"),
    "ctc of fractions": (lambda: CTC(1).check_labels((3, 4), np.zeros((1, 1))), "whole-number labels, got float64"),
    "ctc of others": (lambda: CTC(1).check_labels((3, 4), np.zeros((1, 2), int)), r"shape \(1,\), got \(2,\)"),
    "ctc of no class": (lambda: CTC(1).check_labels((3, 4), np.array([[4]])), "labels from 0 to 3, got label 4"),
    "ctc without room": (
        lambda: CTC(2).check_labels((2, 4), np.array([[0, 1], [1, 1]])),
        "needs 3 time steps for the 2 labels of sample 1, because a blank stands between equal labels, got 2",
    ),
    "ctc of too much time": (
        lambda: CTC(1, timed=True).check_labels((2, 4), np.array([[0, 2], [0, 3]])),
        "on 2 time steps needs samples of 1 to 2 time steps, got 3 in sample 1",
    ),
    "slope": (lambda: LSTM(2, "gelu"), "expected one of identity, relu, tanh, sigmoid, hard_sigmoid .* got 'gelu'"),
    "time": (lambda: LSTM(2).output_shape((3,)), "time steps and elements, got 1"),
    "heads": (lambda: MultiHeadAttention(0), "at least 1 head of at least 1 element, got 0 heads"),
    "sequence": (lambda: MultiHeadAttention(1).output_shape((4,)), "positions and elements, got 1"),
    "empty block": (lambda: Residual(()), "at least one layer, got none"),
    "names": (lambda: Residual((NamedLayer("a/b", Dropout(0)),)), "distinct names without '/' .* got 'a/b'"),
    "sum": (
        lambda: Residual((NamedLayer("a", Dense(3)),)).output_shape((4,)),
        r"shape \(4,\) of the input, got \(3,\)",
    ),
    "parts": (lambda: Dense(4, serialization_factor=0), "factor of at least 1, got 0"),
    "dimension": (lambda: Dense(4, serialization_dimension="m"), "unknown serialization dimension 'm'"),
    "units in parts": (
        lambda: Dense(4, "identity", True, 3, "b_rows").output_shape((5,)),
        "divides b_rows, which is 4, got 3",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    action, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        action()


# Costs. Every expected value is worked out here from the shapes, at 4 bytes an element.


def test_embedding_cost_by_hand():
    cost = Embedding(100, 8).cost((6,), batch=2, itemsize=4)
    taken = 2 * 6 * 8
    assert cost.forward == Work(sram_bytes=4 * (12 + 2 * taken), exchange_bytes=4 * (12 + taken), compute_sets=2)
    assert cost.backward == Work((), VectorWork(taken), 4 * (12 + 3 * taken + 800), 4 * (12 + taken), 4, 3)


@pytest.mark.parametrize(("layer", "groups"), [(LayerNorm(), 2 * 3), (BatchNorm(), 5)], ids=["layer", "batch"])
def test_normalisation_cost_by_hand(layer, groups):
    """A layer's has a group for each row, a batch's one for each channel, however many samples there are."""
    cost, elements = layer.cost((3, 5), batch=2, itemsize=4), 30
    forward = VectorWork(5 * elements + 3 * groups, reductions=2 * elements, transcendentals=groups)
    # Normalised again, and what lib/poplin/Norms.cpp does with it for gamma and beta, and for dx.
    backward = VectorWork((2 + 1 + 6) * elements + 2 * groups, reductions=4 * elements)
    assert cost.forward == Work((), forward, 4 * (2 * elements + 10), 4 * elements, 4, 2 + 1 + 4)
    assert cost.backward == Work((), backward, 4 * (3 * elements + 20), 4 * 2 * elements, 4, 2 + (1 + 2) + (2 + 2 + 6))


def test_convolution_cost_by_hand():
    cost = Conv2D(7, (3, 2), activation="relu").cost((8, 6, 5), batch=2, itemsize=4)
    x, y, weights = 2 * 8 * 6 * 5, 2 * 6 * 5 * 7, 3 * 2 * 5 * 7
    forward = Work((Convolution(60, 5, 7, 6),), VectorWork(y * 2), 4 * (x + weights + 7 + y), compute_sets=2)
    products = (Product(30, 60, 7, shared_rows=6), Convolution(60, 7, 5, 6))
    vector, touched = VectorWork(y * 2, reductions=y), y + x + y + weights + 7 + weights + x
    backward = Work(products, vector, 4 * touched, compute_sets=1 + 2)
    assert (cost.forward, cost.backward) == (replace(forward, convolution=True), replace(backward, convolution=True))
    (strided,) = Conv2D(7, (3, 2), (2, 3)).cost((8, 6, 5), 2, 4).forward.products
    assert strided == Convolution(2 * 3 * 2, 5, 7, 6, stride=6)


def test_transposed_convolution_cost_by_hand():
    """The passes of the convolution that it is the gradient of, in each other's place."""
    cost = Conv2DTranspose(7, (3, 2), (2, 2), activation="relu").cost((4, 5, 3), batch=2, itemsize=4)
    x, y, weights = 2 * 4 * 5 * 3, 2 * 9 * 10 * 7, 3 * 2 * 7 * 3
    assert cost.forward == Work(
        (Convolution(40, 3, 7, 6),), VectorWork(y * 2), 4 * (x + weights + 7 + y), compute_sets=2, convolution=True
    )
    touched = y + x + y + weights + 7 + weights + x
    assert cost.backward == Work(
        (Product(6 * 7, 40, 3, shared_rows=6), Convolution(40, 7, 3, 6, stride=4)),
        VectorWork(y * 2, reductions=y),
        4 * touched,
        compute_sets=1 + 2,
        convolution=True,
    )
    plain = Conv2DTranspose(7, (3, 2), (2, 2)).cost((4, 5, 3), batch=2, itemsize=4)
    assert plain.backward.sram_bytes == 4 * (touched - y)  # no activation keeps its outputs for the gradient
    (kept, passing), other = cost.halves, Conv2D(3, (3, 2), (2, 2)).cost((9, 10, 7), 2, 4)
    assert kept.products + passing.products == (
        Convolution(40, 7, 3, 6, stride=4),
        Product(6 * 7, 40, 3, shared_rows=6),
    )
    assert other.backward.products == (Product(6 * 7, 40, 3, shared_rows=6), cost.forward.products[0])
    assert other.forward.products == kept.products
    alone = Conv2DTranspose(7, (3, 2), use_bias=False).cost((4, 5, 3), 2, 4, need_input_gradient=False)
    assert (alone.backward.products, alone.halves.input.is_nothing) == ((Product(6 * 7, 40, 3, shared_rows=6),), True)
    assert inner_sizes(Conv2DTranspose(7, (3, 2)), (4, 5, 3)).passing == 4 * 5 * 3 * 2 * 7


def test_relative_attention_holds_both_queries_and_what_positions_take_by_hand():
    """Beside what attention does: two parts of the queries, keys of positions, and their scores."""
    plain, relative = (inner_sizes(kind(2), (5, 6)) for kind in (MultiHeadAttention, RelativeMultiHeadAttention))
    assert plain == (2 * 5**2 + 4 * 5 * 6, 5 * 6)
    assert relative == (plain.saved_elements, plain.passing + 3 * 5 * 6 + 2 * 5**2)


def test_concatenation_cost_by_hand():
    """What branches' outputs take to be joined; of a cropped one the middle alone."""
    cost = Concatenate("a", (3, 2)).with_source_shape((6, 5, 4)).cost((3, 2, 1), batch=2, itemsize=4)
    assert cost.forward == cost.backward == Work(sram_bytes=2 * 4 * 2 * 3 * 2 * (1 + 4), itemsize=4)


def test_a_convolution_in_groups_has_a_product_for_each():
    """Of K = window x channels of a group; of one group with all channels K is as many times larger."""
    cost = Conv2D(8, (3, 2), activation="relu", groups=4).cost((8, 6, 12), batch=2, itemsize=4)
    x, y, weights = 2 * 8 * 6 * 12, 2 * 6 * 5 * 8, 3 * 2 * 3 * 8
    assert cost.forward == Work(
        (Convolution(60, 3, 2, 6, groups=4),),
        VectorWork(y * 2),
        4 * (x + weights + 8 + y),
        compute_sets=2,
        convolution=True,
    )
    assert cost.backward.products == (Product(18, 60, 2, groups=4, shared_rows=6), Convolution(60, 2, 3, 6, groups=4))
    assert cost.halves.input.products == cost.backward.products[1:]
    assert cost.halves.weights.products == cost.backward.products[:1]
    depthwise = Conv2D(12, (3, 3), padding="same", groups=12).cost((8, 6, 12), 2, 4)
    assert depthwise.forward.products == (Convolution(96, 1, 1, 9, groups=12),)
    assert inner_sizes(Conv2D(8, (3, 2), groups=4), (8, 6, 12)).passing == 6 * 5 * 3 * 2 * 12


@pytest.mark.parametrize(
    ("layer", "shape", "same", "same_shape"),
    [
        (
            DepthwiseConv2D((3, 2), (2, 1), "same", 2, "gelu"),
            (6, 5, 4),
            Conv2D(8, (3, 2), (2, 1), "same", "gelu", groups=4),
            (6, 5, 4),
        ),
        (
            Conv1D(6, 5, 2, "same", "gelu", groups=2),
            (9, 4),
            Conv2D(6, (1, 5), (1, 2), "same", "gelu", groups=2),
            (1, 9, 4),
        ),
        (TiedProjection(9, "t"), (3, 5), Dense(9), (3, 5)),
        (TiedProjection(9, "t", use_bias=False), (3, 5), Dense(9, use_bias=False), (3, 5)),
    ],
    ids=["by channels in groups", "a sequence an image of one row", "tied dense", "tied dense without biases"],
)
def test_a_layer_costs_what_another_does(layer, shape, same, same_shape):
    for need in (True, False):
        assert layer.cost(shape, 3, 2, need) == same.cost(same_shape, 3, 2, need)
    assert inner_sizes(layer, shape) == inner_sizes(same, same_shape)


def test_gated_unit_cost_by_hand():
    n = 2 * 3 * 4
    cost = GLU().cost((3, 8), batch=2, itemsize=4)
    assert cost.forward == Work((), VectorWork(n, transcendentals=n), 4 * (2 * n + n), 4 * n, compute_sets=2)
    moved = 4 * (2 * n + n + 2 * n), 4 * 2 * n
    assert cost.backward == Work((), VectorWork(4 * n, transcendentals=n), *moved, compute_sets=3)


def test_taking_positions_costs_what_is_moved():
    cost = TakePositions(2).cost((5, 3), batch=4, itemsize=4)
    assert cost == LayerCost(Work((), VectorWork(), 4 * 2 * 24, 4 * 24), Work((), VectorWork(), 4 * (24 + 60), 4 * 24))


def test_masked_cross_entropy_costs_that_of_its_positions():
    masked = MaskedSoftmaxCrossEntropy(2)
    inner = SoftmaxCrossEntropy().cost((2, 7), 3, 4)
    assert masked.cost((2, 7), 3, 4) == inner
    among_others = masked.cost((5, 7), 3, 4)
    assert among_others.forward == inner.forward
    assert among_others.backward == replace(inner.backward, sram_bytes=inner.backward.sram_bytes + 4 * 3 * 3 * 7)


def test_pooling_cost_by_hand():
    x, y = 2 * 4 * 6 * 3, 2 * 2 * 3 * 3
    cost = MaxPool2D().cost((4, 6, 3), batch=2, itemsize=4)
    assert cost == LayerCost(
        Work((), VectorWork(y, reductions=4 * y), 4 * (x + y), 4 * x, units=2 * 2 * 3 * 2),
        Work((), VectorWork(12 * y + y), 4 * (2 * x + 2 * y), 4 * (x + y), units=2 * 4 * 6 * 2),
    )
    assert AveragePool2D().cost((4, 6, 3), 2, 4).backward.vector == VectorWork(4 * y, quotients=y)


def test_recurrent_cost_by_hand():
    cost = LSTM(3, return_sequences=True).cost((5, 2), batch=4, itemsize=4)
    rows, x, y = 20, 40, 60
    assert (cost.forward.compute_sets, cost.backward.compute_sets) == (5 * 3, 5 * 3 + 2)
    assert cost.forward.products == (Product(4, 2, 12, times=5), Product(4, 3, 12, times=5))
    # Three sigmoids and two tanh of 4 each, two sums for each of four gates, and the four of c and h.
    assert cost.forward.vector == y * VectorWork(8 + 4, transcendentals=5)
    assert cost.backward.vector == y * VectorWork(5 * 3 + 8, reductions=4)
    assert vector_operations(cost.forward) == y * (3 * 4 + 2 * 4 + 8 + 4)
    # W and b once, U in each step; a unit keeps four gates, the cell, its tanh and the output.
    assert cost.forward.sram_bytes == 4 * (x + 24 + 12 + 5 * 36 + 7 * y)
    augru, masked = AUGRU(3).cost((5, 3), 4, 4), GRU(3, masked=True).cost((5, 3), 4, 4)
    gru = GRU(3).cost((5, 2), 4, 4)
    assert (augru.forward.products, augru.backward.products) == (gru.forward.products, gru.backward.products)
    assert augru.forward.vector - gru.forward.vector == masked.forward.vector - gru.forward.vector == VectorWork(y)
    assert augru.backward.vector - gru.backward.vector == y * VectorWork(2, reductions=1)
    assert masked.backward.vector - gru.backward.vector == y * VectorWork(6, reductions=1)
    assert masked.forward.sram_bytes - gru.forward.sram_bytes == 4 * rows
    assert vector_operations(gru.forward) == y * (2 * 4 + 1 * 4 + 6 + 5)
    assert gru.backward.vector == y * VectorWork(3 * 3 + 8, reductions=3 + 2)


def test_attention_cost_by_hand():
    cost = MultiHeadAttention(2, 3).cost((5, 4), batch=2, itemsize=4)
    x, heads, scores = 40, 60, 2 * 2 * 25
    assert cost.forward == Work(
        (Product(10, 4, 18), Product(5, 3, 5, 4), Product(5, 5, 3, 4), Product(10, 6, 4)),
        vector=scores * VectorWork(2, 2, 1, 1) + VectorWork(3 * heads + x),
        sram_bytes=4 * (2 * x + 4 * 24 + 18 + 4 + 8 * heads + 2 * scores),
        exchange_bytes=4 * scores,
        compute_sets=10 + 2,  # a softmax with two reductions over tiles and an inverse that is cast, and the biases
    )
    apart = MultiHeadAttention(2, 3, split_qkv=True).cost((5, 4), 2, 4)
    assert apart.forward.products == (Product(10, 4, 6),) * 3 + cost.forward.products[1:]
    assert apart.backward.products[-3:] == (Product(10, 6, 4),) * 3  # and their sum
    assert (apart.backward.macs, apart.backward.compute_sets) == (cost.backward.macs, cost.backward.compute_sets + 2)
    assert apart.backward.vector == cost.backward.vector + VectorWork(2 * x)
    dropped = MultiHeadAttention(2, 3, dropout=0.1).cost((5, 4), 2, 4)
    assert vector_operations(dropped.forward) - vector_operations(cost.forward) == scores
    assert vector_operations(dropped.backward) - vector_operations(cost.backward) == 2 * scores
    assert dropped.forward.compute_sets - cost.forward.compute_sets == 4  # seeds are read, set and put back around it
    assert dropped.backward.compute_sets - cost.backward.compute_sets == 8


def test_relative_attention_costs_attention_and_the_scores_of_positions():
    one, plain = (kind(2, 3).cost((5, 4), 2, 4) for kind in (RelativeMultiHeadAttention, MultiHeadAttention))
    heads, keys, scores, table = 60, 30, 2 * 2 * 25, 5 * 4 + 4 * 6
    more = (Product(5, 4, 6), Product(10, 3, 5, 2))  # the keys, and the scores of all samples against them
    assert one.forward.products == plain.forward.products + more
    assert one.forward.vector == plain.forward.vector + VectorWork(2 * heads + scores)
    assert one.forward.compute_sets == plain.forward.compute_sets + 3  # either bias, and the sum of the scores
    assert one.forward.sram_bytes == plain.forward.sram_bytes + 4 * (table + 2 * keys + 4 * heads + 3 * scores)
    back = (Product(10, 5, 3, 2), Product(5, 10, 3, 2))
    assert one.halves.input.products == plain.halves.input.products + back
    assert one.halves.weights.products == (*plain.halves.weights.products, Product(4, 5, 6))
    assert one.backward.products == (*plain.backward.products, *back, Product(4, 5, 6))
    assert one.backward.vector == plain.backward.vector + VectorWork(heads, reductions=2 * heads)
    assert one.backward.compute_sets == plain.backward.compute_sets + 5
    # Back, each of two products reads or writes scores, queries and keys, and both gradients of the queries make one.
    input_bytes = 4 * (2 * (scores + heads + keys) + 3 * heads)
    assert one.halves.input.sram_bytes == plain.halves.input.sram_bytes + input_bytes
    assert one.halves.weights.sram_bytes == plain.halves.weights.sram_bytes + 4 * (table + keys)


def test_windows_cost_attention_on_each_and_their_biases_by_hand():
    layer = WindowAttention(2, 3, window=2, shift=1)
    cost, plain = layer.cost((4, 6, 5), 2, 4), MultiHeadAttention(2, 3).cost((4, 5), 12, 4)
    x, scores, pairs, table = 2 * 4 * 6 * 5, 12 * 2 * 16, 2 * 16, 9 * 2
    assert cost.forward.products == plain.forward.products
    assert cost.forward.vector == plain.forward.vector + VectorWork(2 * scores)  # the biases, and the mask
    taken = 16 + 2 * pairs
    assert cost.forward.sram_bytes == plain.forward.sram_bytes + 4 * (4 * x + taken + 2 * scores + pairs)
    assert cost.forward.exchange_bytes == plain.forward.exchange_bytes + 4 * (2 * x + 16 + pairs + scores)
    assert cost.forward.compute_sets == plain.forward.compute_sets + 2 * 1 + 2 + 2
    more = VectorWork(pairs, reductions=scores)
    assert cost.halves.input.products == plain.halves.input.products
    assert cost.halves.input.sram_bytes == plain.halves.input.sram_bytes + 4 * 4 * x
    assert cost.halves.weights.vector == plain.halves.weights.vector + more
    summed = scores + pairs + 16 + 3 * pairs + table
    assert cost.halves.weights.sram_bytes == plain.halves.weights.sram_bytes + 4 * summed
    assert cost.backward.vector == plain.backward.vector + more
    unshifted = replace(layer, shift=0).cost((4, 6, 5), 2, 4)
    assert cost.forward.vector - unshifted.forward.vector == VectorWork(scores)
    assert layer.parameter_shapes((4, 6, 5))["position_bias"] == (9, 2)
    whole = inner_sizes(MultiHeadAttention(2, 3), (4, 5))
    assert inner_sizes(layer, (4, 6, 5)) == (6 * whole.saved_elements + 4 * 6 * 5, 6 * whole.passing + 6 * pairs)


def test_scaling_of_channels_costs_means_gates_and_two_dense_layers_by_hand():
    n, channels = 2 * 3 * 4 * 6, 2 * 6
    cost = SqueezeExcite(5, "swish").cost((3, 4, 6), 2, 4)
    dense = Dense(5, "swish").cost((6,), 2, 4), Dense(6, "sigmoid").cost((5,), 2, 4)
    assert cost.forward.products == (Product(2, 6, 5), Product(2, 5, 6))
    inner = dense[0].forward.vector + dense[1].forward.vector
    assert cost.forward.vector == inner + VectorWork(channels + n, reductions=n)
    touched = n + channels + 2 * n + channels
    assert cost.forward.sram_bytes == 4 * touched + sum(each.forward.sram_bytes for each in dense)
    assert cost.forward.compute_sets == 3 + 1 + sum(each.forward.compute_sets for each in dense)
    inner = dense[0].backward.vector + dense[1].backward.vector
    assert cost.backward.vector == inner + VectorWork(3 * n, reductions=n, quotients=channels)
    assert cost.halves.weights.products == (Product(5, 2, 6), Product(6, 2, 5))
    alone = SqueezeExcite(5, "swish").cost((3, 4, 6), 2, 4, need_input_gradient=False)
    assert cost.backward.vector - alone.backward.vector == VectorWork(2 * n, quotients=channels)
    assert alone.halves.input.is_nothing


def test_blocks_are_put_behind_one_another_as_tensorflow_does():
    x = np.arange(2 * 4 * 3).reshape(1, 2, 4, 3)
    y, _ = SpaceToDepth().forward({}, x)
    assert y[0, 0, 1].tolist() == [*x[0, 0, 2], *x[0, 0, 3], *x[0, 1, 2], *x[0, 1, 3]]
    work = Work(sram_bytes=4 * 2 * 24, exchange_bytes=4 * 24)
    assert SpaceToDepth().cost((2, 4, 3), 1, 4) == (LayerCost(work, work))


@pytest.mark.parametrize(
    ("dimension", "again"), [("a_columns", 8 * 6), ("a_rows_b_columns", 2 * 12 * 6), ("b_rows", 12 * 8)]
)
def test_serialized_products_run_in_turn_and_read_again(dimension, again):
    whole, parts = Dense(6).cost((3, 8), 4, 4), Dense(6, "identity", True, 2, dimension).cost((3, 8), 4, 4)
    assert parts.forward.macs == whole.forward.macs
    assert parts.forward.sram_bytes - whole.forward.sram_bytes == 4 * again
    assert parts.backward.sram_bytes - whole.backward.sram_bytes == 4 * 2 * again
    assert {product.times for work in (parts.forward, parts.backward) for product in work.products} == {2}
    split = {"a_columns": Product(6, 8, 6, times=2), "a_rows_b_columns": Product(12, 4, 6, times=2)}
    assert parts.forward.products == (split.get(dimension, Product(12, 8, 3, times=2)),)
    # Two products are launched instead of one.
    assert work_cycles(parts.forward, GC200) >= work_cycles(whole.forward, GC200) + DEFAULT_RATES.compute_set_cycles


def test_a_block_costs_what_its_layers_cost_one_after_another():
    measured = LayerCost(MeasuredWork(cycles=1000), MeasuredWork(cycles=3000))
    inner = (Dense(8, "gelu"), PythonLayer(lambda x: 2 * x, stated_cost=measured), Dense(4))
    block = Residual(tuple(NamedLayer(f"n{i}", layer) for i, layer in enumerate(inner)))
    cost = block.cost((3, 4), 2, 4)
    add = Work(vector=VectorWork(24), sram_bytes=4 * 3 * 24)
    for own, of in ((cost.forward, lambda c: c.forward), (cost.backward, lambda c: c.backward)):
        parts = [of(inner[0].cost((3, 4), 2, 4)), of(measured), of(inner[2].cost((3, 8), 2, 4)), add]
        assert work_cycles(own, GC200) == sum(work_cycles(part, GC200) for part in parts)
        assert own.macs == sum(part.macs for part in parts)
    skipped = block.cost((3, 4), 2, 4, need_input_gradient=False)
    assert skipped.backward.macs == cost.backward.macs - 2 * 3 * 4 * 8


def test_inner_sizes_bound_what_is_really_kept():
    for layer, shape in (LAYERS[name] for name in ("attention", "lstm", "gru", "residual")):
        parameters = layer.initial_parameters(shape, np.random.default_rng(0), np.float64)
        y, saved = layer.forward(parameters, np.ones((1, *shape)), KEY)
        kept = sum(array.size for array in arrays(saved))
        assert kept <= inner_sizes(layer, shape).saved_elements + math.prod(shape) + y.size
    assert inner_sizes(Conv2D(7, (3, 2)), (8, 6, 5)).passing == 6 * 5 * 3 * 2 * 5
    assert inner_sizes(MaxPool2D((3, 3), (1, 1), "same"), (4, 4, 2)).passing == 6 * 6 * 2
    assert inner_sizes(Dense(3), (8,)) == (0, 0)


@pytest.mark.parametrize("loss", [CTC(2), CTC(2, timed=True), CTC(1, blank=0), SoftmaxCrossEntropy()], ids=repr)
def test_labels_that_stand_for_any_are_such_as_it_takes(loss):
    labels = loss.zero_labels((5, 4), 3, np.float32)
    assert len(labels) == 3
    loss.check_labels((5, 4), labels)


def test_an_embedding_may_have_one_row_of_one_element():
    layer = Embedding(1, 1)
    assert layer.output_shape((3,)) == (3, 1)


def test_softmax_cross_entropy_cost_by_hand():
    """Of 5 samples of 4 classes: 3 reductions of 2 compute sets each, and 3 compute sets that go element by element."""
    forward = SoftmaxCrossEntropy().cost((4,), 5, 4).forward
    assert forward.compute_sets == 9
    assert forward.vector == VectorWork(20 + 5, reductions=2 * 20 + 5, quotients=20, transcendentals=20 + 5)
    assert (forward.sram_bytes, forward.exchange_bytes) == (2 * 20 * 4, 20 * 4)
