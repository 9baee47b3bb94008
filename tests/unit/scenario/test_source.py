"""Scenarios as YAML 1.2, and overrides from the command line: values, places, and what is refused."""

from pathlib import Path

import pytest

from ipusim.app.scenario import ScenarioError, load_request
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.source import parse_source, read_source
from ipusim.runs.places import Place


def problem(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_source(text, Path("s.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.325 GHz", "1.325 GHz"),
        ("'5'", "5"),
        ("<<", "<<"),
        ("=", "="),
        ("~", None),
        ("", None),
        ("[1, [a, 2.5]]", [1, ["a", 2.5]]),
        ("{b: {c: 1}}", {"b": {"c": 1}}),
    ],
)
def test_values_are_those_of_yaml_1_2(written: str, value: object) -> None:
    data = parse_source(f"a: {written}\n", Path("s.yaml")).data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_keys_are_texts_whatever_they_look_like() -> None:
    assert parse_source("1: a\ntrue: b\n~: c\n<<: d\n", Path("s.yaml")).data == {
        "1": "a",
        "true": "b",
        "~": "c",
        "<<": "d",
    }


def test_places_of_keys_and_values_count_from_1() -> None:
    source = parse_source("a: 1\nb:\n  c: [x, {d: 2}]\n  e:\n", Path("s.yaml"))
    assert (source.position(()), source.key_position(("a",))) == (Place("s.yaml", 1, 1), Place("s.yaml", 1, 1))
    assert (source.position(("a",)), source.position(("b",))) == (Place("s.yaml", 1, 4), Place("s.yaml", 3, 3))
    assert source.position(("b", "c", 0)) == Place("s.yaml", 3, 7)
    assert source.key_position(("b", "c", 1, "d")) == Place("s.yaml", 3, 11)
    assert source.position(("b", "c", 1, "d")) == Place("s.yaml", 3, 14)


def test_an_empty_value_stands_where_its_key_does() -> None:
    assert parse_source("b:\n  e:\n\n\nf: 1\n", Path("s.yaml")).position(("b", "e")) == Place("s.yaml", 2, 3)


def test_a_value_that_is_not_written_stands_where_the_enclosing_one_does() -> None:
    source = parse_source("a: 1\nb:\n  c: 2\n", Path("s.yaml"))
    assert source.position(("b", "x", 3, "y")) == Place("s.yaml", 3, 3)
    assert source.position(("x",)) == Place("s.yaml", 1, 1)


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("# One idea.\n#  Two lines. \na: 1\n", "One idea. Two lines."),
        ("# Idea.\n#\n# Sources.\na: 1\n", "Idea."),
        ("\ufeff# Idea.\na: 1\n", "Idea."),
        ("a: 1\n# Late.\n", ""),
    ],
)
def test_description_is_the_comment_at_the_head(text: str, description: str) -> None:
    assert parse_source(text, Path("s.yaml")).description == description


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml: expected a mapping of keys such as 'system' and 'pipeline', got an empty file"),
        ("# only this\n", "s.yaml: expected a mapping of keys such as 'system' and 'pipeline', got an empty file"),
        ("- 1\n- 2\n", "s.yaml:1:1: expected a mapping of keys such as 'system' and 'pipeline', got [1, 2]"),
        ("a: 1\n\tb: 2\n", "s.yaml:2:1: expected spaces, got a tab: YAML indents with spaces"),
        (
            "a: b: c\n",
            "s.yaml:1:5: expected no further ': ' here: check the indentation, or put a text that holds ': ' in quotes",
        ),
        ("a: 1\nb\n", "s.yaml:3:1: expected 'key: value', got a line without a colon, line 2: 'b'"),
        ("a: 1\n---\nb: 2\n", "s.yaml:2:1: expected one document in a file, got a second one after '---'"),
        (
            "a: [1, 2\n",
            "s.yaml:2:1: this is not YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow "
            "sequence that begins on line 1)",
        ),
        ("a:\n- b\n  c: 2\n", "s.yaml:3:4: expected a colon after the key of line 2, got '- b'"),
        ("a:\n  b:1\n  c: 2\n", "s.yaml:3:4: expected a space after the colon of line 2, got 'b:1'"),
        ("a: 1\n\nb\n  c: 2\n", "s.yaml:4:4: expected 'key: value', got a line without a colon, line 3: 'b'"),
        (
            "a: 1\n  b: 2\n",
            "s.yaml:2:4: expected 'b' with the indentation of line 1, 'a: 1', which has a value, got 2 more spaces",
        ),
        (
            "a:\n  b: {c: 1}\n  - d\n",
            "s.yaml:3:3: expected a key as in the lines above, got '-': in a list every item begins with '-'",
        ),
        ("a: {type: sgd, rate: 0,01}\n", "s.yaml:1:24: a: expected a key, got '01'; did you mean 0.01, with a point?"),
        ("a: *b\n", "s.yaml:1:4: expected the value itself, got alias 'b': write it out"),
        ("a: &b 1\n", "s.yaml:1:4: a: expected the value, got an anchor or alias (b): write the value out"),
        ("a: !thing 1\n", "s.yaml:1:4: a: expected a plain value, got one with the tag !thing"),
        ("a: !!int x\n", "s.yaml:1:4: a: expected a number of ordinary length, got 'x'"),
        ("? [1]\n: 2\n", "s.yaml:1:3: expected a name as key, got a list or a mapping"),
        (
            "a: 1\nb: 2\na: 3\n",
            "s.yaml:3:1: a: expected each key once, got this key a second time (first at s.yaml:1:1)",
        ),
        ("a: \x07\n", "s.yaml:1:4: expected text, got the control character 7"),
        ("[" * 100_000, "s.yaml:1:17: expected at most 16 levels of mappings and lists, got more"),
    ],
)
def test_texts_that_are_no_scenario(text: str, line: str) -> None:
    assert problem(text) == line


def test_a_number_of_absurd_length_is_shown_shortened() -> None:
    line = problem(f"a: {'9' * 5000}\n")
    assert line == f"s.yaml:1:4: a: expected a number of ordinary length, got '{'9' * 56}..."


def test_every_duplicate_and_anchor_is_reported_at_once() -> None:
    assert len(problem("a: &x 1\nb: *x\nc: 1\nc: 2\n").splitlines()) == 3


def test_aliases_of_themselves_and_of_many_end() -> None:
    assert "anchor" in problem("a: &a [*a]\n")
    layers = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 30))
    assert "anchor" in problem("l0: &l0 [x]\n" + layers)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("inferense.yaml", "inferense.yaml: expected a scenario file, got no such file; did you mean inference.yaml?"),
        ("zzz.txt", "zzz.txt: expected a scenario file, got no such file"),
        ("bert.yaml", "bert.yaml: expected a scenario file, got no such file"),
        ("folder", "folder: expected a scenario file, got a folder"),
        (
            "program.py",
            "program.py: expected a scenario, a YAML file, got a program: `ipusim import` writes the scenario of a "
            "program",
        ),
        ("binary.yaml", "binary.yaml: expected UTF-8 text, got the byte 0xff at offset 3"),
        ("large.yaml", "large.yaml: expected a scenario of at most 128 KiB, got a larger file"),
        ("a\0b", "a\\x00b: expected a file that can be read, got: embedded null byte"),
    ],
)
def test_files_that_are_no_scenario(name: str, line: str, tmp_path: Path, monkeypatch, refused) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inference.yaml").write_text("a: 1\n")
    Path("folder").mkdir()
    Path("binary.yaml").write_bytes(b"a: \xff\xfe")
    Path("large.yaml").write_bytes(b"#" * (1 << 17) + b"\n")
    refused(ScenarioError, line, lambda: read_source(Path(name)))


@pytest.mark.parametrize(
    "text", ["a: {1: x, 2: y}\n", "a: {b: 1, '2': {}}\n", "a: {b: x, 2}\n", "a:\n  b: 0\n  '1':\n"]
)
def test_keys_that_are_numbers_are_no_decimal_commas(text: str) -> None:
    parse_source(text, Path("s.yaml"))


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
