"""What an argument of a layer or operation changes that no other test asks for, given another value than by default.

Which name and which argument a test stands for says ``tests/tried_names.csv``.
"""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import ipu_compiler
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.keras import layers

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(2, 4)).astype(np.float32)
STEPS = RNG.normal(size=(3, 2, 2)).astype(np.float32)  # time steps, batch, elements


def on_ipu(function, *arrays):
    """Return what a program of one function gives for arrays."""
    program = ipu_compiler.compile(function, list(arrays))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(program)
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


# Normalisations of Keras.
KERAS = [layers.GroupNormalization, layers.InstanceNormalization, layers.LayerNormalization]
IMAGES = RNG.normal(size=(2, 3, 3, 4)).astype(np.float32)
THREE = tf.constant_initializer(3.0)


def has_a_deviation(outputs, deviation):
    return abs(outputs.std() - deviation) < 0.25 * deviation


@pytest.mark.parametrize(
    ("argument", "value", "weights", "deviation", "mean"),
    [
        ("center", False, ["gamma"], 1, 0),
        ("scale", False, ["beta"], 1, 0),
        ("epsilon", 3.0, ["gamma", "beta"], 0.5, 0),
        ("gamma_initializer", THREE, ["gamma", "beta"], 3, 0),
        ("beta_initializer", THREE, ["gamma", "beta"], 1, 3),
    ],
)
@pytest.mark.parametrize("kind", KERAS)
def test_an_argument_of_a_layer_that_normalises(kind, argument, value, weights, deviation, mean):
    layer = kind(**{argument: value})
    outputs = on_ipu(layer, IMAGES)
    assert [each.name.rpartition("/")[2] for each in layer.weights] == weights
    assert has_a_deviation(outputs, deviation)
    np.testing.assert_allclose(outputs.mean(), mean, atol=1e-5)


@pytest.mark.parametrize("kind", KERAS)
def test_what_a_layer_that_normalises_is_in_a_model(kind):
    layer = kind(dtype="float16", trainable=False, name="mine")
    tf.keras.Model(inputs := tf.keras.Input((3, 3, 4)), layer(inputs))
    assert [each.name.partition("/")[2] for each in layer.weights] == ["mine/gamma", "mine/beta"]
    assert {each.dtype for each in layer.weights} == {np.dtype(np.float16)}
    assert layer.trainable_weights == []


@pytest.mark.parametrize("kind", KERAS)
def test_a_layer_that_normalises_is_built_and_called(kind):
    layer = kind()
    layer.build(IMAGES.shape)
    assert len(layer.weights) == 2
    assert has_a_deviation(on_ipu(layer.call, IMAGES), 1)


def test_an_embedding_begins_as_it_is_told_to_and_has_its_name():
    layer = layers.Embedding(3, 2, embeddings_initializer="ones", name="mine")
    outputs = on_ipu(layer, np.int32([[0, 2]]))
    np.testing.assert_array_equal(outputs, np.ones((1, 2, 2)))
    assert [each.name for each in layer.weights] == ["mine/embeddings"]
    assert layer.get_config()["output_dim"] == 2


def test_a_dropout_is_built_and_called_and_says_what_it_is():
    layer = layers.Dropout(0.25, name="mine")
    layer.build(ROWS.shape)
    assert (layer.built, layer.name, layer.get_config()["rate"]) == (True, "mine", 0.25)
    np.testing.assert_array_equal(on_ipu(layer.call, ROWS), ROWS)


# Recurrent layers, of Keras and others.
HALF, ONES = tf.constant_initializer(0.5), tf.ones_initializer()
CONSTANT = {"kernel_initializer": HALF, "recurrent_initializer": ONES, "bias_initializer": HALF}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("kind", [layers.PopnnLSTM, layers.PopnnGRU])
def test_weights_of_keras_recurrent_layers_begin_as_they_are_told_to(kind):
    layer = kind(2, **CONSTANT)
    tf.keras.Model(inputs := tf.keras.Input((3, 2)), layer(inputs))
    kernel, recurrent, bias = (each.numpy() for each in layer.weights)
    assert (kernel.min(), kernel.max()) == (0.5, 0.5)
    assert (recurrent.min(), recurrent.max()) == (1, 1)
    assert bias.min() == 0.5


@pytest.mark.parametrize("kind", [layers.PopnnLSTM, layers.PopnnGRU])
def test_a_keras_recurrent_layer_without_biases(kind):
    layer = kind(2, use_bias=False, name="mine")
    on_ipu(layer, STEPS)
    assert [each.name for each in layer.weights] == ["mine/kernel", "mine/recurrent_kernel"]


def test_the_forget_gates_bias_begins_at_one_or_not():
    layer = layers.PopnnLSTM(1, unit_forget_bias=False)
    tf.keras.Model(inputs := tf.keras.Input((3, 2)), layer(inputs))
    assert layer.weights[2].numpy().tolist() == [0, 0, 0, 0]


def test_a_gru_with_its_reset_before_the_product_has_one_row_of_biases():
    layer = layers.PopnnGRU(2, reset_after=False)
    tf.keras.Model(inputs := tf.keras.Input((3, 2)), layer(inputs))
    assert layer.weights[2].numpy().shape == (6,)


def last_of(kind, **arguments):
    layer = kind(1, **CONSTANT, **arguments)
    return on_ipu(layer, np.ones((1, 1, 1), np.float32)).item()


def test_the_activations_of_a_keras_lstm():
    """All gates see 0.5 + 0.5, but for the forget gate, whose cell is zero."""
    one = sigmoid(1)
    assert last_of(layers.PopnnLSTM) == pytest.approx(np.tanh(one * np.tanh(1)) * one)
    assert last_of(layers.PopnnLSTM, activation="relu") == pytest.approx(one * one)
    linear = last_of(layers.PopnnLSTM, recurrent_activation="tanh")
    assert linear == pytest.approx(np.tanh(np.tanh(1) * np.tanh(1)) * np.tanh(1))


def test_the_activations_of_a_keras_gru():
    one = sigmoid(1)
    assert last_of(layers.PopnnGRU, reset_after=False) == pytest.approx((1 - one) * np.tanh(1))
    assert last_of(layers.PopnnGRU, reset_after=False, activation="relu") == pytest.approx(1 - one)
    rough = last_of(layers.PopnnGRU, reset_after=False, recurrent_activation="hard_sigmoid")
    assert rough == pytest.approx((1 - 0.7) * np.tanh(1))
