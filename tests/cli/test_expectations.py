"""``expect`` of a scenario, as ``run`` and ``check`` tell it: in words and by the exit code."""

import json

import pytest

from ipusim.runs.yaml_text import dump
from tests.cli.commands import answer, ipusim
from tests.scenarios import timed

pytestmark = pytest.mark.usefixtures("without_charts")


@pytest.fixture
def scenario(tmp_path):
    def written(**expect):
        file = tmp_path / "a.yaml"
        file.write_text(dump(timed(2) | {"expect": expect}))
        return file

    return written


def test_run_says_what_is_met_and_what_is_missed_and_ends_with_1(scenario, tmp_path):
    out = tmp_path / "out"
    done = answer("run", scenario(bubble="at most 100 %", slowest_stage="s0"), "--out", out)
    assert "met     slowest_stage: s0 and s1 tie (expected s0)\n" in done
    done = ipusim("run", scenario(bubble="at most 0.01 %", time_steps=1), "--out", out)
    assert (done.returncode, done.stderr) == (1, "")
    bubble = json.loads((out / "summary.json").read_text())["bubble"]["idle_fraction"]
    assert f"missed  bubble: {bubble:.1%}, expected at most 0.01 %, {bubble / 1e-4:.3g} times as much\n" in done.stdout
    assert "missed  time_steps: " in done.stdout
    assert ipusim("run", tmp_path / "a.yaml", "--out", out, "--quiet").returncode == 1
    assert json.loads(ipusim("run", tmp_path / "a.yaml", "--out", out, "--json").stdout)["schema_version"] == 4


def test_check_tells_what_takes_no_run(scenario):
    done = ipusim("check", scenario(bubble="at most 0.01 %", slowest_stage="s0", schedule="gpipe"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [
        "Memory: not known: the scenario states no memory of its stages.",
        "met     slowest_stage: s0 and s1 tie (expected s0)",
        "missed  schedule: grouped, expected gpipe",
        "open    bubble: at most 0.01 %, known after a run",
    ]
    assert ipusim("check", scenario(bubble="at most 0.01 %")).returncode == 0


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_figure_that_the_run_has_not_is_a_mistake_of_the_file(scenario, tmp_path, command):
    file = scenario(mean_loss="at most 1", slowest_stage="s00")
    words = ["--out", tmp_path / "out"] if command == "run" else []
    done = ipusim(command, file, *words)
    assert (done.returncode, done.stdout, (tmp_path / "out").exists()) == (2, "", False)
    first, second = done.stderr.splitlines()
    assert first.endswith(
        "expect.mean_loss: expected a figure of this run, got mean_loss: numerics are off, so the run has no losses "
        "and no accuracy"
    )
    assert second.endswith("no stage is named 's00'; did you mean s0?")


def test_with_set_it_is_another_scenario_whose_expectations_are_those_that_are_set(scenario, tmp_path):
    file, out = scenario(time_steps=1, mean_loss="at most 1"), tmp_path / "out"
    done = ipusim("run", file, "--out", out, "--set", "steps=2")
    assert (done.returncode, "missed" in done.stdout, done.stderr) == (0, False, "")
    assert "expect" not in (out / "scenario.yaml").read_text()
    assert ipusim("check", file, "--set", "steps=2").returncode == 0
    file = scenario(time_steps=1)
    assert ipusim("check", file, "--set", "steps=2", "--set", "expect.time_steps=12").returncode == 0
    assert ipusim("check", file, "--set", "expect.makespan=at most 1 s").returncode == 1
