"""`ipusim suggest --order` as who calls it meets it: its files, which run as it says, and what it refuses."""

import re

import pytest

from ipusim.app.scenario.load import load_job
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Sync
from ipusim.runs.execute import execute
from tests.cli.commands import answer, ipusim, refusal

pytestmark = pytest.mark.usefixtures("without_charts")

SCENARIO = """\
# Stages that differ.
system: {name: m2000}
memory: report
pipeline:
  schedule: 1f1b
  sync: lock_step
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 100000, backward: 210000, output_bytes: 200000, stash_bytes: 10 MB}
    - {name: b, forward: 130000, backward: 240000, gradient_bytes: 200000, stash_bytes: 10 MB}
    - {name: c, forward: 90000, backward: 190000, output_bytes: 200000, stash_bytes: 10 MB}
    - {name: d, forward: 120000, backward: 290000, gradient_bytes: 200000, stash_bytes: 10 MB}
"""
SERIALIZED = ["--set", "pipeline.batch_serialization_iterations=2"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "uneven.yaml").write_text(SCENARIO)
    return tmp_path


def synthesized(folder, *more, ends=answer):
    return ends("suggest", "uneven.yaml", "--order", "--seconds", "0.5", "--out", "out", *more, cwd=folder)


def test_the_best_of_the_given_schedules_is_not_called_the_best_of_all(folder):
    first, *_ = synthesized(folder, "--schedules", "1f1b").splitlines()
    assert "less time than the best of the given schedules that fits, 1f1b in lock-step" in first


def passes_of(job, ipu):
    return [passes for at, *passes in job.plan.order.passes.tolist() if at == ipu]


def test_what_is_written_runs_as_long_as_is_said_and_for_more_micro_batches_too(folder):
    done = synthesized(folder)
    first, second, third, copied, fourth, fifth = done.splitlines()
    assert first.startswith("Best: synthesized in lock-step, ")
    assert "less time than the best named schedule that fits" in first
    assert third.endswith("It ignores memory, and links shared by several copies.")
    assert copied.startswith("dualpipe in lock-step, with two copies of each stage, takes ")
    csv = "the CSV for torch is for 8 micro-batches, without the time-steps."
    assert fourth == f"The Order serves every count from 8 on; {csv}"
    assert fifth.startswith("out: scenario.yaml, synthesized.py, synthesized.csv, comparison.json")
    job = load_job(folder / "out" / "scenario.yaml")
    cycles = execute(job).summary.makespan_cycles
    assert f"takes {cycles:,} cycles" in second
    torchs = load_job(folder / "out" / "scenario.yaml", ["pipeline.schedule=synthesized.csv"])
    assert [passes_of(torchs.whole, ipu) for ipu in range(4)] == [passes_of(job.whole, ipu) for ipu in range(4)]
    counts = (12, 16, 20)
    longer = [
        execute(load_job(folder / "out" / "scenario.yaml", [f"pipeline.gradient_accumulation_count={count}"]))
        for count in counts
    ]
    assert all(run.summary.makespan_cycles > cycles for run in longer)
    fewer = ipusim("check", "out/scenario.yaml", "--set", "pipeline.gradient_accumulation_count=7", cwd=folder)
    assert "expected 8 micro-batches or more, as in synthesized, got 7" in fewer.stderr


def test_where_nothing_is_better_the_scenario_has_the_named_schedule(folder):
    done = synthesized(
        folder, "--set", "pipeline.sync=point_to_point", "--set", "pipeline.gradient_accumulation_count=1"
    )
    begins = "Best: zero_bubble_h1 in point-to-point (as fast as zero_bubble_h2), "
    ends = (
        r"no better Order was found, so scenario\.yaml names this schedule\.\n"
        "With `--schedules 1f1b` an Order has to beat 1f1b alone, and is written to the folder\\.\n"
    )
    assert re.match(rf"{re.escape(begins)}[\d.]+ us per weight update: {ends}", done)
    assert sorted(path.name for path in (folder / "out").iterdir() if path.is_file()) == ["scenario.yaml"]
    best = done.split()[1]
    assert load_job(folder / "out" / "scenario.yaml").schedule.name == best


def test_a_limit_of_each_ipu_holds(folder):
    synthesized(folder, "--memory", "90 MiB,80 MiB,60 MiB,50 MiB")
    peaks = load_job(folder / "out" / "scenario.yaml").memory.peaks
    assert all(peak.bytes <= most << 20 for peak, most in zip(peaks, (90, 80, 60, 50), strict=True))


def test_a_limit_of_micro_batches_holds(folder):
    done = synthesized(folder, "--memory", "3 micro-batches")
    assert "\nNo IPU holds more than 3 micro-batches. The cost, the longest time from the first " in done
    job = load_job(folder / "out" / "scenario.yaml").whole
    for ipu in range(4):
        held = [0]
        for kind, *_ in passes_of(job, ipu):
            held.append(held[-1] + {Pass.FORWARD: 2, Pass.BACKWARD: -2}.get(kind, -1))
        assert 0 < max(held) <= 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            (["--memory", text], f"--memory: expected a whole number of micro-batches from 1 up, got '{text}'")
            for text in ("0 micro-batches", "two micro-batches")
        ),
        (["--memory", "4 micro-batches,1 MiB"], "--memory: expected bytes in one of "),
        (["--seconds", "0"], "--seconds: expected a time above 0, got 0"),
        (["--memory", "1 MiB,1 MiB"], "--memory: expected one size, or one for each of 4 IPUs, got 2"),
        (["--memory", "0 B"], "--memory: expected sizes above 0, got '0 B'"),
        (["--memory", "1 MiB"], "expected a schedule that fits the memory, got none: raise the limit, or use more"),
        (["--replicas", "1"], "--replicas: expected either this option or --order, got both"),
        (["--out", "out.yaml"], "--out: expected a folder with --order, got out.yaml"),
        (["--schedules", "1f1c"], "--schedules: got '1f1c'; did you mean '1f1b'? Expected a schedule out of "),
        (
            [*SERIALIZED, "--set", "pipeline.schedule=sequential"],
            "expected passes that can be reordered, got concurrent stages, batch serialization, ",
        ),
        (
            SERIALIZED,
            "uneven.yaml:5:13: pipeline.schedule: Batch serialization is only supported with the `Sequential`",
        ),
    ],
)
def test_what_is_refused_is_named_and_nothing_is_written(folder, options, said):
    assert said in synthesized(folder, *options, ends=refusal)
    assert not (folder / "out").exists()


def test_an_order_is_searched_in_the_sync_mode_of_the_command_line(folder):
    synthesized(folder, "--sync", "lock_step", "--schedules", "gpipe")
    assert load_job(folder / "out" / "scenario.yaml").plan.sync is Sync.LOCK_STEP
    refused = synthesized(folder, "--sync", "lock_step,point_to_point", ends=refusal)
    assert refused == "--sync: expected one sync mode with --order, got lock_step,point_to_point\n"
