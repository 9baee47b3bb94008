"""Values that skip stages: one copy on each hop, their gradients back, and where they wait."""

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import MissingTensorError, ModelError
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.layers.add import Add
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.stages.build_stages import Returning
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Edge
from ipusim.runs.execute import execute

SCENARIO = """
system: {name: pod16}
data: {type: synthetic, shape: [5], classes: 3, samples: 96, hold_out: 16}
model:
  layers:
    - {name: a, type: dense, units: 6, activation: tanh}
    - {name: b, type: dense, units: 6, activation: tanh}
    - {name: drop, type: dropout, rate: 0.0}
    - {name: first, type: add, from: a}
    - {name: c, type: dense, units: 6, activation: tanh}
    - {name: second, type: add, from: first}
    - {name: third, type: add, from: a}
    - {name: d, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: grouped
  splits: [b, c, d]
  micro_batch_size: 4
  gradient_accumulation_count: 8
optimizer: {type: sgd, learning_rate: 0.1}
evaluate: {every: 1}
precision: float64
steps: 3
"""


@pytest.fixture
def load(load):
    return lambda *changes, text=SCENARIO: load(text, *changes)


def test_a_value_is_copied_on_every_hop(load):
    """a | b drop first | c second third | d: a's output enters stage 1 as its input, and leaves it beside first's."""
    profiles = load().program.stages
    one, labels = 4 * 6 * 8, 4 * 4  # 4 samples of 6 float64, and of an int32
    assert [each.output_bytes for each in profiles] == [one + labels, 2 * one + labels, one + labels, 0]
    assert [each.gradient_bytes for each in profiles] == [0, one, 2 * one, one]
    skips = [stage.skips for stage in load().workload(0).stages]
    assert [each.input_name for each in skips] == ["", "a", "first", ""]
    assert [[value.name for value in each.sent_values] for each in skips] == [[], ["a"], [], []]


def test_a_value_that_passes_a_stage_unused_is_not_kept_there(load):
    text = SCENARIO.replace("    - {name: first, type: add, from: a}\n", "    - {name: first, type: dense, units: 6}\n")
    inputs = [each.input_bytes for each in load("pipeline.splits=[b, drop, c]", text=text).program.stages]
    one, labels = 4 * 6 * 8, 4 * 4
    assert inputs == [4 * 5 * 8 + labels, one + labels, one + labels, 2 * one + labels]


def test_checkpoints_and_concurrent_stages_are_refused(load):
    with pytest.raises(ScenarioError, match="expected no checkpoints in a model with skip connections"):
        load("pipeline.recomputation_checkpoints=[b]")
    heads = (
        "{name: c, type: parallel, branches: [[{name: l, type: dense, units: 4}], [{name: r, type: dense, units: 2}]]}"
    )
    text = SCENARIO.replace("{name: c, type: dense, units: 6, activation: tanh}", heads)
    text = text.replace("splits: [b, c, d]", "splits: [b, c, second]\n  device_mapping: [0, 1, [2, 3], 0]")
    with pytest.raises(ScenarioError, match="expected no skip connection over concurrent stages, got 'a'"):
        load(text=text)


def test_a_sum_names_the_layers_before_it():
    with pytest.raises(ModelError, match="expected an earlier layer, got 'x' \\(these are a\\)"):
        Network((NamedLayer("a", Dense(3)), NamedLayer("s", Add("x"))), (2,))


#: a's output is added in the third stage, which lies on a's own IPU; the second passes it on unused.
BACK = SCENARIO.replace("    - {name: first, type: add, from: a}\n", "    - {name: first, type: dense, units: 6}\n")
THERE_AND_BACK = "pipeline.splits=[b, c, d]", "pipeline.device_mapping=[0, 1, 0, 1]"
ONE, LABELS = 4 * 6 * 8, 4 * 4


@pytest.mark.parametrize("schedule", ["grouped", "sequential"])
@pytest.mark.parametrize("again", ["false", "true"])
def test_a_value_that_comes_back_stays_on_its_ipu(load, schedule, again):
    """Nothing of it is copied, forward or backward; under Grouped one micro-batch waits for the stage between."""
    changes = *THERE_AND_BACK, f"pipeline.schedule={schedule}", f"pipeline.allow_recompute={again}"
    experiment = load(*changes, text=BACK)
    profiles = experiment.program.stages
    assert [each.output_bytes for each in profiles] == [ONE + LABELS, ONE + LABELS, ONE + LABELS, 0]
    assert [each.gradient_bytes for each in profiles] == [0, ONE, ONE, ONE]
    waiting = 2 * ONE if schedule == "grouped" else 0  # the value, and later its gradient
    assert [each.waiting_bytes for each in profiles] == [waiting, 0, 0, 0]
    apart = load(*changes[2:], "pipeline.splits=[b, c, d]", text=BACK).program.stages
    assert [each.output_bytes for each in apart] == [ONE + LABELS, 2 * ONE + LABELS, ONE + LABELS, 0]
    unsplit = load("pipeline.schedule=single", "pipeline.splits=[]", text=BACK)
    whole, found = (execute(job).learning for job in (unsplit, experiment))
    assert [loss.loss for loss in whole.losses] == [loss.loss for loss in found.losses]
    for name, array in whole.weights.items():
        np.testing.assert_array_equal(array, found.weights[name])


def test_its_fifo_is_memory_of_its_ipu(load):
    back = execute(load(*THERE_AND_BACK, text=BACK)).memory.footprint
    interleaved = execute(
        load("pipeline.schedule=interleaved", "pipeline.splits=[b, c, d]", text=BACK)
    ).memory.footprint
    held, none = (dict(each.ipus[0].resident)[Holder.FIFOS] for each in (back, interleaved))
    stages = back.stages[0].fifo_bytes + back.stages[2].fifo_bytes
    assert held == stages + 2 * ONE
    assert none == interleaved.stages[0].fifo_bytes


@pytest.mark.parametrize(
    ("devices", "uses", "stage", "back", "depth"),
    [
        ((0, 1, 0), [2], 0, 2, 1),
        ((0, 1, 2, 0), [3], 0, 3, 2),
        ((0, 1, 0, 2, 0), [4], 0, 2, 1),  # the search stops at the first stage there
        ((0, 1, 0), [1, 2], 0, None, 0),  # one between uses it
        ((0, 0, 1), [2], 0, None, 0),  # none lies between
        ((0, 1, 0), [1], 0, None, 0),  # nobody needs it so far on
    ],
)
def test_where_a_value_stays(devices, uses, stage, back, depth):
    returning = Returning(devices, fifos=True)
    assert returning.next_stage(stage, uses) == back
    if back is not None:
        assert returning.depth(stage, back) == depth
        assert Returning(devices, fifos=False).depth(stage, back) == 0


def test_a_value_that_was_not_left_there_is_missed(load):
    experiment = load(*THERE_AND_BACK, text=BACK)
    executor = NumpyExecutor(experiment.program.shape, experiment.workload(0))
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    executor._memories[0].waiting_values.clear()
    for step, ipu in ((1, 1), (2, 0)):
        executor.copy([Edge(step - 1, step)])
        if step == 1:
            executor.run(ipu, Pass.FORWARD, 1, 0)
    with pytest.raises(MissingTensorError, match="the data that another stage leaves on the IPU"):
        executor.run(0, Pass.FORWARD, 2, 0)


#: A U-Net in small: of a's images the middle, and all of b's, stand beside what later layers make.
IMAGES = """
system: {name: pod16}
data: {type: synthetic, shape: [6, 4, 2], classes: 3, samples: 96, hold_out: 16}
model:
  layers:
    - {name: a, type: conv2d, filters: 3, kernel_size: [1, 1], activation: tanh}
    - {name: pool, type: average_pool2d}
    - {name: b, type: conv2d, filters: 2, kernel_size: [2, 1], activation: tanh}
    - {name: c, type: conv2d, filters: 3, kernel_size: [1, 1], activation: tanh}
    - {name: beside, type: concatenate, from: b}
    - {name: up, type: conv2d_transpose, filters: 2, kernel_size: [2, 2], strides: [2, 1], activation: tanh}
    - {name: middle, type: concatenate, from: a, crop: [4, 3]}
    - {name: again, type: concatenate, from: a, crop: [4, 3]}
    - {name: flat, type: flatten}
    - {name: d, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: grouped
  splits: [b, c, middle]
  micro_batch_size: 4
  gradient_accumulation_count: 8
optimizer: {type: sgd, learning_rate: 0.1}
evaluate: {every: 1}
precision: float64
steps: 2
"""


def test_the_middle_of_an_image_is_taken_where_it_is_made(load):
    """a pool | b | c beside up | middle again: its 4 x 3 of 6 x 4 elements travel once, and those of b as an input."""
    profiles, labels = load(text=IMAGES).program.stages, 4 * 4
    pooled, middle, one, up = (4 * 8 * count for count in (3 * 2 * 3, 4 * 3 * 3, 2 * 2 * 2, 4 * 3 * 2))
    assert [each.output_bytes for each in profiles] == [
        pooled + middle + labels,
        one + middle + labels,
        up + middle + labels,
        0,
    ]
    assert [each.gradient_bytes for each in profiles] == [0, pooled + middle, one + middle, up + middle]
    skips = [stage.skips for stage in load(text=IMAGES).workload(0).stages]
    assert [each.input_name for each in skips] == ["", "", "b", ""]
    assert [[value.name for value in each.used_values] for each in skips] == [[], [], ["b"], ["a/4x3"]]
    cut_behind_it = load("pipeline.splits=[pool, c, middle]", text=IMAGES).program.stages
    assert cut_behind_it[0].output_bytes == 4 * 8 * 6 * 4 * 3 + middle + labels
    assert load("pipeline.splits=[pool, c, middle]", text=IMAGES).workload(0).stages[1].skips.input_name == ""


@pytest.mark.parametrize(
    ("model", "old", "new", "place", "text"),
    [
        (SCENARIO, "from: first", "from: frist", 5, "expected an earlier layer, got 'frist'; did you mean first?"),
        (SCENARIO, "from: first", "from: d", 5, "expected an earlier layer, got 'd' (these are a, b, drop, "),
        (
            SCENARIO,
            "a, type: dense, units: 6",
            "a, type: dense, units: 7",
            3,
            "expected an earlier layer with an output of the shape [6], got the output of a with [7]",
        ),
        (
            IMAGES,
            "crop: [4, 3]}\n    - {name: again",
            "crop: [7, 3]}\n    - {name: again",
            6,
            "expected an earlier layer with an output of at ",
        ),
        (
            IMAGES,
            "from: a, crop: [4, 3]}\n    - {name: flat",
            "from: a}\n    - {name: flat",
            7,
            "expected an earlier layer with an output of the ",
        ),
    ],
)
def test_what_cannot_be_added_or_stand_beside(load, model, old, new, place, text):
    with pytest.raises(ScenarioError) as caught:
        load(text=model.replace(old, new))
    problem = caught.value.problems[0]
    assert problem.key == f"model.layers.{place}.from"
    assert problem.text.startswith(text)
