"""Every block of the README runs, and what it says is so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ipusim.runs.execute import execute
from ipusim.scenario import load_job
from reports.__main__ import main as make_reports

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language):
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    return tmp_path


COMMANDS = [line.removeprefix("$ ") for text in blocks("console") for line in text.splitlines()]


def test_every_block_is_of_a_kind_that_is_tested():
    assert {name for name, _ in BLOCKS} == {"bash", "console", "yaml", "python"}
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_command(workspace, command):
    program, *words = shlex.split(command)
    assert program == "ipusim"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ipusim.cli", *words],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if words[0] in ("run", "compare"):
        assert list((workspace / "reports").glob("*/*.png"))


def test_the_scenario_explained_runs(workspace):
    (text,) = blocks("yaml")
    (workspace / "mine.yaml").write_text(text)
    experiment = load_job(workspace / "mine.yaml")
    description = experiment.request.description
    assert description == "Two lines at the top say what the scenario shows; `ipusim run` prints them."
    assert experiment.executions == 100
    assert experiment.held_out is not None


def run_block(workspace, number):
    """Run one of the Python blocks as a file of its own."""
    (workspace / "block.py").write_text(blocks("python")[number])
    done = subprocess.run(
        [sys.executable, "-W", "error", "block.py"], cwd=workspace, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_pipeline_in_graphcores_names_learns(workspace):
    """Each update of w takes 8 x 2 x 0.02 of what it lacks to 3; the last loss is that before the last update."""
    done = run_block(workspace, 0)
    lacking = [2 * (1 - 8 * 2 * 0.02) ** updates for updates in (0, 9, 10)]
    losses = f"loss {lacking[0] ** 2:.3f} to {lacking[1] ** 2:.3f}"
    assert done.stdout.splitlines()[0] == f"{losses}, w = {3 - lacking[2]:.3f}"


def test_the_schedule_of_ones_own_runs(workspace):
    done = run_block(workspace, 1)
    assert "  0  F0.0 | .\n" in done.stdout
    stages, count, forward, backward = 4, 8, 1000, 2000
    assert done.stdout.splitlines()[-1] == str((count + stages - 1) * (forward + backward))


def test_setup_commands_name_extras_that_exist():
    pyproject = (ROOT / "pyproject.toml").read_text()
    first, second = blocks("bash")
    for command in (first, second):
        (extra,) = re.findall(r"'\.\[(\w+)\]'", command)
        assert re.search(rf"^{extra} = \[", pyproject, re.MULTILINE)
    assert "ipusim run scenarios/tutorial_step3_pipelining.yaml" in first
    assert "python -m tests" in second


def test_links_and_pictures_exist():
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert len(targets) > 12
    for target in targets:
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_every_scenario_is_in_the_gallery():
    for path in (ROOT / "scenarios").glob("*.yaml"):
        assert f"(scenarios/{path.name})" in README
        assert YAML(typ="safe").load(path)


def test_reports_are_made_by_one_command_and_the_tables_are_current(tmp_path):
    make_reports(tmp_path)
    made = {path.name for path in tmp_path.iterdir() if path.is_file()}
    kept = {path.name for path in (ROOT / "reports").iterdir() if path.suffix in (".png", ".md")}
    assert made == kept
    for name in made:
        if name.endswith(".md"):
            assert (tmp_path / name).read_text() == (ROOT / "reports" / name).read_text()
    again = tmp_path / "again"
    make_reports(again)
    for name in made:
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_the_losses_that_the_readme_names():
    first, last = re.findall(r"mean loss falls from ([\d.]+) in the first step to ([\d.]+) in the tenth", README)[0]
    learning = execute(load_job(ROOT / "scenarios" / "tutorial_step3_pipelining.yaml")).learning
    assert round(learning.mean_loss(0), 2) == float(first)
    assert round(learning.mean_loss(9), 3) == float(last)
    assert round(learning.constant_loss, 2) == 2.30


def test_the_table_of_schedules_in_the_readme_is_the_reports():
    rows = re.findall(r"^\| (grouped|interleaved|sequential) \| ([\d,]+) \| ([\d.]+%) \|$", README, re.MULTILINE)
    table = (ROOT / "reports" / "schedules.md").read_text()
    assert len(rows) == 3
    for name, cycles, bubble in rows:
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
        assert f"| {cycles} |" in line
        assert f"| {bubble} |" in line
