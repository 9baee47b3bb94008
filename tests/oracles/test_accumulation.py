"""Gradient accumulation: Graphcore's own cases, reduction methods, and accumulators of another dtype."""

import math

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import ModelError
from ipusim.hardware.build import build_system
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.workload import Workload
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from tests.plans import price_and_run


def run(x, y, weight, count, *, executions=2, schedule="grouped", dtype=np.float64, optimizer=None, **accumulation):
    """Train loss = w * x + y over two stages; returns the losses, the weights after each update, the last gradient."""
    times = NamedLayer("times", PythonLayer(lambda x, w: x * w, {"w": (1,)}, {"w": weight}))
    network = Network(
        (times, NamedLayer("same", PythonLayer(lambda x: x))),
        (1,),
        NamedLayer("loss", PythonLoss(lambda h, labels: (h[:, 0] + labels).mean(), label_dtype="float64")),
    )
    data = Dataset(np.full((1, 1), x, dtype), np.full(1, y, dtype))
    stages = build_stages(network, [["times"], ["same", "loss"]])
    workload = Workload(
        stages,
        Feed(data, 1),
        optimizer or SGD(0.5),
        accumulation.pop("reduction", "SUM"),
        np.dtype(dtype),
        **accumulation,
    )
    shape = PlanShape(mapping=(0, 1), micro_batches=count)
    program = PipelineProgram(tuple(layer_profile(stage, 1, 8) for stage in stages), shape, schedule)
    weights, gradients = [], []

    class Watched(NumpyExecutor):
        def update(self, ipu):
            gradients.extend(memory.copy() for memory in self.gradients(ipu).values())
            super().update(ipu)
            if ipu == 0:
                weights.append(float(self.weights()["times/w"][0]))

        def gradients(self, ipu):
            return {k: v for stage in self._memories[ipu].stages.values() for k, v in stage.accumulators.items()}

    executor = Watched(shape, workload)
    price_and_run(
        plan_of(find(schedule), shape),
        program,
        build_system("m2000", mapping=(0, 1)),
        executor=executor,
        executions=executions,
    )
    losses = [float(loss) for (loss,) in executor.results]
    assert all(len(set(losses[i : i + count])) == 1 for i in range(0, len(losses), count))
    return losses[::count], weights, gradients[0]


@pytest.mark.parametrize("reduction", ["MEAN", "RUNNING_MEAN"])
def test_float32_accumulators_of_float16_gradients_are_scaled_in_float32(reduction):
    """Twelve gradients of 1: a twelfth of each, rounded to float16, would add up to 0.99976."""
    _, _, gradient = run(
        1.0, 0.0, 1.0, 12, executions=1, dtype=np.float16, reduction=reduction, accumulation_dtype=np.float32
    )
    assert gradient == pytest.approx(1.0, abs=1e-6)


def test_sum_overflows_in_float16_and_not_in_float32():
    with np.errstate(over="ignore"):
        sums = [
            run(20_000.0, 0.0, 1.0, 8, executions=1, dtype=np.float16, accumulation_dtype=dtype)[2]
            for dtype in (None, np.float32)
        ]
    assert np.isinf(sums[0]).all()
    assert sums[0].dtype == np.float16
    assert sums[1].tolist() == [160_000.0]


def test_a_function_chooses_the_dtype_of_each_variable():
    asked = []

    def choose(name):
        asked.append(name)
        return np.float32

    _, _, gradient = run(1.0, 0.0, 1.0, 4, dtype=np.float64, accumulation_dtype=choose)
    assert asked == ["times/w"]
    assert gradient.dtype == np.float32


@pytest.mark.parametrize("optimizer", [SGD(0.5), Momentum(0.5, 0.9)])
def test_optimizers_keep_the_weights_dtype_under_wider_accumulators(optimizer):
    losses, weights, _ = run(
        1.5, 1.0, 2.0, 4, dtype=np.float16, optimizer=optimizer, accumulation_dtype=np.float32, reduction="MEAN"
    )
    assert losses[0] == 4.0
    assert weights[0] == 1.25


def test_a_function_that_fails_late_is_named():
    calls = []

    def late(x):
        calls.append(x)
        if len(calls) > 12:
            raise RuntimeError("out of luck")
        return x

    network = Network(
        (NamedLayer("late", PythonLayer(late)),), (1,), NamedLayer("loss", PythonLoss(lambda h, y: h.mean()))
    )
    stages = build_stages(network, [["late"], ["loss"]])
    workload = Workload(
        stages, Feed(Dataset(np.ones((1, 1)), np.zeros(1, np.int32), 1), 1), SGD(0.5), "SUM", np.dtype(float)
    )
    shape = PlanShape(mapping=(0, 1), micro_batches=16)
    program = PipelineProgram(tuple(layer_profile(stage, 1, 8) for stage in stages), shape)
    with pytest.raises(
        ModelError,
        match=r"F0\.8 of stage 'stage 0' failed in execution 0: layer 'late': python function 'late' "
        r"\(.*test_accumulation.py:\d+\): RuntimeError: out of luck",
    ):
        price_and_run(
            plan_of(find("grouped"), shape),
            program,
            build_system("m2000", mapping=(0, 1)),
            executor=NumpyExecutor(shape, workload),
        )


PER_VARIABLE = """
system: {name: m2000}
data: {type: synthetic, shape: [6], classes: 3, samples: 96}
model:
  layers:
    - {name: a, type: dense, units: 5, activation: tanh}
    - {name: b, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  splits: [b]
  micro_batch_size: 4
  gradient_accumulation_count: 8
  gradient_accumulation_dtype: {a: float32, a/b: float64, b/W: float32}
optimizer: {type: sgd, learning_rate: 0.1}
precision: float16
"""


@pytest.fixture
def scenario(tmp_path):
    def load(*overrides):
        path = tmp_path / "dtypes.yaml"
        path.write_text(PER_VARIABLE)
        return load_job(path, overrides)

    return load


def test_each_variable_has_its_own_accumulator(scenario):
    experiment = scenario()
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


def test_one_type_for_all_is_one_type_for_each(scenario):
    everywhere = scenario("pipeline.gradient_accumulation_dtype=float32")
    each = scenario("pipeline.gradient_accumulation_dtype={a: float32, b: float32}")
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
def test_a_type_for_what_is_no_variable(scenario, name, text):
    with pytest.raises(ScenarioError) as caught:
        scenario(f"pipeline.gradient_accumulation_dtype={{{name}: float32}}")
    (problem,) = caught.value.problems
    assert problem.text == text
    assert problem.key == f"pipeline.gradient_accumulation_dtype.{name}"
