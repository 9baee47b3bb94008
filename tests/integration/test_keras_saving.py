"""Keras models as files, texts and clones: what comes back is the same, and training goes on to the same bits."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.base.files import archive_of
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.keras import layers as ipu_layers
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers
from ipusim.ipu.tensorflow.keras.described import plain, restored, revived
from tests.devices import on
from tests.effort import share

RNG = np.random.default_rng(5)
X = RNG.normal(size=(32, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32)).astype(np.float32)
SCHEDULES = keras.optimizers.schedules


@pytest.fixture(autouse=True)
def warnings_logged(caplog):
    """Log warnings, which the installed TensorFlow turns off for its logger when another test imports it."""
    caplog.set_level(logging.WARNING, logger="tensorflow")


def same_bits(one, two):
    return [a.tobytes() for a in one.get_weights()] == [b.tobytes() for b in two.get_weights()]


def fit(model, epochs=1):
    return model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0).history


def doubled(x):
    return 2 * x


def own_error(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1)


class Scaled(layers.Layer):
    """A layer of one's own, with an argument, a weight and a layer in it."""

    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.inner = factor, layers.Dense(3, use_bias=False)

    def build(self, input_shape):
        self.scale = self.add_weight("scale", (input_shape[-1],), initializer="ones")

    def call(self, inputs):
        return self.inner(inputs * self.scale) * self.factor

    def get_config(self):
        return super().get_config() | {"factor": self.factor}


def sequential():
    model = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dropout(0.3), layers.Dense(1)])
    rate = SCHEDULES.ExponentialDecay(0.05, 3, 0.9)
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"], steps_per_execution=2)
    return model


def accumulating():
    model = keras.Sequential([layers.Dense(3, activation=tf.nn.relu, input_shape=(4,)), layers.Dense(1)], "named")
    model.set_gradient_accumulation_options(2, "mean")
    loss = keras.losses.Huber(0.5)
    metrics = [keras.metrics.RootMeanSquaredError(name="root"), own_error]
    model.compile(keras.optimizers.RMSprop(0.01, momentum=0.5), loss, metrics=metrics, steps_per_execution=2)
    return model


def pipelined():
    model = keras.Sequential([layers.Dense(3), layers.BatchNormalization(momentum=0.5), layers.Dropout(0.2)])
    model.add(layers.Dense(1))
    model.set_pipeline_stage_assignment([0, 0, 1, 1])
    model.set_pipelining_options(4, [1, 0], True, "mean")
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0), "mse", steps_per_execution=4)
    return model


def functional():
    inputs = keras.Input((4,), name="in")
    shared = Scaled(0.5)
    with keras.ipu.PipelineStage(0):
        x = shared(layers.Dense(4)(inputs))
    with keras.ipu.PipelineStage(1):
        y = layers.Lambda(doubled)(x)[:, 1:] - 1.0
        x = layers.Add()([x, 3.0 * x])
        inner = keras.Sequential([layers.Dense(2, activation="softplus")], name="inner")
        x = layers.Concatenate()([inner(x), y])
        output = layers.Dense(1, name="out")(x)
    model = keras.Model(inputs, {"out": output})
    model.set_pipelining_options(4)
    model.compile("adam", {"out": "mse"}, steps_per_execution=4)
    return model


CUSTOM = {"Scaled": Scaled, "doubled": doubled, "own_error": own_error}


@pytest.mark.parametrize("make", [sequential, accumulating, pipelined, functional])
def test_a_model_that_is_loaded_goes_on_to_the_same_bits(make, tmp_path):
    """Also with a machine of other programs: weights, draws, steps and optimizer are those of one that went on."""

    def run():
        model, path = make(), tmp_path / "model"
        before = fit(model)
        model.save(path)
        loaded = keras.models.load_model(path, CUSTOM)
        assert same_bits(model, loaded)
        assert loaded.to_json() == model.to_json()
        assert loaded.evaluate(X, Y, 8, 0) == model.evaluate(X, Y, 8, 0)
        after = fit(model, 2)
        assert fit(loaded, 2) == after
        assert same_bits(model, loaded)
        assert after["loss"][0] < before["loss"][0]
        assert loaded.optimizer.iterations == model.optimizer.iterations
        assert loaded.optimizer.get_config() == model.optimizer.get_config()
        assert loaded.pipeline.timeline.makespan_cycles == model.pipeline.timeline.makespan_cycles

    on(2 if make in (pipelined, functional) else 1, run)


def test_with_replicas_too(tmp_path):
    def run():
        model = sequential()
        model.fit(X, Y, batch_size=8, verbose=0)
        model.save(tmp_path / "model")
        loaded = keras.models.load_model(tmp_path / "model")
        assert (model.optimizer.iterations, loaded.optimizer.iterations) == (2, 2)
        assert fit(model) == fit(loaded)
        assert (model.optimizer.iterations, loaded.optimizer.iterations) == (4, 4)
        assert same_bits(model, loaded)

    on(2, run)


class Named(keras.Model):
    """A model that is called otherwise when it is made again."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.inner, self.drop = units, layers.Dense(units), layers.Dropout(0.3)

    def call(self, inputs, training=None):
        return self.drop(self.inner(inputs), training=training)

    def get_config(self):
        return {"units": self.units}


def _alone():
    return Named(1)


def _inside():
    return keras.Sequential([keras.Input((4,)), Named(3), layers.Dense(1)])


def _of_layers_of_another():
    inputs = keras.Input((4,))
    other = keras.Model(inputs, layers.Dropout(0.3)(layers.Dense(4)(layers.Dense(3)(inputs))), name="other")
    x = layers.Dropout(0.5)(layers.Dense(2)(inputs))
    return keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([x, other.output])))


@pytest.mark.parametrize("make", [_alone, _inside, _of_layers_of_another])
def test_models_whose_layers_are_called_otherwise_when_they_are_loaded(make, tmp_path):
    """The optimizer's arrays go to the weights in their order, and draws are by the places that layers had."""
    model = make()
    model.compile("adam", "mse")
    fit(model)
    model.save(tmp_path / "model")
    loaded = keras.models.load_model(tmp_path / "model", {"Named": Named})
    assert [each.name for each in loaded.weights] != [each.name for each in model.weights]
    assert fit(loaded, 2) == fit(model, 2)
    assert same_bits(model, loaded)


def test_the_file_is_of_plain_arrays(tmp_path):
    path = tmp_path / "model"
    model = accumulating()
    fit(model)
    model.save(path)
    with np.load(path, allow_pickle=False) as held:
        names = list(held)
        described = json.loads(held["model"].tobytes())
    assert names[:5] == ["model", *(f"weights/{name}" for name in WEIGHTS)]
    assert {name.split("/")[0] for name in names[5:]} == {"optimizer"}
    assert described["class_name"] == "Sequential"
    assert [each["class_name"] for each in described["config"]["layers"]] == ["InputLayer", "Dense", "Dense"]
    assert described["training_config"]["optimizer"]["config"]["rho"] == 0.9
    assert described["training_state"] == {"iterations": 2, "batches": 4, "arrays": names[5:]}
    other = accumulating()
    other.load_weights(path)
    assert same_bits(model, other)
    model.save(path, include_optimizer=False)
    assert not hasattr(keras.models.load_model(path), "unknown")
    assert keras.models.load_model(path).optimizer is None


WEIGHTS = ("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias")


def test_models_that_are_not_compiled_and_those_that_shall_not_be(tmp_path):
    model = keras.Sequential([layers.Dense(2, input_shape=(3,), name="a")])
    model.trainable = False
    keras.models.save_model(model, tmp_path / "model")
    loaded = keras.models.load_model(tmp_path / "model")
    assert (loaded.optimizer, loaded.name, loaded.trainable_weights) == (None, "sequential", [])
    assert same_bits(model, loaded)
    model.compile("sgd", own_error)
    model.save(tmp_path / "model")
    assert keras.models.load_model(tmp_path / "model", compile=False).optimizer is None


def test_options_that_graphcore_does_not_save_are_said_once(tmp_path, caplog):
    def run():
        model = pipelined()
        model.set_pipelining_options(4, offload_weight_update_variables=False)
        model.build((None, 4))
        with caplog.at_level(logging.WARNING):
            model.save(tmp_path / "model")
            model.save(tmp_path / "model")
        loaded = keras.models.load_model(tmp_path / "model")
        assert (loaded.options.pipelining_steps, loaded.options.device_mapping) == (4, [1, 0])
        assert (loaded.options.accumulate_outfeed, dict(loaded.options.pipelining)) == (True, {})

    on(2, run)
    assert [each.getMessage() for each in caplog.records] == [
        "Model sequential: offload_weight_update_variables of set_pipelining_options is not saved, as Graphcore has "
        "it: call it again on the model that is loaded"
    ]


@pytest.mark.parametrize("lost", [1, 12])
def test_a_file_without_the_optimizer_s_arrays_begins_anew_and_says_so(lost, tmp_path, caplog):
    path, model = tmp_path / "model", sequential()
    fit(model)
    model.save(path)
    with np.load(path) as held:
        arrays = dict(held)
    of_optimizer = [name for name in arrays if name.startswith("optimizer/")]
    path.write_bytes(archive_of({name: each for name, each in arrays.items() if name not in of_optimizer[:lost]}))
    loaded = keras.models.load_model(path)
    assert [each.getMessage() for each in caplog.records] == [
        "Error in loading the saved optimizer state. As a result, your model is starting with a freshly initialized "
        f"optimizer: expected 12 arrays of it, of which {lost} are not there, such as {of_optimizer[0]!r}."
    ]
    assert loaded.optimizer.iterations == 0
    fresh = sequential()
    fresh.build((None, 4))
    fresh.set_weights(model.get_weights())
    assert fit(loaded) == fit(fresh)


def test_optimizers_of_tf_train_are_not_saved(tmp_path, caplog):
    model = keras.Sequential([layers.Dense(1, input_shape=(4,))])
    model.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
    fit(model)
    model.save(tmp_path / "model")
    assert "You will have to compile your model again after loading it" in caplog.text
    assert keras.models.load_model(tmp_path / "model").optimizer is None


@pytest.mark.parametrize("make", [sequential, functional])
def test_texts_configurations_and_clones_make_the_same_model_with_new_weights(make):
    def run():
        model = make()
        model.build((None, 4)) if make is sequential else None
        text = model.to_json(indent=1)
        with keras.utils.custom_object_scope(CUSTOM):
            others = [
                keras.models.model_from_json(text),
                keras.models.model_from_config(json.loads(text)),
                type(model).from_config(model.get_config()),
            ]
        for other in [*others, keras.models.clone_model(model)]:
            assert other.to_json() == model.to_json()
            assert other.layers[0] is not model.layers[0]
            assert same_bits(model, other)  # drawn by place
            model.set_weights([each + 1 for each in model.get_weights()])
            assert not same_bits(model, other)
            model.set_weights(other.get_weights())

    on(2, run)


def test_clones_take_what_a_function_gives_for_each_layer():
    model = keras.Sequential([layers.Dense(2, input_shape=(3,)), layers.Dense(1)])
    seen = []

    def made(layer):
        seen.append(layer.name)
        return layers.Dense.from_config(layer.get_config() | {"use_bias": False})

    clone = keras.models.clone_model(model, clone_function=made)
    assert (seen, len(clone.weights)) == (["dense", "dense_1"], 2)


@keras.utils.register_keras_serializable("mine")
class Registered(layers.Layer):
    """A layer that is known by its name, without a dictionary."""


#: Each kind of object that files describe.
OBJECTS = {
    "layer": [
        Registered(),
        layers.Activation(tf.nn.softmax),
        layers.BatchNormalization(momentum=0.5, epsilon=0.1),
        layers.Conv1D(2, 3, kernel_initializer="he_uniform"),
        layers.Conv2D(2, (3, 2), padding="same", input_shape=(5, 5, 1)),
        layers.Conv2DTranspose(2, 3, (2, 1), "same", activation="relu", use_bias=False),
        layers.Dense(3, activation="selu", kernel_initializer=keras.initializers.Orthogonal(2.0, seed=1)),
        layers.Dense(2, "exponential"),
        layers.Dense(2, tf.nn.gelu),
        layers.DepthwiseConv2D(2, depth_multiplier=3, depthwise_initializer="he_normal"),
        layers.Embedding(4, 3, input_length=5),
        layers.GRU(2, recurrent_activation=keras.activations.hard_sigmoid),
        layers.GRU(2, stateful=True, time_major=True),
        layers.LSTM(2, return_state=True, return_sequences=True, recurrent_initializer="orthogonal"),
        layers.LeakyReLU(0.1),
        layers.MaxPooling2D((2, 1)),
        layers.Permute((2, 1)),
        layers.ReLU(name="r"),
        layers.RepeatVector(3),
        layers.Rescaling(1 / 255),
        layers.Reshape((2, 2)),
        layers.Softmax(1),
        ipu_layers.Dropout(0.1),
        ipu_layers.Embedding(4, 2),
        ipu_layers.GRU(2, time_major=True, dropout=0.5),
        ipu_layers.GroupNormalization(groups=4, strided_channel_grouping=False),
        ipu_layers.LSTM(2, return_state=True, stateful=True),
        ipu_layers.LayerNormalization(epsilon=0.1),
    ],
    "initializer": [keras.initializers.RandomNormal(0.0, 0.1, 3), keras.initializers.Constant(2.0)],
    "loss": [keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.losses.Huber(2.0, "sum", "mine")],
    "metric": [keras.metrics.Precision(0.25), keras.metrics.SparseTopKCategoricalAccuracy(name="two", k=2)],
    "optimizer": [
        keras.optimizers.SGD(lr=0.1, momentum=0.9, decay=0.1, global_clipnorm=1.0),
        keras.optimizers.RMSprop(0.1, momentum=0.5, centered=True),
        keras.optimizers.SGD(0.1, 0.5, nesterov=True),
        keras.optimizers.Adagrad(0.1, 0.5, 0.01),
        keras.optimizers.Adadelta(0.1, rho=0.5),
        keras.optimizers.Ftrl(0.1, -0.75, l1_regularization_strength=0.5, beta=0.1),
        keras.optimizers.LAMB(SCHEDULES.PiecewiseConstantDecay([1], [0.1, 0.2]), exclude_from_weight_decay=["bias"]),
    ],
    "schedule": [SCHEDULES.CosineDecay(0.1, 10), SCHEDULES.PolynomialDecay(0.1, 10, cycle=True)],
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_describes_an_object_makes_one_that_is_described_alike(kind):
    for each in OBJECTS[kind]:
        described = plain(each)
        found = revived(kind, restored(json.loads(json.dumps(described))))
        assert type(found) is type(each)
        assert plain(found) == described


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just(...),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(slice, st.integers(), st.none(), st.integers())
    ),
    max_leaves=6,
)


@settings(max_examples=share(60))
@given(VALUES)
def test_plain_values_come_back_as_they_were(value):
    assert restored(json.loads(json.dumps(plain(value)))) == value


def test_arrays_in_calls_come_back(tmp_path):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, inputs * np.array([1.0, 3.0], np.float32))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model")(np.ones((1, 2))), [[1, 3]])


class Own(keras.Model):
    """A model of one's own."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)


class Described(Own):
    """One that says how it is made."""

    def get_config(self):
        return {}


def test_subclasses_are_refused_in_keras_words_unless_they_say_how_they_are_made(tmp_path):
    model = Own()
    model.build((None, 4))
    for action in (lambda: model.save(tmp_path / "model"), model.to_json):
        with pytest.raises(NotImplementedError, match="requires the model to be a Functional model or a Sequential"):
            action()
    model.compile("sgd", "mse")
    whole = keras.callbacks.ModelCheckpoint(tmp_path / "model")
    with pytest.raises(UnsupportedProgramError, match="isn't safely serializable"):
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[whole])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProgramError, match="Expected `model` argument to be a functional `Model` instance"):
        keras.models.clone_model(model)
    model = Described()
    model.compile("sgd", "mse")
    fit(model)
    model.save(tmp_path / "model")
    loaded = keras.models.load_model(tmp_path / "model", {"Described": Described})
    assert same_bits(model, loaded)
    assert fit(loaded) == fit(model)


def test_checkpoints_are_whole_models_unless_weights_alone_are_wanted(tmp_path):
    model = sequential()
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}"))
    second = keras.models.load_model(tmp_path / "2")
    first = keras.models.load_model(tmp_path / "1")
    assert same_bits(second, model)
    first.fit(X, Y, batch_size=8, initial_epoch=1, epochs=2, verbose=0)
    assert same_bits(first, model)


class Interrupting(keras.callbacks.Callback):
    """Ends a training as a failing machine does."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("make", [sequential, Own])
def test_a_training_that_is_interrupted_goes_on_behind_its_last_epoch(make, tmp_path):
    def made():
        keras.backend.clear_session()
        model = make()
        model.compile(keras.optimizers.Adam(SCHEDULES.CosineDecay(0.1, 20)), "mse")
        return model

    whole, first, second = made(), made(), made()
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=[backup, Interrupting()])
    expected = fit(whole, 4)["loss"][2:]
    for model in (second, first):  # in another process, and in the same one
        (file,) = tmp_path.iterdir()
        content = file.read_bytes()
        again = keras.callbacks.experimental.BackupAndRestore(str(tmp_path))
        history = model.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=again)
        assert (history.epoch, history.history["loss"]) == ([2, 3], expected)
        assert same_bits(model, whole)
        assert list(tmp_path.iterdir()) == []
        file.write_bytes(content)


def test_backups_of_another_model_are_refused(tmp_path):
    keras.callbacks.BackupAndRestore(tmp_path).restored(None, 3)
    model = accumulating()
    fit(model)
    callback = keras.callbacks.BackupAndRestore(tmp_path)
    callback.set_model(model)
    callback.on_epoch_end(0)
    path = tmp_path / "backup.npz"
    with pytest.raises(ProgramError, match=f"^{path}: expected a backup of this model's training: expected shape"):
        sequential().fit(X[:, :2], Y, batch_size=8, callbacks=[callback])
    path.write_bytes(b"")
    with pytest.raises(ProgramError, match=f"^{path}: expected a file of a backup of a training that can be read"):
        sequential().fit(X, Y, batch_size=8, callbacks=[callback])
    with pytest.raises(ProgramError, match="backup_dir: expected a path, got 1"):
        keras.callbacks.BackupAndRestore(1)


def test_arrays_of_another_optimizer_are_refused(saved):
    path, arrays, described = saved
    (name, *_) = [each for each in arrays if each.startswith("optimizer/") and arrays[each].ndim == 2]
    _written(path, arrays | {name: arrays[name][1:]}, described)

    def run():
        model = keras.models.load_model(path, CUSTOM)
        with pytest.raises(
            ProgramError, match=r"^the optimizer's arrays that the training is to go on from are of ano"
        ):
            fit(model)

    on(2, run)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a path, the arrays of a model's file, and what they describe."""
    path = tmp_path_factory.mktemp("saved") / "model"

    def run():
        model = functional()
        fit(model)
        model.save(path)

    on(2, run)
    with np.load(path) as held:
        arrays = dict(held)
    return path, arrays, json.loads(arrays["model"].tobytes())


def _written(path, arrays, described):
    path.write_bytes(archive_of(arrays | {"model": np.frombuffer(json.dumps(described).encode(), np.uint8)}))


def _places(value, path=()):
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from _places(each, (*path, key))


def _told(path):
    """Return what comes of loading a file: an error of ipusim's own, or none."""
    try:
        keras.models.load_model(path, CUSTOM)
    except ProgramError as error:
        return str(error)
    return "loaded"


@settings(max_examples=share(150))
@given(st.data())
def test_a_file_that_says_something_else_is_one_clear_error_or_a_model(saved, data):
    path, arrays, described = saved
    changed = json.loads(json.dumps(described))
    *way, last = data.draw(st.sampled_from(list(_places(described))))
    place = changed
    for each in way:
        place = place[each]
    odd = [None, 0, -1, 10**12, 1.5, "x", [], {}, True, {"class_name": "Dense", "config": {}}, "Layer", "import_module"]
    place[last] = data.draw(st.sampled_from(odd))
    _written(path, arrays, changed)
    assert _told(path).startswith(("loaded", f"{path}: "))


def test_more_parts_than_rows_are_no_more_work(saved):
    """A product in a million million parts has at most as many that are not empty as it has rows."""
    path, arrays, described = saved
    changed = json.loads(json.dumps(described))
    (dense, *_) = [each["config"] for each in changed["config"]["layers"] if each["class_name"] == "Dense"]
    dense["serialization_factor"] = 10**12
    _written(path, arrays, changed)
    assert _told(path) == "loaded"


@settings(max_examples=share(40))
@given(st.data())
def test_a_damaged_file_is_one_clear_error_or_a_model(saved, data):
    path, arrays, described = saved
    _written(path, arrays, described)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.sampled_from([len(content), 700]))]))
    assert _told(path).startswith(("loaded", f"{path}: "))


REFUSED = {
    "an unknown layer": (
        keras.models.load_model,
        "{path}: Unknown layer: Scaled. Please ensure this object is passed to the `custom_objects` argument.",
    ),
    "an unknown function": (
        lambda path: keras.models.load_model(path, {"Scaled": Scaled}),
        "{path}: Unknown function: doubled. Please ensure this object is passed to the `custom_objects` argument.",
    ),
    "no dictionary": (
        lambda path: keras.models.load_model(path, [Scaled]),
        "custom_objects: expected a dictionary of classes and functions by their names, got [<class '",
    ),
    "no file": (
        lambda path: keras.models.load_model(path.parent / "none"),
        "{folder}/none: expected a file of a model that was saved here that can be read: No such file or directory",
    ),
    "a folder": (
        lambda path: keras.models.load_model(path.parent),
        "{folder}: expected a file of a model that was saved here that can be read: expected a file, got a folder",
    ),
    "HDF5": (
        lambda path: (path.write_bytes(b"\x89HDF\r\n"), keras.models.load_model(path)),
        "{path}: expected a file of a model that was saved here that can be read: it is HDF5, which is not read here",
    ),
    "weights alone": (
        lambda path: (sequential_of_one().save_weights(path), keras.models.load_model(path)),
        "{path}: expected a model that was saved here, got an archive of other arrays: weights alone?",
    ),
    "a format": (
        lambda path: sequential_of_one().save(path, save_format="tf"),
        "{path}: expected save_format None or 'keras', and another ending than .h5, got save_format 'tf': models are "
        "saved in one file of NumPy's arrays, and neither in HDF5 nor as TensorFlow's SavedModel",
    ),
    "an ending": (
        lambda path: keras.callbacks.ModelCheckpoint(path.with_suffix(".h5")),
        "{path}.h5: expected save_format None or 'keras', and another ending than .h5, got the ending '.h5'",
    ),
    "a file that is there": (
        lambda path: sequential_of_one().save(path, overwrite=False),
        "{path}: expected no file, as overwrite is False, got one",
    ),
    "no weights yet": (
        lambda path: keras.Sequential([layers.Dense(1)]).save(path),
        "Unable to save weights of a model that has not created its variables yet.",
    ),
    "a layer without get_config": (
        lambda path: keras.Sequential([Unsaid(2)]).to_json(),
        "Layer Unsaid has arguments in `__init__` and therefore must override `get_config`.",
    ),
    "a lambda": (
        lambda path: keras.Sequential([layers.Lambda(lambda x: x)]).to_json(),
        "layer 'lambda': expected a function with a name, which load_model finds in custom_objects, as no code is "
        "saved; got a lambda",
    ),
    "a loss of one's own": (
        lambda path: (compiled_with(own_error).save(path), keras.models.load_model(path)),
        "{path}: Unknown loss function: own_error. Please ensure this object is passed to the `custom_objects` "
        "argument.",
    ),
    "no text of a model": (lambda path: keras.models.model_from_json("{"), "json_string: expected what to_json() gave"),
    "what JSON cannot hold": (
        lambda path: keras.Sequential([Saying(object)]).to_json(),
        "sequential['config']['layers'][",
    ),
}


class Unsaid(layers.Layer):
    """A layer that does not say its argument."""

    def __init__(self, units):
        super().__init__()


class Saying(layers.Layer):
    """A layer that says something odd."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def get_config(self):
        return super().get_config() | {"odd": {1: 2}}


def sequential_of_one():
    return keras.Sequential([layers.Dense(1, input_shape=(4,))])


def compiled_with(loss):
    model = sequential_of_one()
    model.compile("sgd", loss)
    return model


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, saved):
    path, arrays, described = saved
    _written(path, arrays, described)
    action, text = REFUSED[case]
    with pytest.raises(ProgramError) as caught:
        action(path)
    assert str(caught.value).startswith(text.format(path=path, folder=path.parent))


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 50_000, b"[1]", b"\xff", b""])
def test_texts_in_a_file_that_are_none(content, saved):
    path, arrays, _ = saved
    path.write_bytes(archive_of(arrays | {"model": np.frombuffer(content, np.uint8)}))
    with pytest.raises(ProgramError, match=f"^{path}: expected a model"):
        keras.models.load_model(path)
