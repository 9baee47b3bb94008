"""Overrides from the command line: where they lead, what they make, and how they fail."""

from pathlib import Path

import pytest

from ipusim.app.scenario import ScenarioError, load_request
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.source import parse_source

TEXT = """\
system: {name: m2000}
data: {type: synthetic, shape: [4], classes: 2, samples: 9}
model:
  layers:
    - {name: hidden, type: dense, units: 8}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: single
  gradient_accumulation_count: 4
optimizer: {type: sgd, learning_rate: 0.1}
"""


@pytest.fixture
def source():
    return parse_source(TEXT, Path("s.yaml"))


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("pipeline.gradient_accumulation_count=32", ("pipeline", "gradient_accumulation_count"), 32),
        ("model.layers.0.units=64", ("model", "layers", 0, "units"), 64),
        ("model.layers.hidden.units=64", ("model", "layers", 0, "units"), 64),
        ("pipeline.splits=[cel]", ("pipeline", "splits"), ["cel"]),
        ("system.clock=1.5 GHz", ("system", "clock"), "1.5 GHz"),
        ("numerics=off", ("numerics",), "off"),
        ("optimizer=", ("optimizer",), None),
        ("optimizer=null", ("optimizer",), None),
        ("infeed.prefetch_depth=1", ("infeed", "prefetch_depth"), 1),
        ("system.name=a=b", ("system", "name"), "a=b"),
        ("data={type: digits}", ("data",), {"type": "digits"}),
    ],
)
def test_an_override_puts_its_value_in_place(source, override, path, value):
    data: object = apply_overrides(source, [override]).data
    for step in path:
        data = data[step]
    assert data == value


def test_overrides_leave_the_source_and_all_else_as_they_were(source):
    new = apply_overrides(source, ["pipeline.schedule=sharded"])
    assert source.data["pipeline"]["schedule"] == "single"
    new.data["pipeline"]["schedule"] = "single"
    assert new.data == source.data
    assert str(new.position(("pipeline", "gradient_accumulation_count"))) == "s.yaml:9:32"


def test_the_last_of_two_overrides_wins_and_later_ones_see_earlier_ones(source):
    new = apply_overrides(source, ["data={type: digits}", "data.hold_out=0.1", "data.hold_out=0.2"])
    assert new.data["data"] == {"type": "digits", "hold_out": 0.2}


def test_an_overridden_value_stands_at_its_override(source):
    new = apply_overrides(source, ["data={type: digits}", "evaluate.every=3"])
    assert str(new.position(("data", "type"))) == "--set data"
    assert str(new.position(("data", "shape"))) == "--set data"
    assert str(new.position(("evaluate",))) == "--set evaluate.every"
    assert str(new.position(("system", "name"))) == "s.yaml:1:16"


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("a", "--set a: expected path=value, such as pipeline.repeat_count=10, got 'a'"),
        ("=3", "--set : expected path=value, such as pipeline.repeat_count=10, got '=3'"),
        ("system..name=3", "--set system..name: expected keys joined by single dots, got 'system..name'"),
        ("system.name.x=3", "--set system.name.x: expected system.name to be a mapping or a list, got 'm2000'"),
        ("model.layers.2.units=3", "--set model.layers.2.units: expected an index of model.layers from 0 to 1, got 2"),
        ("data.shape.1=3", "--set data.shape.1: expected an index of data.shape numbered 0, got 1"),
        (
            "model.layers.hiden.units=3",
            "--set model.layers.hiden.units: expected an index of model.layers or the name of an item in it, "
            "got 'hiden'; did you mean hidden?",
        ),
        (
            "data.shape.-1=3",
            "--set data.shape.-1: expected an index of data.shape or the name of an item in it, got '-1'",
        ),
        (
            "pipeline.splits=[",
            "--set pipeline.splits: this is not YAML: expected the node content, but found '<stream end>' "
            "(while parsing a flow node)",
        ),
        ("seed=*a", "--set seed: expected the value itself, got alias 'a': write it out"),
        ("seed=-1", "--set seed: expected a whole number from 0 to 4294967295, got -1"),
        (
            "sed=1",
            "--set sed: got 'sed'; did you mean seed? Expected one of the keys name, system, data, model, pipeline, "
            "optimizer, training, steps, seed, precision, numerics, memory, code_bytes, use_synthetic_data, infeed, "
            "outfeed, evaluate, disturbances, expect, rates",
        ),
        (
            "model.layers.hidden={name: hidden, type: dense}",
            "--set model.layers.hidden: model.layers.0.units: expected a whole number from 1 to 65536, got nothing "
            "(outputs of the layer)",
        ),
    ],
)
def test_overrides_that_fail_say_so_in_one_line(override, line, tmp_path, refused):
    file = tmp_path / "s.yaml"
    file.write_text(TEXT)
    refused(ScenarioError, line, lambda: load_request(file, [override]))


def test_all_overrides_that_lead_nowhere_are_reported_at_once(source):
    with pytest.raises(ScenarioError) as caught:
        apply_overrides(source, ["a", "data.shape.9=1", "seed=1"])
    assert len(caught.value.problems) == 2


def test_an_empty_list_has_no_index(source):
    with pytest.raises(ScenarioError, match=r"expected an item of pipeline\.splits, which has none, got 0"):
        apply_overrides(source, ["pipeline.splits=[]", "pipeline.splits.0=cel"])
