"""Gradients are accumulated in the dtype that each variable is given."""

import math

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.machine.stage_memory import StageMemory
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.workload import Workload
from ipusim.runs.execute import execute
from tests.oracles.test_outfeed import SCENARIO


@pytest.mark.parametrize("reduction", ["MEAN", "RUNNING_MEAN"])
def test_float32_accumulators_of_float16_gradients_are_scaled_in_float32(reduction):
    """Twelve gradients of 1: a twelfth of each, rounded to float16, would add up to 0.99976."""
    times = NamedLayer("times", PythonLayer(lambda x, w: x * w, {"w": (1,)}, {"w": 1.0}))
    loss = NamedLayer("loss", PythonLoss(lambda h, labels: (h[:, 0] + labels).mean(), label_dtype="float64"))
    feed = Feed(Dataset(np.ones((1, 1), np.float16), np.zeros(1, np.float16)), 1)
    stages = build_stages(Network((times,), (1,), loss), [["times", "loss"]])
    workload = Workload(stages, feed, SGD(0.5), reduction, np.dtype(np.float16), accumulation_dtype=np.float32)
    memory = StageMemory(workload, 0, 12)
    for _ in range(12):
        memory.accumulate("times/w", np.ones(1, np.float16))
        memory.accumulated += 1
    assert memory.accumulators["times/w"] == pytest.approx(1.0, abs=1e-6)


PER_VARIABLE = SCENARIO.replace("precision: float64", "precision: float16").replace(
    "repeat_count: 3", "gradient_accumulation_dtype: {a: float32, a/b: float64, b/W: float32}"
)


def test_each_variable_has_its_own_accumulator(load):
    experiment = load(PER_VARIABLE)
    workload, stages = experiment.workload(0), experiment.program.stages
    held = [workload.accumulators(workload.initial_parameters(stage)) for stage in range(2)]
    assert {name: array.dtype.name for each in held for name, array in each.items()} == {
        "a/W": "float32",
        "a/b": "float64",
        "b/W": "float32",
        "b/b": "float16",
    }
    assert [each.accumulator_bytes for each in stages] == [30 * 4 + 5 * 8, 15 * 4 + 3 * 2]
    added = [work for each in stages for work in each.backward[-2:]]
    assert [work.sram_bytes for work in added] == [
        30 * (2 + 2 * 4),
        5 * (2 + 2 * 8),
        15 * (2 + 2 * 4),
        3 * (2 + 2 * 2),
    ]
    assert [work.itemsize for work in added] == [4, 8, 4, 2]
    assert math.isfinite(execute(experiment).learning.losses[-1].loss)


def test_one_type_for_all_is_one_type_for_each(load):
    everywhere = load(PER_VARIABLE, "pipeline.gradient_accumulation_dtype=float32")
    each = load(PER_VARIABLE, "pipeline.gradient_accumulation_dtype={a: float32, b: float32}")
    assert everywhere.program == each.program
    assert execute(everywhere).learning.losses == execute(each).learning.losses


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c", "expected a layer with parameters, or one of its parameters, got 'c'"),
        ("a/w", "expected a layer with parameters, or one of its parameters, got 'a/w'; did you mean a/W?"),
        ("cel", "expected a layer with parameters, or one of its parameters, got 'cel'"),
    ],
)
def test_a_type_for_what_is_no_variable(load, name, text):
    with pytest.raises(ScenarioError) as caught:
        load(PER_VARIABLE, f"pipeline.gradient_accumulation_dtype={{{name}: float32}}")
    (problem,) = caught.value.problems
    assert problem.text == text
    assert problem.key == f"pipeline.gradient_accumulation_dtype.{name}"
