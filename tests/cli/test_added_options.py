"""What a new rate, a new option of the pipeline and a new front door cost: a row, three files, and one module."""

from __future__ import annotations

import shutil

import pytest

from tests.interpreter import Interpreter
from tests.places import ROOT

RATE = """\
    settle_cycles: Fraction = _rate(
        0, "cycles", (0, 10**6), part="computation", meaning="wait before each launch", source="assumed",
        evidence="nothing is published",
    )
"""
KEY = '    repeat_twice: bool = Field(default=False, description="whether a step has twice the executions")\n'
RULE = """\
    if options.pipeline.repeat_twice and options.pipeline.repeat_count > 100:
        findings.add(("pipeline", "repeat_twice"), "expected a repeat_count of at most 100 with it, got more")
"""
#: A front door that reads TOML: it builds a Request, and says where a problem stands in its own way.
DOOR = """
import tomllib
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError, dotted
from ipusim.runs.request.request import Request

def run(text):
    try:
        return execute(assemble(Request.from_dict(tomllib.loads(text), name="toml")))
    except RequestError as error:
        raise SystemExit("\\n".join(f"[{dotted(each.path)}] {each.text}" for each in error.problems)) from None
"""
TOML = """
[system]
name = "m2000"
[pipeline]
gradient_accumulation_count = 4
stages = [{name = "a", forward = 100, backward = 200}, {name = "b", forward = 100, backward = 200}]
"""
SCENARIO = ROOT / "scenarios" / "tutorial_step3_pipelining.yaml"


def put(path, anchor, text):
    whole = path.read_text("utf-8")
    assert whole.count(anchor) == 1, (path, anchor)
    path.write_text(whole.replace(anchor, text), "utf-8")


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A function that runs Python on a copy of the package with the additions."""
    place = tmp_path_factory.mktemp("changed")
    package = place / "ipusim"
    shutil.copytree(ROOT / "ipusim", package)
    rates, passes = package / "hardware/rates.py", package / "pricing/passes.py"
    put(rates, "    launch_cycles: Fraction = _rate(", f"{RATE}    launch_cycles: Fraction = _rate(")
    put(passes, "+ rates.launch_cycles))", "+ rates.launch_cycles + rates.settle_cycles))")
    schema, rules = package / "runs/request/schema.py", package / "runs/assemble/sections.py"
    put(schema, "    repeat_count: int = Field(", f"{KEY}    repeat_count: int = Field(")
    anchor = '    with findings.at(("pipeline", "continuous_weight_updates")):'
    put(rules, anchor, RULE + anchor)
    before = "        repeat_count=pipeline.repeat_count,"
    put(package / "runs/assemble/program.py", before, before[:-1] + " * (1 + pipeline.repeat_twice),")
    (place / "toml_door.py").write_text(DOOR)

    with Interpreter(PYTHONPATH=str(place)) as interpreter:

        def python(code, *words, returncode=0):
            done = interpreter.run(code, *words, folder=place)
            assert done.returncode == returncode, done.stderr
            return done.stdout + done.stderr

        assert python("import ipusim; print(ipusim.__file__)") == f"{package}/__init__.py\n"
        yield python


COMMAND = "from ipusim.cli import main; main()"


def test_a_rate_is_a_row_and_its_use(changed):
    costs = changed(COMMAND, "check", SCENARIO, "--set", "rates.settle_cycles=1000", "--costs")
    plain = changed(COMMAND, "check", SCENARIO, "--costs")
    assert costs != plain
    assert "settle_cycles" in changed(COMMAND, "schema")
    assert "settle_cycles" in changed(COMMAND, "devices", "m2000", "--figures")
    refused = changed(COMMAND, "check", SCENARIO, "--set", "rates.settle_cycles=-1", returncode=2)
    assert refused.startswith("--set rates.settle_cycles: expected ")
    near = changed(COMMAND, "check", SCENARIO, "--set", "rates.setle_cycles=1", returncode=2)
    assert "settle_cycles" in near.partition("got")[0]


def test_an_option_is_its_key_its_rule_and_its_effect(changed):
    words = "check", SCENARIO, "--set", "pipeline.repeat_twice=true"
    assert "executions 100," in changed(COMMAND, "check", SCENARIO)
    assert "executions 200," in changed(COMMAND, *words)
    assert "whether a step has twice the executions" in changed(COMMAND, "schema")
    refused = changed(COMMAND, *words, "--set", "pipeline.repeat_count=101", returncode=2)
    assert refused == "--set pipeline.repeat_twice: expected a repeat_count of at most 100 with it, got more\n"
    wrong = changed(COMMAND, "check", SCENARIO, "--set", "pipeline.repeat_twice=2", returncode=2)
    assert wrong == "--set pipeline.repeat_twice: expected true or false, got 2\n"


def test_a_front_door_is_a_builder_of_requests(changed):
    code = "import sys, toml_door; print(toml_door.run(sys.argv[1]).summary.makespan_cycles > 0)"
    assert changed(code, TOML) == "True\n"
    said = changed(code, TOML.replace("= 4", "= 3"), returncode=1)
    assert said.startswith("[pipeline.gradient_accumulation_count] The number of iterations of the pipeline must be")
