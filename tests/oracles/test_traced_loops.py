"""Loops around a body in TensorFlow's sessions, against the same training by TensorFlow alone."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute
from tests.programs import needs_tensorflow

ITERATIONS, RUNS, BATCH = 6, 2, 8
START = 3.0


@pytest.fixture
def tf():
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    return load()


def _options():
    return {"system": {"name": "m2000", "auto_select_ipus": 1}}


def _data(tf):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((240, 12)).astype(np.float32), rng.integers(0, 10, 240).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(samples).batch(BATCH, drop_remainder=True).repeat()


def _loss(tf, x, labels):
    logits = tf.keras.layers.Dense(10)(tf.keras.layers.Dense(16, "relu")(x))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _adam(tf, loss):
    return tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss)


def _decayed(tf, loss):
    """A learning rate that decays with a count of updates."""
    v1 = tf.compat.v1
    step = v1.train.get_or_create_global_step()
    rate = v1.train.exponential_decay(0.1, step, 2, 0.5)
    return v1.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)


def _clipped(tf, loss):
    """Gradients that are clipped by their common norm."""
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True))


def _written_out(tf, loss):
    """Gradients of ``tf.gradients``, and an update by assignments."""
    variables = tf.compat.v1.trainable_variables()
    pairs = zip(variables, tf.gradients(loss, variables), strict=True)
    return tf.group(*(variable.assign_sub(0.1 * gradient, read_value=False) for variable, gradient in pairs))


#: Trainings, and whether the machine has their weight update apart from forward and backward pass.
TRAININGS = {
    "adam": (_adam, True),
    "decayed": (_decayed, True),
    "clipped": (_clipped, False),
    "written_out": (_written_out, False),
}


def _by_tensorflow(tf, training):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        tf.keras.utils.set_random_seed(1)
        v1.set_random_seed(1)
        loss = _loss(tf, *v1.data.make_one_shot_iterator(_data(tf)).get_next())
        update = training(tf, loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [session.run([loss, update])[0] for _ in range(ITERATIONS * RUNS)]
            return losses, session.run(v1.global_variables())


@pytest.mark.parametrize("carries", [False, True])
@pytest.mark.parametrize("name", TRAININGS)
def test_a_loop_trains_as_tensorflow_does(tf, name, carries):
    from ipusim.ipu.traced.computation import compile_computation  # noqa: PLC0415
    from ipusim.ipu.traced.loops import add_loop  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    training, _ = TRAININGS[name]
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        tf.keras.utils.set_random_seed(1)
        v1.set_random_seed(1)
        infeed, outfeed, start = Infeed(_data(tf)), Outfeed(), v1.placeholder(tf.float32, [])

        def body(*values):
            loss = _loss(tf, *values[-2:])
            with tf.control_dependencies([training(tf, loss)]):
                loss = tf.identity(loss)
            return [*(total + loss for total in values[:-2]), outfeed.enqueue(loss)]

        def network(start):
            return add_loop(ITERATIONS, body, _options, inputs=[start] if carries else [], infeed=infeed)

        result = compile_computation(network, [start])
        dequeued = outfeed.dequeue()
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), infeed.initializer])
            totals = [session.run(result, {start: START}) for _ in range(RUNS)]
            losses, weights = session.run([dequeued, v1.global_variables()])
    expected, variables = _by_tensorflow(tf, training)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=3e-7)
    for ours, theirs in zip(weights, variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    if carries:
        sums = [START + sum(expected[run * ITERATIONS :][:ITERATIONS]) for run in range(RUNS)]
        np.testing.assert_allclose(np.ravel(totals), sums, rtol=1e-5)


def _of_body(tf, training):
    """The program of a loop whose body trains."""
    from ipusim.ipu.graph.reading import read_node  # noqa: PLC0415
    from ipusim.ipu.graph.registry import entry_of  # noqa: PLC0415
    from ipusim.ipu.traced.loops import add_loop  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    infeed, outfeed = Infeed(_data(tf)), Outfeed()

    def body(x, labels):
        loss = _loss(tf, x, labels)
        return training(tf, loss), outfeed.enqueue(loss)

    (operation,) = add_loop(ITERATIONS, body, _options, infeed=infeed)
    return entry_of(read_node(operation)).value


@pytest.mark.parametrize("name", TRAININGS)
def test_a_plain_training_has_its_weight_update_apart(tf, name):
    training, apart = TRAININGS[name]
    with tf.Graph().as_default():
        step = _of_body(tf, training).step
    assert bool(step.trace.gradients) is apart


def test_a_loop_takes_the_time_of_its_scenario(tf):
    """The same model as a scenario on one IPU, with an update behind each micro-batch."""
    from ipusim.api import runs  # noqa: PLC0415
    from ipusim.ipu.graph.traced_functions import StepFunctions  # noqa: PLC0415
    from ipusim.ipu.graph.tracing import variable_name  # noqa: PLC0415

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        program = _of_body(tf, _adam)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = session.run(v1.global_variables())
        variables = dict(zip(map(variable_name, v1.global_variables()), values, strict=True))
    element = [np.zeros((BATCH, 12), np.float32), np.zeros(BATCH, np.int32)]
    functions = StepFunctions("program", program.step, variables, lambda _: element)
    pipeline = {"schedule": "single", "gradient_accumulation_count": 1, "repeat_count": ITERATIONS}
    options = {**_options(), "pipeline": {**pipeline, "device_mapping": [0]}, "use_synthetic_data": True}
    run = execute(assemble(Request(runs.validate(options), functions=functions)))
    layers = [
        {"name": "hidden", "type": "dense", "units": 16, "activation": "relu"},
        {"name": "logits", "type": "dense", "units": 10},
        {"name": "loss", "type": "softmax_cross_entropy"},
    ]
    scenario = execute(
        assemble(
            Request.from_dict(
                {
                    **_options(),
                    "data": {"type": "synthetic", "shape": [12], "classes": 10, "samples": BATCH * ITERATIONS},
                    "model": {"layers": layers},
                    "pipeline": {**pipeline, "micro_batch_size": BATCH},
                    "optimizer": {"type": "adam", "learning_rate": 0.01},
                    "use_synthetic_data": True,
                }
            )
        )
    )
    for column in ("start", "end", "kind", "ipu", "execution"):
        np.testing.assert_array_equal(getattr(run.timeline, column), getattr(scenario.timeline, column))
