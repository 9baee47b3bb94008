"""The command that sweeps: its files, its words, and that neither workers nor an end in the middle change a byte."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.commands import HEEDING, answer, ipusim, refusal
from tests.effort import rarest, sampled
from tests.schedules import SCHEDULES_OR_FILES

FOUR = "scenarios/schedules_four_ipus.yaml"
COUNT = "pipeline.gradient_accumulation_count"
JITTER = ("--set", "disturbances=[{jitter: 20 %}]", "--set", "expect=null")


def rows(folder):
    with (folder / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def sweep(workspace, *words, out="out", **options):
    return answer("sweep", *words, "--workers", "1", "--out", workspace / out, cwd=workspace, **options)


def test_points_that_are_refused_are_told_and_rows_follow_their_closed_forms(workspace):
    text = sweep(workspace, FOUR, "--vary", f"{COUNT}=7,8..512x2")
    _, _, refused, *_ = text.splitlines()
    assert refused.startswith(f"1 of 8 did not run, for example gradient_accumulation_count 7: {COUNT}: The number of ")
    assert text.splitlines()[-1].endswith("out: sweep.csv, sweep.png, sweep.svg")
    found = rows(workspace / "out")
    assert [row[COUNT] for row in found] == ["7", "8", "16", "32", "64", "128", "256", "512"]
    assert found[0]["makespan_cycles"] == ""
    assert [row["fits"] for row in found] == ["", *["not known"] * 7]
    assert "must be a multiple of 8, but it is 7" in found[0]["message"]
    for row in found[1:]:
        count = int(row[COUNT])
        assert int(row["makespan_cycles"]) == 3000 * (count + 3)
        assert float(row["bubble"]) == 3 / (count + 3)
        assert float(row["samples_per_s"]) == pytest.approx(count * 1.33e9 / (3000 * (count + 3) + 500), rel=1e-12)


@pytest.mark.usefixtures("without_charts")
def test_points_as_good_as_the_best_are_named(workspace):
    # 8 micro-batches and 3 ramps of 3,000 cycles, and an update of 500; GPipe stashes all 8, the others 4 and 7.
    held = [word for stage in range(4) for word in ("--set", f"pipeline.stages.{stage}.stash_bytes=1 MiB")]
    text = sweep(workspace, FOUR, "--vary", "pipeline.schedule=gpipe,1f1b,eager_1f1b,interleaved", *held)
    assert text.splitlines()[0] == (
        "Best of 3 points in point-to-point by throughput: schedule 1f1b, with 317,612 samples/s, a bubble of 27.3%, "
        "4 MiB on the fullest IPU. Equal in throughput: schedule eager_1f1b; schedule gpipe."
    )


@pytest.mark.usefixtures("without_charts")
def test_values_go_side_by_side(workspace):
    text = sweep(workspace, FOUR, "--zip", "--vary", f"{COUNT}=8,16", "--vary", "pipeline.schedule=grouped,sequential")
    assert "Best of 2 points" in text
    assert [(row[COUNT], row["pipeline.schedule"]) for row in rows(workspace / "out")] == [
        ("8", "grouped"),
        ("16", "sequential"),
    ]


@pytest.mark.usefixtures("without_charts")
def test_a_study_file_says_the_same_as_options(workspace):
    (workspace / "study.yaml").write_text(
        f"scenario: {FOUR}\nvary:\n  {COUNT}: 8..32x2\n  pipeline.schedule: [grouped, interleaved]\nmeasure: bubble\n"
    )
    by_file = sweep(workspace, "study.yaml", "--set", "steps=2")
    of_file = (workspace / "out" / "sweep.csv").read_bytes()
    assert by_file.startswith(
        "Best of 6 points by bubble: gradient_accumulation_count 32, schedule grouped, with a bubble"
    )
    words = ["--vary", f"{COUNT}=8..32x2", "--vary", "pipeline.schedule=grouped,interleaved", "--measure", "bubble"]
    by_options = sweep(workspace, FOUR, *words, "--set", "steps=2")
    assert (workspace / "out" / "sweep.csv").read_bytes() == of_file
    assert by_options == by_file.replace("\nPoints", "\n6 of 6 points are taken from an earlier sweep.\nPoints", 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([FOUR], "--vary: expected options to vary, such as pipeline.gradient_accumulation_count=8..256x2, got none"),
        ([FOUR, "--vary", "seed"], "--vary: expected PATH=VALUES, such as"),
        (
            [FOUR, "--vary", "pipeline.schedule=groupd,interleavd"],
            f"--vary pipeline.schedule: got 'groupd'; did you mean grouped? Expected {SCHEDULES_OR_FILES}",
        ),
        ([FOUR, "--vary", f"{COUNT}=7,9"], f"--vary {COUNT}: The number of iterations of the pipeline must be a "),
        (
            [FOUR, "--vary", "pipeline.stages.stag1.forward=1"],
            "or the name of an item in it, got 'stag1'; did you mean ",
        ),
        (
            [FOUR, "--vary", f"{COUNT}=8", "--measure", "troughput"],
            "--measure: expected one of throughput, time (time_per_weight_update), makespan, bubble, utilisation, "
            "memory (peak), loss (mean_loss), accuracy, got 'troughput'; did you mean throughput?",
        ),
        (
            [FOUR, "--vary", f"{COUNT}=8", "--measure", "loss"],
            "--measure: expected --losses with loss, which needs the arithmetic, got only loss",
        ),
        (
            [FOUR, "--vary", f"{COUNT}=8", "--format", "parquet"],
            "--format is now the ending of --out, as in `ipusim sweep SCENARIO --out points.parquet`",
        ),
        (
            [FOUR, "--seeds", "5"],
            "--seeds: expected a scenario with jitter among its disturbances, such as {jitter: 5 %}",
        ),
        ([FOUR, "--seeds", "0", *JITTER], "--seeds: expected from 1 to 100,000 runs, got 0"),
        (
            [FOUR, "--seeds", "5", "--vary", "steps=1,2", *JITTER],
            "--seeds: expected a scenario and no further values to vary",
        ),
        (
            [FOUR, "--slower", "1"],
            "--slower: expected a factor on the duration of the work, from above 1 to 1000, got 1",
        ),
        (
            [FOUR, "--slower", "2", "--zip", "--vary", "steps=1,2"],
            "--slower: expected a scenario with crossed values ",
        ),
        (
            [FOUR, "--slower", "2", "--seeds", "3"],
            "--seeds: expected a scenario and no further values to vary, got further values",
        ),
        ([FOUR, "--set", "steps=0", "--vary", f"{COUNT}=8"], "--set steps: expected a whole number from 1 to 1000000"),
        (
            ["wrong.yaml"],
            "wrong.yaml:1:1: scenari: expected one of the keys scenario, vary, zip, measure, got scenari; did you mean "
            "scenario?\nwrong.yaml:1:1: scenario: expected the file of a scenario, got nothing\nwrong.yaml:2:14: "
            "vary.seed: expected a range such as 8..256x2 (8, 16, 32 and so on up to 256) or 8..64+8 (8, 16, 24 and so "
            "on up to 64), got '8..9'\nwrong.yaml:3:6: zip: expected true or false, got 'maybe'",
        ),
    ],
)
def test_what_is_wrong_is_told_where_it_stands_and_nothing_is_written(workspace, words, told):
    (workspace / "wrong.yaml").write_text("scenari: a.yaml\nvary: {seed: 8..9}\nzip: maybe\n")
    assert told in refusal("sweep", *words, "--workers", "1", "--out", workspace / "out", cwd=workspace)
    assert not (workspace / "out").exists()


def test_where_no_point_of_a_study_file_runs_its_line_is_told(workspace):
    (workspace / "study.yaml").write_text(f"scenario: {FOUR}\nvary:\n  pipeline.schedule: [groupd]\n")
    done = refusal("sweep", "study.yaml", "--workers", "1", cwd=workspace)
    assert done.startswith("study.yaml:3:3: pipeline.schedule: got 'groupd'; did you mean grouped? Expected grouped, ")


@pytest.mark.usefixtures("without_charts")
def test_rows_as_parquet(workspace):
    parquet = pytest.importorskip("pyarrow.parquet")
    varied = ["--vary", f"{COUNT}=7,8", "--vary", "pipeline.schedule=grouped,1f1b"]
    sweep(workspace, FOUR, *varied, out="out/sweep.parquet")
    assert [path.name for path in (workspace / "out").iterdir() if path.is_file()] == ["sweep.parquet"]
    first = (workspace / "out" / "sweep.parquet").read_bytes()
    table = parquet.read_table(workspace / "out" / "sweep.parquet").to_pydict()
    assert table[COUNT] == [7, 7, 8, 8]
    assert table["pipeline.schedule"] == ["grouped", "1f1b"] * 2
    assert table["makespan_cycles"] == [None, 30_000, 33_000, 33_000]
    assert table["fits"] == [None, "not known", "not known", "not known"]
    sweep(workspace, FOUR, *varied, out="out/sweep.parquet")
    assert (workspace / "out" / "sweep.parquet").read_bytes() == first
    sweep(workspace, FOUR, *varied)
    assert not (workspace / "out" / "sweep.parquet").exists()


#: Points of several lengths, of several kinds, and some that do not run.
MANY = ["--vary", f"{COUNT}=7,400..1440+80", "--vary", "pipeline.schedule=grouped,1f1b"]


def start(workspace, out, *words, stdout=subprocess.PIPE):
    command = [sys.executable, "-W", "error", "-m", "ipusim", "sweep", FOUR, *MANY, "--out", out, *words]
    return subprocess.Popen([*HEEDING, *command], cwd=workspace, stdout=stdout, stderr=stdout, text=True)


def finished(folder):
    journal = folder / ".ipusim" / "sweep.jsonl"
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def stored_runs(folder):
    journal = folder / ".ipusim" / "sweep.jsonl"
    return journal.read_bytes().count(b'"is_refusal": false') if journal.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Return the folder of the sweep by one worker, from beginning to end."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "scenarios").symlink_to(Path(__file__).parents[2] / "scenarios")
    answer("sweep", FOUR, *MANY, "--workers", "1", "--out", "out", cwd=folder)
    return folder / "out"


@rarest
def test_a_sweep_that_is_killed_goes_on_to_the_same_bytes(workspace, uninterrupted):
    """In a process of its own, with two workers; the sweep that it is compared with has one."""
    out = workspace / "out"
    child = start(workspace, "out", "--workers", "2", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while finished(out) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert child.returncode == -signal.SIGKILL
    assert 4 <= (there := finished(out)) < 28
    child = start(workspace, "out", "--workers", "2")
    told, problems = child.communicate()
    assert (child.returncode, problems) == (0, "")
    assert f"{there} of 30 points are taken from an earlier sweep." in told
    for name in ("sweep.csv", "sweep.png", "sweep.svg"):
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_a_changed_digit_in_what_is_kept_of_points_is_told_and_changes_no_result(workspace, without_charts):
    words = ["sweep", FOUR, "--vary", f"{COUNT}=8,16,32", "--workers", "1", "--out", "out"]
    first = ipusim(*words, cwd=workspace)
    journal = workspace / "out" / ".ipusim" / "sweep.jsonl"
    kept = journal.read_bytes()
    head, line, *others = kept.splitlines(keepends=True)
    changed = line.replace(b'"throughput": ', b'"throughput": 9')
    assert changed != line
    journal.write_bytes(b"".join([head, changed, *others, b"[" * 100_000 + b"\n"]))
    again = ipusim(*words, cwd=workspace)
    assert again.stderr == "out: 2 of the stored points are damaged and simulated again\n"
    assert again.stdout.replace("2 of 3 points are taken from an earlier sweep.\n", "") == first.stdout
    assert sorted(journal.read_bytes().splitlines()) == sorted(kept.splitlines())


@sampled(2)
@pytest.mark.parametrize("place", ["out", "out/sweep.csv"])
def test_an_interrupt_leaves_the_rows_that_are_there_and_says_how_many(workspace, uninterrupted, place):
    out = workspace / "out"
    child = start(workspace, place, "--workers", "1")
    deadline = time.monotonic() + 60
    while stored_runs(out) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    told, problems = child.communicate()
    assert (child.returncode, told) == (-signal.SIGINT, "")
    kept = f"{stored_runs(out)} simulated points are stored, and the same command simulates only missing points"
    assert problems == f"{place}: interrupted. {kept}\n"
    partly, whole = (set((folder / "sweep.csv").read_text().splitlines()) for folder in (out, uninterrupted))
    assert 5 < len(partly) < len(whole)
    assert partly < whole


@rarest
def test_a_dask_cluster_comes_to_the_same_bytes(workspace, uninterrupted):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        words = ["--backend", "dask", "--address", cluster.scheduler_address]
        done = ipusim("sweep", FOUR, *MANY, *words, "--out", "out", cwd=workspace)
    assert done.returncode == 0, done.stderr
    assert (workspace / "out" / "sweep.csv").read_bytes() == (uninterrupted / "sweep.csv").read_bytes()


@sampled(3)
@pytest.mark.parametrize(
    "sent", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10], ids=["scheme", "closed", "other"]
)
def test_an_address_of_no_cluster_is_one_line_and_no_traceback(workspace, sent):
    """A client of Dask's that was never connected tries to close itself as the process ends."""
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "foo://x" if sent is None else f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def answer():
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(sent or b"")

        Thread(target=answer, daemon=True).start()
        command = [sys.executable, "-m", "ipusim", "sweep", FOUR, "--vary", f"{COUNT}=8,16", "--out", "out"]
        command += ["--backend", "dask", "--address", address]
        done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{address}: no Dask cluster answers")


def test_a_cluster_that_does_not_answer_is_one_message(workspace, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("ipusim.app.sweep.crew._PATIENCE_S", 0.2)
    words = ["--backend", "dask", "--address", "tcp://127.0.0.1:9"]
    done = refusal("sweep", FOUR, "--vary", f"{COUNT}=8", *words, "--out", "out", cwd=workspace)
    assert done.startswith("tcp://127.0.0.1:9: no Dask cluster answers: ")
    assert not os.path.lexists(workspace / "out")
