"""Gradients of whatever a stage can call, by finite differences in float64: of every input and every variable.

What there is to call is found in the modules and their tables of names, so that a new name is checked, or named here
as one that no gradient goes back through.
"""

from __future__ import annotations

import inspect

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ModelError
from ipusim.ipu import (
    custom_ops,
    embedding_ops,
    image_ops,
    math_ops,
    nn_ops,
    normalization_ops,
    rand_ops,
    rnn_ops,
    slicing_ops,
)
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.keras import layers as ipu_layers
from ipusim.ipu.runtime import layers
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.model.functions.gradient import pullback
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.add import Add
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.concatenate import Concatenate
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding, HostEmbedding, PositionEmbedding
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
from ipusim.model.layers.table import rows
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.layers.transposed_convolution import Conv2DTranspose
from tests.effort import in_turn
from tests.special_points import assert_gradient, with_special_points

RNG = np.random.default_rng(7)
X = with_special_points(RNG.normal(size=(3, 4)))
STEPS = with_special_points(RNG.normal(size=(2, 3, 2)))  # (batch, time steps, elements), or time first
IMAGES = with_special_points(RNG.normal(size=(2, 4, 4, 2)))
COLOURS = RNG.normal(size=(2, 2, 2, 3))
IDS = np.array([[0, 2], [1, 1], [4, 0]])
CLASSES = np.array([0, 3, 1])
KERNEL = RNG.normal(size=(3, 3, 2, 2))
LABELS = np.array([[0, 0], [1, -1]])
LOG = {"label_length": np.array([2, 1]), "blank_index": 2}
SCORES = RNG.normal(size=(4, 2, 3))  # time steps, batch, classes
DOUBLE = {"dtype": np.float64}
STATE = RNG.normal(size=(2, 3, 2))  # two states of three samples of two units
NCE = RNG.normal(size=(6, 4)), RNG.normal(size=6)
TRUE = np.array([[0, 1], [2, 2], [5, 3]])
SLICES = [2, 1], [1, 0]


def in_tensorflow_2(function, **arguments):
    """Return what a function gives in a program for TensorFlow 2."""
    with ipu.install(tensorflow=2):
        return function(**arguments)


def in_keras(name, *args, **kwargs):
    def call(x):
        return getattr(tf.keras.layers, name)(*args, **kwargs)(x)

    return call


def recurrent(kind, *args, **options):
    """A call of one of Graphcore's layers on inputs, and on states that are given."""

    def call(x, *rest):
        layer = getattr(rnn_ops, kind)(2, **DOUBLE, **options)
        outputs, state = layer(x, *args, *rest)
        return [outputs, *(state if isinstance(state, tuple) else [state])]

    return call


def lstm_from(x, h, c):
    outputs, state = rnn_ops.PopnnLSTM(2, **DOUBLE)(x, rnn_ops.LSTMStateTuple(c, h))
    return [outputs, *state]


def keras_lstm_from(x, h, c):
    layer = ipu_layers.PopnnLSTM(2, return_state=True, dropout=0.4)
    y, state = layer(x, initial_state=rnn_ops.LSTMStateTuple(c, h))
    return [y, *state]


def keras_gru_from(x, state):
    return list(ipu_layers.PopnnGRU(2, return_sequences=True, return_state=True)(x, initial_state=state))


def keras_states(name):
    """Return a use of a recurrent layer of Keras from states, with those behind its last step."""
    return lambda x, *states: getattr(tf.keras.layers, name)(2, return_state=True)([x, *states])


#: A use of each name from which gradients go back: a function of arrays, and the arrays.
def _after(cell, x):
    """Return the outputs of a cell in two time steps on rows of ``x``."""
    return tf.nn.dynamic_rnn(cell, tf.stack([x, tf.sin(x)]), dtype=x.dtype, time_major=True)[0]


CASES = {
    "tf.layers.average_pooling2d": (lambda x: tf.layers.average_pooling2d(x, 2, 2), IMAGES),
    "tf.layers.batch_normalization": (tf.layers.batch_normalization, X),
    "tf.layers.conv2d": (lambda x: tf.layers.conv2d(x, 2, 3, padding="same", activation=tf.nn.tanh), IMAGES),
    "tf.layers.dense": (lambda x: tf.layers.dense(x, 3, activation=tf.nn.gelu), X),
    "tf.layers.dropout": (lambda x: tf.layers.dropout(x, 0.5), X),
    "tf.layers.flatten": (tf.layers.flatten, IMAGES),
    "tf.layers.max_pooling2d": (lambda x: tf.layers.max_pooling2d(x, 2, 2), IMAGES),
    "tf.keras.layers.Activation": (in_keras("Activation", "sigmoid"), X),
    "tf.keras.layers.Add": (lambda x, y: tf.keras.layers.Add()([x, y, x]), X, X[::-1]),
    "tf.keras.layers.AvgPool2D": (in_keras("AvgPool2D", 2), IMAGES),
    "tf.keras.layers.MaxPool2D": (in_keras("MaxPool2D", 2), IMAGES),
    "tf.keras.layers.add": (lambda x, y: tf.keras.layers.add([x, y, x]), X, X[::-1]),
    "tf.keras.layers.concatenate": (lambda x, y: tf.keras.layers.concatenate([x, y, x]), X, X[::-1]),
    "tf.keras.layers.Average": (lambda x, y: tf.keras.layers.Average()([x, y]), X, X[::-1]),
    "tf.keras.layers.Multiply": (lambda x, y: tf.keras.layers.Multiply()([x, y]), X, X[::-1]),
    "tf.keras.layers.Subtract": (lambda x, y: tf.keras.layers.Subtract()([x, y]), X, X[::-1]),
    "tf.keras.layers.Lambda": (in_keras("Lambda", lambda x: x * x), X),
    "tf.keras.layers.AveragePooling2D": (in_keras("AveragePooling2D", 2), IMAGES),
    "tf.keras.layers.BatchNormalization": (in_keras("BatchNormalization"), X),
    "tf.keras.layers.Concatenate": (lambda x, y: tf.keras.layers.Concatenate()([x, y, x]), X, X[::-1]),
    "tf.keras.layers.Conv1D": (in_keras("Conv1D", 2, 2, activation="elu"), STEPS),
    "tf.keras.layers.Conv2D": (in_keras("Conv2D", 2, 2, 2, activation="swish"), IMAGES),
    "tf.keras.layers.Conv2DTranspose": (in_keras("Conv2DTranspose", 2, 3, 2, "same", activation="tanh"), IMAGES),
    "tf.keras.layers.Dense": (in_keras("Dense", 3, "tanh"), X),
    "tf.keras.layers.DepthwiseConv2D": (in_keras("DepthwiseConv2D", 2, depth_multiplier=2, activation="tanh"), IMAGES),
    "tf.keras.layers.Dropout": (in_keras("Dropout", 0.3), X),
    "tf.keras.layers.Embedding": (in_keras("Embedding", 5, 3), IDS),
    "tf.keras.layers.Flatten": (in_keras("Flatten"), STEPS),
    "tf.keras.layers.GRU": (in_keras("GRU", 2), STEPS),
    "tf.keras.layers.GlobalAveragePooling1D": (in_keras("GlobalAveragePooling1D"), STEPS),
    "tf.keras.layers.GlobalMaxPooling1D": (in_keras("GlobalMaxPooling1D"), STEPS),
    "tf.keras.layers.LeakyReLU": (in_keras("LeakyReLU", 0.1), X),
    "tf.keras.layers.Maximum": (lambda x, y: tf.keras.layers.Maximum()([x, y]), X, X[::-1] + 0.1),
    "tf.keras.layers.Minimum": (lambda x, y: tf.keras.layers.Minimum()([x, y]), X, X[::-1] + 0.1),
    "tf.keras.layers.Permute": (in_keras("Permute", (2, 1)), STEPS),
    "tf.keras.layers.RepeatVector": (in_keras("RepeatVector", 2), X),
    "tf.keras.layers.Rescaling": (in_keras("Rescaling", 0.5, 1.0), X),
    "tf.keras.layers.GlobalAveragePooling2D": (in_keras("GlobalAveragePooling2D"), IMAGES),
    "tf.keras.layers.GlobalMaxPooling2D": (in_keras("GlobalMaxPooling2D"), IMAGES),
    "tf.keras.layers.GroupNormalization": (in_keras("GroupNormalization", 2), IMAGES),
    "tf.keras.layers.InstanceNormalization": (in_keras("InstanceNormalization"), IMAGES),
    "tf.keras.layers.LSTM": (in_keras("LSTM", 2, return_sequences=True), STEPS),
    "tf.keras.layers.LSTM from states": (keras_states("LSTM"), STEPS.swapaxes(0, 1), *STATE),
    "tf.keras.layers.GRU from a state": (keras_states("GRU"), STEPS.swapaxes(0, 1), STATE[0]),
    "tf.keras.layers.LayerNormalization": (in_keras("LayerNormalization"), X),
    "tf.keras.layers.MaxPooling2D": (in_keras("MaxPooling2D", 2), IMAGES),
    "tf.keras.layers.ReLU": (in_keras("ReLU"), X),
    "tf.keras.layers.Reshape": (in_keras("Reshape", (2, 2)), X),
    "tf.keras.layers.Softmax": (in_keras("Softmax"), X),
    "tf.losses.mean_squared_error": (lambda x: tf.losses.mean_squared_error(X[::-1], x), X),
    "tf.losses.sparse_softmax_cross_entropy": (lambda x: tf.losses.sparse_softmax_cross_entropy(CLASSES, x), X),
    "tf.nn.avg_pool": (lambda x: tf.nn.avg_pool(x, 2, 2), IMAGES),
    "tf.nn.bias_add": (tf.nn.bias_add, X, X[0]),
    "tf.nn.conv2d": (lambda x, kernel: tf.nn.conv2d(x, kernel, 1, "SAME"), IMAGES, KERNEL),
    "tf.nn.dropout": (lambda x: tf.nn.dropout(x, rate=0.5), X),
    "tf.nn.embedding_lookup": (lambda table: tf.nn.embedding_lookup(table, IDS), RNG.normal(size=(5, 2))),
    "tf.nn.elu": (tf.nn.elu, X),
    "tf.nn.leaky_relu": (tf.nn.leaky_relu, X),
    "tf.nn.relu6": (lambda x: tf.nn.relu6(8 * x), X),
    "tf.nn.selu": (tf.nn.selu, X),
    "tf.nn.softplus": (tf.nn.softplus, X),
    "tf.nn.softsign": (tf.nn.softsign, X),
    "tf.nn.gelu": (tf.nn.gelu, X),
    "tf.nn.compute_average_loss": (tf.nn.compute_average_loss, X),
    "tf.nn.l2_loss": (tf.nn.l2_loss, X),
    "tf.nn.log_softmax": (tf.nn.log_softmax, X),
    "tf.nn.max_pool": (lambda x: tf.nn.max_pool(x, 2, 2), IMAGES),
    "tf.nn.dynamic_rnn": (lambda x: _after(tf.nn.rnn_cell.BasicRNNCell(2), x), X),
    "tf.nn.dynamic_rnn of GRUCell": (lambda x: _after(tf.nn.rnn_cell.GRUCell(2), x), X),
    "tf.nn.dynamic_rnn of BasicLSTMCell": (lambda x: _after(tf.nn.rnn_cell.BasicLSTMCell(2), x), X),
    "tf.nn.moments": (lambda x: list(tf.nn.moments(x, [0])), X),
    "tf.nn.relu": (tf.nn.relu, X),
    "tf.nn.sigmoid": (tf.nn.sigmoid, X),
    "tf.nn.sigmoid_cross_entropy_with_logits": (
        lambda z, x: tf.nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x),
        X[::-1],
        X,
    ),
    "tf.nn.silu": (tf.nn.silu, X),
    "tf.nn.softmax": (tf.nn.softmax, X),
    "tf.nn.softmax_cross_entropy_with_logits": (
        lambda z, x: in_tensorflow_2(tf.nn.softmax_cross_entropy_with_logits, labels=z, logits=x),
        X[::-1],
        X,
    ),
    "tf.nn.softmax_cross_entropy_with_logits_v2": (
        lambda z, x: tf.nn.softmax_cross_entropy_with_logits_v2(labels=z, logits=x),
        X[::-1],
        X,
    ),
    "tf.nn.sparse_softmax_cross_entropy_with_logits": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=CLASSES, logits=x),
        X,
    ),
    "tf.nn.swish": (tf.nn.swish, X),
    "tf.nn.tanh": (tf.nn.tanh, X),
    "tf.nn.xw_plus_b": (tf.nn.xw_plus_b, X, RNG.normal(size=(4, 2)), RNG.normal(size=2)),
    "embedding_ops.embedding_lookup": (
        lambda table: embedding_ops.embedding_lookup(table, IDS),
        RNG.normal(size=(5, 2)),
    ),
    "embedding_ops.embedding_lookup in parts": (
        lambda table: embedding_ops.embedding_lookup(table, IDS, serialization_factor=3),
        RNG.normal(size=(6, 2)),
    ),
    "image_ops.normalise_image": (
        lambda x, offsets, scales: image_ops.normalise_image(x, offsets, scales, 0.5),
        COLOURS,
        RNG.normal(size=3),
        RNG.normal(size=3),
    ),
    "math_ops.serialized_matmul": (
        lambda a, b: math_ops.serialized_matmul(a, b, 2, "a_rows_b_columns"),
        X,
        RNG.normal(size=(4, 3)),
    ),
    "math_ops.serialized_matmul of stacks": (
        lambda a, b: math_ops.serialized_matmul(a, b, 3, "a_columns", transpose_b=True),
        STEPS,
        RNG.normal(size=(2, 4, 2)),
    ),
    "nn_ops.ctc_loss": (lambda x: nn_ops.ctc_loss(LABELS, x, data_length=np.array([4, 2]), **LOG), SCORES),
    "nn_ops.ctc_loss_v2": (lambda x: nn_ops.ctc_loss_v2(LABELS, x, logit_length=np.array([3, 4]), **LOG), SCORES),
    "nn_ops.ctc_loss_v2 of the mean": (
        lambda x: tf.reduce_mean(nn_ops.ctc_loss_v2(LABELS, x, logit_length=np.array([3, 4]), **LOG)),
        SCORES,
    ),
    "nn_ops.ctc_loss_with_log_probs": (
        lambda x: nn_ops.ctc_loss_with_log_probs(LABELS, x, data_length=np.array([4, 4]), **LOG),
        SCORES,
    ),
    "nn_ops.ctc_loss_with_logits": (
        lambda x: nn_ops.ctc_loss_with_logits(LABELS, x, logit_length=np.array([4, 1]), **LOG),
        SCORES,
    ),
    "nn_ops.gelu": (nn_ops.gelu, X),
    "nn_ops.gelu exactly": (lambda x: nn_ops.gelu(x, approximate=False), X),
    "nn_ops.hard_sigmoid": (nn_ops.hard_sigmoid, X),
    "nn_ops.multi_conv": (
        nn_ops.multi_conv(options={"perConvReservedTiles": "50"})(
            lambda x, y: [tf.layers.conv2d(x, 2, 2, use_bias=False), tf.layers.conv2d(y, 1, 3)]
        ),
        IMAGES,
        IMAGES[::-1],
    ),
    "nn_ops.nce_loss": (lambda w, b, x: nn_ops.nce_loss(w, b, TRUE, x, 3, 6, num_true=2), *NCE, X),
    "nn_ops.sampled_softmax_loss": (
        lambda w, b, x: nn_ops.sampled_softmax_loss([w[:2], w[2:]], b, TRUE, x, 3, 6, num_true=2, seed=3),
        *NCE,
        X,
    ),
    "nn_ops.swish": (nn_ops.swish, X),
    "normalization_ops.group_norm": (lambda x: normalization_ops.group_norm(x, 2), IMAGES),
    "normalization_ops.group_norm of other channels": (
        lambda x: normalization_ops.group_norm(x, 2, channels_axis=1),
        IMAGES,
    ),
    "normalization_ops.instance_norm": (normalization_ops.instance_norm, IMAGES),
    "normalization_ops.instance_norm of constants": (
        lambda x: normalization_ops.instance_norm(x, channels_axis=-2, trainable=False),
        IMAGES,
    ),
    "normalization_ops.layer_norm": (normalization_ops.layer_norm, X),
    "rand_ops.dropout": (lambda x: rand_ops.dropout(x, 0.4), X),
    "rand_ops.dropout of rows": (lambda x: rand_ops.dropout(x, 0.4, noise_shape=[3, 1]), X),
    "rnn_ops.PopnnLSTM of Keras from states": (keras_lstm_from, STEPS.swapaxes(0, 1), *STATE),
    "rnn_ops.PopnnGRU of Keras from a state": (keras_gru_from, STEPS.swapaxes(0, 1), STATE[0]),
    "rnn_ops.PopnnLSTM": (recurrent("PopnnLSTM"), STEPS),
    "rnn_ops.PopnnLSTM from states": (lstm_from, STEPS, *STATE),
    "rnn_ops.PopnnGRU": (recurrent("PopnnGRU", activation="sigmoid"), STEPS),
    "rnn_ops.PopnnGRU from a state": (recurrent("PopnnGRU", reset_after=True), STEPS, STATE[0]),
    "rnn_ops.PopnnDynamicGRU": (recurrent("PopnnDynamicGRU", np.array([2, 1, 0])), STEPS, STATE[0]),
    "rnn_ops.PopnnDynamicGRU with the batch first": (
        lambda x: rnn_ops.PopnnDynamicGRU(2, **DOUBLE, reset_after=True)(x, np.array([3, 1]), time_major=False)[0],
        STEPS,
    ),
    "rnn_ops.PopnnAUGRU": (
        recurrent("PopnnAUGRU", np.array([2, 1, 2])),
        STEPS,
        RNG.uniform(size=(3, 2)),
        STATE[0],
    ),
    "slicing_ops.sequence_slice": (
        lambda dst, src: slicing_ops.sequence_slice(dst, src, *SLICES, [0, 2], False),
        RNG.normal(size=(4, 2)),
        RNG.normal(size=(3, 2)),
    ),
    "slicing_ops.sequence_slice over itself": (
        lambda dst, src: slicing_ops.sequence_slice(dst, src, *SLICES, [0, 1], True),
        RNG.normal(size=(4, 2)),
        RNG.normal(size=(3, 2)),
    ),
    "slicing_ops.sequence_slice_pack": (
        lambda dst, src: slicing_ops.sequence_slice_pack(dst, src, [2, 1], [1, 3], False),
        RNG.normal(size=(4, 2)),
        RNG.normal(size=(3, 2)),
    ),
    "slicing_ops.sequence_slice_unpack": (
        lambda src: slicing_ops.sequence_slice_unpack(src, *SLICES, 4),
        RNG.normal(size=(3, 2)),
    ),
}
#: Names that no gradient goes back through, or that are no functions of arrays.
WITHOUT_GRADIENT = {
    *("nn_ops.ctc_beam_search_decoder", "nn_ops.ctc_beam_search_decoder_with_log_probs"),
    *("statistics_ops.fixed_width_bins", "statistics_ops.histogram", "statistics_ops.histogram_update"),
    "internal_ops.print_tensor",
    *("functional_ops.function", "functional_ops.outlined_function"),  # return what they are given
    "custom_ops.codelet_expression_op",
    *("tf.keras.layers.Input", "tf.keras.layers.InputLayer", "tf.keras.layers.Layer"),  # compute nothing
}
#: With their own tests: user operations need a file, and below each layer of the core is run by layers.layer.
ELSEWHERE = {"custom_ops.cpu_user_operation", "custom_ops.precompiled_user_op"}
ELSEWHERE |= {  # tables on the host, which keep their gradients to themselves
    f"embedding_ops.{name}"
    for name in (
        *("HostEmbedding", "HostEmbeddingOptimizerSpec", "HostEmbeddingSGDGAOptimizerSpec", "create_host_embedding"),
    )
}
ELSEWHERE |= {
    f"layers.{name}" for name in ("layer", "loss", "run", "run_loss", "depends_on_a_variable", "initial_parameters")
}
MODULES = (
    *("custom_ops", "embedding_ops", "functional_ops", "image_ops", "internal_ops", "layers", "math_ops", "nn_ops"),
    *("normalization_ops", "rand_ops", "rnn_ops", "slicing_ops", "statistics_ops"),
)


def offered():
    """Return every name that a stage can call, found where the names are."""
    found = {
        f"{table}.{name}"
        for table in ("tf.layers", "tf.keras.layers", "tf.losses", "tf.nn")
        for name in dir(_of(table))
        if callable(getattr(_of(table), name)) and not inspect.ismodule(getattr(_of(table), name))
    }
    for module in MODULES:
        here = vars(getattr(ipu, module))
        found |= {
            f"{module}.{name}"
            for name, value in here.items()
            if callable(value) and getattr(value, "__module__", "") == here["__name__"] and name[0] != "_"
            if not hasattr(value, "forward")  # the operation of a function
        }
    return found


def _of(table):
    found = tf
    for name in table.split(".")[1:]:
        found = getattr(found, name)
    return found


def test_every_name_has_a_gradient_that_is_checked_or_none_at_all():
    known = {case.split()[0] for case in CASES}
    assert offered() - known - WITHOUT_GRADIENT - ELSEWHERE == set()
    assert known | WITHOUT_GRADIENT | ELSEWHERE == offered()


class Stage:
    """A function as a stage runs it: with names, draws, and variables that begin away from zero and one."""

    def __init__(self, function):
        self.function, self.variables, self.rng = function, {}, np.random.default_rng(3)

    def __call__(self, arrays, values=None):
        values = self.variables if values is None else values

        def lookup(name, initial):
            return values.setdefault(name, initial + 0.3 * self.rng.standard_normal(initial.shape))

        with (
            ProgramNames().stage(0),
            Surrounded(lookup=lookup),
            Surrounded(untrained=Untrained({}, takes_new=True)),
            Surrounded(key=(5, 1)),
        ):
            results = self.function(*arrays)
        return [concrete(each) for each in (results if isinstance(results, list | tuple) else [results])]


def check(function, arrays):
    """Hold every gradient of the function to that by finite differences."""
    stage = Stage(function)
    weights = [np.random.default_rng(1).normal(size=np.shape(each)) for each in stage(arrays)]
    names, count = list(stage.variables), len(arrays)
    everything = [*arrays, *stage.variables.values()]

    def scalar(*flat):
        results = stage(flat[:count], dict(zip(names, flat[count:], strict=True)))
        return sum(anp.sum(each * weight) for each, weight in zip(results, weights, strict=True))

    places = [place for place, array in enumerate(everything) if array.dtype == np.float64]
    assert places, "nothing to take a gradient of"
    pull, _ = pullback(scalar, everything, places)
    for place, found in zip(places, pull(np.ones(())), strict=True):
        moved = [array.copy() if at == place else array for at, array in enumerate(everything)]
        label = f"input {place}" if place < count else names[place - count]
        elements = [*np.ndindex(moved[place].shape)]
        some = in_turn(elements, f"{label} {np.shape(found)}") if len(elements) > 3 else elements

        def moves(moved=moved):
            return scalar(*moved)

        assert_gradient(found, moves, moved[place], rtol=2e-5, atol=3e-7, label=label, places=some)
    return names


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(case):
    function, *arrays = CASES[case]
    check(function, arrays)


def inner(*layers):
    return tuple(NamedLayer(f"n{place}", layer) for place, layer in enumerate(layers))


#: A layer of each kind, or a loss with labels, and its input.
CORE = {
    "flatten": (Flatten(), IMAGES),
    "reshape": (Reshape((2, 2)), X),
    "dense": (Dense(3, "swish"), X),
    "activation": (ActivationLayer("gelu"), X),
    "glu": (GLU(), X),
    "dropout": (Dropout(0.5), X),
    "embedding": (Embedding(5, 2), IDS),
    "host_embedding": (HostEmbedding(5, 2), IDS),
    "position_embedding": (PositionEmbedding(), STEPS),
    "take_positions": (TakePositions(2), STEPS),
    "layer_norm": (LayerNorm(), X),
    "group_norm": (GroupNorm(), IMAGES),
    "instance_norm": (InstanceNorm(), IMAGES),
    "batch_norm": (BatchNorm(), X),
    "conv2d": (Conv2D(2, (2, 2), groups=2), IMAGES),
    "conv1d": (Conv1D(2, 2), STEPS),
    "conv2d_transpose": (Conv2DTranspose(2, (3, 2), (2, 2)), IMAGES),
    "depthwise_conv2d": (DepthwiseConv2D((2, 2), depth_multiplier=2), IMAGES),
    "max_pool2d": (MaxPool2D(), IMAGES),
    "average_pool2d": (AveragePool2D(), IMAGES),
    "lstm": (LSTM(2), STEPS),
    "gru": (GRU(2, masked=True), STEPS),
    "augru": (AUGRU(2), STEPS),
    "multi_head_attention": (MultiHeadAttention(2), STEPS),
    "relative_multi_head_attention": (RelativeMultiHeadAttention(1), STEPS),
    "residual": (Residual(inner(Dense(4, "tanh"))), X),
    "parallel": (Parallel(((NamedLayer("alone", Dense(2)),), inner(Dense(1, "tanh"), Dense(3)))), X),
    "softmax_cross_entropy": (SoftmaxCrossEntropy(), X, CLASSES),
    "masked_softmax_cross_entropy": (MaskedSoftmaxCrossEntropy(2), STEPS, np.array([[0, 1], [1, 1]])),
    "mean_squared_error": (MeanSquaredError(), X, X[::-1]),
    "ctc": (CTC(2), STEPS, np.array([[0, -1], [-1, -1]])),
}
#: Layers that name another, whose output or table they take: a function asks for both by itself.
OF_OTHERS = {Add.kind, Concatenate.kind, TiedProjection.kind}


def test_every_kind_of_layer_is_run():
    assert CORE.keys() | OF_OTHERS == {row.kind for row in rows()}


@pytest.mark.parametrize("kind", CORE)
def test_gradients_of_the_cores_layers_in_a_function(kind):
    layer, x, *labels = CORE[kind]
    if labels:
        names = check(lambda x: layers.loss("it", layer, x, *labels), [x])
    else:
        names = check(lambda x: layers.layer("it", layer, x), [x])
    shape = x.shape[1:]
    assert names == [f"it/{name}" for name in layer.parameter_shapes(shape)]


USERS = """
import numpy as np

def Twice(x, y, attributes):
    assert attributes == "there"
    return np.sin(x) * y, x.sum(axis=0)

def Twice_grad(gradients, outputs, inputs, attributes):
    first, second = gradients
    x, y = inputs
    return [first * np.cos(x) * y + second, first * np.sin(x)]

def Apart(x, y, attributes):
    return np.exp(x * y)

def Apart_grad(place, gradients, outputs, inputs, attributes):
    return gradients[0] * outputs[0] * inputs[1 - place]

def Ahead(x, attributes):
    return 2 * x
"""


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users.py"
    path.write_text(USERS)
    return str(path)


def outs(*shapes):
    return {"output_types": [np.float64] * len(shapes), "output_shapes": list(shapes)}


@pytest.mark.parametrize("operation", [custom_ops.cpu_user_operation, custom_ops.precompiled_user_op])
def test_gradients_of_user_operations(users, operation):
    told = {"op_name": "Twice", "attributes": "there", "outs": outs((3, 4), (4,))}
    check(lambda x, y: operation([x, y], users, **told), [X, X[::-1]])
    apart = {"op_name": "Apart", "outs": outs((3, 4)), "separate_gradients": True}
    check(lambda x, y: operation([x, y], users, **apart), [X, X[::-1]])
    one = Stage(lambda x, y: operation([x, y], users, inputs_with_gradients=[1], **apart))
    pull, _ = pullback(lambda x, y: anp.sum(one([x, y])[0]), [X, X[::-1]], [0, 1])
    first, second = pull(np.ones(()))
    np.testing.assert_array_equal(first, np.zeros_like(X))
    np.testing.assert_allclose(second, np.exp(X * X[::-1]) * X)


def test_no_gradient_goes_back_unnoticed_where_there_is_none(users):
    ahead = Stage(lambda x: custom_ops.cpu_user_operation([x], users, outs((3, 4)), op_name="Ahead"))
    pull, _ = pullback(lambda x: anp.sum(ahead([x])[0]), [X], [0])
    with pytest.raises(ModelError, match="no gradient goes back through it"):
        pull(np.ones(()))
    expression = Stage(lambda x: custom_ops.codelet_expression_op(lambda x: x * x, x))
    pull, _ = pullback(lambda x: anp.sum(expression([x])[0]), [X], [0])
    with pytest.raises(ModelError, match="cannot be used for training"):
        pull(np.ones(()))
