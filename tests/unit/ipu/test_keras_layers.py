"""What Keras' layers tell of themselves, and those that are plain functions, by a second formulation in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ConfigAttributeError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.keras import layers as ipu_layers
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers
from tests.devices import on

RNG = np.random.default_rng(5)
X = RNG.normal(size=(8, 4)).astype(np.float32)
STEPS = RNG.normal(size=(8, 5, 4)).astype(np.float32)
Y = X[:, :1] * 2


def test_layers_and_models_have_inputs_and_outputs():
    inputs = keras.Input((4,), name="in")
    hidden = layers.Dense(3, activation="relu", name="hidden")
    model = keras.Model(inputs, layers.Dense(1)(hidden(inputs)))
    assert model.input is inputs
    assert hidden.input is inputs
    assert model.layers[0].output is inputs
    assert (hidden.input_shape, hidden.output_shape, hidden.dtype) == ((None, 4), (None, 3), "float32")
    part = keras.Model(model.input, model.get_layer("hidden").output)
    np.testing.assert_array_equal(part.predict(X, batch_size=8), part(X))
    np.testing.assert_allclose(part(X), np.maximum(X @ hidden.kernel.numpy() + hidden.bias.numpy(), 0), rtol=1e-5)
    assert (hidden.units, hidden.use_bias, hidden.activation(np.float32(-1))) == (3, True, 0)
    assert hidden.get_output_at(0) is hidden.output
    hidden(inputs)
    with pytest.raises(ConfigAttributeError, match='has multiple inbound nodes, hence the notion of "layer output"'):
        _ = hidden.output
    with pytest.raises(ProgramError, match="Asked to get tensor at node 2, but the layer has only 2 inbound nodes"):
        hidden.get_input_at(2)
    with pytest.raises(AttributeError, match="Layer dense has no inbound nodes"):
        _ = layers.Dense(1).input
    with pytest.raises(AttributeError, match="'Dense' object has no attribute 'kernal'"):
        _ = hidden.kernal


def test_layers_that_are_added_one_by_one_have_one_output_each():
    model = keras.Sequential()
    for units in (3, 2):
        model.add(layers.Dense(units, input_dim=4) if units == 3 else layers.Dense(units))
    assert [each.output_shape for each in model.layers] == [(None, 3), (None, 2)]
    assert model.output is model.layers[-1].output


def test_shapes_before_there_are_weights():
    assert layers.Dense(3).compute_output_shape((None, 4)) == (None, 3)
    assert layers.Conv1D(2, 3).compute_output_shape((7, 5, 4)) == (7, 3, 2)
    assert layers.Permute((2, 1)).compute_output_shape((None, 5, 4)) == (None, 4, 5)


def test_the_only_convolution_of_sequences_by_numpy():
    model = keras.Sequential([layers.Conv1D(2, (3,), input_shape=(5, 4))])
    kernel, bias = model.get_weights()
    expected = np.stack([np.einsum("bse,seo->bo", STEPS[:, at : at + 3], kernel) + bias for at in range(3)], axis=1)
    np.testing.assert_allclose(model(STEPS), expected, rtol=1e-4, atol=1e-5)


PLAIN = {
    "GlobalAveragePooling1D": (layers.GlobalAveragePooling1D(), lambda x: x.mean(axis=1)),
    "GlobalMaxPooling1D": (layers.GlobalMaxPooling1D(), lambda x: x.max(axis=1)),
    "Permute": (layers.Permute((2, 1)), lambda x: x.swapaxes(1, 2)),
    "LeakyReLU": (layers.LeakyReLU(0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "Rescaling": (layers.Rescaling(0.5, 1.0), lambda x: 0.5 * x + 1),
    "Maximum": (layers.Lambda(lambda x: layers.Maximum()([x, -x])), abs),
    "Minimum": (layers.Lambda(lambda x: layers.Minimum()([x, -x])), lambda x: -abs(x)),
    "RepeatVector": (
        layers.Lambda(lambda x: layers.RepeatVector(2)(x[:, 0])),
        lambda x: np.repeat(x[:, :1], 2, axis=1),
    ),
    "elu": (layers.Activation("elu"), lambda x: np.where(x > 0, x, np.expm1(x))),
    "selu": (
        layers.Activation("selu"),
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    "softplus": (layers.Activation(keras.activations.softplus), lambda x: np.log1p(np.exp(x))),
    "leaky_relu": (layers.Activation("leaky_relu"), lambda x: np.where(x > 0, x, 0.2 * x)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_layers_and_activations_by_numpy(name):
    layer, expected = PLAIN[name]
    model = keras.Sequential([layer])
    np.testing.assert_allclose(model(STEPS), expected(STEPS), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
def test_ids_of_an_input_of_the_default_dtype_are_whole_numbers(dtype):
    """As in Keras, whose Input and input_length are of float32."""
    ids, y = RNG.integers(0, 5, (8, 3)).astype(dtype), RNG.normal(size=(8, 2)).astype(np.float32)
    inputs = keras.Input((3,))
    models = [
        keras.Sequential([layers.Embedding(5, 2, input_length=3), layers.GlobalAveragePooling1D()]),
        keras.Model(inputs, layers.GlobalAveragePooling1D()(layers.Embedding(5, 2)(inputs))),
    ]
    for model in models:
        model.compile(keras.optimizers.SGD(1.0), "mse")
        (before,) = model.get_weights()
        found = before[ids.astype(int)].mean(axis=1)
        np.testing.assert_allclose(model.predict(ids, batch_size=8), found, rtol=1e-5)
        model.fit(ids, y, batch_size=8, verbose=0)
        gradient = np.zeros_like(before)
        np.add.at(gradient, ids.astype(int), np.repeat((found - y)[:, None] / 24, 3, axis=1))
        np.testing.assert_allclose(model.get_weights()[0], before - gradient, rtol=1e-4, atol=1e-6)


def test_plain_layers_train_and_cost():
    model = keras.Sequential([layers.Rescaling(0.5), layers.Dense(3, activation="selu"), layers.RepeatVector(2)])
    for each in (layers.Permute((2, 1)), layers.LeakyReLU(), layers.GlobalAveragePooling1D(), layers.Dense(1)):
        model.add(each)
    model.compile("sgd", "cosine_similarity", metrics=["mape", "msle"])
    history = model.fit(X, Y, batch_size=4, epochs=3, verbose=0).history
    assert history["loss"][-1] <= history["loss"][0]
    assert model.pipeline.timeline.makespan_cycles > 0


T, P = np.array([[0.5, 1.0], [1.0, 2.0]], np.float32), np.array([[0.2, 0.7], [0.4, 0.9]], np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mape", 100 * np.mean(np.abs((T - P) / T))),
        ("msle", np.mean((np.log1p(T) - np.log1p(P)) ** 2)),
        (
            "cosine_similarity",
            -np.mean((T * P).sum(1) / np.linalg.norm(T, axis=1) / np.linalg.norm(P, axis=1)),
        ),
    ],
)
def test_losses_by_numpy(name, expected):
    assert float(np.mean(keras.losses.get(name)(T, P))) == pytest.approx(expected, rel=1e-5)


def test_operators_of_tensors_run_in_pipelines_and_in_training():
    def run():
        inputs = keras.Input((4,))
        with keras.ipu.PipelineStage(0):
            x = 1.0 - layers.Dense(3)(inputs) * 2.0
        with keras.ipu.PipelineStage(1):
            x = layers.Dense(1)(abs(x)[:, 1:] ** 2 / 3.0)
        model = keras.Model(inputs, x)
        model.set_pipelining_options(4)
        model.compile("sgd", "mse", steps_per_execution=4)
        assert len(model.fit(X, Y, batch_size=2, epochs=2, verbose=0).history["loss"]) == 2
        np.testing.assert_allclose(model.predict(X, batch_size=2), model(X), rtol=1e-5)

    on(2, run)


def _over_time(kind, major, sequences):
    inputs = keras.Input((5, 4))
    x = inputs
    turn = layers.Lambda(lambda each: tf.transpose(each, (1, 0, 2)))
    with keras.ipu.PipelineStage(0):
        x = turn(x) if major else layers.Permute((1, 2))(x)
        x = kind(3, return_sequences=sequences, time_major=major)(x)
    shape = x.shape
    with keras.ipu.PipelineStage(1):
        if sequences:
            x = layers.Flatten()(turn(x) if major else x)
        x = layers.Dense(1)(x)
    model = keras.Model(inputs, x)
    model.set_pipelining_options(4)
    model.compile("sgd", "mse", steps_per_execution=4)
    return model, shape


@pytest.mark.parametrize("kind", [ipu_layers.LSTM, ipu_layers.GRU])
@pytest.mark.parametrize("sequences", [False, True])
def test_recurrent_layers_take_time_first_in_models(kind, sequences):
    """The same bits as with the batch first, over two stages."""

    def run():
        (first, shape), (second, other) = (_over_time(kind, major, sequences) for major in (False, True))
        assert shape == ((None, 5, 3) if sequences else (None, 3))
        assert other == ((5, None, 3) if sequences else (None, 3))
        second.set_weights(first.get_weights())
        np.testing.assert_array_equal(first.predict(STEPS, batch_size=2), second.predict(STEPS, batch_size=2))
        histories = [model.fit(STEPS, Y, batch_size=2, verbose=0).history for model in (first, second)]
        assert histories[0] == histories[1]

    on(2, run)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Add", lambda x, y: x + y),
        ("Subtract", lambda x, y: x - y),
        ("Multiply", lambda x, y: x * y),
        ("Average", lambda x, y: (x + y) / 2),
        ("Maximum", np.maximum),
        ("Minimum", np.minimum),
    ],
)
def test_what_has_fewer_axes_goes_to_each_step_of_its_own_sample(name, expected):
    """As in Keras; NumPy's rule would take the batch for the steps where there are as many."""
    steps, rows = STEPS[:5], X[:5]
    inputs = [keras.Input((5, 4)), keras.Input((4,))]
    model = keras.Model(inputs, getattr(layers, name)()(inputs))
    assert model.output_shape == (None, 5, 4)
    np.testing.assert_allclose(
        model.predict([steps, rows], batch_size=5), expected(steps, rows[:, None, :]), rtol=1e-6, atol=1e-6
    )


def test_arguments_come_in_the_order_of_keras():
    """Keras 2's signatures, as its API reference has them; what comes further back is named by everybody."""
    conv = layers.Conv2D(4, 3, 2, "same", "channels_last", 1, 2, "relu", False).get_config()
    names = ("filters", "strides", "padding", "groups", "activation", "use_bias")
    assert [conv[name] for name in names] == [4, 2, "same", 2, "relu", False]
    long = layers.Conv1D(4, 3, 2, "valid", None, 1, 2, "tanh", True, "zeros", "ones").get_config()
    assert [long[name] for name in ("groups", "activation", "use_bias")] == [2, "tanh", True]
    with pytest.raises(UnsupportedProgramError, match="data_format is simulated as None alone, got 'channels_first'"):
        layers.MaxPooling2D(2, None, "valid", "channels_first")
    model = keras.Sequential([layers.Dense(2, None, True, "ones", "ones"), layers.Dropout(0.5, None, 7)])
    np.testing.assert_array_equal(model.predict(np.ones((1, 3)), batch_size=1), [[4, 4]])
    table = layers.Embedding(3, 2, "ones")
    np.testing.assert_array_equal(keras.Sequential([table]).predict(np.array([[1]]), batch_size=1), [[[1, 1]]])
    for kind, more in ((layers.LSTM, (False,)), (layers.GRU, ())):
        recurrent = kind(3, "relu", "tanh", True, "zeros", "ones", "zeros", *more)
        keras.Sequential([keras.Input((2, 3)), recurrent])
        kernel, between, bias = recurrent.get_weights()
        assert (kernel.any(), between.all(), bias.any()) == (False, True, False)
    with pytest.raises(ProgramTypeError, match="Flatten: expected at most 1 arguments, got 2"):
        layers.Flatten(None, None)


def test_arguments_of_normalisations_come_in_the_order_of_keras():
    groups = layers.GroupNormalization(3, -1, 0.5)
    assert (groups.groups, groups.epsilon) == (3, 0.5)
    batch = layers.BatchNormalization(-1, 0.5, 0.25, False).get_config()
    assert [batch[name] for name in ("momentum", "epsilon", "center", "scale")] == [0.5, 0.25, False, True]
    assert layers.LayerNormalization(-1, 0.5).epsilon == 0.5


def test_what_is_written_in_older_ways():
    assert keras.Sequential([layers.Embedding(6, 3, input_length=5)]).output_shape == (None, 5, 3)
    assert keras.Sequential([layers.Dense(2, input_dim=3)]).count_params() == 8
    rate = keras.optimizers.SGD(lr=0.1, decay=0.5)
    model = keras.Sequential([layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(rate, "mse", jit_compile=True)
    for update, step in enumerate((0.1, 0.1 / 1.5)):
        before = model.get_weights()[0] if update else np.zeros((1, 1), np.float32)
        model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
        assert model.get_weights()[0] == pytest.approx(before + step * 2 * (1 - before), rel=1e-6)
    assert int(rate.iterations) == 2


def test_initializers_by_their_moments():
    wide = (200, 300)
    for name, variance in (("he_uniform", 2 / 200), ("lecun_normal", 1 / 200), ("LecunUniform", 1 / 200)):
        values = keras.initializers.get(name).draw(wide, np.random.default_rng(0))
        assert np.var(values) == pytest.approx(variance, rel=0.03)
    rows = keras.initializers.Orthogonal(2.0).draw((2, 3, 8), np.random.default_rng(0)).reshape(6, 8)
    np.testing.assert_allclose(rows @ rows.T, 4 * np.eye(6), atol=1e-12)


REFUSED = {
    "a merge of one tensor": (
        ProgramError,
        'A merge layer should be called on a list of inputs, layer "add" is not.',
        lambda: layers.Add(name="add")(keras.Input((3,))),
    ),
    "a merge of nothing": (
        ProgramError,
        'A merge layer should be called on a list of at least 1 input, layer "concatenate" got none.',
        lambda: layers.Concatenate(name="concatenate")([]),
    ),
    "a sum of other shapes": (
        ProgramError,
        'layer "add": Operands could not be broadcast together with shapes (3,) (4,)',
        lambda: layers.Add(name="add")([keras.Input((3,)), keras.Input((4,))]),
    ),
    "two limits of lengths": (
        ProgramError,
        "Cannot accept both `clipnorm` and `global_clipnorm`, passed `clipnorm` 1.0, `global_clipnorm` 2.0.",
        lambda: keras.optimizers.SGD(clipnorm=1.0, global_clipnorm=2.0),
    ),
    **{
        f"{limit} of {value!r}": (
            kind,
            f"{limit}: expected a {number}, got {value!r}",
            lambda limit=limit, value=value: keras.optimizers.Adam(**{limit: value}),
        )
        for limit in ("clipnorm", "clipvalue", "global_clipnorm")
        for value, kind, number in ((-1.0, ProgramError, "finite number from 0"), ("1", ProgramTypeError, "number"))
    },
    "a call's mask": (
        UnsupportedProgramError,
        "LSTM: a call's mask is simulated as None alone",
        lambda: layers.LSTM(3)(keras.Input((5, 3)), mask=keras.Input((5,))),
    ),
    "an argument that no call has": (
        ProgramTypeError,
        "Dense.call() got an unexpected keyword argument 'bogus'",
        lambda: layers.Dense(3)(keras.Input((3,)), bogus=1),
    ),
    "units that are a text": (
        ProgramTypeError,
        "Dense: '<' not supported between instances of 'str' and 'int', got {'units': 'a'}",
        lambda: layers.Dense("a"),
    ),
    "no units": (
        ProgramTypeError,
        "Dense: Dense.__init__() missing 1 required positional argument: 'units', got {}",
        layers.Dense,
    ),
    "a softmax of no axis": (
        ProgramError,
        "axis: expected one of the 2 axes of the input, got 5",
        lambda: layers.Softmax(5)(keras.Input((3,))),
    ),
    "a difference of three": (
        ProgramError,
        "A `Subtract` layer should be called on exactly 2 inputs, got 3",
        lambda: layers.Subtract()([keras.Input((3,))] * 3),
    ),
    "other shapes joined": (
        ProgramError,
        'layer "both": A `Concatenate` layer requires inputs with matching shapes except for the concatenation axis '
        "-1, got (None, 3, 2), (None, 4, 2)",
        lambda: layers.Concatenate(name="both")([keras.Input((3, 2)), keras.Input((4, 2))]),
    ),
    "joined along no axis": (
        ProgramError,
        'layer "both": A `Concatenate` layer requires inputs with matching shapes except for the concatenation axis 2, '
        "got (None, 3), (None, 3)",
        lambda: layers.Concatenate(2, name="both")([keras.Input((3,))] * 2),
    ),
    **{
        f"{layer.kind} of {len(shape) + 1} axes": (
            ProgramError,
            f'Input 0 of layer "named" is incompatible with the layer: expected ndim={axes}, found '
            f"ndim={len(shape) + 1}. Full shape received: {(None, *shape)}",
            lambda layer=layer, args=args, shape=shape: layer(*args, name="named")(keras.Input(shape)),
        )
        for layer, args, shape, axes in (
            (layers.GlobalAveragePooling1D, (), (3, 4, 5), 3),
            (layers.GlobalMaxPooling1D, (), (3,), 3),
            (layers.GlobalAveragePooling2D, (), (3, 4), 4),
            (layers.GlobalMaxPooling2D, (), (3,), 4),
            (layers.Permute, ((2, 1),), (3,), 3),
            (layers.RepeatVector, (2,), (3, 4), 2),
        )
    },
    "add_loss": (
        UnsupportedProgramError,
        "Layer.add_loss is not simulated: give the value as an output of the model, with a loss of its own",
        lambda: layers.Layer().add_loss(0.0),
    ),
    "add_metric": (
        UnsupportedProgramError,
        "Layer.add_metric is not simulated: give the metric to compile(metrics=...)",
        lambda: layers.Layer().add_metric(0.0, name="a"),
    ),
    "ReLU": (
        UnsupportedProgramError,
        "ReLU: max_value is simulated as none alone, got 6.0: use LeakyReLU",
        lambda: layers.ReLU(6.0),
    ),
    "Rescaling": (
        ProgramTypeError,
        "offset: expected a number, got None",
        lambda: layers.Rescaling(1, None),
    ),
    "Permute": (
        ProgramError,
        "dims: expected each axis of a sample once, counted from 1, got (0, 1)",
        lambda: layers.Permute((0, 1)),
    ),
    "Orthogonal": (
        ProgramError,
        "shape: expected two axes or more",
        lambda: keras.initializers.Orthogonal().draw((3,), np.random.default_rng(0)),
    ),
    "an activation": (
        ProgramError,
        "Unknown activation function: wrong. Expected one of elu, exponential, gelu, hard_sigmoid, leaky_relu, linear",
        lambda: keras.activations.get("wrong"),
    ),
    "an activation of the core's name": (
        ProgramError,
        "Unknown activation function: gelu_erf; did you mean gelu? Expected one of elu",
        lambda: layers.Dense(3, "gelu_erf"),
    ),
    "an activation that no recurrent layer has": (
        UnsupportedProgramError,
        "activation: in a recurrent layer one of hard_sigmoid, linear, relu, sigmoid, tanh is simulated, got 'elu'",
        lambda: layers.LSTM(3, "elu"),
    ),
    "a recurrent activation that no recurrent layer has": (
        UnsupportedProgramError,
        "recurrent_activation: in a recurrent layer one of hard_sigmoid, linear, relu, sigmoid, tanh is simulated, got",
        lambda: layers.GRU(3, recurrent_activation=tf.nn.gelu),
    ),
    "an argument of optimizers": (
        ProgramError,
        "SGD: expected arguments of Keras' optimizer, got 'rate'",
        lambda: keras.optimizers.SGD(rate=1),
    ),
    "an enormous tensor": (
        ProgramError,
        "expected tensors of at most 268,435,456 elements a sample, got shape (None, 1000000000)",
        lambda: layers.Lambda(lambda x: x)(keras.Input((10**9,))),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    kind, text, action = REFUSED[case]
    with pytest.raises(kind) as caught:
        action()
    assert str(caught.value).startswith(text)


def test_a_loss_that_a_layer_adds_is_refused_where_it_stands():
    class Adding(layers.Layer):
        def call(self, inputs):
            self.add_loss(tf.reduce_mean(inputs))
            return inputs

    with pytest.raises(ProgramError, match="add_loss is not simulated"):
        keras.Sequential([Adding(input_shape=(4,))])
