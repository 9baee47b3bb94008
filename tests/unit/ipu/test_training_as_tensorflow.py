"""Datasets, scopes, savers, callbacks and metrics as TensorFlow has them, by hand from its documentation and source."""

import math

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ModelError, ProgramError
from ipusim.ipu import loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.buffer_dataset import BufferDataset
from ipusim.model.functions.gradient import pullback

FIVE = np.arange(5, dtype=np.float32)


def shapes(dataset):
    return [tuple(map(np.shape, each)) if isinstance(each, tuple) else np.shape(each) for each in dataset]


def test_a_list_is_one_array_and_what_map_returns_in_a_list_is_a_tuple():
    data = tf.data.Dataset
    assert shapes(data.from_tensor_slices([np.zeros(3), np.ones(3)])) == [(3,), (3,)]
    assert shapes(data.from_tensors([np.zeros(3), np.ones(3)])) == [(2, 3)]
    assert shapes(data.from_tensor_slices((np.zeros(2), [1, 2]))) == [((), ()), ((), ())]
    pairs = [*data.range(2).map(lambda x: [x, x + 1])]
    assert [(first.dtype, int(first), int(second)) for first, second in pairs] == [(np.int64, 0, 1), (np.int64, 1, 2)]


def test_a_buffer_drops_what_does_not_fill_it_and_says_so():
    assert [len(BufferDataset(tf.data.Dataset.range(n), 2)) for n in (4, 5)] == [4, 4]
    assert BufferDataset(tf.data.Dataset.range(3).repeat(), 2).length == math.inf


def test_an_argument_that_batch_does_not_have_is_refused():
    with pytest.raises(TypeError, match="drop_remaindar"):
        tf.data.Dataset.range(6).batch(4, drop_remaindar=True)
    assert shapes(tf.data.Dataset.range(6).batch(4, num_parallel_calls=2, deterministic=True)) == [(4,), (2,)]


def test_variables_begin_as_the_scope_around_says():
    three = tf.constant_initializer(3.0)
    with tf.variable_scope("begins", initializer=three, dtype=tf.float16):
        first = tf.get_variable("first", [2])
        with tf.variable_scope("inner"):
            second = tf.get_variable("second", [2])
            own = tf.get_variable("own", [2], tf.float32, tf.ones_initializer())
    after = tf.get_variable("begins_not", [2])
    assert [each.numpy().tolist() for each in (first, second, own)] == [[3, 3], [3, 3], [1, 1]]
    assert [each.dtype for each in (first, second, own, after)] == [np.float16, np.float16, np.float32, np.float32]


def test_a_saver_calls_variables_as_its_dictionary_does(tmp_path):
    first, second = tf.Variable(1.0, name="saver_first"), tf.Variable(5.0, name="saver_second")
    with tf.Session() as session:
        path = tf.train.Saver({"in_checkpoint": first}).save(session, str(tmp_path / "c"))
        assert tf.train.list_variables(path) == [("in_checkpoint", [])]
        tf.train.Saver({"in_checkpoint": second}).restore(session, path)
        assert session.run(second) == 1.0
        with pytest.raises(ProgramError, match="Key saver_first not found in checkpoint"):
            tf.train.Saver({"saver_first": first}).restore(session, path)


@pytest.mark.parametrize(("monitor", "epochs"), [("precision", 5), ("val_recall", 3), ("val_acc", 5), ("loss", 3)])
def test_a_larger_value_is_better_where_its_name_has_acc_alone(monitor, epochs):
    watching = keras.callbacks.EarlyStopping(monitor, patience=2)
    rising = [1.0, 2.0, 3.0, 4.0, 5.0]

    class Model:
        stop_training = False
        validates_seldom = False

    watching.model = Model()
    watching.on_train_begin()
    ran = 0
    for epoch, value in enumerate(rising if monitor != "precision" else rising[::-1]):
        ran += 1
        watching.on_epoch_end(epoch, {monitor: value})
        if watching.model.stop_training:
            break
    assert ran == epochs


def test_a_decay_goes_on_behind_a_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = keras.optimizers.SGD(schedule, decay=0.5)
    optimizer.iterations = 4
    assert optimizer.rule.learning_rate == pytest.approx(0.1 * 0.25 / 3)


def test_no_prediction_that_is_not_finite_is_among_the_most_likely():
    scores = np.float32([[np.nan] * 6, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]])
    assert keras.metrics.sparse_top_k_categorical_accuracy(np.array([0, 0, 1]), scores).tolist() == [0, 0, 1]


def test_precision_takes_its_name_fourth():
    assert keras.metrics.Precision(None, None, None, "mine").name == "mine"
    with pytest.raises(ProgramError, match="top_k: expected None, got 1"):
        keras.metrics.Recall(None, 1)


@pytest.mark.parametrize(
    ("kind", "label"), [("SparseCategoricalCrossentropy", [[0]] * 4), ("CategoricalCrossentropy", [[1.0, 0.0]] * 4)]
)
def test_the_loss_of_logits_takes_those_behind_a_softmax(kind, label):
    layer = keras.layers.Dense(2, "softmax", use_bias=False, input_shape=(1,))
    model = keras.Sequential([layer])
    model.set_weights([np.float32([[1, 2]])])
    model.compile(keras.optimizers.SGD(1.0), getattr(keras.losses, kind)(from_logits=True))
    loss = model.train_on_batch(np.ones((4, 1), np.float32), np.array(label))
    share = 1 / (1 + math.e)
    assert loss == pytest.approx(-math.log(share), rel=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], [[2 - share, 1 + share]], rtol=1e-6)


@pytest.mark.parametrize(
    ("activation", "version", "loss", "slope"),
    [
        ("sigmoid", 1, 30.0, 1.0),
        ("sigmoid", 2, 30.0, 1.0),
        ("softmax", 2, 30.0, 0.5),  # of each of two logits, as if a sigmoid stood behind them
        ("softmax", 1, math.log(2), 0.0),  # of probabilities of a half, which are moved alike
    ],
)
def test_binary_cross_entropy_takes_logits_as_the_version_of_tensorflow_does(activation, version, loss, slope):
    with ipu.install(tensorflow=version):
        units = 2 if activation == "softmax" else 1
        model = keras.Sequential([keras.layers.Dense(units, activation, use_bias=False, input_shape=(1,))])
        model.set_weights([np.full((1, units), 30, np.float32)])
        model.compile(keras.optimizers.SGD(1.0), "binary_crossentropy")
        x, y = np.ones((4, 1), np.float32), np.zeros((4, units), np.float32)
        assert model.train_on_batch(x, y) == pytest.approx(loss, rel=1e-6)
        np.testing.assert_allclose(model.get_weights()[0], 30 - slope, rtol=1e-6)


def watched(monitored, **options):
    """Return after how many epochs early stopping ends a training with such losses."""
    stopping = keras.callbacks.EarlyStopping("loss", **options)
    stopping.model = keras.Sequential([keras.layers.Dense(1, input_shape=(1,))])
    stopping.model.stop_training = False
    stopping.on_train_begin()
    for epoch, loss in enumerate(monitored):
        stopping.on_epoch_end(epoch, {"loss": loss})
        if stopping.model.stop_training:
            return epoch + 1
    return len(monitored)


def test_training_ends_early_as_in_2_6():
    falling = [9.0, 8.0, 7.0, 6.0, 5.0]
    assert watched(falling) == 1  # no patience at all
    assert watched(falling, patience=3, baseline=1.0) == 3  # never below the baseline
    assert watched(falling, patience=1) == 5
    assert watched([9.0, 8.0, 8.0, 8.0], patience=2) == 4


def doubles(x, **options):
    """Return the losses of a model that gives its input, whose labels are 0: the mean of each epoch's samples."""
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    return model, model.fit(x, np.zeros_like(x), shuffle=False, verbose=0, **options).history["loss"]


def test_steps_alone_say_the_size_of_a_batch():
    x = np.arange(128, dtype=np.float32).reshape(128, 1)
    model, losses = doubles(x, steps_per_epoch=2)
    assert losses == [63.5]
    assert model.evaluate(x, np.zeros_like(x), steps=2, verbose=0) == 63.5
    assert model.predict(x, steps=2).shape == (128, 1)
    assert doubles(x[:40], steps_per_epoch=8)[1] == [19.5]


def test_an_epoch_of_fewer_steps_than_batches_goes_on_where_the_one_before_ended():
    x = np.arange(128, dtype=np.float32).reshape(128, 1)
    # Batches have the means 15.5, 47.5, 79.5 and 111.5.
    assert doubles(x, batch_size=32, steps_per_epoch=3, epochs=3)[1] == pytest.approx(
        [(15.5 + 47.5 + 79.5) / 3, (111.5 + 15.5 + 47.5) / 3, (79.5 + 111.5 + 15.5) / 3]
    )


@pytest.mark.parametrize("options", [{"steps_per_epoch": 3}, {"steps_per_epoch": 3, "batch_size": 32}])
def test_a_partial_batch_is_refused_where_steps_would_leave_it_out_too(options):
    with pytest.raises(ProgramError, match="The provided set of data has a partial batch"):
        doubles(np.arange(100, dtype=np.float32).reshape(100, 1), **options)


def test_a_label_that_is_not_0_counts_as_true():
    recall = keras.metrics.Recall()
    recall.update_state(np.float32([0.25, 0.0, 1.0]), np.float32([0.9, 0.9, 0.1]))
    assert recall.result() == pytest.approx(0.5)


@pytest.mark.parametrize("variables", ["a list", "a function", "a tape's"])
def test_keras_minimize_takes_variables_second_and_a_tape(variables):
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        w, optimizer = tf.Variable(np.float32(3.0)), keras.optimizers.SGD(0.1)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = w * w * x
            if variables == "a tape's":
                optimizer.minimize(loss, [w], tape=tape)
            else:
                optimizer.minimize(lambda: w * w * x, [w] if variables == "a list" else lambda: [w])
            return x * 1.0

        strategy.run(step, args=(tf.constant(1.0),))
    assert w.numpy() == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("outputs", "options", "weight", "logged"),
    [
        (1, {}, 0.2, 1.0),  # of w^2 for 4 samples: 1 - 0.1 * 4 * 2
        (2, {"loss_weights": [1.0, 0.25]}, 0.0, 1.25),  # 1 - 0.1 * 4 * 2 * 1.25
    ],
)
def test_a_loss_that_is_not_reduced_is_trained_on_as_a_sum_and_logged_as_a_mean(outputs, options, weight, logged):
    given = keras.Input((1,))
    y = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(given)
    model = keras.Model(given, [y, keras.layers.Flatten()(y)][:outputs])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError(reduction="none"), **options)
    x, labels = np.ones((4, 1), np.float32), [np.zeros((4, 1), np.float32)] * outputs
    before = model.evaluate(x, labels, batch_size=4, verbose=0)
    history = model.fit(x, labels, batch_size=4, verbose=0).history
    assert history["loss"] == [logged]
    assert before == (logged if outputs == 1 else [logged, 1.0, 1.0])
    assert model.get_weights()[0] == pytest.approx(weight, abs=1e-6)


def test_losses_of_several_shapes_are_refused():
    given = keras.Input((1,))
    y = keras.layers.Dense(1)(given)
    model = keras.Model(given, [y, keras.layers.Flatten()(y)])
    model.compile("sgd", [keras.losses.MeanSquaredError(reduction="none"), "mse"])
    x = np.ones((4, 1), np.float32)
    with pytest.raises(ProgramError, match=r"loss: expected losses of one shape for all outputs, got \(4,\) and \(\)"):
        model.fit(x, [x, x], batch_size=4, verbose=0)


def test_there_are_no_operations_of_updates_beside_batch_normalisation():
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []


def test_of_a_cond_of_the_host_the_branch_that_is_taken_is_done_alone():
    with tf.Graph().as_default():
        tf.disable_v2_behavior()
        chosen, count = tf.placeholder(tf.float32, []), tf.Variable(0.0, name="counted_in_cond")
        result = tf.cond(chosen > 0, lambda: tf.assign_add(count, 1.0), lambda: tf.assign_add(count, 100.0))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert [session.run(result, {chosen: value}) for value in (1.0, -1.0, 1.0)] == [1.0, 101.0, 102.0]
            assert session.run(count) == 102.0


def test_datasets_are_zipped_in_any_structure():
    data = tf.data.Dataset
    first, second, third = (data.from_tensor_slices(np.arange(3) + 10 * number) for number in range(3))
    ((a, b), c), *_, last = data.zip(((first, second), third))
    assert (int(a), int(b), int(c)) == (0, 10, 20)
    assert [int(each) for each in (*last[0], last[1])] == [2, 12, 22]
    assert [{name: int(value) for name, value in each.items()} for each in data.zip({"x": first, "y": second})] == [
        {"x": number, "y": 10 + number} for number in range(3)
    ]


def test_a_metric_of_a_models_output_is_that_of_its_value():
    found = []

    def loss(w):
        found.append(tf.metrics.mean_absolute_error(np.float32([2.0, 4.0]), w * np.float32([1.0, 1.0])))
        return tf.reduce_sum(w)

    pullback(loss, (np.float32([1.0, 1.0]),), (0,))
    assert float(found[0][0]) == 2.0


def test_a_variable_that_is_sent_is_what_it_is_then():
    outfeed = IPUOutfeedQueue()

    def body(x):
        w = tf.get_variable("sent_then", [2], initializer=tf.ones_initializer())
        values = [tf.identity(w), w[:1], tf.reshape(w, (1, 2)), tf.stop_gradient(w), w * 1.0]
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * x))
        with tf.control_dependencies([*values, train]):
            return outfeed.enqueue(values)

    loops.repeat(3, body, [], IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.ones((3, 2), np.float32))))
    for values in outfeed.dequeue():
        assert np.asarray(values).reshape(3, -1)[:, 0] == pytest.approx([1.0, 0.9, 0.8])


@pytest.mark.parametrize(
    ("shapes", "matches"),
    [(((2,), ()), True), (([None], []), True), (((3,), ()), False), (((2,), (1,)), False), (((2, None), ()), False)],
)
def test_elements_of_a_generator_have_the_shapes_that_are_said(shapes, matches):
    data = tf.data.Dataset.from_generator(lambda: iter([([1, 2], 3)]), (tf.int32, tf.float32), shapes)
    if matches:
        ((row, label),) = data
        assert (row.tolist(), float(label)) == ([1, 2], 3.0)
    else:
        with pytest.raises(ModelError, match=r"generator: .* expected an array of shape \(.*\), got \(2?,?\)"):
            list(data)


def test_shapes_of_a_generator_may_stand_in_a_signature():
    data = tf.data.Dataset.from_generator(lambda: iter([[1, 2]]), output_signature=np.zeros(3, np.int16))
    with pytest.raises(ModelError, match=r"expected an array of shape \(3,\), got \(2,\)"):
        list(data)


def test_a_function_does_not_read_what_it_has_updated():
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        w, optimizer = tf.Variable(np.float32(3.0)), keras.optimizers.SGD(0.1)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = w * x
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])
            return w * 1.0

        with pytest.raises(ProgramError, match=r"variable 'Variable.*': expected to be read before the weight update"):
            strategy.run(step, args=(tf.constant(1.0),))
