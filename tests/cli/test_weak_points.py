"""Disturbances of each IPU and cable, and of many seeds, as the command line says what they cost, whoever runs them."""

import csv
import json
import os
import signal
import threading

import numpy as np
import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.app.scenario.load import load_job
from ipusim.runs.execute import execute
from tests.cli.commands import answer, ipusim
from tests.effort import rarest
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
@pytest.mark.parametrize(
    "disturbed",
    ["[{ipu: 2, slower: 1.5}]", "[{ipu: 0, slower: 9, from: 1720000}]"],
    ids=["always", "after the shortest run"],
)
def test_compare_says_what_disturbances_cost_each_schedule(tmp_path, disturbed):
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


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("words", "file"),
    [(("--slower", 2), "weak_points"), (("--seeds", 2, "--set", "disturbances=[{jitter: 5 %}]"), "ensemble")],
)
def test_the_slowdown_of_a_run_that_takes_no_time_is_1(tmp_path, words, file):
    stages = "pipeline.stages=[{name: a, forward: 0}, {name: b, forward: 0}]"
    free = ("--set", "system={name: free}", "--set", stages, "--set", "expect=null")
    answer("sweep", FOUR, *free, *words, "--workers", 1, "--out", tmp_path)
    said = json.loads((tmp_path / f"{file}.json").read_text())["slowdowns"]
    assert {each["slowdown"] if file == "weak_points" else each for each in said} == {1.0}


JITTER = ("--set", "disturbances=[{jitter: 20 %, seed: 3}, {ipu: 1, jitter: 5 %, seed: 8}]", "--set", "expect=null")
FILES = ("sweep.csv", "ensemble.json", "ensemble.png", "ensemble.svg")


#: The same beside a temporarily slower IPU: runs that are simulated one by one.
WHILE = ("--set", "disturbances=[{jitter: 20 %, seed: 3}, {ipu: 1, slower: 2, until: 1 us}]", "--set", "expect=null")


def ensemble(folder, *words, jitter=JITTER):
    return answer("sweep", FOUR, *jitter, "--seeds", 12, *words, "--out", folder).splitlines()


def times_of(*overrides):
    """Return the time of a weight update and of the run, of the scenario run by itself."""
    rates = throughput_of(execute(load_job(FOUR, ["expect=null", *overrides])).timeline)
    return rates.weight_update_period_s, rates.run_cycles


def test_each_run_is_the_scenario_with_seeds_of_its_own(tmp_path):
    lines = ensemble(tmp_path, "--workers", 1)
    said = json.loads((tmp_path / "ensemble.json").read_text())
    with (tmp_path / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["disturbances.0.seed"], row["disturbances.1.seed"]) for row in rows] == [
        (str(3 + run), str(8 + run)) for run in range(12)
    ]
    calm_s, calm = times_of()
    assert said["without_disturbances_s"] == calm_s
    runs = [
        times_of(f"disturbances=[{{jitter: 20 %, seed: {3 + run}}}, {{ipu: 1, jitter: 5 %, seed: {8 + run}}}]")
        for run in range(12)
    ]
    assert [float(row["weight_update_period_s"]) for row in rows] == [seconds for seconds, _ in runs]
    assert said["slowdowns"] == [cycles / calm for _, cycles in runs]
    assert len(set(said["slowdowns"])) == 12
    for share, seconds in said["weight_update_period_s"].items():
        assert seconds == np.percentile([seconds for seconds, _ in runs], int(share))
    assert lines[0].startswith("12 runs: ")
    assert f"S = {np.median(said['slowdowns']):.4f} in the middle run, {max(said['slowdowns']):.4f} in" in lines[1]


@rarest
def test_neither_workers_nor_one_that_is_killed_change_a_byte(tmp_path):
    distributed = pytest.importorskip("distributed")
    ensemble(tmp_path / "one", "--workers", 1, jitter=WHILE)
    ensemble(tmp_path / "two", "--workers", 2, jitter=WHILE)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        worker = next(iter(cluster.workers.values()))
        killing = threading.Timer(1.0, lambda: os.kill(worker.pid, signal.SIGKILL))
        killing.start()
        ensemble(tmp_path / "cluster", "--backend", "dask", "--address", cluster.scheduler_address, jitter=WHILE)
        killing.join()
    for name in FILES:
        first = (tmp_path / "one" / name).read_bytes()
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "cluster" / name).read_bytes() == first
