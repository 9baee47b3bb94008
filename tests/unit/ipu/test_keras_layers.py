"""Graphcore's Keras layers: each argument's effect, on the host and in a strategy's scope."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from tests.effort import sampled
from tests.keras_models import LateKeras, in_strategy
from tests.programs import needs_tensorflow

keras = LateKeras()
RNG = np.random.default_rng(5)
IMAGES = RNG.normal(size=(2, 3, 3, 4)).astype(np.float32)
STEPS = RNG.normal(size=(8, 5, 3)).astype(np.float32)
NORMALISATIONS = ["GroupNormalization", "InstanceNormalization", "LayerNormalization"]
RECURRENT = ["LSTM", "GRU"]


@pytest.fixture(autouse=True)
def _fresh():
    needs_tensorflow()
    keras.backend.clear_session()


def made(kind, /, *args, **kwargs):
    """A layer of Graphcore's."""
    return getattr(keras.ipu.layers, kind)(*args, **kwargs)


@pytest.mark.parametrize("name", NORMALISATIONS)
@pytest.mark.parametrize(
    ("arguments", "weights", "deviation", "mean"),
    [
        ({"center": False}, ["gamma"], 1, 0),
        ({"scale": False}, ["beta"], 1, 0),
        ({"epsilon": 1.0, "dtype": "float32"}, ["gamma", "beta"], 0.64, 0),
        ({"gamma_initializer": "zeros", "beta_initializer": "ones"}, ["gamma", "beta"], 0, 1),
        ({"trainable": False, "name": "mine"}, ["gamma", "beta"], 1, 0),
    ],
)
def test_an_argument_of_a_layer_that_normalises(name, arguments, weights, deviation, mean):
    layer = made(name, **arguments)
    found = layer(IMAGES * 10 if "epsilon" not in arguments else IMAGES).numpy()
    assert [each.name.rpartition("/")[2].partition(":")[0] for each in layer.weights] == weights
    assert len(layer.trainable_weights) == (0 if "trainable" in arguments else len(weights))
    assert found.std() == pytest.approx(deviation, abs=0.1)
    assert found.mean() == pytest.approx(mean, abs=1e-5)
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_channels_of_a_normalisation_lie_along_the_axis_that_is_said(name):
    argument = "axis" if name.startswith("Layer") else "channels_axis"
    moved = np.moveaxis(IMAGES, -1, 1)
    found = made(name, **{argument: 1})(moved)
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), made(name)(IMAGES), rtol=1e-6)
    with pytest.raises(ProgramError, match=f"{argument}: expected an axis after the batch's of 4, got 4"):
        made(name, **{argument: 4})(IMAGES)


def test_groups_are_of_strided_channels_or_of_those_side_by_side():
    strided, beside = (
        made("GroupNormalization", groups=2, strided_channel_grouping=each)(IMAGES).numpy() for each in (True, False)
    )
    for found, groups in ((strided, [[0, 2], [1, 3]]), (beside, [[0, 1], [2, 3]])):
        for group in groups:
            np.testing.assert_allclose(found[..., group].mean(axis=(1, 2, 3)), 0, atol=1e-6)


def test_weights_of_a_layer_normalisation_are_regularized_and_constrained():
    layer = made("LayerNormalization", gamma_regularizer="l2", beta_constraint="non_neg")
    layer(IMAGES)
    assert float(layer.losses[0]) == pytest.approx(0.01 * 4)
    assert float(layer.weights[1].constraint(keras.backend.constant(-1.0))) == 0


@sampled(2)
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"return_sequences": True, "use_bias": False, "activation": "relu"},
        {"recurrent_activation": "hard_sigmoid", "kernel_initializer": "ones", "bias_initializer": "ones"},
        {"go_backwards": True, "recurrent_regularizer": "l2"},
        {"activation": "softplus", "unroll": True},
        {"time_major": True, "return_sequences": True},
        {
            **dict.fromkeys(["kernel_initializer", "recurrent_initializer", "bias_initializer"], "ones"),
            **dict.fromkeys(["kernel_regularizer", "recurrent_regularizer", "bias_regularizer"], "l2"),
            **dict.fromkeys(["kernel_constraint", "recurrent_constraint", "bias_constraint"], "non_neg"),
            "activity_regularizer": "l2",
        },
        {"partials_dtype": "float16", "implementation": 2, "dropout_seed": 3, "name": "mine"},
    ],
)
def test_a_recurrent_layer_computes_as_keras_does(name, arguments):
    own = {"partials_dtype", "dropout_seed", "implementation"}
    layer = made(name, 4, **arguments)
    other = getattr(keras.layers, name)(4, **{key: each for key, each in arguments.items() if key not in own})
    layer(STEPS), other(STEPS)
    if arguments.get("recurrent_initializer") == "ones":
        assert all(map(np.array_equal, layer.get_weights(), other.get_weights()))
    other.set_weights(layer.get_weights())
    assert [type(each.constraint) for each in layer.weights] == [type(each.constraint) for each in other.weights]
    np.testing.assert_allclose(layer(STEPS), other(STEPS), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.losses, other.losses, rtol=1e-6)
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize("name", RECURRENT)
def test_states_go_in_and_out_and_are_carried(name):
    layer = made(name, 4, return_state=True)
    outputs, state = layer(STEPS)[0], layer(STEPS)[1:]
    if name == "LSTM":
        (state,) = state
        np.testing.assert_array_equal(state.h, outputs)
        with pytest.raises(ProgramError, match=r"Invalid initial_state type: .*, expecting `LSTMStateTuple`\."):
            layer(STEPS, initial_state=[state.h, state.c])
    halves = layer(STEPS[:, 2:], initial_state=layer(STEPS[:, :2])[1])[0]
    np.testing.assert_allclose(halves, outputs, rtol=1e-5)
    carried = made(name, 4, stateful=True, weights=layer.get_weights(), batch_input_shape=(8, 1, 3))
    for step in range(5):
        found = carried(STEPS[:, step : step + 1])
    np.testing.assert_allclose(found, outputs, rtol=1e-5)
    carried.reset_states()
    np.testing.assert_allclose(carried(STEPS[:, :1]), layer(STEPS[:, :1])[0], rtol=1e-5)


def test_states_of_the_addons_are_apart_and_shapes_of_states_are_told():
    from ipusim.ipu.imports.faces import Faces  # noqa: PLC0415 - which imports TensorFlow
    from ipusim.ipu.imports.rows import rows_for  # noqa: PLC0415 - as above

    addons = Faces(rows_for(2), "2.6.3").find("ipu_tensorflow_addons.keras.layers")
    outputs, h, c = addons.LSTM(4, return_state=True)(STEPS)
    np.testing.assert_array_equal(outputs, h)
    assert c.shape == (8, 4)
    assert addons.LSTM(4).state_shape(3) == ([3, 4], [3, 4])
    assert addons.GRU is keras.ipu.layers.PopnnGRU
    assert made("GRU", 4).state_shape(3) == [3, 4]


@pytest.mark.parametrize("dropped", ["dropout", "recurrent_dropout"])
@pytest.mark.parametrize("name", RECURRENT)
def test_inputs_are_dropped_for_each_time_step_in_training_alone(name, dropped):
    layer = made(name, 4, seed=3, **{dropped: 0.5})
    layer(STEPS)
    np.testing.assert_array_equal(layer(STEPS, training=False), layer(STEPS))
    assert not np.allclose(layer(STEPS, training=True), layer(STEPS))
    again = made(name, 4, seed=3)
    again(STEPS)
    np.testing.assert_array_equal(again.get_weights()[0], layer.get_weights()[0])


def test_masks_of_dropout_are_the_same_along_axes_of_one():
    found = made("Dropout", 0.5, noise_shape=(8, 1, 3), seed=[1, 2])(STEPS, training=True).numpy()
    dropped = found == 0
    assert 0 < dropped.sum() < dropped.size
    np.testing.assert_array_equal(dropped, np.broadcast_to(dropped[:, :1], dropped.shape))


def _model(layers):
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(1)])


LAYERS = {
    "normalised GRU": (
        lambda: [made("LayerNormalization"), made("RecomputationCheckpoint"), made("GRU", 4, return_sequences=True)],
        lambda: [keras.layers.LayerNormalization(), keras.layers.GRU(4, return_sequences=True)],
    ),
    "masked LSTM": (
        lambda: [keras.layers.Masking(), made("LSTM", 4, recurrent_constraint="unit_norm")],
        lambda: [keras.layers.Masking(), keras.layers.LSTM(4, recurrent_constraint="unit_norm")],
    ),
}


@pytest.mark.parametrize("case", LAYERS)
def test_graphcores_layers_train_as_keras_do(case):
    ours, plain = LAYERS[case]
    y = STEPS[:, 0, :1]

    def trained(layers, eagerly=False):
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        model = _model(layers())
        model.compile("sgd", "mse", run_eagerly=eagerly)
        history = model.fit(STEPS, y, 4, shuffle=False, verbose=0).history["loss"]
        return history, model.predict(STEPS, 4, verbose=0)

    found, expected = in_strategy(1, trained, ours), trained(plain, eagerly=True)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)
