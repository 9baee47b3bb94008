"""Days of training with failures, as the command line says them."""

import json

import pytest

from tests.cli.commands import ipusim
from tests.places import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"


def test_days_of_failures_are_followed(tmp_path):
    words = ("--devices", 16384, "--set", "pipeline.stages.stage1.forward=2 s", "--seeds", 20)
    done = ipusim("goodput", FOUR, *words, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "goodput.json").read_text())
    verdict = done.stdout.splitlines()[0]
    assert verdict.startswith(f"{100 * said['effective_training_time']:.2f} % of 54 d is effective training time")
    assert verdict.endswith(" on the 4 IPUs of the run.")
    best = said["periods"][0]
    assert best["waste"] == min(period["waste"] for period in said["periods"])
    assert 1 - said["effective_training_time"] == pytest.approx(best["drawn_waste"])
    assert said["goodput_samples_per_s"] == pytest.approx(said["effective_training_time"] * said["samples_per_s"])
    assert sum(1 / mtbf for mtbf in said["mtbf_s"].values()) == pytest.approx(419 / (54 * 86400))
    trainings = said["trainings"]
    for number in range(20):
        spent = sum(trainings[key][number] for key in trainings if key.endswith("_s"))
        assert spent == pytest.approx(said["wall_s"])
    assert (tmp_path / "goodput.png").stat().st_size > 10_000
    again = ipusim("goodput", FOUR, *words, "--out", tmp_path / "again")
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert (tmp_path / "again" / "goodput.json").read_bytes() == (tmp_path / "goodput.json").read_bytes()


def test_a_period_of_ones_own_is_held_against_the_best(tmp_path):
    own = ("--mtbf", "3 h", "--mtbf", "host=200 h", "--over", "1 d", "--checkpoint-every", 10**9, "--seeds", 5)
    done = ipusim("goodput", FOUR, *own, "--detect", "10 s", "--restart", "5 min", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "would lose least" in done.stdout.splitlines()[2]
    said = json.loads((tmp_path / "goodput.json").read_text())
    assert (list(said["mtbf_s"]), said["sources"]) == (["the system", "host"], [])
    assert said["periods"][0]["by"] == "the option"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--mtbf", "3 parsecs"), "--mtbf: expected time in one of s, ms, us, µs, ns, min, h, d such as '3.1 h', got"),
        (("--mtbf", "lama3"), "; or the name of a record, llama3; did you mean llama3?"),
        (("--mtbf", "host=0 h"), "--mtbf: expected a time above 0, got 'host=0 h'"),
        (("--mtbf", "a=3 h", "--mtbf", "a=4 h"), "--mtbf: expected each component once, got a a second time"),
        (("--over", "-1 d"), "--over: expected a time from 0 up, got '-1 d'"),
        (("--over", "0 d"), "--over: expected a time above 0 of at most 100 years, got 0 s"),
        (("--seeds", "0"), "--seeds: expected from 1 to 100,000 trainings, got 0"),
        (("--mtbf", "1 us"), "--seeds: expected at most 20,000,000 failures in all trainings together, got some "),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, words, text):
    refused(ipusim("goodput", FOUR, *words, "--out", tmp_path), text, tmp_path)


def test_inference_is_refused(tmp_path):
    done = ipusim("goodput", SCENARIOS / "inference.yaml", "--out", tmp_path)
    refused(done, "expected a run that trains, got one of inference", tmp_path)


def refused(done, text, folder):
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert not list(folder.iterdir())


def test_a_run_with_losses_of_its_own_is_refused(tmp_path):
    lost = "disturbances=[{ipu: 0, lost: 4000, detect: 500, restart: 700, checkpoint: 100}]"
    refused = ipusim("goodput", FOUR, "--set", lost, "--out", tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "RUN: expected a run without losses of IPUs and checkpoints, which are drawn here, got one whose disturbances "
        "have them\n"
    )
    slower = ipusim("goodput", FOUR, "--set", "disturbances=[{ipu: 0, slower: 2}]", "--devices", "1", "--out", tmp_path)
    assert slower.returncode == 0
    assert "\nThe IPU fails every " in slower.stdout
