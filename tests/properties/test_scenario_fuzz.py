"""Whatever is done to any key of a scenario, it ends as an Job or as problems with places; nothing else."""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ipusim.app.scenario import ScenarioError, load_job
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.source import Source, read_source
from ipusim.runs.job import Job
from ipusim.runs.places import Place
from ipusim.runs.request.schema import json_schema
from tests.effort import draws_everything, in_turn, runs_slowest, sampled, share
from tests.random_runs import any_text

KeyPath = tuple[str | int, ...]

#: Good scenarios that together use every key of the schema; small, so that each resolves in a millisecond.
SAMPLES: dict[str, dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("fuzzed.yaml"))

#: Values of every kind, ordinary and extreme.
VALUES: list[Any] = [*SAMPLES.pop("values"), "9" * 3000, [1] * 2000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "f.py").write_text(
        "import autograd.numpy as np\n"
        "def block(x, W): return np.tanh(x @ W)\n"
        "def double(x): return 2.0 * x\n"
        "def broken(x): return x.nothing\n"
    )
    (folder / "p.csv").write_text("stage,forward [us],backward,update\nlstm,1.5,2 ms,7\n1,4,,\n")
    (folder / "wrong.csv").write_text("stage,forward,backward\nlstm,-1,x\n1,,3 parsecs\n")
    (folder / "r.yaml").write_text("# measured\namp_ceiling: 0.9\nhop_latency: 20 ns\nsession_run: 0.2\n")
    (folder / "wrong.yaml").write_text("amp_ceilin: 0.9\nhop_latency: [20 ns]\nsession_run: 3 parsecs\n")
    np.savez(folder / "data.npz", inputs=np.zeros((4, 3)), targets=np.zeros((4, 3)))
    np.savez(folder / "words.npz", x=np.ones((4, 3, 3)), y=np.ones((4, 2), int))
    (folder / "images.idx").write_bytes(b"\0\0\x08\x02\0\0\0\x03\0\0\0\x01abc")
    (folder / "labels.idx").write_bytes(b"\0\0\x08\x01\0\0\0\x03\0\1\0")
    return folder


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    """The schema as an independent reader takes it; that it is one, a test of the command line says."""
    return jsonschema_rs.Draft202012Validator(json_schema())


def places(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every value below ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield (*path, step)
        yield from places(inner, (*path, step))


def parent(data: Any, path: KeyPath) -> Any:
    for step in path[:-1]:
        data = data[step]
    return data


def experiment(data: dict[str, Any], folder: Path) -> Job | ScenarioError:
    """Resolve ``data`` without the detour over YAML; return the error instead of raising it."""
    source = Source(folder / "fuzz.yaml", "", data, {(): Place("fuzz.yaml", 1, 1)}, {})
    result = outcome(lambda: job_of(source))
    if isinstance(result, ScenarioError):
        assert_plain(result, "fuzz.yaml:1:1: ")
    return result


def outcome(action: Callable[[], Job]) -> Job | ScenarioError:
    try:
        return action()
    except ScenarioError as error:
        return error


def assert_plain(error: ScenarioError, start: str) -> None:
    """Every line begins with a place, and holds no word of the validator's own, nor a tag of a union."""
    lines = str(error).splitlines()
    assert lines
    for line in lines:
        assert line.startswith(start)
        for jargon in (
            "Input should",
            "value_error",
            "Field required",
            "Extra inputs",
            "tuple",
            "union",
            "[key]",
            ".<",
        ):
            assert jargon not in line or "PipelineStageOptions" in line  # Graphcore's own text says tuple


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_good(name: str, folder: Path, validator: jsonschema_rs.Draft202012Validator) -> None:
    result = experiment(SAMPLES[name], folder)
    assert isinstance(result, Job), result
    validator.validate(SAMPLES[name])
    assert result.request.replace({}) == result.request


def test_the_samples_use_every_key_of_the_schema() -> None:
    schema = json_schema()
    nodes = {"Scenario": schema, **schema["$defs"]}
    keys = {key for node in nodes.values() for key in node.get("properties", {})}
    used = {path[-1] for sample in SAMPLES.values() for path in places(sample)}
    assert keys - used == set()


@sampled(2)
@pytest.mark.parametrize("name", SAMPLES)
def test_any_key_missing_or_misspelt(name: str, folder: Path) -> None:
    """One of the two, in turn, of half of the keys; both of every key with ``--every``."""
    both = draws_everything()
    for number, path in enumerate(in_turn([*places(SAMPLES[name])], name)):
        spelt = isinstance(path[-1], str) and path[-2:-1] not in (("parameters",), ("fill",), ("peak",))
        if both or not spelt or number % 2:
            missing = copy.deepcopy(SAMPLES[name])
            del parent(missing, path)[path[-1]]
            experiment(missing, folder)
        if spelt and (both or number % 2 == 0):
            misspelt = copy.deepcopy(SAMPLES[name])
            where = parent(misspelt, path)
            wrong = path[-1][:-1] + "_" + path[-1][-1]
            where[wrong] = where.pop(path[-1])
            error = experiment(misspelt, folder)
            assert isinstance(error, ScenarioError)
            assert repr(wrong) in str(error) or "got nothing" in str(error)


@sampled(2)
@pytest.mark.parametrize("name", SAMPLES)
def test_any_value_replaced(name: str, folder: Path, validator: jsonschema_rs.Draft202012Validator) -> None:
    draw, data = random.Random(name), copy.deepcopy(SAMPLES[name])
    count = 20 if draws_everything() else 3 if runs_slowest() else 2
    for path in places(SAMPLES[name]):
        where = parent(data, path)
        kept = where[path[-1]]
        for value in draw.sample(VALUES, count):
            where[path[-1]] = copy.deepcopy(value)
            result = experiment(data, folder)
            if isinstance(result, Job) and "type" not in path:
                assert validator.is_valid(data)
        where[path[-1]] = kept
    assert data == SAMPLES[name], "what is asked for stays as it was"


@settings(max_examples=share(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_several_changes_at_once_through_yaml(folder: Path, draw: st.DataObject) -> None:
    data = copy.deepcopy(SAMPLES[draw.draw(st.sampled_from(sorted(SAMPLES)))])
    for _ in range(draw.draw(st.integers(1, 4))):
        paths = list(places(data))
        if paths:
            path = draw.draw(st.sampled_from(paths))
            value = draw.draw(st.sampled_from([*VALUES, ...]))
            if value is ...:
                parent(data, path).pop(path[-1])
            else:
                parent(data, path)[path[-1]] = copy.deepcopy(value)
    file = folder / "drawn.yaml"
    file.write_text(flow(data), encoding="utf-8")
    result = outcome(lambda: resolved(file, data))
    if isinstance(result, ScenarioError):
        assert_plain(result, f"{file}:")


def resolved(file: Path, data: dict[str, Any]) -> Job:
    source = read_source(file)
    assert flow(source.data) == flow(data)
    return job_of(source)


@settings(max_examples=share(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_text(max_size=80) | st.binary(max_size=80) | st.text("-:#{}[],&*!|>'\"%@` \n\tab1", max_size=40))
def test_any_text_as_a_scenario_and_as_an_override(folder: Path, text: str | bytes) -> None:
    file = folder / "text.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ScenarioError):
        load_job(file)
    if isinstance(text, str):
        good = folder / "good.yaml"
        good.write_text(flow(SAMPLES["timed"]))
        for override in (text, f"seed={text}", f"pipeline.stages.{text}"):
            result = outcome(lambda given=override: load_job(good, [given]))
            assert isinstance(result, Job) or str(result).startswith("--set ")


def flow(value: Any) -> str:
    """Return YAML for plain data."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)
