"""Schedules from a user's own Python file: in scenarios, in plain Python, and what is wrong with them."""

import sys

import pytest

from ipusim.app.compare.compare import compare
from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules import registry
from tests.cli.commands import ipusim

FILE = """
from ipusim.base.errors import CountError, ProgramError
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import PLAIN, Schedule, register


def gpipe(shape):
    ways = {}
    for stage, ipu in enumerate(shape.mapping):
        passes = [f"{kind}{stage}.{each}" for kind in "FB" for each in range(shape.micro_batches)]
        ways.setdefault(ipu, []).extend(passes)
    return Order.from_passes("mine", shape, ways)


free = Schedule("free", gpipe, lambda shape: 2, True, "as gpipe", PLAIN - {Feature.INFERENCE}, (Sync.POINT_TO_POINT,))
taken = register(free) or free
"""

SCENARIO = """
system: {name: free}
pipeline:
  schedule: mine.py:gpipe
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 10, backward: 20, output_bytes: 8}
    - {name: b, forward: 10, backward: 20}
"""
TIMED = [{"name": name, "forward": 10, "backward": 20} for name in "ab"]


@pytest.fixture
def refused(load, tmp_path):
    """Return the one problem of a scenario whose file has some more lines at the end."""

    def of(lines, reference, *overrides):
        (tmp_path / "mine.py").write_text(FILE + lines)
        with pytest.raises(ScenarioError) as caught:
            load(SCENARIO, f"pipeline.schedule={reference}", *overrides)
        (problem,) = caught.value.problems
        return problem.key, problem.text.replace(str(tmp_path / "mine.py"), "FILE")

    return of


def test_a_function_of_a_file_lays_a_scenario_out(load, tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    job = load(SCENARIO)
    assert (job.program.schedule, job.plan.schedule, job.plan.sync) == ("gpipe", "mine", Sync.LOCK_STEP)
    own = [str(op) for _, ipu, op in job.plan.ops() if ipu == 0]
    assert own == [f"{kind}0.{each}" for kind in "FB" for each in range(4)]
    assert execute(job).summary.makespan_cycles == (4 + 1) * 30
    assert load(SCENARIO, "pipeline.sync=point_to_point").plan.sync is Sync.POINT_TO_POINT


def test_a_schedule_of_a_file_says_what_it_supports(load, tmp_path, refused):
    (tmp_path / "mine.py").write_text(FILE)
    assert load(SCENARIO, "pipeline.schedule=mine.py:free").plan.sync is Sync.POINT_TO_POINT
    key, text = refused("", "mine.py:free", "training=false")
    assert (key, text) == ("pipeline.schedule", "The pipelining schedule 'free' does not support inference.")
    key, text = refused("", "mine.py:free", "pipeline.sync=lock_step")
    assert text == "The schedule 'free' runs only in point_to_point, not in lock_step."
    assert "does not support recomputation" in refused("", "mine.py:gpipe", "pipeline.allow_recompute=true")[1]


def test_nothing_is_left_behind(load, tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    names, modules = registry.names(), set(sys.modules)
    for _ in range(2):  # the file registers one by itself, which would be taken the second time
        load(SCENARIO, "pipeline.schedule=mine.py:taken")
    assert registry.names() == names
    assert set(sys.modules) - modules == set()


def test_each_request_has_its_own_file(tmp_path):
    jobs = []
    for folder, more in (("one", ""), ("two", "sound = gpipe\ndef gpipe(shape):\n    return sound(shape)\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(FILE.replace('"mine"', f'"{folder}"') + more)
        options = {"schedule": "mine.py:gpipe", "stages": TIMED, "gradient_accumulation_count": 3}
        request = Request.from_dict({"system": {"name": "free"}, "pipeline": options}, folder=tmp_path / folder)
        jobs.append(assemble(request))
    assert [job.plan.schedule for job in jobs] == ["one", "two"]
    rows = compare(request, ["Grouped", "gpipe", "mine.py:gpipe"])
    assert [row.schedule for row in rows] == ["grouped", "gpipe", "mine.py:gpipe"]
    assert "must be a multiple of 4" in rows[0].refusal
    assert [row.result.job.plan.schedule for row in rows[1:]] == ["gpipe", "two"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("def bad(shape):\n    return {}['a']\n", "FILE:20: KeyError: 'a'"),
        ("def bad(shape):\n    raise SystemExit(3)\n", "FILE:20: SystemExit: 3"),
        (
            "def bad(shape):\n    return Order.from_passes('bad', shape, {0: ['G0.0']})\n",
            "FILE:20: passes: expected an operation such as F1.3, B0.0, R2.5, I1.3 or W1.3, got 'G0.0'",
        ),
        ("def bad(shape):\n    pass\n", "FILE:19: expected an Order, got None"),
        ("def bad():\n    pass\n", "FILE:19: TypeError: bad() takes 0 positional arguments but 1 was given"),
        ("def bad(shape):\n    raise ProgramError('too few stages')\n", "too few stages"),
        ("bad = Schedule('my', gpipe, len, True, '', {3})\n", "'mine.py:bad': supports: expected some of Feature's"),
        (
            "bad = Schedule('my', gpipe, len, True, '', syncs=())\n",
            "'mine.py:bad': syncs: expected some of Sync's LOCK_STEP, POINT_TO",
        ),
        ("bad = 3\n", "'mine.py:bad': 'bad' in FILE is of type int, not a function or Schedule"),
        ("", "'mine.py:bad': FILE has no function or Schedule 'bad'; it has CountError, Feature, Order, Prog"),
    ],
)
def test_what_a_file_does_wrong_is_told_with_its_line(refused, lines, text):
    key, got = refused(lines, "mine.py:bad")
    assert key == "pipeline.schedule"
    assert got.startswith(text)
    assert got == text or len(text) > 50


@pytest.mark.parametrize(
    ("multiple", "problems"),
    [
        ("lambda shape: 2", {"pipeline.gradient_accumulation_count": "odd The nearest counts of my: 2 or 4."}),
        ("lambda shape: 0", {"pipeline.schedule": "FILE:23: expected a whole number from 1 up, got 0"}),
        ("lambda shape: shape.x", {"pipeline.schedule": "FILE:23: AttributeError: 'PlanShape' object has no attr"}),
    ],
)
def test_a_count_that_a_file_refuses(load, tmp_path, multiple, problems):
    lines = (
        "def odd(shape):\n    if shape.micro_batches % 2:\n        raise CountError('odd')\n    return gpipe(shape)\n"
        f"bad = Schedule('my', odd, {multiple}, True, '')\n"
    )
    (tmp_path / "mine.py").write_text(FILE + lines)
    with pytest.raises(ScenarioError) as caught:
        load(SCENARIO, "pipeline.schedule=mine.py:bad", "pipeline.gradient_accumulation_count=3")
    found = {each.key: each.text.replace(str(tmp_path / "mine.py"), "FILE") for each in caught.value.problems}
    for key, text in problems.items():
        assert found[key].startswith(text)
    assert found["pipeline.gradient_accumulation_count"].startswith("odd")


def test_a_file_that_is_not_there_is_told_beside_other_problems(load, tmp_path):
    with pytest.raises(ScenarioError) as caught:
        load(SCENARIO, "evaluate={}")
    assert [problem.key for problem in caught.value.problems] == ["evaluate", "pipeline.schedule"]
    text = caught.value.problems[1].text
    assert text == f"'mine.py:gpipe': cannot read {tmp_path / 'mine.py'}: No such file or directory"
    assert caught.value.problems[1].position.line == 4


@pytest.mark.parametrize("name", ["mine.py", "mine.py:", "mine.py:1", ":gpipe", ".csv:x", "mine.CSV", "a\0.csv", 3])
def test_what_names_no_schedule_is_refused(name):
    options = {"schedule": name, "stages": TIMED, "gradient_accumulation_count": 3}
    with pytest.raises(
        RequestError, match=r"xpected grouped, .* or your own schedule as file\.py:function or file\.csv$"
    ):
        Request.from_dict({"system": {"name": "free"}, "pipeline": options})


def test_a_csv_says_places_and_count(load, tmp_path):
    (tmp_path / "v.csv").write_text("0F0,,,,,,0B0\n,1F0,,,,1B0\n,,2F0,,2B0\n,,,3F0,3B0\n")
    stages = "[" + ", ".join(f"{{name: {name}, forward: 1, backward: 1}}" for name in "abcd") + "]"
    changes = ["pipeline.schedule=v.csv", f"pipeline.stages={stages}", "pipeline.gradient_accumulation_count=1"]
    assert load(SCENARIO, *changes).program.shape.mapping == (0, 1, 2, 3)
    assert load(SCENARIO, *changes, "pipeline.device_mapping=[0, 1, 2, 3]").program.schedule == "v.csv"
    (tmp_path / "v.csv").write_text("0F0,,,3F0,3B0,,,0B0\n,1F0,2F0,,,2B0,1B0\n")
    job = load(SCENARIO, *changes)
    assert job.program.shape.mapping == (0, 1, 1, 0)
    assert job.system.count == 2
    for more, key, text in (
        (
            ["pipeline.gradient_accumulation_count=8"],
            "pipeline.gradient_accumulation_count",
            "expected the number of micro-batches of v.csv, 1, got 8",
        ),
        (
            ["pipeline.device_mapping=[0, 1, 2, 3]"],
            "pipeline.device_mapping",
            "expected stages on IPUs 0, 1, 1, 0, as in v.csv, got 0, 1, 2, 3",
        ),
        (
            ["pipeline.stages=[{name: a, forward: 1}, {name: b, forward: 1}]"],
            "pipeline.schedule",
            "expected a pipeline of 4 stages, as in v.csv, got 2",
        ),
        (
            ["pipeline.virtual_stages=2"],
            "pipeline.virtual_stages",
            "expected stages on IPUs 0, 1, 1, 0, as in v.csv, got 0, 1, 0, 1: leave this key out",
        ),
        (
            ["pipeline.schedule=w.csv"],
            "pipeline.schedule",
            f"'w.csv': cannot read {tmp_path / 'w.csv'}: No such file or directory",
        ),
    ):
        with pytest.raises(ScenarioError) as caught:
            load(SCENARIO, *changes, *more)
        assert [(problem.key, problem.text) for problem in caught.value.problems] == [(key, text)]


def test_a_file_that_only_the_current_folder_has_is_named_as_it_must_be_written(tmp_path, monkeypatch):
    """A person writes paths from the current folder; a scenario's are relative to its own."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (tmp_path / "mine.py").write_text(FILE)
    (folder / "scenario.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError, match=r"Paths are relative to the scenario: write \.\./mine\.py:gpipe$"):
        load_job(folder / "scenario.yaml")
    written = SCENARIO.replace("mine.py:gpipe", "../mine.py:gpipe")
    (folder / "scenario.yaml").write_text(written)
    assert load_job(folder / "scenario.yaml").plan.schedule


def test_commands_look_for_a_named_file_beside_the_scenario_and_then_in_the_current_folder(tmp_path, monkeypatch):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (tmp_path / "mine.py").write_text(FILE)
    (folder / "scenario.yaml").write_text(SCENARIO.replace("mine.py:gpipe", "1f1b"))
    monkeypatch.chdir(tmp_path)
    words = ("scenarios/scenario.yaml", "--schedules", "mine.py:gpipe", "--json")
    for command in (("suggest", "--seconds", "inf"), ("suggest", "--order", "--seconds", "1"), ("compare",)):
        done = ipusim(*command, *words)
        assert (done.returncode, done.stderr) == (0, "")
    assert "../mine.py:gpipe" in done.stdout
    drawn = ipusim("compare", *words[:2], "1f1b,mine.py:gpipe", "--trace", "mine.py:gpipe", "--out", "out")
    assert (drawn.returncode, drawn.stderr) == (0, ""), "a trace has the name that was typed"
    (folder / "mine.py").write_text(FILE)  # comes before that of the current folder
    done = ipusim("compare", *words)
    assert "../mine.py" not in done.stdout
    assert "mine.py:gpipe" in done.stdout
