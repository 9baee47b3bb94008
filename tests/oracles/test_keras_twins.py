"""Keras models and their twins in YAML: the same losses, in the same time."""

from pathlib import Path

import numpy as np
import pytest

from ipusim.api import Session
from ipusim.app.scenario import load_job
from ipusim.model.data.dataset_files import digits
from ipusim.runs.execute import execute
from tests.keras_models import LateKeras, in_strategy
from tests.programs import needs_tensorflow

COLUMNS = ("start", "end", "kind", "ipu", "stage", "micro_batch", "time_step", "link", "bytes", "cause")
#: A share that leaves a whole number of batches of 16 to train on.
SHARE = 0.2165
keras = LateKeras()


@pytest.fixture(autouse=True)
def _fresh():
    needs_tensorflow()
    keras.backend.clear_session()


def trained(stages, dropout, weights, steps):
    """Loss, weights and Timeline of the model of scenarios/digits_training.yaml, trained for so many steps."""
    dense = keras.layers.Dense
    model = keras.Sequential(
        [
            keras.layers.Flatten(input_shape=(8, 8)),
            dense(256, "relu"),
            *([keras.layers.Dropout(dropout)] if dropout else []),
            *(dense(128, "relu"), dense(64, "relu"), dense(10, "softmax")),
        ]
    )
    model.set_weights(weights)
    model.set_pipeline_stage_assignment(stages)
    model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
    offered = keras.optimizers.legacy if dropout else keras.optimizers
    model.compile(offered.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", steps_per_execution=steps)
    train, _ = digits(np.float32).split(SHARE, 0)
    x = train.x.reshape(-1, 8, 8)
    history = model.fit(x, train.y, 16, verbose=0, shuffle=False, steps_per_epoch=steps).history
    return history["loss"][0], model.get_weights(), model.train_function.timelines[-1]


@pytest.mark.parametrize(
    ("splits", "stages", "dropout"),
    [(None, [0, 0, 1, 2, 3], 0.25), ("dense64", [0, 0, 0, 1, 1], 0.0)],
)
def test_an_epoch_takes_the_time_and_has_the_losses_of_its_scenario(splits, stages, dropout, tmp_path):
    """Two stages on four IPUs are two replicas, each of which takes every other batch; with dropout SGD is legacy."""
    text = Path("scenarios/digits_training.yaml").read_text()
    if dropout:
        layer = f"    - {{name: drop, type: dropout, rate: {dropout}}}\n"
        text = text.replace("    - {name: dense128", layer + "    - {name: dense128")
        stages = [*stages[:2], 0, *stages[2:]]
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    replicas = 4 // (stages[-1] + 1)
    executions = 88 // 8 // replicas
    changes = [f"data.hold_out={SHARE}", "data.shuffle=false", "steps=1", f"pipeline.repeat_count={executions}"]
    job = load_job(file, (*changes, *([f"pipeline.splits=[{splits}]"] if splits else [])))
    assert job.system.replicas == replicas
    weights = list(Session(job).variables().values())
    twin = execute(job)
    loss, found, timeline = in_strategy(4, trained, stages, dropout, weights, executions * 8)
    if not dropout:  # whose draws are by place in a program
        assert loss == pytest.approx(np.mean([each.loss for each in twin.learning.losses]), rel=1e-5)
        for one, other in zip(found, twin.learning.weights.values(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(timeline, name), getattr(twin.timeline, name), err_msg=name)
