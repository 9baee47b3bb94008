"""The scenario files that ship: each loads, says what it shows, and is what the tutorial and the sources say."""

import re
from pathlib import Path

import jsonschema
import pytest

from ipusim.app.scenario import load_job, load_request
from ipusim.runs.request.schema import json_schema
from tests.effort import sampled
from tests.scenarios import SCENARIOS, plain_data

FOLDER = SCENARIOS
FILES = sorted(FOLDER.glob("*.yaml"))


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


@pytest.mark.parametrize("file", sorted(FOLDER.glob("tutorial_step*.yaml")), ids=lambda file: file.stem)
def test_tutorial_steps_learn_as_the_tutorials_programs_do(file: Path) -> None:
    """Their layers, stages and IPUs are those of its programs, in tests/oracles/test_programs.py."""
    job = load_job(file)
    program, optimizer = job.program, job.request.options.optimizer
    assert program.shape.micro_batches * program.repeat_count * program.micro_batch_size == 16 * 10 * 32 == 5120
    assert (program.reduction, optimizer and optimizer.learning_rate) == ("SUM", 0.01)


def test_bert_large_is_laid_out_as_graphcore_has_it() -> None:
    experiment = load_job(FOLDER / "bert_large.yaml")
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
