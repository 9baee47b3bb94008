"""pytest's plugin, in a project of its own: what is collected, what holds, and what a failure says."""

import contextlib
import io
import re
import subprocess
import sys
from unittest import mock

import pytest

from ipusim.runs.yaml_text import dump
from tests.effort import draws_everything, rarest
from tests.scenarios import timed

TESTS = """
def test_with_other_values(ipusim_run):
    run = ipusim_run("plans/good.yaml", pipeline__gradient_accumulation_count=16)
    assert run.summary.count == 16
    run.check_pin("sixteen.pin.json")


def test_as_it_is(ipusim_run):
    run = ipusim_run("plans/good.yaml")
    run.check_expectations()
    run.check_pin()


def test_missed(ipusim_run):
    ipusim_run("plans/good.yaml", **{"pipeline.stages.0.forward": 3000}).check_expectations()


def test_pinned(ipusim_run):
    ipusim_run("plans/good.yaml", pipeline__stages__s0__forward=3000).check_pin()
"""
#: What the two tests and the scenario that fail say.
TOLD = """
AssertionError: {at}/plans/good.yaml is not as expected
missed  slowest_stage: s0, expected s1

AssertionError: {at}/plans/good.yaml differs from good.pin.json
price: forward of s0 was 1,000 cycles, is 3,000 (and 1 more)
  forward of s0: law 'given' was 1000 = 1000, is 3000 = 3000
  all rates are the same: the priced work differs, or the law reads different numbers of the work
  the scenario sets pipeline.stages.s0.forward: 3,000, was 1,000
  the time per weight update was 27.28 us, is 35.55 us

missed  time_steps: 12, expected at most 3
"""


@pytest.fixture
def project(tmp_path):
    plans = tmp_path / "plans"
    plans.mkdir()
    good = timed(2)
    good["pipeline"]["stages"][1]["forward"] = 1500
    (plans / "good.yaml").write_text(dump(good | {"expect": {"slowest_stage": "s1", "time_steps": 12}}))
    (plans / "bad.yaml").write_text(dump(timed(2) | {"expect": {"time_steps": "at most 3"}}))
    (plans / "no_test.yaml").write_text(dump(timed(2)))
    (plans / "rates.yaml").write_text("amp_ceiling: 0.9\n")
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nipusim_scenarios = plans\nfilterwarnings = error\n")
    return tmp_path


def pytest_in(folder, *words):
    """Run pytest in a folder, within this process, which has imported all; return its exit code and what it printed."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), mock.patch.object(sys, "path", [*sys.path]):
        code = pytest.main(["-p", "no:cacheprovider", "-p", "no:unraisableexception", *words])
    sys.modules.pop("test_mine", None)  # of this folder
    return code, said.getvalue()


def test_scenarios_and_fixtures_pass_and_fail_as_they_should(project):
    """A scenario that is named alone too; and also where a worker of pytest-xdist runs them."""
    words = ("plans/good.yaml", "test_mine.py", "-k", "holds or other or as_it_is")
    assert "3 passed, 2 deselected" in pytest_in(project, "--ipusim-update", *words)[1]
    assert sorted(path.name for path in project.rglob("*.pin.json")) == ["good.pin.json", "sixteen.pin.json"]
    check_outcomes(project)
    if draws_everything():
        check_outcomes(project, "-n", "1")


def check_outcomes(project, *words):
    code, printed = pytest_in(project, "-rA", "--tb=short", *words)
    assert code == 1, printed
    ended = {(name, how) for how, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", printed, re.MULTILINE)}
    assert ended == {
        ("test_mine.py::test_with_other_values", "PASSED"),
        ("test_mine.py::test_as_it_is", "PASSED"),
        ("test_mine.py::test_missed", "FAILED"),
        ("test_mine.py::test_pinned", "FAILED"),
        ("plans/good.yaml::holds", "PASSED"),
        ("plans/bad.yaml::holds", "FAILED"),
    }
    said = re.sub(r"(?m)^E {3}", "", printed)
    for part in TOLD.format(at=project).strip().split("\n\n"):
        assert part in said


def test_a_folder_that_does_not_exist_is_an_error(project):
    (project / "pytest.ini").write_text("[pytest]\nipusim_scenarios = plan\n")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert pytest_in(project)[0] == pytest.ExitCode.USAGE_ERROR
    assert f"ipusim_scenarios: {project / 'plan'}: expected a folder of scenarios, got none there" in errors.getvalue()


@rarest
def test_a_schedule_that_ends_its_process_is_the_failure_of_its_tests_alone(project):
    """In a process of its own, as a test that fails to hold this ends pytest."""
    (project / "mine.py").write_text("import os\n\ndef ending(shape):\n    os._exit(0)\n")
    ending = timed(2)
    ending["pipeline"]["schedule"] = "../mine.py:ending"
    (project / "plans" / "bad.yaml").write_text(dump(ending | {"expect": {"executions": 1}}))
    (project / "test_mine.py").write_text("def test_run(ipusim_run):\n    ipusim_run('plans/bad.yaml')\n")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--tb=short"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE) == [
        ("PASSED", "plans/good.yaml::holds"),
        ("FAILED", "plans/bad.yaml::holds"),
        ("FAILED", "test_mine.py::test_run"),
    ]
    assert done.stdout.count("expected code that returns, got os._exit(0), which would end all tests") >= 2


def test_a_project_without_any_of_it(project):
    (project / "pytest.ini").write_text("[pytest]\n")
    assert "4 tests collected" in pytest_in(project, "--collect-only", "-q")[1]


def test_nothing_is_imported_before_it_is_used():
    script = (
        "import sys, pytest, ipusim.app.pytest_plugin; print(sorted(m for m in sys.modules if m.startswith('ipusim')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = [
        "ipusim",
        "ipusim.app",
        "ipusim.app.pytest_plugin",
        "ipusim.base",
        "ipusim.base.lazy",
        "ipusim.base.version",
    ]
    assert done.stdout.strip() == str(modules)
