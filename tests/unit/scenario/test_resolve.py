"""From a scenario to domain values: what each key becomes, and what it is when left out."""

import re
from fractions import Fraction

import jsonschema
import numpy as np
import pytest

from ipusim.app.scenario import ScenarioError, load_job
from ipusim.app.suggest.units import movable
from ipusim.hardware.build import build_system
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.layer import LayerCost
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.request.schema import json_schema
from tests.unit.scenario.test_messages import GOOD

TRAINING = GOOD.replace(", auto_select_ipus: 2", "").replace("  schedule: grouped\n", "")

TIMED = """\
system: {name: free}
pipeline:
  stages:
    - {name: a, forward: 10, backward: 20, update: 3, output_bytes: 4 KiB}
    - {name: b, forward: 11, gradient_bytes: 5 KiB, parameter_bytes: 1 kB}
  gradient_accumulation_count: 4
"""

FUNCTIONS = """\
import autograd.numpy as np


def block(x, W, b):
    return np.tanh(np.reshape(x, (len(x), -1)) @ W) + b


def squares(x, labels):
    return np.mean((x - np.eye(4)[labels]) ** 2)
"""


@pytest.fixture
def load(tmp_path):
    def load(text, *overrides):
        (tmp_path / "f.py").write_text(FUNCTIONS)
        (tmp_path / "s.yaml").write_text(text)
        return load_job(tmp_path / "s.yaml", overrides)

    return load


def workload(experiment):
    return experiment.workload(0)


def test_defaults(load):
    experiment = load(TRAINING)
    assert (experiment.name, experiment.request.description) == ("s", "A small classifier in two stages.")
    assert experiment.system == build_system("m2000", mapping=(0, 1))
    program = experiment.program
    assert program.shape == PlanShape(mapping=(0, 1), micro_batches=8)
    assert (program.schedule, program.repeat_count, program.reduction) == ("grouped", 1, "SUM")
    assert (program.infeed, program.outfeed) == (Infeed(8 * (16 * 4 + 4), 3), Outfeed(4, "ALL", 3))
    assert (experiment.steps, experiment.executions) == (1, 1)
    assert experiment.held_out is None
    assert (experiment.constant_loss, workload(experiment).dtype) == (pytest.approx(np.log(4)), np.float32)
    assert workload(experiment).optimizer == SGD(0.1)
    assert [stage.layers for stage in workload(experiment).stages] == [("flatten", "hidden"), ("logits", "cel")]


def test_stages_of_layers_may_have_names(load):
    """They change nothing else: such a model may be cut anew as one of plain lists is."""
    named = "stages: [{name: first, layers: [flatten, hidden]}, [logits, cel]]"
    plain, found = load(TRAINING), load(TRAINING.replace("splits: [logits]", named))
    assert [stage.name for stage in found.program.stages] == ["first", "stage1"]
    assert [stage.layers for stage in found.program.stages] == [stage.layers for stage in plain.program.stages]
    assert (found.costs.passes, movable(found.request.options)) == (plain.costs.passes, True)


def test_every_key_of_system_reaches_the_hardware(load):
    overrides = [
        "system.name=C2_Server",
        "system.select_ipus=20",
        "system.selection_order=hoof",
        "system.clock=1.5 GHz",
        "system.overhead=2.5 us",
        "system.host={infeed: 1 GB/s, host_fill: 16 Gbit/s, outfeed: 3e9, host_drain: 4000000000, data_rate: 1 MB/s}",
    ]
    assert load(TRAINING, *overrides).system == build_system(
        "c2_server",
        mapping=(0, 1),
        select=20,
        selection_order="HOOF",
        clock_hz=1_500_000_000,
        overhead_ns=Fraction(2500),
        host_rates={
            "infeed_bytes_per_s": Fraction(10**9),
            "host_fill_bytes_per_s": Fraction(2 * 10**9),
            "outfeed_bytes_per_s": Fraction(3 * 10**9),
            "host_drain_bytes_per_s": Fraction(4 * 10**9),
            "data_rate_bytes_per_s": Fraction(10**6),
        },
    )


def test_sharding_is_no_pipeline_to_auto_selection(load):
    orders = [load(TRAINING, f"pipeline.schedule={name}").system.selection_order for name in ("grouped", "sharded")]
    assert orders == ["SNAKE", "ZIGZAG"]


def test_counts_feeds_and_repeats(load):
    overrides = [
        "name=other",
        "pipeline.repeat_count=3",
        "steps=2",
        "pipeline.reduction_method=mean",
        "pipeline.allow_recompute=true",
        "pipeline.device_mapping=[1, 0]",
        "infeed={prefetch_depth: 1, element_bytes: 2 KiB}",
        "outfeed={mode: last, buffer_depth: 7, element_bytes: 12}",
    ]
    experiment = load(TRAINING, *overrides)
    assert experiment.name == experiment.program.name == "other"
    assert experiment.program.shape == PlanShape(mapping=(1, 0), micro_batches=8, recompute=True)
    assert experiment.program.reduction == workload(experiment).reduction == "MEAN"
    assert (experiment.program.infeed, experiment.program.outfeed) == (Infeed(2048, 1), Outfeed(12, "LAST", 7))
    assert experiment.executions == 6


@pytest.mark.parametrize(
    "override", ["optimizer=", "optimizer=null", "optimizer=none", "optimizer=None", "training=false"]
)
def test_without_optimizer_or_with_training_off_it_is_inference(load, override):
    experiment = load(TRAINING, override)
    assert not experiment.program.shape.training
    assert workload(experiment).optimizer is None
    assert [(stage.backward, stage.update, stage.gradient_bytes) for stage in experiment.program.stages] == [
        ((), (), 0),
        ((), (), 0),
    ]


def test_none_as_an_optimizer_is_good_by_the_json_schema_too():
    schema = json_schema()
    validator = jsonschema.Draft202012Validator(schema["properties"]["optimizer"] | {"$defs": schema["$defs"]})
    assert [validator.is_valid(word) for word in ("none", None, "nine")] == [True, True, False]


def test_samples_that_come_several_times_in_one_weight_update_are_a_note(load):
    assert load(TRAINING).notes == ()
    (note,) = load(TRAINING, "data.hold_out=4").notes
    assert note.startswith("Each weight update takes 64 samples, and the data have 60 to train on: ")
    assert load(TRAINING, "data.hold_out=4", "optimizer=none").notes == ()
    (note,) = load(TRAINING, "system.auto_select_ipus=4").notes
    assert note.startswith("Each weight update takes 128 samples, and the data have 64")
    (note,) = load(TRAINING, "system.host.count=3").notes
    assert note.startswith("Each weight update takes 192 samples, and the data have 64")


def test_optimizers_precision_and_seed(load):
    overrides = ["optimizer={type: momentum, learning_rate: 1, momentum: 0.9}", "precision=float64", "seed=5"]
    work = workload(load(TRAINING, *overrides))
    assert work.optimizer == Momentum(1, 0.9)
    assert (work.dtype, work.seed, work.feed.seed) == (np.float64, 5, 5)
    assert (work.feed.dataset.x.dtype, work.initial_parameters(0)["hidden/W"].dtype) == (np.float64, np.float64)


def test_held_out_samples_are_not_trained_on(load):
    experiment = load(TRAINING, "data.hold_out=0.25", "evaluate.every=2")
    assert experiment.held_out.interval == 2
    (whole,) = experiment.held_out.stages
    assert whole.layers == tuple(name for stage in workload(experiment).stages for name in stage.layers)
    train, held_out = workload(experiment).feed.dataset.x, experiment.held_out.dataset.x
    assert (len(train), len(held_out)) == (48, 16)
    assert not {row.tobytes() for row in train} & {row.tobytes() for row in held_out}
    assert load(TRAINING, "data.hold_out=16").held_out.interval is None


def test_measured_cycles_replace_the_counted_work_and_nothing_else(load):
    cycles = "pipeline.cycles=[{forward: 1, backward: 2, update: 3}, {forward: 4}]"
    counted, measured = load(TRAINING).program.stages, load(TRAINING, cycles).program.stages
    assert [(stage.forward, stage.backward, stage.update) for stage in measured] == [(1, 2, 3), (4, 0, 0)]
    assert [stage.output_bytes for stage in measured] == [stage.output_bytes for stage in counted]
    assert [(s.backward, s.update) for s in load(TRAINING, cycles, "training=false").program.stages] == [(0, 0)] * 2


def test_stages_known_by_their_cost(load):
    experiment = load(TIMED)
    a, b = experiment.program.stages
    assert (a.name, a.forward, a.backward, a.update, a.output_bytes) == ("a", 10, 20, 3, 4096)
    assert (b.name, b.forward, b.backward, b.gradient_bytes, b.parameter_bytes) == ("b", 11, 0, 5120, 1000)
    assert experiment.workload is None
    assert experiment.program.shape.training
    assert experiment.program.infeed.element_bytes == 0


def test_stages_without_backward_cycles_are_inference_unless_said(load):
    timed = TIMED.replace("backward: 20, ", "")
    assert not load(timed).program.shape.training
    assert load(timed).program.stages[0].update == 0
    assert load(timed, "training=true").program.shape.training
    assert not load(TIMED, "training=false").program.shape.training


def test_python_functions_as_layer_stage_and_loss(load):
    spec = "{name: mine, python: f.py:block, parameters: {W: [16, 4], b: [4]}, fill: {b: 0.5}}"
    stages = f"pipeline.stages=[{spec}, [cel]]"
    loss = "{name: cel, python: f.py:squares, loss: true, cost: {forward: 7, backward: 9}}"
    experiment = load(TRAINING, "pipeline.splits=", stages, f"model.layers=[{loss}]")
    first, last = workload(experiment).stages
    assert (first.name, first.layers, last.layers) == ("mine", ("mine",), ("cel",))
    layer, function = first.named_layers[0].layer, last.loss.layer
    assert isinstance(layer, PythonLayer)
    assert isinstance(function, PythonLoss)
    assert workload(experiment).initial_parameters(0)["mine/b"].tolist() == [0.5] * 4
    assert isinstance(layer.cost((4, 4), 8, 4), LayerCost)
    forward, backward = experiment.program.stages[1].forward, experiment.program.stages[1].backward
    assert [work.cycles for work in (*forward, *backward)] == [7, 9]


def test_every_key_that_takes_cycles_takes_a_time_by_the_clock_of_the_system(load):
    costs = "{forward: 1.2 ms, backward: 2.5us, update: 7 cycles}"
    # 1.2 ms at 1.33 GHz are 1,596,000 cycles, 2.5 us are 3325.
    for timed in (
        load(
            TIMED, "pipeline.stages.0.forward=1.2 ms", "pipeline.stages.0.backward=2.5us", "pipeline.stages.0.update=7"
        ),
        load(TRAINING, f"pipeline.cycles=[{costs}, {costs}]"),
        load(TIMED, f"pipeline.stages=[{{name: a, {costs[1:]}, {{name: b, {costs[1:]}]"),
    ):
        stage = timed.program.stages[0]
        assert (stage.forward, stage.backward, stage.update) == (1_596_000, 3_325, 7)
    loss = "{name: cel, python: f.py:squares, loss: true, cost: {forward: 1.2 ms, backward: 2.5 us}}"
    experiment = load(TRAINING, f"model.layers.3={loss}")
    forward, backward = experiment.program.stages[1].forward[-1], experiment.program.stages[1].backward[0]
    assert (forward.cycles, backward.cycles) == (1_596_000, 3_325)


def test_no_other_key_takes_cycles():
    """Of all the keys of the schema, those whose description says cycles have the field that reads times too."""

    def fields(node):
        if isinstance(node, dict):
            yield node
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from fields(child)

    said = [node for node in fields(json_schema()) if "cycles of the tile clock" in str(node.get("description"))]
    assert len(said) >= 6
    assert all(str(node["errorMessage"]).endswith("or a time such as 1.2 ms") for node in said)


@pytest.mark.parametrize("wrong", ["1.2 parsecs", "200 s", "-1 us", "-1", "12 KiB", "true", "[1]", "1e400"])
def test_what_is_neither_cycles_nor_a_time_is_told_so(load, wrong):
    expected = "pipeline.stages.1.forward: expected cycles from 0 to 100000000000, or a time such as 1.2 ms, got "
    with pytest.raises(ScenarioError, match=re.escape(expected)):
        load(TIMED, f"pipeline.stages.1.forward={wrong}")


def test_time_alone_is_simulated_of_models_of_any_size(load):
    units = ("model.layers.1.units=65536", "model.layers.2.units=65536", "memory=report")
    with pytest.raises(ScenarioError, match=r"trainable elements.*: make it smaller, or simulate only time with numer"):
        load(TRAINING, *units)
    experiment = load(TRAINING, *units, "numerics=off")
    assert experiment.workload is None
    assert experiment.program.stages[1].parameter_bytes == 4 * 65536 * 65537
