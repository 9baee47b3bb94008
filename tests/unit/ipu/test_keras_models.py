"""Keras models as such: their graphs, weights, names and summaries, and calls on the host, in stages and loops."""

from __future__ import annotations

import contextvars
from functools import partial

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.keras import layers as ipu_layers
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 4)).astype(np.float32)


class Scaled(layers.Layer):
    """A layer of one's own, with a weight and a layer in it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(3, use_bias=False)

    def build(self, input_shape):
        self.scale = self.add_weight("scale", (input_shape[-1],), initializer="ones")

    def call(self, inputs, training=None):
        return self.inner(inputs * self.scale) * (2.0 if training else 1.0)


class Own(keras.Model):
    """A model of one's own."""

    def __init__(self):
        super().__init__()
        self.first = layers.Dense(4, activation="tanh")
        self.others = [layers.Dense(2), Scaled()]

    def call(self, inputs, training=None):
        x = self.first(inputs)
        for each in self.others:
            x = each(x, training=training)
        return x


def test_a_sequential_model_computes_what_its_layers_do():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="relu"), layers.Dense(2)])
    (w1, b1, w2, b2) = model.get_weights()
    np.testing.assert_allclose(model(X), np.maximum(X @ w1 + b1, 0) @ w2 + b2, rtol=1e-5)
    assert [each.name for each in model.weights] == [
        *("sequential/dense/kernel", "sequential/dense/bias", "sequential/dense_1/kernel", "sequential/dense_1/bias")
    ]
    assert [each.name for each in model.layers] == ["dense", "dense_1"]
    assert (model.input_shape, model.output_shape, model.count_params()) == ((None, 4), (None, 2), 23)


def test_weights_are_those_of_a_scenario_with_the_same_layers():
    """By the place of a layer, whichever way the model is written, and whatever its name."""
    built = keras.Sequential([layers.Flatten(), layers.Dense(3), layers.Dense(2)])
    built.build((None, 2, 2))
    begun = keras.Sequential([layers.Flatten(input_shape=(2, 2)), layers.Dense(3, name="a"), layers.Dense(2)], "other")
    x = keras.Input((2, 2))
    functional = keras.Model(x, layers.Dense(2)(layers.Dense(3)(layers.Flatten()(x))))
    for other in (begun, functional):
        for one, two in zip(built.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(one, two)
    again = keras.Sequential([layers.Dense(3), layers.Dense(3)])
    again.build((None, 3))
    assert not np.array_equal(again.get_weights()[0], again.get_weights()[2])


@pytest.mark.parametrize("known", [True, False], ids=["input known", "input unknown"])
def test_a_layer_that_a_sequential_model_has_twice_is_applied_as_keras_does(known):
    """By TensorFlow 2.15: twice where the input's shape is known from the beginning, and else once."""
    twice, last = layers.Dense(4), layers.Dense(2)
    model = keras.Sequential([*([keras.Input((4,))] if known else []), twice, twice, last])
    result = model(X)
    assert model.layers == [twice, last]
    np.testing.assert_allclose(result, last(twice(twice(X) if known else X)), rtol=1e-5)


def test_a_convolution_that_a_sequential_model_has_twice_keeps_its_channels():
    convolution = layers.Conv2D(8, 3, padding="same")
    model = keras.Sequential([layers.Reshape((6, 6, 1)), convolution, convolution, layers.Flatten(), layers.Dense(10)])
    assert model(np.ones((2, 6, 6), np.float32)).shape == (2, 10)
    assert model.layers[1].get_weights()[0].shape == (3, 3, 1, 8)


def test_a_functional_model_shares_what_is_called_twice():
    x, shared = keras.Input((4,)), layers.Dense(4, use_bias=False)
    once = shared(x)
    model = keras.Model(x, [shared(once), once - 2.0 * x, layers.Lambda(anp.abs)(-x)[:, 1:]])
    (w,) = model.get_weights()
    twice, combined, absolute = model(X)
    np.testing.assert_allclose(twice, X @ w @ w, rtol=1e-4)
    np.testing.assert_allclose(combined, X @ w - 2 * X, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(absolute, np.abs(X)[:, 1:])
    assert [node.index for node in shared.inbound_nodes] == [0, 1]
    part = keras.Model(x, once)
    np.testing.assert_array_equal(part(X), X @ w)


OPERATORS = {
    "add": lambda x: x + 1.0,
    "sub": lambda x: x - 1.0,
    "of a number": lambda x: 1.0 - x,
    "mul": lambda x: 2.0 * x,
    "truediv": lambda x: x / 2.0,
    "pow": lambda x: x**2,
    "matmul": lambda x: x @ np.ones((4, 2), np.float32),
    "neg": lambda x: -x,
    "abs": abs,
    "getitem": lambda x: x[:, 1:3],
    "of two": lambda x: x * x[:, :1],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_symbolic_tensors_run_in_programs(name):
    """What they give in a prediction and before a loss is what they give on the host."""
    function, labels = OPERATORS[name], np.zeros((5, 1), np.float32)
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(1)(function(x)))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    kernel, bias = model.get_weights()
    expected = function(X) @ kernel + bias
    np.testing.assert_allclose(model.predict(X, batch_size=5), expected, rtol=1e-5, atol=1e-6)
    assert model.fit(X, labels, 5, verbose=0).history["loss"] == [pytest.approx(float((expected**2).mean()), rel=1e-5)]


def test_outputs_of_one_layer_have_names_of_their_own():
    x, d, other = keras.Input((4,)), layers.Dense(1, name="d"), layers.Dense(1, name="d_1")
    model = keras.Model(x, [d(x), d(2.0 * x), other(x), d(-x)])
    assert model.output_names_of(model.outputs) == ("d", "d_1", "d_1_1", "d_2")
    model.compile("sgd", "mse")
    logs = model.evaluate(X, [np.zeros((5, 1), np.float32)] * 4, 5, verbose=0, return_dict=True)
    assert list(logs) == ["loss", "d_loss", "d_1_loss", "d_1_1_loss", "d_2_loss"]


def test_inputs_by_name_by_place_and_in_their_dtype():
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b", dtype="int32")
    model = keras.Model([a, b], layers.Concatenate()([a, layers.Lambda(lambda x: tf.cast(x, tf.float32))(b)]))
    numbers = np.arange(10).reshape(5, 2)
    expected = np.concatenate([X, numbers.astype(np.float32)], axis=1)
    np.testing.assert_array_equal(model([X.astype(np.float64), numbers]), expected)
    np.testing.assert_array_equal(model({"b": numbers, "a": X}), expected)


def test_a_model_of_ones_own_and_one_in_another():
    model = Own()
    plain, training = model(X), model(X, training=True)
    np.testing.assert_allclose(training, 2 * plain, rtol=1e-6)
    assert [each.name for each in model.weights] == [
        *("own/dense/kernel", "own/dense/bias", "own/dense_1/kernel", "own/dense_1/bias"),
        *("own/scaled/scale", "own/scaled/dense/kernel"),
    ]
    outer = keras.Sequential([layers.Dense(4, use_bias=False), model], name="outer")
    (w, *_) = outer(X) is None or outer.get_weights()
    np.testing.assert_allclose(outer(X), model(X @ w), rtol=1e-5)
    assert outer.weights[1].name == "outer/own/dense/kernel"


def test_a_layer_is_told_whether_it_trains_where_its_call_takes_that():
    """By itself, from the class that it is of, or among others; a call that does not take it is not told."""

    class Told(layers.Layer):
        def call(self, inputs, training=None):
            return inputs * (2.0 if training else 1.0)

    class Inherits(Told):
        pass

    class Others(layers.Layer):
        def call(self, inputs, **kwargs):
            return inputs * (2.0 if kwargs.get("training") else 1.0)

    class Not(Told):
        def call(self, inputs):
            return inputs

    x = keras.Input((4,))
    model = keras.Model(x, Inherits()(Not()(Others()(Told()(x)))))
    np.testing.assert_allclose(model(X, training=True), 8 * X)
    np.testing.assert_array_equal(model(X, training=False), X)


def test_a_layer_has_the_layers_of_all_of_its_attributes():
    """In lists and dictionaries too, whatever these are called, and each once."""
    inner = [layers.Dense(1) for _ in range(3)]
    layer = layers.Layer()
    layer._nodes, layer.inner, layer.again = inner[:1], {"a": (inner[1], [inner[2]])}, inner[2]
    layer(keras.Input((2,)))
    assert list(layer.sublayers()) == inner


def test_weights_are_set_all_or_none(refused):
    model = keras.Sequential([layers.Dense(2, input_shape=(3,))])
    before = model.get_weights()
    refused(
        ValueError,
        'You called `set_weights(weights)` on layer "sequential" with a weight list of length 1, but the layer was '
        "expecting 2 weights.",
        lambda: model.set_weights(before[:1]),
    )
    with pytest.raises(
        ProgramError, match=r"expected the shape \(2,\) of variable 'sequential/dense/bias', got \(3,\)"
    ):
        model.set_weights([np.zeros((3, 2)), np.zeros(3)])
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    model.set_weights([np.ones((3, 2)), [1, 2]])
    np.testing.assert_array_equal(model(np.ones((1, 3))), [[4, 5]])


def test_what_is_never_trained_is_not_when_its_layer_is_again():
    model = keras.Sequential([layers.BatchNormalization(input_shape=(3,))])
    for trainable in (True, False, True):
        model.trainable = trainable
        assert [each.own_name for each in model.trainable_weights] == ["gamma", "beta"] * trainable
    for frozen, count in ((layers.Dense(1, trainable=False), 2), (Scaled(trainable=False), 1)):
        frozen.build((None, 3))
        frozen.trainable = True
        assert len(frozen.trainable_weights) == count


def test_a_frozen_batch_normalisation_is_by_its_moving_statistics_in_training():
    """As in TensorFlow 2: they stay as they are, also in a model that is frozen as a whole."""
    normalised = layers.BatchNormalization(momentum=0.5, epsilon=0.25, input_shape=(2,))
    model = keras.Sequential([keras.Sequential([normalised]), layers.Dense(1)])
    model.build((None, 2))
    x, y = np.float32([[1, 5], [2, 6], [3, 9], [4, 1]]), np.zeros((4, 1), np.float32)
    model.layers[0].trainable = False
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.set_weights([[1, 2], [0.5, 0], [2, 3], [0.75, 2], [[1], [1]], [0]])
    before = model.get_weights()
    expected = (x - [2, 3]) / np.sqrt(np.array([0.75, 2]) + 0.25) * [1, 2] + [0.5, 0]
    found = model.fit(x, y, batch_size=4, verbose=0).history["loss"]
    assert found == pytest.approx([(expected.sum(axis=1) ** 2).mean()], rel=1e-5)
    for kept, now in zip(before[:4], model.get_weights()[:4], strict=True):
        np.testing.assert_array_equal(kept, now)


def test_weights_go_to_a_file_and_back(tmp_path, refused):
    model, other = (keras.Sequential([layers.Dense(2, input_shape=(3,)), layers.Dense(1)], name) for name in "ab")
    model.set_weights([each + 1 for each in model.get_weights()])
    path = tmp_path / "weights"
    model.save_weights(path)
    other.load_weights(path)
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    with np.load(path) as held:
        assert list(held) == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    refused(
        ValueError, f"{path}: expected no file, as overwrite is False, got one", lambda: model.save_weights(path, False)
    )
    third = keras.Sequential([layers.Dense(3, input_shape=(3,)), layers.Dense(1)])
    with pytest.raises(
        ProgramError, match=r"expected shape \(3, 3\) for weight 'sequential/dense/kernel', got \(3, 2\)"
    ):
        third.load_weights(path)
    refused(
        ValueError,
        f"{path}: expected the 2 weights of the model, got 4",
        lambda: keras.Sequential([layers.Dense(2, input_shape=(3,))]).load_weights(path),
    )
    path.write_bytes(b"no archive")
    with pytest.raises(ProgramError, match="expected a file of weights that can be read"):
        other.load_weights(path)
    for action in (model.save_weights, other.load_weights):
        refused(TypeError, "filepath: expected a path, got 5", partial(action, 5))
    with pytest.raises(ProgramError, match="Unable to save weights of a model that has not created its variables yet"):
        keras.Sequential([layers.Dense(2)]).save_weights(path)


def test_a_model_trains_in_a_loop_of_ones_own():
    """Its weights are the program's, and those of the host afterwards; what is not trainable stays."""

    def run():
        model = keras.Sequential([layers.Dense(4), layers.Dense(1)])
        model.layers[0].trainable = False
        model.build((None, 4))
        before = model.get_weights()
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors((X, X[:, :1])).repeat())
        outfeed = IPUOutfeedQueue()

        def body(x, y):
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y, model(x, training=True)))
            outfeed.enqueue(loss)
            return keras.optimizers.SGD(0.1).minimize(loss)

        loops.repeat(30, body, [], infeed)
        return model, before, outfeed.dequeue()

    model, before, losses = contextvars.copy_context().run(run)
    assert losses[-1] < losses[0] / 2
    after = model.get_weights()
    np.testing.assert_array_equal(after[0], before[0])
    assert not np.array_equal(after[2], before[2])
    assert [each.name for each in model.trainable_weights] == ["sequential/dense_1/kernel", "sequential/dense_1/bias"]
    assert len(model.non_trainable_weights) == 2


def test_the_summary_is_keras():
    model = keras.Sequential([layers.Dense(3, input_shape=(4,)), layers.BatchNormalization()], name="m")
    lines = []
    model.summary(print_fn=lines.append)
    assert lines == [
        'Model: "m"',
        "_" * 65,
        " Layer (type)                 Output Shape              Param #",
        "=" * 65,
        " dense (Dense)                (None, 3)                 15",
        " batch_normalization (BatchN  (None, 3)                 12",
        "=" * 65,
        "Total params: 27",
        "Trainable params: 21",
        "Non-trainable params: 6",
        "_" * 65,
    ]
    with pytest.raises(ProgramError, match="This model has not yet been built"):
        keras.Sequential([layers.Dense(1)]).summary()


def test_graphcores_layers_in_a_model():
    """Their arguments reach the core: what a model of them gives by hand."""
    tokens = np.array([[0, 2, 1], [2, 2, 0]])
    x = keras.Input((3,), dtype="int32")
    embedded = ipu_layers.Embedding(3, 4)(x)
    normal = ipu_layers.LayerNormalization(epsilon=0.01)(ipu_layers.RecomputationCheckpoint()(embedded))
    model = keras.Model(x, [embedded, normal, ipu_layers.LSTM(2)(embedded), ipu_layers.GRU(2)(embedded)])
    rows, scaled, lstm, gru = model(tokens)
    np.testing.assert_array_equal(rows, model.get_weights()[0][tokens])
    centred = rows - rows.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(scaled, centred / np.sqrt(rows.var(axis=-1, keepdims=True) + 0.01), rtol=1e-4)
    assert (lstm.shape, gru.shape) == ((2, 2), (2, 2))
    assert ipu_layers.PopnnLSTM(5).state_shape(3) == ([3, 5], [3, 5])
    assert ipu_layers.PopnnGRU(5).state_shape(3) == [3, 5]
    config = ipu_layers.GroupNormalization(groups=4, strided_channel_grouping=False, name="g").get_config()
    assert (config["groups"], config["strided_channel_grouping"], config["name"]) == (4, False, "g")


MISUSES = {
    "a name twice": (
        ProgramError,
        'The name "a" is used 2 times in the model. All layer names should be unique.',
        lambda: keras.Sequential([layers.Dense(1, name="a"), layers.Dense(2, name="a")]),
    ),
    "no layer": (
        ProgramTypeError,
        "layers: expected layers such as keras.layers.Dense(10), got 3",
        lambda: keras.Sequential([3]),
    ),
    "an unknown axis": (
        ProgramError,
        "shape: expected sizes of all axes but the batch, as programs for IPUs have, got (None, 3)",
        lambda: keras.Input((None, 3)),
    ),
    "another input": (
        ProgramError,
        "Graph disconnected: cannot obtain value for tensor <KerasTensor shape=(None, 2) dtype=float32>, which is no "
        "input of the model",
        lambda: keras.Model(keras.Input((2,)), layers.Dense(1)(keras.Input((2,)))),
    ),
    "another shape": (
        ProgramError,
        "input 'a' of the model: expected shape (None, 2), found shape=(5, 4)",
        lambda: keras.Model(*[keras.Input((2,), name="a")] * 2)(X),
    ),
    "other weights": (
        ProgramError,
        'Input 0 of layer "dense" is incompatible with the layer: expected the shape that its weights [(2, 1), (1,)] '
        "were made for, received input with shape (None, 4)",
        lambda: keras.Sequential([layers.Dense(1, input_shape=(2,))]).layers[0](X),
    ),
    "no call": (
        UnsupportedProgramError,
        "When subclassing the `Model` class, you should implement a `call()` method.",
        lambda: type("Mine", (keras.Model,), {})()(X),
    ),
    "a layer outside": (
        ModelError,
        "get_variable('dense') was called outside of a pipeline stage: call it inside its function",
        lambda: layers.Dense(1)(X),
    ),
    "NumPy on a symbolic tensor": (
        ProgramTypeError,
        "a symbolic Keras tensor has no value: expected a layer to be called on it, such as "
        "keras.layers.Lambda(function)",
        lambda: np.exp(keras.Input((2,))),
    ),
    "no such layer": (
        ProgramError,
        "No such layer: b. Existing layers are: ['a'].",
        lambda: keras.Sequential([layers.Dense(1, name="a")]).get_layer("b"),
    ),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse(case, refused):
    kind, text, action = MISUSES[case]
    refused(kind, text, action)


class Assigned(layers.Layer):
    """A layer whose variables are its attributes, made with it and when it is built."""

    def __init__(self, **options):
        super().__init__(**options)
        self.scale = tf.Variable(2.0, name="scale")

    def build(self, input_shape):
        self.others = {"row": [tf.Variable(np.ones(input_shape[-1], np.float32), name="row")]}
        self.fixed = tf.Variable(1.0, trainable=False, name="fixed")

    def call(self, inputs):
        return inputs * self.scale * self.others["row"][0] * self.fixed


def test_variables_that_are_attributes_of_a_layer_are_its_weights(tmp_path):
    model = keras.Sequential([Assigned(input_shape=(3,)), Assigned()])
    names = ["scale", "row", "fixed", "scale_1", "row_1", "fixed_1"]
    assert [each.name for each in model.weights] == names
    assert [each.name for each in model.trainable_variables] == [*names[:2], *names[3:5]]
    model.compile(keras.optimizers.SGD(0.01), "mse")
    x, y = np.ones((8, 3), np.float32), np.zeros((8, 3), np.float32)
    model.fit(x, y, batch_size=4, verbose=0)
    scale, row, fixed, *second = model.get_weights()
    assert (scale < 2, fixed) == (True, 1)
    for one, two in zip([scale, row, fixed], second, strict=True):  # both layers learn
        np.testing.assert_allclose(one, two, rtol=1e-5)
    np.testing.assert_allclose(model(x[:1]), model.predict(x[:4])[:1], rtol=1e-6)
    model.save_weights(tmp_path / "weights")
    with np.load(tmp_path / "weights") as held:
        assert list(held) == names
    model.set_weights([0 * each for each in model.get_weights()])
    model.load_weights(tmp_path / "weights")
    assert model.get_weights()[0] == scale


@pytest.mark.parametrize("at_once", [True, False])
def test_variables_that_are_attributes_of_a_frozen_layer_are_not_trained(at_once):
    frozen = Assigned(trainable=not at_once)
    model = keras.Sequential([frozen, layers.Dense(1)])
    model.build((None, 3))
    frozen.trainable = False
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.fit(np.ones((8, 3), np.float32), np.zeros((8, 1), np.float32), batch_size=4, verbose=0)
    assert [float(np.mean(each)) for each in model.get_weights()[:3]] == [2, 1, 1]
    assert len(model.trainable_weights) == 2
    frozen.trainable = True
    assert [each.name for each in frozen.trainable_weights] == ["scale", "row"]
