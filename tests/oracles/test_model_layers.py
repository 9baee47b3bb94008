"""What layers compute and count, and their gradients: by finite differences, others' functions, formulas and loops."""

import math

import autograd.numpy as anp
import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.signal import correlate
from scipy.special import erf, expit, log_softmax

from ipusim.model.functions.counting import count_passes
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.activations import ACTIVATIONS, activate, pull_back
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.glu import GLU
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten, Reshape
from ipusim.model.layers.losses import MaskedSoftmaxCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.network import NamedLayer
from ipusim.model.layers.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
from ipusim.model.layers.parallel import Parallel
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.positions import TakePositions
from ipusim.model.layers.recurrent import orthogonal
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.space_to_depth import SpaceToDepth
from ipusim.model.layers.squeeze_excite import SqueezeExcite
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.layers.transposed_convolution import Conv2DTranspose
from ipusim.model.layers.window_attention import WindowAttention
from tests.formulas import (
    assert_gradient,
    attention,
    batch_norm,
    convolution,
    convolution_1d,
    glu,
    gru,
    lstm,
    relative_attention,
    space_to_depth,
    squeeze_excite,
    window_attention,
    with_special_points,
)

KEY = (7, 3, 1)


def swish(x, W, b):
    z = anp.dot(x, W) + b
    return z / (1 + anp.exp(-z))


def mean_cross_entropy(x, labels):
    shifted = x - anp.max(x, axis=1, keepdims=True)
    logs = shifted - anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
    return -anp.mean(logs[anp.arange(len(labels)), labels])


def scaled_square(x, labels, scale):
    return anp.mean(scale * (x - labels) ** 2)


BLOCK = Residual(
    (
        NamedLayer("norm", LayerNorm()),
        NamedLayer("attention", MultiHeadAttention(2, dropout=0.3)),
        NamedLayer("dropout", Dropout(0.2)),
    )
)
RESNET = Residual(
    (
        NamedLayer("conv", Conv2D(3, (3, 3), (2, 2), "same", "relu")),
        NamedLayer("again", Conv2D(3, (2, 2), padding="same")),
    ),
    (NamedLayer("resize", Conv2D(3, (1, 1), (2, 2), use_bias=False)),),
)

BRANCHES = Parallel(
    (
        (NamedLayer("dense", Dense(2, "tanh")), NamedLayer("dropout", Dropout(0.3))),
        (NamedLayer("norm", LayerNorm()),),
        (NamedLayer("wide", Dense(5)), NamedLayer("narrow", Dense(1, "gelu"))),
    )
)

LAYERS = {
    **{f"activation {name}": (ActivationLayer(name), (5,)) for name in ACTIVATIONS},
    **{f"dense {name}": (Dense(4, name), (5,)) for name in ACTIVATIONS},
    "serialized m": (Dense(4, "gelu", True, 3, "a_columns"), (5,)),
    "serialized k": (Dense(4, "gelu", True, 3, "a_rows_b_columns"), (2, 6)),
    "serialized n": (Dense(4, "gelu", True, 2, "b_rows"), (2, 6)),
    "dense without bias": (Dense(4, "tanh", use_bias=False), (5,)),
    "dense on the last axis": (Dense(4, "relu"), (3, 5)),
    "python": (PythonLayer(swish, {"W": (5, 4), "b": (4,)}), (5,)),
    "flatten": (Flatten(), (3, 2)),
    "reshape": (Reshape((2, 6)), (3, 4)),
    "glu": (GLU(), (6,)),
    "glu of sequences": (GLU(), (2, 3, 4)),
    "dropout": (Dropout(0.4), (5, 3)),
    "take positions": (TakePositions(2), (5, 3)),
    "take all positions": (TakePositions(4), (4,)),
    "position embedding": (PositionEmbedding(), (4, 3)),
    "layer norm": (LayerNorm(), (3, 5)),
    "layer norm of one axis": (LayerNorm(0.1), (5,)),
    "layer norm without gamma": (LayerNorm(scale=False), (3, 5)),
    "layer norm without beta": (LayerNorm(center=False), (5,)),
    "group norm": (GroupNorm(), (2, 3, 4)),
    "group norm of consecutive channels": (GroupNorm(groups=3, strided_channel_grouping=False), (2, 6)),
    "instance norm": (InstanceNorm(), (3, 2, 4)),
    "instance norm alone": (InstanceNorm(center=False, scale=False), (3, 2)),
    "batch norm": (BatchNorm(), (2, 3, 4)),
    "batch norm of one axis": (BatchNorm(0.1), (5,)),
    "batch norm without gamma": (BatchNorm(scale=False), (3, 4)),
    "batch norm without beta": (BatchNorm(center=False), (3, 4)),
    "conv valid": (Conv2D(3, (2, 3)), (4, 5, 2)),
    "conv same": (Conv2D(2, (3, 2), padding="same", activation="tanh"), (4, 3, 2)),
    "conv strided": (Conv2D(2, (2, 2), (2, 3), "same", use_bias=False), (5, 4, 1)),
    "conv with gaps": (Conv2D(2, (1, 1), (3, 2)), (5, 4, 2)),
    "conv in groups": (Conv2D(6, (2, 3), (1, 2), "same", "tanh", groups=2), (4, 5, 4)),
    "conv depthwise": (Conv2D(3, (3, 2), groups=3), (4, 3, 3)),
    "conv depthwise, two filters each": (Conv2D(6, (2, 2), padding="same", use_bias=False, groups=3), (3, 3, 3)),
    "depthwise": (DepthwiseConv2D((3, 2)), (4, 3, 3)),
    "depthwise, two channels each": (DepthwiseConv2D((2, 2), (2, 1), "same", 2, "tanh", use_bias=False), (3, 3, 3)),
    "transposed conv": (Conv2DTranspose(3, (2, 3)), (3, 4, 2)),
    "transposed conv that overlaps": (Conv2DTranspose(2, (3, 4), (2, 3), "same", "tanh"), (2, 3, 3)),
    "transposed conv side by side": (Conv2DTranspose(3, (2, 2), (2, 2), "same", "swish", use_bias=False), (3, 2, 2)),
    "transposed conv with gaps": (Conv2DTranspose(2, (1, 2), (3, 3)), (2, 2, 2)),
    "conv of sequences": (Conv1D(3, 3), (5, 2)),
    "conv of sequences, same": (Conv1D(2, 4, 2, "same", "gelu"), (5, 3)),
    "conv of sequences with gaps": (Conv1D(2, 2, 3, use_bias=False), (7, 2)),
    "conv of sequences in groups": (Conv1D(4, 3, padding="same", activation="swish", groups=2), (4, 6)),
    "conv of sequences, depthwise": (Conv1D(4, 3, padding="same", groups=4), (5, 4)),
    "max pool": (MaxPool2D(), (4, 5, 2)),
    "max pool overlapping": (MaxPool2D((3, 2), (1, 2), "same"), (4, 3, 2)),
    "average pool": (AveragePool2D((2, 3)), (4, 6, 2)),
    "average pool overlapping": (AveragePool2D((3, 2), (2, 1), "same"), (4, 3, 2)),
    "lstm": (LSTM(3), (4, 2)),
    "lstm sequences": (LSTM(3, return_sequences=True), (4, 2)),
    "lstm of other functions": (LSTM(2, "sigmoid", "hard_sigmoid", use_bias=False), (3, 2)),
    "gru": (GRU(3), (4, 2)),
    "gru sequences": (GRU(3, return_sequences=True), (4, 2)),
    "gru reset before": (GRU(3, return_sequences=True, reset_after=False), (4, 2)),
    "gru without bias": (GRU(2, "sigmoid", "hard_sigmoid", use_bias=False), (3, 2)),
    "gru reset before without bias": (GRU(2, use_bias=False, reset_after=False), (3, 2)),
    "augru": (AUGRU(3), (4, 2)),
    "augru reset before": (AUGRU(3, return_sequences=True, reset_after=False), (4, 3)),
    "masked gru": (GRU(3, masked=True), (4, 3)),
    "masked augru": (AUGRU(2, "sigmoid", use_bias=False, return_sequences=True, masked=True), (4, 4)),
    "attention": (MultiHeadAttention(2), (3, 4)),
    "relative attention": (RelativeMultiHeadAttention(2), (3, 4)),
    "relative attention without bias, with dropout": (
        RelativeMultiHeadAttention(1, 3, True, use_bias=False, dropout=0.4),
        (4, 2),
    ),
    "window attention": (WindowAttention(2, window=2), (4, 2, 4)),
    "window attention of shifted windows": (WindowAttention(2, 3, split_qkv=True, window=2, shift=1), (4, 4, 2)),
    "window attention without bias, with dropout": (
        WindowAttention(1, 3, True, use_bias=False, dropout=0.4, window=3, shift=2),
        (3, 6, 2),
    ),
    "squeeze and excite": (SqueezeExcite(2, "swish"), (3, 2, 4)),
    "squeeze and excite of sequences": (SqueezeExcite(3), (4, 2)),
    "space to depth": (SpaceToDepth(), (4, 2, 3)),
    "space to depth of larger blocks": (SpaceToDepth(3), (3, 6, 2)),
    "attention causal": (MultiHeadAttention(2, key_dim=3, causal=True), (4, 2)),
    "attention padded": (MultiHeadAttention(2, key_dim=3, padding_mask=True), (4, 2)),
    "attention without bias, with dropout": (MultiHeadAttention(1, use_bias=False, dropout=0.4), (4, 2)),
    "residual": (BLOCK, (3, 4)),
    "residual with shortcut": (RESNET, (4, 3, 2)),
    "tied projection": (TiedProjection(4, "tokens"), (3, 5)),
    "tied projection without bias": (TiedProjection(4, "tokens", use_bias=False), (5,)),
    "parallel": (BRANCHES, (3, 4)),
}


def drawn(layer, shape, seed=0):
    """Return parameters away from the special values that they start with."""
    rng, shapes = np.random.default_rng(seed), layer.parameter_shapes(shape)
    parameters = layer.initial_parameters(shape, rng, np.float64)
    assert {name: array.shape for name, array in parameters.items()} == shapes
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_finite_differences(name):
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(1)
    parameters, x = drawn(layer, shape, rng), with_special_points(rng.standard_normal((3, *shape)))
    weight = rng.standard_normal((3, *layer.output_shape(shape)))

    def scalar():
        return float((layer.forward(parameters, x, KEY)[0] * weight).sum())

    y, saved = layer.forward(parameters, x, KEY)
    assert y.shape == weight.shape
    grad_x, gradients = layer.backward(parameters, saved, weight)
    assert_gradient(grad_x, scalar, x, rtol=2e-6, atol=1e-8)
    assert list(gradients) == list(layer.parameter_shapes(shape))
    for key, value in gradients.items():
        assert_gradient(value, scalar, parameters[key], label=key)
    skipped, same = layer.backward(parameters, saved, weight, need_input_gradient=False)
    assert skipped is None
    assert list(same) == list(gradients)
    for key, value in gradients.items():
        np.testing.assert_array_equal(same[key], value)


LOSSES = {
    "softmax cross entropy": (SoftmaxCrossEntropy(), (3, 4)),
    "masked, behind other positions": (MaskedSoftmaxCrossEntropy(2), (5, 4)),
    "masked, the positions alone": (MaskedSoftmaxCrossEntropy(2), (2, 4)),
    "softmax cross entropy of one position": (SoftmaxCrossEntropy(), (4,)),
    "mean squared error": (MeanSquaredError(), (3, 4)),
    "python": (PythonLoss(mean_cross_entropy), (4,)),
    "python with a parameter": (PythonLoss(scaled_square, {"scale": (2,)}, {"scale": 1.5}, label_shape=(2,)), (2,)),
    "ctc": (CTC(3), (5, 4)),
    "ctc of log probabilities": (CTC(2, 0, log_probabilities=True), (4, 4)),
    "ctc of samples of a length of their own": (CTC(2, -2, timed=True), (6, 4)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_losses_equal_finite_differences(name):
    loss, shape = LOSSES[name]
    rng = np.random.default_rng(3)
    x = with_special_points(rng.standard_normal((3, *shape)))
    of_targets = isinstance(loss, MeanSquaredError) or "parameter" in name
    labels = rng.standard_normal(x.shape) if of_targets else rng.integers(0, 4, x.shape[:-1])
    if isinstance(loss, CTC):
        labels = np.array([[3, 3, 3], [1, -1, -1], [2, 1, 0]])[:, : loss.labels + loss.timed] + 0
        labels[:, -1] = [3, 4, 6] if loss.timed else labels[:, -1]
    loss.check_labels(shape, labels)
    parameters = loss.initial_parameters(shape, rng, np.float64)

    def scalar():
        return 3 * float(loss.forward(parameters, x, labels)[0])

    _, saved = loss.forward(parameters, x, labels)
    grad, gradients = loss.backward(parameters, saved, 3.0)
    assert_gradient(grad, scalar, x)
    assert list(gradients) == list(parameters)
    for key, value in gradients.items():
        assert_gradient(value, scalar, parameters[key], label=key)
    again, same = loss.backward(parameters, saved, 3.0, need_input_gradient=False)
    assert again is None
    for key, value in gradients.items():
        np.testing.assert_array_equal(same[key], value)


VALUES = {
    "identity": lambda z: z,
    "relu": lambda z: np.where(z > 0, z, 0),
    "tanh": np.tanh,
    "sigmoid": expit,
    "hard_sigmoid": lambda z: np.minimum(1, np.maximum(0, z / 5 + 0.5)),
    "swish": lambda z: z * expit(z),
    "gelu": lambda z: z / 2 * (1 + np.tanh(0.7978845608028654 * (z + 0.044715 * z**3))),
    "gelu_erf": lambda z: z / 2 * (1 + erf(z / math.sqrt(2))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    z = np.linspace(-6, 6, 101)
    y, _ = activate(name, z.copy())
    np.testing.assert_allclose(y, VALUES[name](z), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "swish", "gelu", "gelu_erf", "hard_sigmoid"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_activations_neither_overflow_nor_change_the_dtype(name, dtype):
    z = np.array([-60, -1, 0, 1, 60], dtype)
    y, kept = activate(name, z.copy())
    grad = pull_back(name, kept, np.ones_like(z))
    assert np.isfinite(y).all()
    assert np.isfinite(grad).all()
    assert {y.dtype, grad.dtype} == {np.dtype(dtype)}


def test_embedding_equals_a_product_with_one_hot_rows():
    layer, ids = Embedding(7, 3), np.array([[6, 0, 6], [2, 2, 1]])
    parameters, one_hot = drawn(layer, (3,)), np.eye(7)[ids]
    y, saved = layer.forward(parameters, ids)
    np.testing.assert_array_equal(y, one_hot @ parameters["W"])
    weight = np.random.default_rng(1).standard_normal((2, 3, 3))
    grad_ids, gradients = layer.backward(parameters, saved, weight)
    np.testing.assert_allclose(gradients["W"], np.einsum("btv,btd->vd", one_hot, weight), rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(grad_ids, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("layer", "groups"),
    [
        (LayerNorm(0.5), [[(s, c) for c in range(6)] for s in range(4)]),
        (GroupNorm(0.5, groups=3), [[(s, c) for s in range(4) for c in (g, g + 3)] for g in range(3)]),
        (
            GroupNorm(0.5, groups=3, strided_channel_grouping=False),
            [[(s, c) for s in range(4) for c in (2 * g, 2 * g + 1)] for g in range(3)],
        ),
        (InstanceNorm(0.5), [[(s, c) for s in range(4)] for c in range(6)]),
    ],
    ids=["layer", "strided groups", "consecutive groups", "instance"],
)
def test_normalisations_element_by_element(layer, groups):
    x = np.random.default_rng(2).standard_normal((3, 4, 6))
    gamma, beta = np.arange(6) - 2.5, np.arange(6) * 0.1
    right = np.empty_like(x)
    for places, channels in (zip(*group, strict=True) for group in groups):
        own = x[:, places, channels]
        found = (own - own.mean(axis=1, keepdims=True)) / np.sqrt(own.var(axis=1, keepdims=True) + 0.5)
        right[:, places, channels] = found * gamma[[*channels]] + beta[[*channels]]
    y, _ = layer.forward({"gamma": gamma, "beta": beta}, x)
    np.testing.assert_allclose(y, right, rtol=1e-12, atol=1e-14)


def test_positions_are_the_first_ones_and_their_copy():
    x = np.arange(2.0 * 5 * 3).reshape(2, 5, 3)
    y, _ = TakePositions(2).forward({}, x)
    np.testing.assert_array_equal(y, x[:, :2])
    assert y.base is None


def test_masked_cross_entropy_is_the_mean_over_the_first_positions():
    rng = np.random.default_rng(3)
    logits, labels = rng.standard_normal((4, 6, 5)), rng.integers(0, 5, (4, 6))
    loss = MaskedSoftmaxCrossEntropy(2)
    right = -np.mean([log_softmax(logits[s, p])[labels[s, p]] for s in range(4) for p in range(2)])
    assert float(loss.forward({}, logits, labels)[0]) == pytest.approx(right, rel=1e-14)
    # After take_positions there are no other logits, and as many labels as before.
    assert float(loss.forward({}, logits[:, :2], labels)[0]) == pytest.approx(right, rel=1e-14)
    assert loss.accuracy(logits, labels) == np.mean(logits[:, :2].argmax(axis=2) == labels[:, :2])
    assert loss.constant_loss(np.array([[0, 1, 3], [1, 0, 3]])) == pytest.approx(math.log(2), rel=1e-14)


def padded(x, window, strides, padding, value):
    """Pad as TensorFlow's documentation of SAME says, by the remainder of the size."""
    if padding == "valid":
        return x
    pads = [(0, 0)]
    for size, k, s in zip(x.shape[1:3], window, strides, strict=True):
        total = max(k - s, 0) if size % s == 0 else max(k - size % s, 0)
        pads.append((total // 2, total - total // 2))
    return np.pad(x, [*pads, (0, 0)], constant_values=value)


WINDOWS = [
    ((5, 6), (3, 3), (1, 1), "valid"),
    ((5, 6), (3, 2), (2, 1), "valid"),
    ((5, 6), (3, 3), (1, 1), "same"),
    ((7, 5), (2, 3), (2, 3), "same"),
    ((4, 4), (1, 1), (3, 2), "same"),
    ((3, 3), (5, 4), (2, 2), "same"),
]


@pytest.mark.parametrize(("size", "window", "strides", "padding"), WINDOWS)
def test_transposed_convolution_by_plain_loops(size, window, strides, padding):
    """Every element adds the kernel where its window lies in the output, but for what lies in the padding."""
    layer = Conv2DTranspose(3, window, strides, padding)
    x = np.random.default_rng(3).standard_normal((2, *size, 4))
    parameters = drawn(layer, x.shape[1:])
    y, _ = layer.forward(parameters, x)
    whole = [
        count * stride if padding == "same" else (count - 1) * stride + max(kernel, stride)
        for count, kernel, stride in zip(size, window, strides, strict=True)
    ]
    assert y.shape == (2, *layer.output_shape((*size, 4))) == (2, *whole, 3)
    before = [
        max((count - 1) * stride + kernel - end, 0) // 2
        for count, kernel, stride, end in zip(size, window, strides, whole, strict=True)
    ]
    right = np.zeros(y.shape) + parameters["b"]
    for sample, row, column, i, j in np.ndindex(2, *size, *window):
        down, across = row * strides[0] + i - before[0], column * strides[1] + j - before[1]
        if 0 <= down < whole[0] and 0 <= across < whole[1]:
            right[sample, down, across] += parameters["W"][i, j] @ x[sample, row, column]
    np.testing.assert_allclose(y, right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("size", "window", "strides", "padding"), WINDOWS)
@pytest.mark.parametrize(("groups", "filters"), [(1, 4), (2, 6), (4, 4), (4, 8)])
def test_groups_are_convolutions_side_by_side(groups, filters, size, window, strides, padding):
    """Each by SciPy's correlation of its channels, all windows of which strides then choose from."""
    layer = Conv2D(filters, window, strides, padding, groups=groups)
    x = np.random.default_rng(3).standard_normal((2, *size, 4))
    parameters = drawn(layer, x.shape[1:])
    y, _ = layer.forward(parameters, x)
    assert y.shape == (2, *layer.output_shape((*size, 4)))
    image = padded(x, window, strides, padding, 0)
    each = 4 // groups
    for sample, filter_ in np.ndindex(2, filters):
        group = filter_ // (filters // groups)
        part = image[sample, :, :, group * each : (group + 1) * each]
        found = correlate(part, parameters["W"][..., filter_], "valid")[:: strides[0], :: strides[1], 0]
        field = y.shape[1:3]
        right = found[: field[0], : field[1]] + parameters["b"][filter_]
        np.testing.assert_allclose(y[sample, :, :, filter_], right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("groups", "filters"), [(1, 5), (3, 6), (6, 6)])
@pytest.mark.parametrize(("window", "stride", "padding"), [(3, 1, "valid"), (4, 2, "same"), (2, 3, "valid")])
def test_a_convolution_of_sequences_is_that_of_images_of_one_row(groups, filters, window, stride, padding):
    layer = Conv1D(filters, window, stride, padding, groups=groups)
    of_images = Conv2D(filters, (1, window), (1, stride), padding, groups=groups)
    x = np.random.default_rng(3).standard_normal((2, 8, 6))
    parameters = drawn(layer, (8, 6))
    assert parameters["W"].shape == (window, 6 // groups, filters)
    y, _ = layer.forward(parameters, x)
    right, _ = of_images.forward({"W": parameters["W"][None], "b": parameters["b"]}, x[:, None])
    np.testing.assert_allclose(y, right[:, 0], rtol=1e-12, atol=1e-13)
    assert y.shape == (2, *layer.output_shape((8, 6)))


@pytest.mark.parametrize(("size", "window", "strides", "padding"), WINDOWS)
@pytest.mark.parametrize(("kind", "reduce"), [(MaxPool2D, np.nanmax), (AveragePool2D, np.nanmean)])
def test_pooling_by_plain_loops(kind, reduce, size, window, strides, padding):
    layer = kind(window, strides, padding)
    x = np.random.default_rng(4).standard_normal((2, *size, 3))
    y, _ = layer.forward({}, x)
    image = padded(x, window, strides, padding, np.nan)  # what the padding adds takes no part
    assert y.shape == (2, *layer.output_shape((*size, 3)))
    for sample, row, column, channel in np.ndindex(y.shape):
        down, right = row * strides[0], column * strides[1]
        values = image[sample, down : down + window[0], right : right + window[1], channel]
        assert y[sample, row, column, channel] == pytest.approx(reduce(values), rel=1e-13)


def test_the_first_of_equal_maxima_takes_the_gradient():
    x = np.array([[1.0, 1.0], [1.0, 0.0]]).reshape(1, 2, 2, 1)
    layer = MaxPool2D()
    grad, _ = layer.backward({}, layer.forward({}, x)[1], np.full((1, 1, 1, 1), 3.0))
    np.testing.assert_array_equal(grad.reshape(2, 2), [[3, 0], [0, 0]])


FORMULAS = {
    "attention": (MultiHeadAttention(2), (5, 6), lambda *a: attention(*a, 2, False)),
    "causal attention": (MultiHeadAttention(3, 2, causal=True), (5, 4), lambda *a: attention(*a, 3, True)),
    "relative attention": (RelativeMultiHeadAttention(2), (5, 6), lambda *a: relative_attention(*a, 2)),
    "causal relative attention": (
        RelativeMultiHeadAttention(3, 2, causal=True),
        (5, 4),
        lambda *a: relative_attention(*a, 3, True),
    ),
    "window attention": (
        WindowAttention(2, window=3),
        (3, 6, 4),
        lambda *a: window_attention(*a, heads=2, window=3),
    ),
    "causal window attention of shifted windows": (
        WindowAttention(3, 2, causal=True, window=2, shift=1),
        (4, 6, 4),
        lambda *a: window_attention(*a, heads=3, window=2, shift=1, causal=True),
    ),
    "window attention of shifted windows": (
        WindowAttention(2, window=3, shift=1),
        (6, 6, 4),
        lambda *a: window_attention(*a, heads=2, window=3, shift=1),
    ),
    "squeeze and excite": (SqueezeExcite(3, "tanh"), (2, 3, 5), squeeze_excite),
    "space to depth": (SpaceToDepth(2), (4, 6, 3), lambda x: space_to_depth(x, 2)),
    "lstm": (LSTM(3, return_sequences=True), (5, 4), lstm),
    "gru": (GRU(3, return_sequences=True), (5, 4), lambda *a: gru(*a, True)),
    "gru reset before": (GRU(3, return_sequences=True, reset_after=False), (5, 4), lambda *a: gru(*a, False)),
    "augru": (AUGRU(3, return_sequences=True), (5, 4), lambda *a: gru(*a, True, attended=True)),
    "masked gru": (GRU(3, return_sequences=True, masked=True), (5, 4), lambda *a: gru(*a, True, masked=True)),
    "masked augru": (AUGRU(3, return_sequences=True, masked=True), (5, 4), lambda *a: gru(*a, True, True, True)),
    "batch norm": (BatchNorm(), (5, 4), batch_norm),
    "glu": (GLU(), (5, 4), glu),
    "convolution": (Conv2D(6, (3, 2), padding="same"), (4, 5, 3), convolution),
    "convolution in groups": (Conv2D(6, (3, 2), padding="same", groups=2), (4, 5, 4), lambda *a: convolution(*a, 2)),
    "convolution of sequences": (Conv1D(6, 3, padding="same"), (5, 4), convolution_1d),
    "depthwise convolution of images": (
        DepthwiseConv2D((3, 2), padding="same", depth_multiplier=2),
        (4, 5, 3),
        lambda x, W, b: convolution(x, W.reshape(3, 2, 1, 6), b, 3),
    ),
    "depthwise convolution": (Conv1D(4, 3, padding="same", groups=4), (5, 4), lambda *a: convolution_1d(*a, 4)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_equal_the_formula(name):
    layer, shape, formula = FORMULAS[name]
    parameters = drawn(layer, shape, 5)
    x = np.random.default_rng(6).standard_normal((2, *shape))
    y, _ = layer.forward(parameters, x)
    np.testing.assert_allclose(y, formula(x, *parameters.values()), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("need", [True, False])
def test_multiply_accumulates_are_those_counted_in_the_formula(name, need):
    layer, shape, formula = FORMULAS[name]
    x = np.random.default_rng(7).standard_normal((2, *shape))
    parameters = drawn(layer, shape)
    arguments = [x, *parameters.values()]
    forward, backward = count_passes(formula, arguments, range(0 if need else 1, len(arguments)))
    cost = layer.cost(shape, 2, 4, need)
    # The state before the first time step is a constant, which autograd takes no gradient of; the layer does.
    # The candidate's product with the reset state has one all the same: it is that of the reset gate.
    state = 2 * math.prod(parameters["U"].shape) if "U" in parameters else 0
    if name == "gru reset before":
        state = state * 2 // 3
    assert cost.forward.macs == forward.macs
    assert cost.backward.macs == backward.macs + state


@pytest.mark.parametrize("dimension", ["a_columns", "a_rows_b_columns", "b_rows"])
@pytest.mark.parametrize("factor", [2, 3, 6])
def test_serialized_products_equal_the_whole_one(dimension, factor):
    whole, parts = Dense(6, "tanh"), Dense(6, "tanh", True, factor, dimension)
    parameters, x = drawn(whole, (3, 12)), np.random.default_rng(8).standard_normal((4, 3, 12))
    found, right = (layer.forward(parameters, x)[0] for layer in (parts, whole))
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(4, 12), (12, 4), (5, 5)])
def test_orthogonal_start(shape):
    matrix = orthogonal(shape, np.random.default_rng(9), np.float64)
    assert matrix.shape == shape
    product = matrix @ matrix.T if shape[0] <= shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-14)
    other = orthogonal(shape, np.random.default_rng(10), np.float64)
    if shape[0] != shape[1]:
        tall = (matrix, other) if shape[0] > shape[1] else (matrix.T, other.T)
        assert subspace_angles(*tall).max() > 0.1  # another seed spans another space
