"""Keras models and their twins in YAML: the same losses, in the same time."""

from __future__ import annotations

import contextvars
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.ipu import config
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.tensorflow import keras
from ipusim.ipu.tensorflow.keras import layers
from ipusim.ipu.tensorflow.keras.program import Program
from ipusim.model.data.dataset_files import digits
from ipusim.runs.execute import execute
from tests.effort import slowest

COLUMNS = ("start", "end", "kind", "ipu", "stage", "micro_batch", "time_step", "link", "bytes", "cause")
#: A share that leaves a whole number of batches of 16 to train on.
SHARE = 0.2165


@pytest.fixture
def received(monkeypatch):
    """What the outfeed of each execution has carried."""
    found, run = [], Program.run

    def noting(program):
        found.append(run(program))
        return found[-1]

    monkeypatch.setattr(Program, "run", noting)
    return found


def four_ipus(function, *arguments):
    """Run a function where a device of four IPUs is configured, and leave nothing behind."""

    def configured():
        device = config.IPUConfig()
        device.machine, device.auto_select_ipus = "m2000", 4
        device.configure_ipu_system()
        return function(*arguments)

    return contextvars.copy_context().run(configured)


def classifier(dropout=0.0):
    """The model of scenarios/digits_training.yaml."""
    return keras.Sequential(
        [
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            *([layers.Dropout(dropout)] if dropout else []),
            layers.Dense(128, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def compiled(model, metrics=()):
    """Compile with the scenario's momentum; Keras' is the same but for rounding, as the last test has it."""
    model.compile(
        tf.train.MomentumOptimizer(0.1, 0.9),
        "sparse_categorical_crossentropy",
        metrics=list(metrics),
        steps_per_execution=88,
    )
    return model


@pytest.mark.parametrize("epochs", [4, pytest.param(12, marks=slowest)])
def test_digits_over_four_ipus_equal_their_scenario_and_reach_95_percent(epochs, received):
    """All losses of all epochs bit by bit, and what the digits that were held out are taken for."""

    def trained():
        train, held_out = digits(np.float32).split(SHARE, 0)
        model = classifier()
        model.set_pipeline_stage_assignment([0, 0, 1, 2, 3])
        model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
        history = compiled(model).fit(train.x, train.y, batch_size=16, epochs=epochs, verbose=0)
        losses = np.concatenate([each[0] for each in received])
        taken = model(held_out.x).argmax(axis=1) == held_out.y
        model.compile(model.optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=4)
        evaluated = model.evaluate(held_out.x[:388], held_out.y[:388], batch_size=97, verbose=0)
        return history, losses, taken, evaluated, model.get_weights()

    history, losses, taken, (_, accuracy), weights = four_ipus(trained)
    changes = (f"data.hold_out={SHARE}", f"steps={epochs}")
    twin = execute(load_job(Path("scenarios/digits_training.yaml"), changes)).learning
    np.testing.assert_array_equal(losses, [each.loss for each in twin.losses])
    means = [twin.mean_loss_by_step[step] for step in range(epochs)]
    np.testing.assert_allclose(history.history["loss"], means, rtol=1e-6)
    assert accuracy > 0.95
    assert accuracy == pytest.approx(np.mean(taken[:388]))
    assert np.mean(taken) == twin.evaluations[-1][1].accuracy
    for found, expected in zip(weights, twin.weights.values(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_an_epoch_takes_the_time_of_its_scenario(dropout, received, tmp_path):
    def trained():
        train, _ = digits(np.float32).split(SHARE, 0)
        model = classifier(dropout)
        model.set_pipeline_stage_assignment([0, 0, *([0] if dropout else []), 1, 2, 3])
        model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
        compiled(model).fit(train.x, train.y, batch_size=16, verbose=0)
        return model.pipeline

    pipeline = four_ipus(trained)
    text = Path("scenarios/digits_training.yaml").read_text()
    if dropout:
        layer = f"    - {{name: drop, type: dropout, rate: {dropout}}}\n"
        text = text.replace("    - {name: dense128", layer + "    - {name: dense128")
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    job = load_job(file, (f"data.hold_out={SHARE}", "steps=1"))
    twin = execute(job)
    np.testing.assert_array_equal(received[0][0], [each.loss for each in twin.learning.losses])
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(pipeline.timeline, name), getattr(twin.timeline, name), err_msg=name)
    assert pipeline.memory.peaks == job.memory.peaks


def test_two_replicas_of_two_stages_equal_their_scenario(received):
    """Each replica takes every other batch, and gradients are averaged, as in YAML; the momentum is Keras'."""

    def trained():
        train, _ = digits(np.float32).split(SHARE, 0)
        model = classifier()
        model.set_pipeline_stage_assignment([0, 0, 0, 1, 1])
        model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", steps_per_execution=40
        )
        model.fit(train.x, train.y, batch_size=16, steps_per_epoch=40, verbose=0)
        return model

    model = four_ipus(trained)
    changes = (f"data.hold_out={SHARE}", "steps=1", "pipeline.repeat_count=5", "pipeline.splits=[dense64]")
    job = load_job(Path("scenarios/digits_training.yaml"), changes)
    twin = execute(job)
    assert job.system.replicas == model.pipeline.system.replicas == 2
    expected = np.zeros((40, 2), np.float32)
    for each in twin.learning.losses:
        expected[each.execution * 8 + each.micro_batch, each.replica] = each.loss
    np.testing.assert_allclose(received[0][0], expected, rtol=1e-5)
    for name in COLUMNS:
        np.testing.assert_array_equal(
            getattr(model.pipeline.timeline, name), getattr(twin.timeline, name), err_msg=name
        )
    assert int(float(model.optimizer.iterations)) == 5
