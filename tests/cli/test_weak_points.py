"""Which IPU and which cable costs most where it is slower, as the command line says it."""

import json

import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.app.scenario.load import load_job
from ipusim.runs.execute import execute
from tests.cli.commands import answer, ipusim
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
CABLED = ("system.name=m2000", "expect=null", "pipeline.stages.stage0.output_bytes=4 MiB")
SET = [word for each in CABLED for word in ("--set", each)]


def cycles(*overrides):
    return throughput_of(execute(load_job(FOUR, [*CABLED, *overrides])).timeline).run_cycles


def swept(folder, *words):
    done = answer("sweep", FOUR, *SET, "--slower", 1.5, *words, "--workers", 1, "--out", folder)
    return done, json.loads((folder / "weak_points.json").read_text())["slowdowns"]


def test_each_ipu_and_cable_is_the_scenario_with_that_disturbance(tmp_path):
    text, found = swept(tmp_path, "--vary", "pipeline.schedule=grouped,1f1b")
    assert {(each["under"], each["kind"]) for each in found} == {
        (schedule, kind) for schedule in ("grouped", "1f1b") for kind in ("ipu", "cable")
    }
    for each in found:
        what = f"ipu: {each['at']}" if each["kind"] == "ipu" else f"link: {each['at']}"
        own = f"pipeline.schedule={each['under']}"
        assert each["slowdown"] == cycles(own, f"disturbances=[{{{what}, slower: 1.5}}]") / cycles(own)
    worst = max(each["slowdown"] for each in found if (each["under"], each["kind"]) == ("grouped", "cable"))
    first = text.splitlines()[0]
    assert first.startswith("grouped: IPU ")
    assert first.endswith(f"; cable 0 to 1 costs most with 1.5 times the duration, S = {worst:.3f}.")
    assert "A slow IPU costs least under " in text
    for name in ("weak_points.png", "weak_points.svg"):
        assert (tmp_path / name).stat().st_size > 5_000


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("schedules", "told"),
    [
        # One IPU at a time works, a quarter of the 96,000 cycles each: half as long again for it is an eighth for all.
        ("sequential,sharded", "A slow IPU costs as much under each: S = 1.125, the mean over all IPUs."),
        ("sequential,sharded,gpipe", "A slow IPU costs least under sequential and sharded: S = 1.125, the mean over"),
    ],
)
def test_schedules_that_bear_slow_ipus_alike_are_all_named(tmp_path, schedules, told):
    free = [word for stage in range(4) for word in ("--set", f"pipeline.stages.{stage}.update=0")]
    vary = ("--vary", f"pipeline.schedule={schedules}", "--workers", "1", "--out", tmp_path / "out")
    done = ipusim("sweep", SCENARIOS / "schedules_four_ipus.yaml", "--slower", "1.5", *vary, *free)
    assert (done.returncode, told in done.stdout) == (0, True), done.stderr


@pytest.mark.usefixtures("without_charts")
def test_it_comes_on_top_of_what_disturbs_the_scenario_already(tmp_path):
    own = "disturbances=[{ipu: 0, slower: 2}]"
    _, found = swept(tmp_path, "--set", own)
    slower = {each["at"]: each["slowdown"] for each in found if each["kind"] == "ipu"}
    both = cycles("disturbances=[{ipu: 0, slower: 2}, {ipu: 2, slower: 1.5}]")
    assert slower[2] == both / cycles(own)


@pytest.mark.usefixtures("without_charts")
def test_compare_says_what_disturbances_cost_each_schedule(tmp_path):
    disturbed = "[{ipu: 2, slower: 1.5}]"
    words = ("--schedules", "grouped,1f1b,eager_1f1b", "--disturbances", disturbed)
    done = answer("compare", FOUR, *SET, *words, "--out", tmp_path)
    costs = {}
    for schedule in ("grouped", "1f1b", "eager_1f1b"):
        name = f"pipeline.schedule={schedule}"
        costs[schedule] = cycles(name, f"disturbances={disturbed}") / cycles(name)
        (row,) = (line for line in done.splitlines() if line.startswith(f" {schedule} in "))
        assert f"{costs[schedule]:.3f}" in row.split()
    best = min(("1f1b", "eager_1f1b"), key=costs.get)
    least = f"S = {costs[best]:.3f}, the ratio of times with and without disturbances."
    assert f"In point-to-point, disturbances cost least in {best}: {least}" in done


@pytest.mark.usefixtures("without_charts")
def test_compare_shows_one_scenario_without_and_with_disturbances(tmp_path):
    disturbed = "[{ipu: 2, slower: 1.5}]"
    done = answer("compare", FOUR, *SET, "--disturbances", disturbed, "--out", tmp_path, "--json")
    calm, slow = json.loads(done)
    assert (calm["source"], slow["source"]) == ("schedules_four_ipus, undisturbed", "schedules_four_ipus")
    assert calm["waterfall"]["run_cycles"] == cycles()
    assert slow["waterfall"]["run_cycles"] == cycles(f"disturbances={disturbed}")
