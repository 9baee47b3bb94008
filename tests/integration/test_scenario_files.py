"""The scenario files that ship: each loads, says what it shows, and is what the tutorial and the sources say."""

import re
from pathlib import Path

import jsonschema
import pytest

from ipusim.app.scenario import load_job, load_request
from ipusim.runs.job import Job
from ipusim.runs.request.schema import json_schema
from tests.effort import sampled
from tests.scenarios import SCENARIOS, plain_data

FOLDER = SCENARIOS
FILES = sorted(FOLDER.glob("*.yaml"))
TUTORIAL = [
    "tutorial_step1_single_ipu",
    "tutorial_step2_sharding",
    "tutorial_step3_pipelining",
    "tutorial_step4_configurable_stages",
]
LAYERS = ("flatten", "dense256", "dense128", "dense64", "dense32", "logits", "cel")


def load(name: str, *overrides: str) -> Job:
    return load_job(FOLDER / f"{name}.yaml", overrides)


def layers_of(experiment: Job) -> list[tuple[str, ...]]:
    assert experiment.workload is not None
    return [stage.layers for stage in experiment.workload(0).stages]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_loads_and_begins_with_two_lines_that_say_what_it_shows(file: Path) -> None:
    first, second, *_ = file.read_text().splitlines()
    assert re.fullmatch(r"# .{20,118}", first)
    assert re.fullmatch(r"# .{20,118}", second)
    request = load_request(file)
    assert request.name == file.stem
    assert request.description.startswith(f"{first[2:]} {second[2:]}")


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@sampled(2)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_good_by_its_json_schema(validator: jsonschema.Draft202012Validator, file: Path) -> None:
    validator.validate(plain_data(file))


@pytest.mark.parametrize("name", TUTORIAL)
def test_tutorial_steps_have_the_tutorials_numbers(name: str) -> None:
    experiment = load(name)
    assert sum(layers_of(experiment), ()) == LAYERS
    program = experiment.program
    counts = program.micro_batch_size, program.shape.micro_batches, program.repeat_count
    assert (*counts, program.reduction) == (32, 16, 10, "SUM")  # 5,120 images
    assert experiment.request.options.optimizer is not None
    assert experiment.request.options.optimizer.learning_rate == 0.01
    weights = experiment.workload and {
        key: array.shape
        for index in range(len(program.stages))
        for key, array in experiment.workload(0).initial_parameters(index).items()
    }
    widths = (784, 256, 128, 64, 32, 10)
    assert weights == {
        f"{layer}/{key}": shape
        for layer, inputs, units in zip(LAYERS[1:-1], widths, widths[1:], strict=False)
        for key, shape in [("W", (inputs, units)), ("b", (units,))]
    }


def test_tutorial_steps_differ_in_what_the_tutorial_changes() -> None:
    one, two, three, four = map(load, TUTORIAL)
    assert [experiment.program.schedule for experiment in (one, two, three, four)] == [
        "single",
        "sharded",
        "grouped",
        "grouped",
    ]
    assert [experiment.system.count for experiment in (one, two, three, four)] == [1, 2, 2, 4]
    assert layers_of(one) == [LAYERS]
    assert layers_of(two) == layers_of(three) == [LAYERS[:4], LAYERS[4:]]
    assert layers_of(four) == [LAYERS[:2], LAYERS[2:3], LAYERS[3:4], LAYERS[4:]]
    assert [experiment.system.selection_order for experiment in (two, three)] == ["ZIGZAG", "SNAKE"]


def test_bert_large_is_laid_out_as_graphcore_has_it() -> None:
    experiment = load("bert_large")
    program = experiment.program
    assert {stage.output_bytes - stage.label_bytes for stage in program.stages[:3]} == {8 * 128 * 1024 * 2}
    assert program.shape.mapping == (0, 1, 2, 3, 0)
    assert abs(program.shape.micro_batches - 2048) < 2 * len(program.stages)
    block = 4 * 1024 * 1024 + 1024 * 4097 + 4096 * 1025 + 2 * 2 * 1024  # no biases in attention
    tables = (30_400 + 128) * 1024 + 2 * 1024
    head = 1024 * 1025 + 2 * 1024 + 30_400  # whose kernel is the table of the tokens
    blocks = [3, 7, 7, 7, 0]
    assert [stage.parameter_bytes for stage in program.stages] == [
        2 * (count * block + more) for count, more in zip(blocks, (tables, 0, 0, 0, head), strict=True)
    ]
