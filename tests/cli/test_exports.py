"""What is taken out of a run folder: tables that read back as the Timeline, and pictures."""

import builtins
import csv
import io
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from matplotlib.image import imread

import ipusim as door
from ipusim.app.render.style import DPI
from ipusim.app.run_folder.columns import span_columns
from ipusim.app.run_folder.export import csv_bytes, parquet_bytes
from ipusim.app.run_folder.memory_file import memory_file, read_memory
from ipusim.app.run_folder.report import run_curves
from ipusim.app.scenario import load_job
from ipusim.app.study.result import json_bytes
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import ALL_IPUS, NONE, Span, Timeline
from tests.cli.commands import CALLING, answer, ipusim, refusal
from tests.effort import sampled
from tests.scenarios import SCENARIOS

MEMORY = SCENARIOS / "memory_by_schedule.yaml"
TIMED = SCENARIOS / "schedules_four_ipus.yaml"
#: In lock-step and point-to-point, with replicas, and with optimizer state in Streaming Memory.
RUNS = {
    "memory_by_schedule": {},
    "data_parallel_4x4": {"steps": 1, "numerics": "off", "pipeline.repeat_count": 2},
    "zero_bubble": {"steps": 1, "numerics": "off"},
    "optimizer_state_offload": {"steps": 1, "numerics": "off"},
}


@pytest.fixture(scope="module", params=RUNS)
def folder(request, tmp_path_factory):
    """A run folder without its pictures, which take longer than all else here."""
    place = tmp_path_factory.mktemp("run")
    words = [f"{key}={value}" for key, value in RUNS[request.param].items()]
    result = execute(load_job(SCENARIOS / f"{request.param}.yaml", words))
    result.timeline.save(place / "timeline.npz")
    (place / "memory.npz").write_bytes(memory_file(run_curves(result)))
    (place / "summary.json").write_bytes(json_bytes(result.summary.to_dict()))
    return place


def rows_of(path):
    """The rows of a table, each by the names of its columns, missing values as None."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    return pyarrow.parquet.read_table(path).to_pylist()


#: Fields of a span that a table has by their names.
AS_THEY_ARE = ("micro_batch", "time_step", "execution", "bytes", "cause", "replica")


def timeline_of(rows, info):
    """The Timeline that a table of spans says, by its names alone."""
    kinds = {kind.name.lower().replace("_", " "): int(kind) for kind in SpanKind}
    queues = {"host infeed": 0, "host outfeed": 1}

    def number(row, name):
        return NONE if row[name] is None else int(row[name])

    def span(row):
        shared = row["track"].startswith("all IPUs")
        link = info.links.index(row["link"]) if row["link"] else queues.get(row["track"].partition(" of ")[0], NONE)
        assert float(row["end_s"]) == int(row["end_cycle"]) / info.clock_hz
        assert int(row["cycles"]) == int(row["end_cycle"]) - int(row["start_cycle"])
        return Span(
            start=number(row, "start_cycle"),
            end=number(row, "end_cycle"),
            kind=kinds[row["kind"]],
            ipu=ALL_IPUS if shared else number(row, "ipu"),
            stage=info.stages.index(row["stage"]) if row["stage"] else NONE,
            link=link,
            **{name: number(row, name) for name in AS_THEY_ARE},
        )

    return Timeline(info, np.array([span(row) for row in rows], dtype=np.int64))


@sampled(2)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_read_back_as_the_run(folder, tmp_path, form):
    done = answer("show", folder, "--out", tmp_path / f"spans.{form}")
    assert done == f"{tmp_path}: spans.{form}, memory.{form}, ipus.{form}\n"
    timeline = Timeline.load(folder / "timeline.npz").expanded()
    found = timeline_of(rows_of(tmp_path / f"spans.{form}"), timeline.info)
    if not timeline.info.has_time_steps:  # they are numbered as one, which means nothing
        columns = np.stack([getattr(timeline, name) for name in Span._fields], axis=1)
        columns[:, Span._fields.index("time_step")] = NONE
        timeline = Timeline(timeline.info, columns)
    assert found == timeline

    memory = rows_of(tmp_path / f"memory.{form}")
    curves = [curve.expanded() for curve in read_memory(folder, len(timeline.info.ipus))]
    assert len(memory) == sum(len(curve.time) for curve in curves)
    for curve in curves:
        own = [row for row in memory if int(row["ipu"]) == curve.ipu]
        assert [int(row["cycle"]) for row in own] == curve.time.tolist()
        assert [int(row["allocated_bytes"]) for row in own] == curve.allocated_bytes.tolist()
        assert [int(row["fifo_bytes"]) for row in own] == curve.fifo_bytes.tolist()
        assert {int(row["resident_bytes"]) for row in own} == {curve.resident_bytes}

    times = door.load(folder).times
    ipus = rows_of(tmp_path / f"ipus.{form}")
    assert [int(row["compute_cycles"]) for row in ipus] == [use.compute_cycles for use in times.pipeline_use]
    assert [float(row["utilisation"]) for row in ipus] == [
        use.compute_cycles / times.makespan_cycles for use in times.pipeline_use
    ]


def test_frames_are_the_tables(folder, tmp_path):
    run = door.load(folder)
    assert ipusim("show", folder, "--out", tmp_path / "spans.csv").returncode == 0
    for frame, name in ((run.spans(), "spans"), (run.memory_over_time(), "memory"), (run.ipus(), "ipus")):
        texts = [[None if pd.isna(cell) else str(cell) for cell in row] for row in frame.itertuples(index=False)]
        assert [list(row.values()) for row in rows_of(tmp_path / f"{name}.csv")] == texts


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run that has just ended, and the folder where it lies, without its pictures."""
    run = door.run(MEMORY)
    with mock.patch("matplotlib.figure.Figure.savefig"):
        return run, run.save(tmp_path_factory.mktemp("ended") / "run")


def test_a_run_that_has_just_ended_has_the_tables_of_its_folder(ended):
    run, folder = ended
    frame = run.memory_over_time()
    for ipu, of_ipu in frame.groupby("ipu"):
        assert of_ipu["allocated_bytes"].max() == run.memory().set_index("ipu").loc[ipu, "peak_bytes"]
        assert of_ipu["s"].tolist() == [cycle / run.timeline.info.clock_hz for cycle in of_ipu["cycle"]]
    pd.testing.assert_frame_equal(door.load(folder).memory_over_time(), frame)


def test_tables_are_the_same_under_any_hash_seed(ended, tmp_path):
    """Here, and in one process with another hash seed."""
    here, elsewhere = (
        [("show", ended[1], "--out", tmp_path / place / f"spans.{form}") for form in ("csv", "parquet")]
        for place in ("here", "elsewhere")
    )
    for words in here:
        answer(*words)
    seed = "7" if os.environ.get("PYTHONHASHSEED") != "7" else "8"
    command = [sys.executable, "-W", "error", "-c", CALLING, *("\t".join(map(str, words)) for words in elsewhere)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    found = {
        place: {path.name: path.read_bytes() for path in (tmp_path / place).iterdir() if path.is_file()}
        for place in ("here", "elsewhere")
    }
    assert len(found["here"]) == 6
    assert found["here"] == found["elsewhere"]


@pytest.mark.usefixtures("without_charts")
def test_tables_go_into_the_run_folder_until_it_is_another_runs(tmp_path):
    assert ipusim("run", TIMED, "--out", tmp_path).returncode == 0
    done = ipusim("show", tmp_path / "timeline.npz", "--out", tmp_path / "spans.csv")
    assert done.stdout == (
        f"{tmp_path}: spans.csv, ipus.csv\nNo memory.csv: the run has stored no memory; perhaps its stages do not "
        "state their bytes.\n"
    )
    assert (tmp_path / "spans.csv").exists()
    assert door.load(tmp_path).memory_over_time().empty
    assert ipusim("run", TIMED, "--set", "pipeline.schedule=sharded", "--out", tmp_path).returncode == 0
    assert not (tmp_path / "spans.csv").exists()


def test_names_that_csv_must_quote_and_floats_that_must_not_lose_a_bit(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    odd = ('a, "b"', "→\nsecond line")
    columns = np.stack([getattr(timeline, name) for name in Span._fields], axis=1)
    timeline = Timeline(timeline.info.__class__(**{**vars(timeline.info), "stages": odd}), columns)
    table = span_columns(timeline)
    for rows in (
        list(csv.DictReader(io.StringIO(csv_bytes(table).decode(), newline=""))),
        pyarrow.parquet.read_table(io.BytesIO(parquet_bytes(table))).to_pylist(),
    ):
        assert [row["stage"] or None for row in rows] == [odd[s] if s >= 0 else None for s in timeline.stage]
        assert [float(row["start_s"]) for row in rows] == (timeline.start / timeline.info.clock_hz).tolist()


def test_parquet_without_its_library_says_what_to_install(four_run, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *words, **named):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *words, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert (
        refusal("show", four_run, "--out", tmp_path / "out" / "spans.parquet")
        == "Parquet needs pyarrow: pip install -e '.[parquet]' in a checkout of ipusim\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_charts")
def test_tables_of_any_name_lie_beside_each_other(four_run, tmp_path):
    for name in ("x.csv", "y.csv", "small-spans.csv"):
        assert ipusim("show", four_run, "--out", tmp_path / name).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        *("small-ipus.csv", "small-spans.csv", "x-ipus.csv", "x.csv", "y-ipus.csv", "y.csv")
    ]
    (tmp_path / "z-memory.csv").write_text("mine\n")
    refused = refusal("show", four_run, "--out", tmp_path / "z.csv")
    assert f"{tmp_path}/z-memory.csv: expected no file, or a file written by ipusim, got another" in refused
    assert not (tmp_path / "z.csv").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--perfetto", "--from", "3"), "--from: expected either this option or --perfetto, got both"),
        (("--perfetto", "--out", "a.svg"), "--out: expected either this option or --perfetto, got both"),
        (("--no-browser",), "--no-browser: expected either this option or a picture, got both"),
        (("--out", "a.csv", "--phase", "main"), "--phase: expected either this option or tables, got both"),
        (("--out", "a.parquet", "--execution", "0"), "--execution: expected either this option or tables, got both"),
        (("--out", "a.csv", "--no-browser"), "--no-browser: expected either this option or tables, got both"),
        (("--out", "a.csv", "--title", "x"), "--title: expected either this option or tables, got both"),
        (("--perfetto", "--size", "6x3in"), "--size: expected either this option or --perfetto, got both"),
        (("--theme", "night"), "--theme: expected light, dark or print, got 'night'"),
        (
            ("--size", "2x1in"),
            "--size: expected a larger picture, got 2x1in: rows, axes and legend take at least 3.8 inches of height",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told_in_one_line(four_run, words, text):
    before = sorted(four_run.iterdir())
    assert refusal("show", four_run, *words, cwd=four_run) == f"{text}\n"
    assert sorted(four_run.iterdir()) == before


@sampled(2)
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((), "trace-execution-0.png"),
        (("--phase", "ramp-up"), "trace-ramp-up.png"),
        (("--phase", "Ramp up"), "trace-ramp-up.png"),
        (("--from", "0", "--to", "900"), "trace-cycles-0-900.png"),
        (("--to", "900"), "trace-cycles-0-900.png"),
        (("--from", "900"), "trace-cycles-900-end.png"),
    ],
)
def test_a_picture_of_a_run_folder_lies_in_it_named_by_what_it_shows(four_run, words, name):
    """It is drawn once; parts of one are drawn in ``test_command_line``."""
    for run in (four_run, four_run / "timeline.npz"):
        drawn = not words and run == four_run
        done = ipusim("show", run, *words, pictures=drawn)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{four_run / name}\n", "")
        assert (four_run / name).read_bytes().startswith(b"\x89PNG" if drawn else b"")
        (four_run / name).unlink()


def test_pictures_of_every_command_have_their_own_title_size_and_theme(four_run, tmp_path):
    """A point of an SVG is a 72nd of an inch."""
    own = ("--title", "A title of my own", "--size", "7x4in", "--theme", "dark")
    cabled = ("--set", "system.name=m2000", "--set", "pipeline.stages.stage0.output_bytes=4 MiB")
    lines = (
        ("show", four_run, "--phase", "ramp-up", "--out", tmp_path / "ramp.svg"),
        ("compare", TIMED, "--schedules", "grouped,1f1b", "--out", tmp_path / "compared"),
        ("sweep", TIMED, "--vary", "pipeline.gradient_accumulation_count=8,16", "--workers", "1", "--out", tmp_path),
        ("explain", four_run, "--out", tmp_path / "explained"),
        ("sweep", TIMED, "--seeds", "2", "--set", "disturbances=[{jitter: 10 %}]", "--out", tmp_path / "ensemble.svg"),
        ("sweep", TIMED, "--slower", "2", "--workers", "1", "--out", tmp_path / "weak_points.svg"),
        ("compare", TIMED, *cabled, "--orders", "ZIGZAG,SNAKE", "--out", tmp_path / "links.svg"),
    )
    for words in lines:
        answer(*words, *own)
    names = ("ramp", "compared/comparison", "sweep", "ensemble", "weak_points", "links")
    for name in (f"{name}.svg" for name in names):
        text = (tmp_path / name).read_text()
        assert 'width="504pt" height="288pt"' in text, name
        assert "A title of my own" in text, name
        assert "fill: #181b21" in text, name
    for name in ("idle_causes.png", "critical_path.png"):
        shown = imread(tmp_path / "explained" / name)
        assert shown.shape[:2] == (4 * DPI, 7 * DPI), name
        assert shown[0, 0, :3].max() < 0.2, name


@pytest.mark.usefixtures("without_charts")
def test_a_phase_that_the_run_has_not_ends_with_exit_code_2(tmp_path):
    inference = ("--set", "training=false", "--out", tmp_path)
    said = (
        "expected a phase of execution 0 under the schedule 'grouped' in lock-step (ramp-up, main, ramp-down), "
        "got 'weight-update'"
    )
    done = ipusim("run", TIMED, *inference, "--phase", "weight-update")
    assert (done.returncode, done.stderr) == (2, f"{said}; the picture shows execution 0 instead\n")
    before = sorted(tmp_path.iterdir())
    assert refusal("show", tmp_path, "--phase", "weight-update") == f"{said}\n"
    assert refusal("show", tmp_path, "--phase", "rampdown") == (
        "--phase: expected ramp-up, main, ramp-down or weight-update, or no option for all phases, got 'rampdown'; "
        "did you mean ramp-down?\n"
    )
    text = f"--out: expected a picture or tables named .png, .svg, .pdf, .csv or .parquet, got {tmp_path / 'a.bmp'}\n"
    assert refusal("show", tmp_path, "--out", tmp_path / "a.bmp") == text
    assert sorted(tmp_path.iterdir()) == before
