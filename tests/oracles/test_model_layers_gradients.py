"""Every layer's backward pass against finite differences of its forward pass, in float64."""

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.activations import ACTIVATIONS
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import PositionEmbedding
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
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.space_to_depth import SpaceToDepth
from ipusim.model.layers.squeeze_excite import SqueezeExcite
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.layers.transposed_convolution import Conv2DTranspose
from ipusim.model.layers.window_attention import WindowAttention
from tests.formulas import assert_gradient, with_special_points

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


def drawn(layer, shape, rng):
    """Return parameters away from the special values that they start with."""
    shapes = layer.parameter_shapes(shape)
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
