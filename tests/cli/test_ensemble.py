"""Runs with seeds of their own, as the command line says them, whoever runs them."""

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
from tests.cli.commands import answer
from tests.effort import rarest
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
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
