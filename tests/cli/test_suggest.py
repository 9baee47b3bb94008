"""`ipusim suggest` as who calls it meets it: options that are refused by their names, its limit of time, its ends."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.commands import answer, ipusim, refusal
from tests.cli.pages import ROOT
from tests.effort import slowest

pytestmark = pytest.mark.usefixtures("without_charts")

DIGITS = str(ROOT / "scenarios" / "digits_training.yaml")
STOPPED = """
import signal
from ipusim.app.terminal import stoppable
signal.signal(signal.SIGINT, signal.SIG_DFL)
with stoppable() as asked:
    print(asked())
    signal.raise_signal(signal.SIGINT)
    print(asked())
print("not reached")
"""
LINES = """
from unittest import mock
from ipusim.app import terminal
with mock.patch.object(terminal, "_LINES_S", 0.0), terminal.status("suggest") as show:
    show(lambda: "best 1 ms")
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seconds", "-1"], "--seconds: expected a time above 0, got -1"),
        (["--stages", "99"], "--stages: expected 1, 2, 3, 4, 5 or 6 with the other options, got 99"),
        (["--replicas", "3"], "--replicas: expected 1, 2 or 4 with the other options, got 3"),
        (["--ipus", "4,3"], "--ipus: expected 1, 2 or 4, sizes of a device of m2000, got 3"),
        (["--ipus", "1,2", "--replicas", "4"], "--replicas: expected 1 with the other options, got 4"),
        (["--memory", "1 MiB"], "--memory: expected none without --order"),
        (
            ["--replicas", "1,,2"],
            "--replicas: expected entries separated by single commas, got an empty entry in '1,,2'",
        ),
        (
            ["--order", "--memory", "1 MiB,"],
            "--memory: expected entries separated by single commas, got an empty entry in '1 MiB,'",
        ),
        (["--order", "--sync", "x"], "--sync: pipeline.sync: expected lock_step or point_to_point, got 'x'"),
    ],
)
def test_an_option_that_leaves_nothing_is_named(options, said):
    assert refusal("suggest", DIGITS, *options) == f"{said}\n"


def test_no_default_is_said_that_the_option_refuses():
    assert "AUTO" not in ipusim("suggest", "--help").stdout


def test_schedules_that_were_asked_for_and_refused_are_named_with_the_reason():
    schedules = "1f1b,chimera,seq_1f1b,dualpipe_v"
    done = answer("suggest", DIGITS, "--schedules", schedules, "--set", "pipeline.overlapped=max")
    assert [line for line in done.splitlines() if line.startswith("Without ")] == [
        "Without chimera: The schedule 'chimera' has two copies of each stage, which suggest cannot search.",
        "Without seq_1f1b: The schedule 'seq_1f1b' runs segments of a micro-batch, which suggest cannot search.",
        "Without dualpipe_v: The schedule 'dualpipe_v' has composite passes, which suggest prices only as the sum of "
        "both passes.",
    ]


def test_each_number_of_ipus_has_the_plan_that_its_own_search_finds(tmp_path):
    """Two replicas need two IPUs at least; the fastest plan is on 4 IPUs, and the file holds that plan."""
    found, options = {}, ("--replicas", "2", "--seconds", "inf", "--json")
    for ipus in ("2", "4", "4,1,2"):
        done = answer("suggest", DIGITS, "--ipus", ipus, *options, "--out", tmp_path / f"{ipus}.yaml")
        found[ipus] = json.loads(done)
    together = found.pop("4,1,2")
    on_one, *on_more = together["by_ipus"]
    assert on_one == {
        "device_ipus": 1,
        "outcome": "refused",
        "why_none": "replicas: expected 1 with the other options, got 2",
    }
    assert [row["device_ipus"] for row in on_more] == [2, 4]
    for row in on_more:
        alone = found[str(row["device_ipus"])]
        assert (row["proven"], row["gap"], row["changes"]) == (True, 0.0, alone["changes"])
        period = alone["plans"][0]["weight_update_period_s"]
        assert row["weight_update_period_s"] == period
        assert row["samples_per_s"] == pytest.approx(8 * 16 / period)
        assert alone["by_ipus"] == []
    assert on_more[1]["weight_update_period_s"] < on_more[0]["weight_update_period_s"]
    assert (together["changes"], together["plans"]) == (found["4"]["changes"], found["4"]["plans"])
    written = {name: (tmp_path / f"{name}.yaml").read_text() for name in ("4", "2", "4,1,2", "4,1,2-4", "4,1,2-2")}
    assert written["4,1,2"] == written["4,1,2-4"] == written["4"]
    assert written["4,1,2-2"] == written["2"]
    assert not (tmp_path / "4,1,2-1.yaml").exists()
    shown = ipusim("suggest", DIGITS, "--ipus", "2,4", *options[:-1], "--out", tmp_path / "shown.yaml").stdout
    assert "\nStages of the fastest plan, on 4 IPUs:\n  stage 0 on IPU 0: " in shown


@slowest
def test_the_limit_of_time_is_that_of_the_whole_command():
    began = time.monotonic()
    done = ipusim("suggest", str(ROOT / "scenarios" / "conformer.yaml"), "--seconds", "1")
    took = time.monotonic() - began
    assert "the time limit ended the search" in done.stdout + done.stderr
    assert took < 1 + 10  # two seconds where the machine does nothing else


def test_a_first_interrupt_asks_to_stop_and_the_command_ends_as_an_interrupted_one():
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "False\nTrue\n")


def test_lines_say_how_far_it_is_where_there_is_no_terminal():
    done = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "suggest: best 1 ms\n")


def test_stages_of_a_table_lie_on_one_ipu_too_and_their_ceiling_is_that_of_a_full_pipeline(tmp_path):
    """Four stages of 1 and 2 ms, one of them twice as long: 4 replicas of one IPU take 2 x 15 ms for 8 micro-batches.

    Without the weights' passes zero bubble H1 takes 2 ms for each of the first micro-batches, and 3 ms once it is full.
    """
    rows = [f"{name},{1 + (name == 'c')} ms,{2 + 2 * (name == 'c')} ms,1 KiB" for name in "abcd"]
    (tmp_path / "slow.csv").write_text("\n".join(["stage,forward,backward,stash_bytes", *rows]))
    scenario = tmp_path / "slow.yaml"
    scenario.write_text("system: {name: free}\npipeline: {stages: slow.csv, gradient_accumulation_count: 8}\n")
    done = answer("suggest", scenario)
    assert "4 stages on one IPU, 4 replicas, 2 micro-batches of 1." in done
    update, as_fast, _ = done.partition("Time per weight update")[2].split(".\n", 2)
    assert update == ": 30 ms; 267 samples/s"
    others = [line.split() for line in done.splitlines() if line.split()[:1] == ["other"]]
    assert {times for *_, times in others} == {"1.000", "1.267"}
    tied = [f"{name} in lock-step" for _, name, *_, times in others if times == "1.000"]
    assert as_fast == f"As fast, among the plans below: {' and '.join(tied)}"
    (tmp_path / "slow.csv").write_text("stage,forward,backward\n" + "".join(f"{name},1 ms,2 ms\n" for name in "abcd"))
    done = ipusim("suggest", scenario, "--schedules", "zero_bubble_h1", "--sync", "point_to_point", "--replicas", "1")
    assert "Ceiling of the plan, its throughput with ever more micro-batches: 333 samples/s." in done.stdout
