"""Functions of TensorFlow 2 on simulated IPUs, against the same functions run by TensorFlow."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute
from tests.programs import needs_tensorflow

BATCH, COUNT, REPEATS = 8, 4, 2


@pytest.fixture
def tf():
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    return load()


def _data(tf, count=240):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((count, 12)).astype(np.float32), rng.integers(0, 10, count).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(samples).batch(BATCH, drop_remainder=True)


def _loss(tf, logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _training(tf):
    """A function that trains a model in a loop, with what it changes."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Dense(16, "relu", input_shape=(12,)), layers.BatchNormalization(), layers.Dense(10)]
    )
    optimizer, mean = tf.keras.optimizers.legacy.Adam(0.01), tf.keras.metrics.Mean()

    @tf.function
    def train(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            x, labels = next(iterator)
            with tf.GradientTape() as tape:
                loss = _loss(tf, model(x, training=True), labels)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905 - autograph's has no strict
            mean.update_state(loss)
            total += loss
        return {"total": total, "steps": (steps,)}

    return train, lambda: [*model.get_weights(), *optimizer.get_weights(), mean.result().numpy()]


def _device():
    return {"system": {"name": "m2000", "auto_select_ipus": 1}}


@pytest.mark.parametrize("options", [None, _device], ids=["untimed", "on the machine"])
def test_a_function_trains_in_a_loop_as_tensorflow_does(tf, options):
    from ipusim.ipu.traced.functions import run_function  # noqa: PLC0415

    outcomes = []
    for run in (partial(run_function, options=options), lambda function, args: function(*args)):
        train, values = _training(tf)
        iterator = iter(_data(tf).repeat())
        results = [run(train, [iterator, tf.constant(steps)]) for steps in (5, 3, 5)]
        assert [int(result["steps"][0]) for result in results] == [5, 3, 5]
        outcomes.append(([float(result["total"]) for result in results], values()))
    (totals, ours), (expected, theirs) = outcomes
    np.testing.assert_allclose(totals, expected, rtol=1e-6)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [None, _device], ids=["untimed", "on the machine"])
def test_the_end_of_the_data_is_tensorflows_error(tf, options):
    from ipusim.ipu.traced.functions import run_function  # noqa: PLC0415

    train, _ = _training(tf)
    iterator = iter(_data(tf, 2 * BATCH))
    with pytest.raises(tf.errors.OutOfRangeError):
        run_function(train, [iterator, tf.constant(3)], options=options)


def test_a_loop_of_no_iterations_changes_nothing(tf):
    from ipusim.ipu.traced.functions import run_function  # noqa: PLC0415

    train, values = _training(tf)
    before = values()[:-2]  # without the optimizer's count and the mean
    result = run_function(train, [iter(_data(tf)), tf.constant(0)], options=_device)
    assert float(result["total"]) == 0
    for one, other in zip(values(), before, strict=False):  # the optimizer makes its slots when it is traced
        np.testing.assert_array_equal(one, other)


def test_a_plain_training_loop_takes_the_time_of_its_scenario(tf):
    from ipusim.ipu.graph.registry import entry_of  # noqa: PLC0415
    from ipusim.ipu.traced.functions import concrete_program, run_function  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    layers, iterations = tf.keras.layers, 6
    model = tf.keras.Sequential([layers.Dense(16, "relu", input_shape=(12,)), layers.Dense(10)])
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)
    infeed, outfeed = Infeed(_data(tf).repeat()), Outfeed()

    @tf.function
    def train(steps):
        for _ in tf.range(steps):
            x, labels = infeed.dequeue()
            with tf.GradientTape() as tape:
                loss = _loss(tf, model(x, training=True), labels)
            optimizer.minimize(loss, model.trainable_variables, tape=tape)
            outfeed.enqueue(loss)

    def options():
        return {**_device(), "use_synthetic_data": True}

    arguments = [tf.constant(iterations)]
    run_function(train, arguments, options=options)
    entries = map(entry_of, concrete_program(train, arguments).graph.nodes.values())
    program = next(entry.value for entry in entries if entry is not None and hasattr(entry.value, "timelines"))
    (timeline,) = program.timelines.values()
    described = [
        {"name": "hidden", "type": "dense", "units": 16, "activation": "relu"},
        {"name": "logits", "type": "dense", "units": 10},
        {"name": "loss", "type": "softmax_cross_entropy"},
    ]
    pipeline = {"schedule": "single", "gradient_accumulation_count": 1, "repeat_count": iterations}
    scenario = {
        **options(),
        "data": {"type": "synthetic", "shape": [12], "classes": 10, "samples": BATCH * iterations},
        "model": {"layers": described},
        "pipeline": {**pipeline, "micro_batch_size": BATCH},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    expected = execute(assemble(Request.from_dict(scenario))).timeline
    assert len(outfeed) == iterations
    for column in ("start", "end", "kind", "ipu", "execution"):
        np.testing.assert_array_equal(getattr(timeline, column), getattr(expected, column))


def test_a_plain_function_returns_tensors_in_its_own_structure(tf):
    from ipusim.ipu.traced.functions import run_function  # noqa: PLC0415

    factor = tf.Variable(3.0)

    def function(x, *, other):
        factor.assign_add(1.0)
        return {"product": x * factor, "pair": (other, x + other)}, 7

    for expected in (4.0, 5.0):
        result, number = run_function(function, [tf.constant([1.0, 2.0])], {"other": tf.constant(0.5)})
        assert number == 7
        np.testing.assert_array_equal(result["product"].numpy(), np.float32([expected, 2 * expected]))
        np.testing.assert_array_equal(result["pair"][1].numpy(), np.float32([1.5, 2.5]))
    assert float(factor) == 5.0


def test_a_pipeline_in_a_function_trains_as_tensorflow_does(tf):
    from ipusim.ipu.traced.functions import run_function  # noqa: PLC0415
    from ipusim.ipu.traced.pipelines import Training, add_pipeline  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    tf.keras.utils.set_random_seed(1)
    first, last = tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(10)
    first.build((None, 12))
    last.build((None, 16))
    variables = [*first.trainable_variables, *last.trainable_variables]
    initial = [variable.numpy() for variable in variables]
    infeed, outfeed, optimizer = Infeed(_data(tf).repeat()), Outfeed(), tf.keras.optimizers.legacy.SGD(0.1)
    pipeline = {"gradient_accumulation_count": COUNT, "repeat_count": REPEATS, "device_mapping": [0, 1]}
    options = {"system": {"name": "m2000", "auto_select_ipus": 2}, "pipeline": pipeline}

    @tf.function(autograph=False)
    def train():
        add_pipeline(
            [[lambda x, labels: (first(x), labels)], [lambda x, labels: _loss(tf, last(x), labels)]],
            lambda: options,
            infeed=infeed,
            outfeed=outfeed,
            optimizer_function=lambda loss: Training(optimizer, loss),
        )

    runs = 2
    for _ in range(runs):
        run_function(train)
    assert len(outfeed) == runs * REPEATS * COUNT
    losses = [float(tf.nest.flatten(element)[0]) for element in outfeed]
    trained = [variable.numpy() for variable in variables]
    assert len(outfeed) == 0
    for variable, value in zip(variables, initial, strict=True):
        variable.assign(value)
    iterator, expected = iter(_data(tf).repeat()), []
    for _ in range(runs * REPEATS):
        sums = [np.zeros_like(value) for value in initial]
        for _ in range(COUNT):
            x, labels = next(iterator)
            with tf.GradientTape() as tape:
                loss = _loss(tf, last(first(x)), labels)
            expected.append(float(loss))
            sums = [
                total + gradient.numpy() for total, gradient in zip(sums, tape.gradient(loss, variables), strict=True)
            ]
        for variable, total in zip(variables, sums, strict=True):
            variable.assign_sub(0.1 * total)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=3e-7)
    for ours, variable in zip(trained, variables, strict=True):
        np.testing.assert_allclose(ours, variable.numpy(), rtol=1e-4, atol=1e-6)
