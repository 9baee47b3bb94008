"""What a person reads when a scenario is wrong: one exact line for each kind of mistake."""

from pathlib import Path

import pytest

from ipusim.app.scenario import ScenarioError, load_job, load_request
from ipusim.base.near_names import list_names
from ipusim.runs.places import Place, PlacedProblem
from tests import schedules

GOOD = """\
# A small classifier in two stages.
system: {name: m2000, auto_select_ipus: 2}
data: {type: synthetic, shape: [4, 4], classes: 4, samples: 64}
model:
  layers:
    - {name: flatten, type: flatten}
    - {name: hidden, type: dense, units: 8, activation: relu}
    - {name: logits, type: dense, units: 4}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: grouped
  splits: [logits]
  micro_batch_size: 8
  gradient_accumulation_count: 8
optimizer: {type: sgd, learning_rate: 0.1}
"""

FUNCTIONS = """\
import autograd.numpy as np


def block(x, W):
    return np.tanh(x @ W)


def broken(x):
    return x.nothing


constant = 3
"""

LAYERS = "(the layers are flatten, hidden, logits, cel)"
ORDER = "(the layers in order are flatten, hidden, logits, cel)"
NAME = "a name of at most 64 letters, digits, _ and -, the first one a letter or _"
ALSO_CALLED = (
    "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` "
    "or `steps_per_execution` depending on the API used."
)
GROUPED = "schedule: grouped\n  splits: [logits]"
DENSE = "type: dense, units: 8, activation: relu"
DATA = "{type: synthetic, shape: [4, 4], classes: 4, samples: 64}"
LOSS = "    - {name: cel, type: softmax_cross_entropy}\n"

#: What is wrong: the part of GOOD that is replaced, by what, and the lines that come out.
CASES = {
    "unknown key": (
        "auto_select_ipus",
        "auto_select_ipu",
        "bad.yaml:2:23: system.auto_select_ipu: got 'auto_select_ipu'; did you mean auto_select_ipus? "
        "Expected one of the keys name, auto_select_ipus, select_ipus, selection_order, sync_replicas_independently, "
        "clock, overhead, host, enable_remote_buffers, streaming_memory, io_tiles, matmuls, convolutions, "
        "minimum_remote_tensor_size, minimum_sharded_elements, maximum_cross_replica_sum_buffer_size",
    ),
    "missing key": (
        "  gradient_accumulation_count: 8\n",
        "",
        "bad.yaml:11:3: pipeline.gradient_accumulation_count: expected a whole number from 1 to 2147483647, got "
        "nothing "
        "(micro-batches of one execution of the pipeline)",
    ),
    "empty value": (
        "size: 8",
        "size:",
        "bad.yaml:13:3: pipeline.micro_batch_size: expected a whole number from 1 to 65536, got nothing",
    ),
    "no prefetch": (
        "optimizer:",
        "infeed: {prefetch_depth: 0}\noptimizer:",
        "bad.yaml:15:26: infeed.prefetch_depth: prefetch_depth must be greater than zero, but it is 0",
    ),
    "too much prefetch": (
        "optimizer:",
        "infeed: {prefetch_depth: 256}\noptimizer:",
        "bad.yaml:15:26: infeed.prefetch_depth: prefetch_depth must be less than 256, but it is 256",
    ),
    "no room in the outfeed": (
        "optimizer:",
        "outfeed: {buffer_depth: 0}\noptimizer:",
        "bad.yaml:15:25: outfeed.buffer_depth: Outfeed buffer depth cannot be less than 1",
    ),
    "truth for a number": (
        "size: 8",
        "size: true",
        "bad.yaml:13:21: pipeline.micro_batch_size: expected a whole number from 1 to 65536, got true",
    ),
    "not a number": (
        "learning_rate: 0.1",
        "learning_rate: .nan",
        "bad.yaml:15:39: optimizer.learning_rate: expected a number from 0 to 1000000, got nan",
    ),
    "number for a list": (
        "splits: [logits]",
        "splits: 1",
        f"bad.yaml:12:11: pipeline.splits: got 1; expected a list of 0 to 255 items, each {NAME}",
    ),
    "list for a mapping": (
        "{name: m2000, auto_select_ipus: 2}",
        "[m2000, 2]",
        "bad.yaml:2:9: system: got ['m2000', 2]; expected a mapping with keys out of name, auto_select_ipus, "
        "select_ipus, selection_order, sync_replicas_independently, clock, overhead, host, enable_remote_buffers, "
        "streaming_memory, io_tiles, matmuls, convolutions, minimum_remote_tensor_size, minimum_sharded_elements, "
        "maximum_cross_replica_sum_buffer_size",
    ),
    "unknown schedule": (
        "grouped",
        "groupd",
        f"bad.yaml:11:13: pipeline.schedule: got 'groupd'; did you mean grouped? Expected "
        f"{schedules.SCHEDULES_OR_FILES}",
    ),
    "unknown type of layer": (
        "type: dense, units: 8",
        "type: desne, units: 8",
        f"bad.yaml:7:28: model.layers.1.type: got 'desne'; did you mean dense? Expected "
        f"{list_names(schedules.LAYERS, 'desne')}, which `ipusim check --schema` lists",
    ),
    "no type of layer": (
        "type: dense, units: 8, ",
        "",
        f"bad.yaml:7:7: model.layers.1.type: got nothing; expected {', '.join(schedules.LAYERS[:12])} "
        f"and {len(schedules.LAYERS) - 12} more, which `ipusim check --schema` lists",
    ),
    "key of another type of layer": (
        "type: flatten",
        "type: flatten, units: 3",
        "bad.yaml:6:38: model.layers.0.units: expected one of the keys name, trainable, type, got 'units'",
    ),
    "number for a layer": (
        "{name: flatten, type: flatten}",
        "7",
        "bad.yaml:6:7: model.layers.0: expected a layer, such as {name: hidden, type: dense, units: 64}, got 7",
    ),
    "number for a stage": (
        "splits: [logits]",
        "stages: [7]",
        "bad.yaml:12:12: pipeline.stages.0: expected a list of layer names, or a mapping with a name, and layers, "
        "python or forward, got 7",
    ),
    "bad name": (
        "name: hidden",
        "name: hidden layer",
        f"bad.yaml:7:14: model.layers.1.name: expected {NAME}, got 'hidden layer'",
    ),
    "bad name of a parameter": (
        DENSE,
        "python: f.py:block, parameters: {5: [3]}",
        f"bad.yaml:7:55: model.layers.1.parameters.5: expected {NAME}, got '5'",
    ),
    "off is no truth": (
        "optimizer",
        "numerics: false\noptimizer",
        "bad.yaml:15:11: numerics: expected on or off, got false",
    ),
    "wrong unit": (
        "name: m2000",
        "name: m2000, clock: 3 GB",
        "bad.yaml:2:30: system.clock: expected hertz in one of Hz, kHz, KHz, MHz, GHz, THz such as '1.325 GHz', "
        "got '3 GB'",
    ),
    "quantity out of bounds": (
        "name: m2000",
        "name: m2000, overhead: 3 s",
        "bad.yaml:2:33: system.overhead: expected seconds from 0 to 1 s, as a number or with a unit such as 3.7 us, "
        "got '3 s'",
    ),
    "part of a byte": (
        "optimizer",
        "infeed: {element_bytes: 0.3 B}\noptimizer",
        "bad.yaml:15:25: infeed.element_bytes: expected a whole number of bytes, got '0.3 B'",
    ),
    "three IPUs": (
        "auto_select_ipus: 2",
        "auto_select_ipus: 3",
        "bad.yaml:2:41: system.auto_select_ipus: Unsupported number of IPUs requested - could not find an IPU device "
        "with 3 IPUs (m2000 has devices with 1, 2 or 4 IPUs)",
    ),
    "too few IPUs": (
        "auto_select_ipus: 2",
        "auto_select_ipus: 1",
        "bad.yaml:2:41: system.auto_select_ipus: expected a device of 2 IPUs for 2 stages, got a device of 1; give "
        "device_mapping to run several stages on one IPU",
    ),
    "no such device": (
        "auto_select_ipus: 2",
        "select_ipus: 7",
        "bad.yaml:2:36: system.select_ipus: m2000 has no device with id 7: ids go from 0 to 6",
    ),
    "device of another size": (
        "auto_select_ipus: 2",
        "auto_select_ipus: 4, select_ipus: 4",
        "bad.yaml:2:57: system.select_ipus: device 4 of m2000 has 2 IPUs, but 4 were requested",
    ),
    "stage mapped nowhere": (
        GROUPED,
        GROUPED + "\n  device_mapping: [0, 2]",
        "bad.yaml:13:23: pipeline.device_mapping.1: expected an IPU from 0 to 1 of the device's 2, got 2; use a "
        "larger device, or another IPU",
    ),
    "mapping of another length": (
        GROUPED,
        GROUPED + "\n  device_mapping: [0]",
        "bad.yaml:13:19: pipeline.device_mapping: Each stage must be mapped to an IPU: 1 mappings != 2 stages",
    ),
    "two stages on an IPU, interleaved": (
        GROUPED,
        "schedule: interleaved\n  splits: [logits]\n  device_mapping: [0, 0]",
        "bad.yaml:13:19: pipeline.device_mapping: The pipelining schedule 'Interleaved' does not currently support "
        "multiple pipeline stages on the same device for training graphs. Please use a different pipeline schedule.",
    ),
    "several IPUs, single": (
        GROUPED,
        "schedule: single\n  splits: [logits]\n  device_mapping: [0, 1]",
        "bad.yaml:13:19: pipeline.device_mapping: The schedule 'single' runs on one IPU, but the stages are mapped to "
        "IPUs 0, 1; use 'sharded' to run one micro-batch at a time there.",
    ),
    "one stage, sharded": (
        GROUPED,
        "schedule: sharded",
        "bad.yaml:11:13: pipeline.schedule: expected at least two stages to shard, got one stage: name layers in "
        "splits, or use the schedule single",
    ),
    "one stage, grouped": (
        GROUPED,
        "schedule: grouped",
        "bad.yaml:11:13: pipeline.schedule: Pipeline requires at least two computational stages. Name layers in "
        "splits, "
        "or use the schedule single.",
    ),
    "recomputation, sequential": (
        "grouped",
        "sequential\n  recomputation_mode: RecomputeThenBackpropagate",
        "bad.yaml:12:23: pipeline.recomputation_mode: Pipeline schedule Sequential does not support "
        "'Recompute_then_backpropagate' recomputation mode. Leave recomputation_mode out, or "
        "set Auto: each schedule then takes a mode that it supports.",
    ),
    "bytes of synthetic data": (
        "optimizer: {type",
        "use_synthetic_data: true\ninfeed: {element_bytes: 4 KiB}\noptimizer: {type",
        "bad.yaml:16:25: infeed.element_bytes: expected no bytes with use_synthetic_data, because the feeds then move "
        "no bytes; leave one of the two out",
    ),
    "costs of the free system": (
        "{name: m2000, auto_select_ipus: 2}",
        "{name: free, overhead: 3 us}",
        "bad.yaml:2:32: system.overhead: expected no cost on the free system, where copies and the host are free, got "
        "a cost",
    ),
    "count no multiple of the overlap length": (
        "count: 8",
        "count: 10",
        "bad.yaml:14:32: pipeline.gradient_accumulation_count: The number of iterations of the pipeline must be a "
        f"multiple of 4, but it is 10. {ALSO_CALLED} The nearest counts of grouped: 8 or 12.",
    ),
    "too many passes": (
        "optimizer",
        "steps: 1000000\noptimizer",
        "bad.yaml:15:8: steps: expected a run that takes at most 2 GiB of memory here, got one of up to 88.57 GiB: 8 "
        "gradient_accumulation_count x 1 repeat_count x 1000000 steps make up to 190000000 spans of the trace and "
        "91.55 MiB of results; make one of the three smaller",
    ),
    "splits out of order": (
        "[logits]",
        "[logits, hidden]",
        "bad.yaml:12:20: pipeline.splits.1: expected a layer after 'logits', got 'hidden': list splits once each, in "
        "the order of the layers, flatten, hidden, logits, cel",
    ),
    "splits and stages": (
        "splits: [logits]",
        "splits: [logits]\n  stages: [[flatten, hidden], [logits, cel]]",
        "bad.yaml:12:11: pipeline.splits: expected splits or stages, got both: leave one out",
    ),
    "layer in no stage": (
        "splits: [logits]",
        "stages: [[flatten, hidden], [logits]]",
        "bad.yaml:12:11: pipeline.stages: expected all layers of the model in stages, got no stage with cel",
    ),
    "named stage of an unknown layer": (
        "splits: [logits]",
        "stages: [{name: first, layers: [flatten, hiden]}, [logits, cel]]",
        "bad.yaml:12:44: pipeline.stages.0.layers.1: expected the layer 'hidden', got 'hiden'; did you mean hidden? "
        + ORDER,
    ),
    "two stages of one name": (
        "splits: [logits]",
        "stages: [{name: stage1, layers: [flatten, hidden]}, [logits, cel]]",
        "bad.yaml:12:55: pipeline.stages.1.name: expected a different name for each stage, got 'stage1' again",
    ),
    "stage that computes nothing beside others": (
        "splits: [logits]",
        "stages: [[flatten, hidden], [logits, cel], {name: idle, forward: 3}]",
        "bad.yaml:12:46: pipeline.stages.2: expected a stage that computes, like the other stages, got a stage with "
        "only costs",
    ),
    "cycles of another number of stages": (
        "splits: [logits]",
        "splits: [logits]\n  cycles: [{forward: 3}]",
        "bad.yaml:13:11: pipeline.cycles: expected the cycles of 2 stages, got the cycles of 1",
    ),
    "layer after the loss": (
        LOSS,
        LOSS + "    - {name: more, type: flatten}\n",
        "bad.yaml:9:7: model.layers.3: expected the loss as the last layer, got layers after 'cel'",
        "bad.yaml:10:7: model.layers.4: expected a loss as the last layer to train, got 'more': add one, or leave "
        "optimizer out",
    ),
    "training without an optimizer": (
        "optimizer: {type: sgd, learning_rate: 0.1}",
        "training: true",
        "bad.yaml:15:11: training: expected an optimizer to train with, got none: add one, or set training to false",
    ),
    "shapes that do not fit": (
        DENSE,
        "python: f.py:block, parameters: {W: [8, 8]}",
        "bad.yaml:7:7: model.layers.1: hidden does not fit an input of shape [16]: python function 'block' "
        "({tmp}/f.py:5) on (2, 16): ValueError: matmul: Input operand 1 has a mismatch in its core dimension 0, with "
        "gufunc signature (n?,k),(k,m?)->(n?,m?) (size 8 is different from 16)",
    ),
    "labels of another kind": (
        "softmax_cross_entropy",
        "mean_squared_error",
        "bad.yaml:9:7: model.layers.3: cel does not fit the labels of synthetic: mean squared error needs "
        "floating-point targets, got int32 labels",
    ),
    "no such Python file": (
        DENSE,
        "python: g.py:block",
        "bad.yaml:7:30: model.layers.1.python: 'g.py:block': cannot read {tmp}/g.py: No such file or directory",
    ),
    "no such function": (
        DENSE,
        "python: f.py:blok",
        "bad.yaml:7:30: model.layers.1.python: 'f.py:blok': {tmp}/f.py has no function 'blok'; it has block, broken",
    ),
    "no Python reference": (
        DENSE,
        "python: f.block",
        "bad.yaml:7:30: model.layers.1.python: expected a Python function as file.py:function, the file relative to "
        "the scenario, got 'f.block'",
    ),
    "parameters too large": (
        DENSE,
        "python: f.py:block, parameters: {W: [65536, 65536]}",
        "bad.yaml:7:54: model.layers.1.parameters: expected at most 67108864 trainable elements, got 4294967296: the "
        "function is called with the elements to find its cost; use fewer elements",
    ),
    "missing data file": (
        DATA,
        "{type: idx, images: a.idx, labels: f.py}",
        "bad.yaml:3:27: data.images: expected a file that can be read, got a.idx: No such file or directory",
    ),
    "data file of another format": (
        DATA,
        "{type: npz, file: f.py}",
        "bad.yaml:3:25: data.file: f.py: not a NumPy archive: File is not a zip file",
    ),
    "unknown data": (
        "type: synthetic",
        "type: mnist",
        "bad.yaml:3:14: data.type: expected synthetic, synthetic_targets, synthetic_tokens, digits, idx or npz, "
        "got 'mnist'; did you mean idx?",
    ),
    "micro-batch larger than the data": (
        "micro_batch_size: 8",
        "micro_batch_size: 65",
        "bad.yaml:13:21: pipeline.micro_batch_size: expected a micro-batch of at most the 64 samples of the data, "
        "got 65: make it smaller, or take more samples",
    ),
    "too few samples": (
        "samples: 64",
        "samples: 3",
        "bad.yaml:3:61: data.samples: expected at least one sample for each of 4 classes, got 3",
    ),
    "too much data": (
        "shape: [4, 4]",
        "shape: [65536, 65536]",
        "bad.yaml:3:69: data.samples: expected at most 67108864 numbers in all, got 64 samples of 4294967300: use "
        "fewer samples",
    ),
    "all data held out": (
        "samples: 64",
        "samples: 64, hold_out: 64",
        "bad.yaml:3:75: data.hold_out: synthetic: cannot hold out 64 of 64 samples: expected a number from 1 to "
        "63, or a fraction that gives such a number",
    ),
    "no data": (
        f"data: {DATA}\n",
        "",
        "bad.yaml:2:1: data: expected data with samples as the model's input, got none: add for example data: "
        "{type: synthetic, shape: [28, 28], classes: 10, samples: 1000}",
    ),
    "evaluation without data": (
        "optimizer",
        "evaluate: {every: 2}\noptimizer",
        "bad.yaml:15:11: evaluate: expected held-out samples to evaluate on, got none: add hold_out to data, such as "
        "hold_out: 0.2",
    ),
    "all problems at once": (
        GROUPED,
        "schedule: grouped\n  splits: [logit, flatten]\n  device_mapping: [0, 2]",
        "bad.yaml:12:12: pipeline.splits.0: expected the name of a layer, got 'logit'; did you mean logits? " + LAYERS,
        "bad.yaml:12:19: pipeline.splits.1: expected a layer after the first, got 'flatten', which would leave the "
        "first stage empty",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_scenario_that_all_cases_spoil_is_good():
    Path("good.yaml").write_text(GOOD)
    assert load_job(Path("good.yaml")).name == "good"


@pytest.mark.parametrize("case", CASES)
def test_message(case, folder):
    old, new, *lines = CASES[case]
    assert old in GOOD
    told = problems_of(GOOD.replace(old, new, 1), load_job)
    assert str(told).splitlines() == [line.replace("{tmp}", str(folder)) for line in lines]


def problems_of(text, load=load_request):
    """What is told of a scenario of some text."""
    Path("bad.yaml").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load(Path("bad.yaml"))
    return caught.value


@pytest.mark.usefixtures("folder")
def test_problems_of_different_sections_are_reported_together_in_the_order_of_the_file():
    text = GOOD.replace("auto_select_ipus: 2", "auto_select_ipus: 3").replace("[logits]", "[logit]")
    problems = problems_of(text.replace("samples: 64", "samples: 2"), load_job).problems
    assert [problem.key for problem in problems] == ["system.auto_select_ipus", "data.samples", "pipeline.splits.0"]


@pytest.mark.usefixtures("folder")
def test_a_message_is_one_line_whatever_the_key():
    (line,) = str(problems_of(GOOD + '"two\\nlines": 1\n')).splitlines()
    assert line.startswith("bad.yaml:16:1: two lines: got 'two\\nlines'; expected one of the keys")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("written", [r"\x1b", r"\x07", r"\x7f", r"\x9b", r"\u202e", r"\u200b", r"\ufeff"])
def test_a_message_shows_what_is_not_printable_in_a_key_as_an_escape(written):
    told = str(problems_of(GOOD + f'"a{written.replace("x", "u00")}b": 1\n'))
    assert told.startswith(f"bad.yaml:16:1: a{written}b: got 'a{written}b'; expected one of the keys")


def test_of_very_many_problems_the_first_are_told_and_the_rest_are_counted_at_a_place():
    problems = [PlacedProblem(Place("s.yaml", line, 1), "seed", "is wrong") for line in range(1, 1001)]
    lines = str(ScenarioError(problems)).splitlines()
    assert lines[:199] == [str(problem) for problem in problems[:199]]
    assert lines[199:] == ["s.yaml:200:1: seed: ... and 801 more problems"]
    assert str(ScenarioError(problems[:200])).splitlines() == [str(problem) for problem in problems[:200]]
