"""Functions, initializers and layers of TensorFlow 1: arguments, defaults and dtypes as TensorFlow has them.

Values are worked out by hand from TensorFlow's documentation of 1.15 and 2.6.
"""

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.tensorflow import keras
from ipusim.model.functions.gradient import pullback
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained

FIVE = np.arange(5, dtype=np.float32)
SQUARE = np.arange(4, dtype=np.float32).reshape(2, 2)
ONES = np.ones((50, 200), np.float32)
HALVES = np.ones((2, 2), np.float16)


@pytest.fixture(params=[1, 2])
def version(request):
    with ipu.install(tensorflow=request.param):
        yield request.param


def in_training(function, *arrays):
    """Return what a stage of a program that trains gives."""
    variables = {}
    with (
        ProgramNames(trains=True).stage(0),
        Surrounded(lookup=variables.setdefault),
        Surrounded(untrained=Untrained({}, takes_new=True)),
        Surrounded(key=(5, 1)),
    ):
        return function(*arrays)


def test_the_second_argument_of_dropout_is_kept_in_1_and_dropped_in_2(version):
    dropped = np.mean(in_training(lambda x: tf.nn.dropout(x, 0.1), ONES) == 0)
    assert dropped == pytest.approx({1: 0.9, 2: 0.1}[version], abs=0.02)
    for said in ({"rate": 0.3}, {"keep_prob": 0.7}):
        assert np.mean(in_training(lambda x, said=said: tf.nn.dropout(x, **said), ONES) == 0) == pytest.approx(
            0.3, abs=0.02
        )


def test_gradients_go_back_to_labels_in_2_alone(version):
    labels, logits = np.float32([[0.25, 0.75]]), np.float32([[1, 2]])
    with np.errstate(all="raise"):
        for loss, goes in (
            (tf.nn.softmax_cross_entropy_with_logits, version == 2),
            (tf.nn.softmax_cross_entropy_with_logits_v2, True),
        ):
            pull, value = pullback(lambda z, x, loss=loss: loss(labels=z, logits=x), (labels, logits), (0, 1))
            of_labels, of_logits = pull(np.ones_like(value))
            logs = logits - np.log(np.sum(np.exp(logits)))
            np.testing.assert_allclose(value, -np.sum(labels * logs, axis=-1), rtol=1e-6)
            np.testing.assert_allclose(of_labels, -logs if goes else np.zeros_like(labels), rtol=1e-6)
            np.testing.assert_allclose(of_logits, np.exp(logs) - labels, rtol=1e-5)


def test_cross_entropies_take_labels_first_and_the_axis_of_classes():
    labels, logits = np.float32([[0, 1]]), np.float32([[1, 2]])
    expected = np.log(1 + np.exp(-1))
    assert tf.nn.softmax_cross_entropy_with_logits(labels, logits) == pytest.approx(expected)
    assert tf.nn.softmax_cross_entropy_with_logits(labels.T, logits.T, axis=0) == pytest.approx(expected)
    assert tf.nn.softmax_cross_entropy_with_logits(labels=labels.T, logits=logits.T, dim=0) == pytest.approx(expected)
    assert np.asarray(tf.nn.sparse_softmax_cross_entropy_with_logits([1], logits)) == pytest.approx(expected)
    of_each = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    np.testing.assert_allclose(of_each, [[np.log(1 + np.e), np.log(1 + np.exp(-2))]], rtol=1e-6)
    for function in (
        tf.nn.softmax_cross_entropy_with_logits,
        tf.nn.sparse_softmax_cross_entropy_with_logits,
        tf.nn.sigmoid_cross_entropy_with_logits,
    ):
        with pytest.raises(ProgramTypeError, match=r"expected labels=\.\.\. and logits=\.\.\., got"):
            function(logits=logits)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        (5, [[0], [1], [2], [3], [4]]),
        (np.int32(1), [[0, 1, 2, 3, 4]]),
        ([-1, 2], [[0, 1, 2], [3, 4]]),
        ([1, -1, 2], [[0], [1, 2], [3, 4]]),
        ([2, 0, 3], [[0, 1], [], [2, 3, 4]]),
        ([-1, 5], [[], [0, 1, 2, 3, 4]]),
    ],
)
def test_parts_of_a_split(sizes, parts):
    assert [part.tolist() for part in tf.split(FIVE, sizes)] == parts
    assert [part.T.tolist() for part in tf.split(FIVE[np.newaxis].T @ np.ones((1, 2)), sizes, -2)] == [
        [part, part] for part in parts
    ]


@pytest.mark.parametrize("sizes", [[1, 2], [3, 3], [-1, -1, 2], [-2, 7], 2, 0])
def test_sizes_that_do_not_make_up_the_axis_are_refused(sizes):
    with pytest.raises(ProgramError, match=r"num_or_size_splits: expected .* 5, .*, got"):
        tf.split(FIVE, sizes)


def test_a_gather_takes_places_that_are_there_and_its_axis_by_name_or_fourth():
    assert tf.gather(SQUARE, [1], None).tolist() == [[2, 3]]
    assert tf.gather(SQUARE, [1], None, 1).tolist() == tf.gather(SQUARE, [1], axis=-1).tolist() == [[1], [3]]
    for places in ([-1], [2]):
        with pytest.raises(ProgramError, match="indices: expected places from 0 to 1, got"):
            tf.gather(SQUARE, places)
    with pytest.raises(ProgramError, match="axis: expected an axis of a tensor of shape"):
        tf.gather(SQUARE, [0], axis=2)
    with pytest.raises(ProgramError, match="batch_dims: expected 0, got 1"):
        tf.gather(SQUARE, [0], batch_dims=1)


def test_elements_of_a_constant_fill_its_shape_in_their_order(version):
    assert tf.constant([1, 2, 3, 4, 5, 6], shape=[2, 3]).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert tf.constant(7.0, shape=(2, 2)).tolist() == [[7, 7], [7, 7]]
    assert tf.constant_initializer([1, 2, 3, 4])([2, 2]).tolist() == [[1, 2], [3, 4]]
    if version == 1:  # the last one goes on
        assert tf.constant([1, 2], shape=[2, 2]).tolist() == [[1, 2], [2, 2]]
        assert tf.constant_initializer(np.array([1, 2]))([4]).tolist() == [1, 2, 2, 2]
    else:
        with pytest.raises(ProgramError, match="shape: expected one that takes 2 elements, got"):
            tf.constant([1, 2], shape=[2, 2])
    with pytest.raises(ProgramError, match="shape: expected one that takes 3 elements, got"):
        tf.constant([1, 2, 3], shape=[2])


def test_a_place_is_along_the_first_axis_unless_another_is_said():
    x = np.float32([[1, -2], [3, 0.5]])
    assert tf.argmax(x).tolist() == tf.argmax(x, axis=None).tolist() == tf.argmax(x, dimension=0).tolist() == [1, 1]
    assert tf.argmin(x, 1, tf.int32).tolist() == [1, 1]
    assert (tf.argmax(x, 1, tf.int32).dtype, tf.argmax(x, 1).dtype) == (np.int32, np.int64)


def test_rows_of_a_table_may_have_any_number_of_axes_and_a_list_of_one_table_is_that():
    table = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    ids = np.array([[3, 0], [0, 1]])
    for rows in (table, table[:, 0], table[:, 0, 0]):
        found = in_training(tf.nn.embedding_lookup, rows, ids)
        np.testing.assert_array_equal(found, rows[ids])
        np.testing.assert_array_equal(in_training(tf.nn.embedding_lookup, [rows], ids), rows[ids])
    with pytest.raises(ProgramError, match="params: expected one table, got 2"):
        in_training(tf.nn.embedding_lookup, [table[:2], table[2:]], ids)


@pytest.mark.parametrize(
    ("initializer", "deviation"),
    [
        ("random_normal", 0.05),
        ("truncated_normal", 0.05 * 0.8796),
        ("random_uniform", 0.1 / 12**0.5),
        (keras.initializers.RandomNormal(), 0.05),
        (keras.initializers.TruncatedNormal(stddev=1.0), 0.8796),
        (keras.initializers.HeNormal(42), (2 / 300) ** 0.5),
        (keras.initializers.HeUniform(seed=42), (2 / 300) ** 0.5),
        (keras.initializers.GlorotUniform(42), (2 / 500) ** 0.5),
        (keras.initializers.glorot_normal(3), (2 / 500) ** 0.5),
        (keras.initializers.LecunNormal(3), (1 / 300) ** 0.5),
        (keras.initializers.VarianceScaling(2.0, "fan_out", "uniform", 7), (2 / 200) ** 0.5),
    ],
)
def test_an_initializer_of_keras_has_its_deviation(initializer, deviation):
    values = keras.initializers.get(initializer)((300, 200))
    assert values.dtype == np.float32
    assert np.std(values) == pytest.approx(deviation, rel=0.02)
    assert abs(np.mean(values)) < deviation * 0.02


def test_defaults_of_tensorflows_own_initializers_are_of_its_version(version):
    normal, uniform, cut = (
        tf.random_normal_initializer(),
        tf.initializers.random_uniform(),
        tf.truncated_normal_initializer(),
    )
    assert np.std(normal([300, 200])) == pytest.approx({1: 1.0, 2: 0.05}[version], rel=0.02)
    assert np.std(cut([300, 200])) == pytest.approx({1: 0.8796, 2: 0.05 * 0.8796}[version], rel=0.02)
    drawn = uniform([300, 200])
    assert (drawn.min(), drawn.max()) == pytest.approx({1: (0, 1), 2: (-0.05, 0.05)}[version], abs=1e-3)


def test_initializers_take_a_dtype_and_draw_the_same_from_the_same_seed():
    assert tf.zeros_initializer(tf.float16)([2]).dtype == np.float16
    assert tf.ones_initializer(dtype=tf.int32)((2,)).tolist() == [1, 1]
    assert tf.constant_initializer(0.5, dtype=tf.float32)([2], tf.float64).dtype == np.float64
    assert tf.truncated_normal_initializer(stddev=0.02, dtype=tf.float32)([2]).dtype == np.float32
    first, again, other = (tf.glorot_uniform_initializer(seed)((3, 4)).tolist() for seed in (3, 3, 4))
    assert first == again != other


def test_layers_of_tensorflow_1_train_where_a_call_says_so_alone():
    x = np.full((8, 4), 5, np.float32)
    assert (in_training(lambda x: tf.layers.dropout(x, 0.5), x) == 5).all()
    assert (in_training(lambda x: tf.layers.dropout(x, 0.5, training=True), ONES) == 0).any()
    moving = in_training(tf.layers.batch_normalization, x)
    np.testing.assert_allclose(moving, 5 / np.sqrt(1.001), rtol=1e-6)
    assert (in_training(lambda x: tf.layers.batch_normalization(x, training=True), x) == 0).all()


def test_numbers_of_python_in_a_dataset_are_float32_and_int32():
    for value, kind in (
        ([1.0, 2.0], np.float32),
        ([1, 2], np.int32),
        ([[1, 2], [3, 4]], np.int32),
        (np.arange(2), np.int64),
        (np.arange(2.0), np.float64),
    ):
        elements = [*tf.data.Dataset.from_tensor_slices(value)]
        assert [element.dtype for element in elements] == [kind, kind]
        assert np.stack(elements).tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.where(x > 0, x, 0.0),
        lambda x: tf.where(x > 0, 0.0, x),
        lambda x: keras.layers.Average()([x, x]),
        lambda x: keras.losses.log_cosh(x, x),
    ],
)
def test_half_precision_stays_half_precision(function):
    assert in_training(function, HALVES).dtype == np.float16
    assert in_training(function, HALVES.astype(np.float64)).dtype == np.float64


def test_moments_keep_axes_by_either_name():
    for said in ({"keep_dims": True}, {"keepdims": True}):
        mean, variance = tf.nn.moments(SQUARE, [0], **said)
        assert (mean.tolist(), variance.tolist()) == ([[1, 2]], [[1, 1]])


@pytest.mark.parametrize(
    "function",
    [
        tf.nn.relu,
        lambda x: tf.concat([x, x], axis=1),
        lambda x: tf.reshape(x, [-1]),
        lambda x: tf.matmul(x, x),
        tf.reduce_sum,
    ],
)
def test_a_function_of_a_symbolic_tensor_belongs_in_a_layer(function):
    with pytest.raises(ProgramTypeError, match=r"a layer to be called on it, such as keras\.layers\.Lambda"):
        function(keras.Input((2,)))


def in_inference(function, *arrays):
    """Return what a stage of a program that does not train gives."""
    with ProgramNames(trains=False).stage(0), Surrounded(lookup={}.setdefault):
        return function(*arrays)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: keras.layers.Dropout(0.5)(x, training=True), "Dropout 'dropout': training=True"),
        (lambda x: tf.layers.dropout(x, 0.5, training=True), "Dropout 'dropout': training=True"),
        (lambda x: tf.nn.dropout(x, rate=0.25), "tf.nn.dropout: a rate of 0.25"),
        (
            lambda x: ipu.keras.layers.GRU(2, dropout=0.5)(x[np.newaxis], training=True),
            "PopnnGRU 'popnn_gru': training=True",
        ),
    ],
)
def test_dropout_that_would_not_drop_is_refused(function, said):
    with pytest.raises(UnsupportedProgramError, match=f"{said} in a program that does not train is not simulated"):
        in_inference(function, SQUARE)
    in_training(function, SQUARE)


def test_what_drops_nothing_is_called_as_one_likes():
    for function in (
        lambda x: keras.layers.Dropout(0.0)(x, training=True),
        lambda x: tf.layers.dropout(x, 0.5),
        lambda x: tf.nn.dropout(x, rate=0.0),
        lambda x: tf.nn.dropout(x, keep_prob=1.0),
    ):
        np.testing.assert_array_equal(in_inference(function, SQUARE), SQUARE)


def test_a_call_on_the_host_does_not_train_a_layer():
    for layer in (keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)):
        model = keras.Sequential([keras.layers.InputLayer(input_shape=(2,)), layer])
        np.testing.assert_allclose(model(SQUARE, training=False), SQUARE, rtol=1e-3)
        with pytest.raises(UnsupportedProgramError, match="training=True on the host is not simulated"):
            model(SQUARE, training=True)
    frozen = keras.layers.BatchNormalization(trainable=False)
    model = keras.Sequential([keras.layers.InputLayer(input_shape=(2,)), frozen, keras.layers.Dropout(0.0)])
    np.testing.assert_allclose(model(SQUARE, training=True), SQUARE, rtol=1e-3)


def test_gates_of_recurrent_layers_are_of_the_version_of_tensorflow(version):
    """With weights of one, no biases and an input of 1, gates are hard_sigmoid(1) = 0.7 in 1, and else sigmoid(1)."""
    gate = {1: 0.7, 2: 1 / (1 + np.exp(-1))}[version]
    ones = {"kernel_initializer": "ones", "recurrent_initializer": "ones"}
    x = keras.Input((1, 1))
    for layer, expected in (
        (keras.layers.LSTM(1, unit_forget_bias=False, **ones), gate * np.tanh(gate * np.tanh(1))),
        (keras.layers.GRU(1, **ones), (1 - gate) * np.tanh(1)),
    ):
        assert keras.Model(x, layer(x))(np.ones((1, 1, 1), np.float32)) == pytest.approx(expected, rel=1e-6)
    assert layer.get_weights()[2].shape == {1: (3,), 2: (2, 3)}[version]  # the reset gate comes before the product in 1
    for said in (keras.layers.GRU(1, "tanh", "sigmoid", reset_after=True), ipu.keras.layers.GRU(1)):
        config = said.get_config()
        assert (config["recurrent_activation"], config["reset_after"]) == ("sigmoid", True)
