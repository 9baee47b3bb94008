"""Both sync modes from the command line: every table, file and refusal names the one in effect."""

import json
from itertools import product

import pytest

from ipusim.schedules.registry import names
from ipusim.timeline.timeline import Timeline
from tests.cli.commands import answer, ipusim
from tests.schedules import is_a_v, takes_one_chunk, takes_one_stage

FOUR = """
pipeline:
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
    - {name: b, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
    - {name: c, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
    - {name: d, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
system: {name: free, auto_select_ipus: 4}
"""
#: What schedules say that refuse stages that go round two IPUs.
REFUSING = (takes_one_chunk, takes_one_stage, is_a_v)
WORDS = {"lock_step": "lock-step", "point_to_point": "point-to-point"}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    path = tmp_path_factory.mktemp("sync") / "four.yaml"
    path.write_text(FOUR)
    return path


def lines(done):
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("sync", WORDS)
def test_a_run_names_its_mode(four, sync, tmp_path):
    options = ("--set", "pipeline.schedule=1f1b", "--set", f"pipeline.sync={sync}")
    checked = ipusim("check", four, *options)
    assert f" 4 stages, 1f1b in {WORDS[sync]}, 8 micro-batches" in checked.stdout
    done = ipusim("run", four, *options, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"schedule 1f1b in {WORDS[sync]}, 4 IPUs of free" in lines(done)
    said = json.loads((tmp_path / "summary.json").read_text())
    assert said["sync"] == sync
    assert (said["time_steps"] is None) == (sync == "point_to_point")
    assert Timeline.load(tmp_path / "timeline.npz").info.sync.value == sync
    answer("show", tmp_path / "timeline.npz", "--phase", "main", "--out", tmp_path / "main.svg")


@pytest.mark.usefixtures("without_charts")
def test_every_schedule_may_be_compared_and_those_that_refuse_say_why(four, tmp_path):
    """Two stages of each of two IPUs, which not every schedule can lay out."""
    options = ("--sync", "lock_step,point_to_point", "--set", "pipeline.device_mapping=[0,1,0,1]")
    options += ("--set", "system.auto_select_ipus=2")
    done = answer("compare", four, "--schedules", "all", *options, "--out", tmp_path)
    rows = json.loads((tmp_path / "comparison.json").read_text())
    assert [(row["schedule"], row["sync"]) for row in rows] == [*product(names(), WORDS)]
    refused = {row["schedule"] for row in rows if row["refusal"]}
    assert refused == {"single", *(name for name in names() if any(of(name) for of in REFUSING))}
    text = " ".join(done.split())
    for row in rows:
        assert (row["summary"] is None) == bool(row["refusal"])
        if row["refusal"]:
            assert f"{row['schedule']} in {WORDS[row['sync']]}: refused: {row['refusal']}" in text


def test_a_mode_that_is_none(four, tmp_path):
    done = ipusim("compare", four, "--sync", "lockstep", "--out", tmp_path / "out")
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "expected a sync mode out of lock_step, point_to_point, got 'lockstep'; did you mean 'lock_step'?",
    )


def test_help_names_the_schedules_that_are_compared():
    text = " ".join(ipusim("compare", "--help").stdout.split())
    assert "for one scenario Graphcore's: grouped, interleaved, sequential and sharded" in text
    assert "--syncs" not in text
    assert "gpipe all forward passes" not in text
