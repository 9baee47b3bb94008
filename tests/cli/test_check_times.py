"""The option --check-times of run and test, as who types it meets it."""

import json
import shutil
from pathlib import Path

import pytest

from ipusim.app.regression.scenario_check import check_scenario
from ipusim.retiming.exact_run import ExactRun
from tests.cli.commands import answer, ipusim
from tests.scenarios import SCENARIOS

SCENARIO = """
system: {name: m2000}
pipeline:
  schedule: 1f1b
  sync: point_to_point
  gradient_accumulation_count: 4
  stages:
    - {name: first, forward: 1000, backward: 2000, output_bytes: 1000}
    - {name: last, forward: 1000, backward: 2000, gradient_bytes: 1000}
expect: {bubble: at most 90 %}
"""
EQUAL = "Times computed a second time are equal, passes 16, sends 8, weight updates 2, ends of executions 1."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.fixture
def slower_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluator with a lead that is too long."""
    right = ExactRun.send_cycles
    monkeypatch.setattr(ExactRun, "send_cycles", lambda run, *way: tuple(each + 1 for each in right(run, *way)))


def test_run_says_how_many_times_are_equal(folder: Path) -> None:
    """And what both have in common; files are the same as without it."""
    ran = answer("run", "two.yaml", "--check-times", cwd=folder)
    assert f"{EQUAL} Both computations use one Plan and its prices; the second has no events, clock, IPUs" in ran
    timeline = (folder / "reports/two/timeline.npz").read_bytes()
    again = ipusim("run", "two.yaml", cwd=folder)
    assert "second time" not in again.stdout
    assert (folder / "reports/two/timeline.npz").read_bytes() == timeline


@pytest.mark.usefixtures("slower_sends")
def test_a_time_that_differs_ends_with_1(folder: Path) -> None:
    """The results are written all the same."""
    ran = ipusim("run", "two.yaml", "--check-times", cwd=folder)
    assert ran.returncode == 1
    assert "Times computed a second time differ, the send of stage 0 and micro-batch 0 from IPU 0 in" in ran.stdout
    assert (folder / "reports/two/summary.json").exists()
    assert ipusim("run", "two.yaml", cwd=folder).returncode == 0
    tested = check_scenario(
        folder / "two.yaml", times=True
    )  # the command runs in processes of its own, without the late send
    assert tested.ended == "missed"
    assert "Times computed a second time differ" in tested.missed[-1]


def test_a_run_whose_times_are_not_exact_says_why(folder: Path) -> None:
    shutil.copy(SCENARIOS / "host_embedding.yaml", folder)
    ran = answer("run", "host_embedding.yaml", "--check-times", cwd=folder, pictures=False)
    reason = "tables on the host, whose look-ups are served in order of arrival"
    assert f"Times were not computed a second time: {reason}." in ran


def test_the_command_test_checks_times_of_each_scenario(folder: Path) -> None:
    """In its lines and in its JSON, which is as before without the option."""
    assert EQUAL in ipusim("test", "--check-times", cwd=folder).stdout
    (told,) = json.loads(ipusim("test", "--check-times", "--json", cwd=folder).stdout)
    assert told["times"] == EQUAL
    (told,) = json.loads(ipusim("test", "--json", cwd=folder).stdout)
    assert "times" not in told
