"""The command line as a person meets it: output, files, exit codes."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.request.fields import MAX_STAGES
from ipusim.schedules.registry import find, names
from ipusim.timeline.timeline import Timeline
from tests.cli.commands import answer, ipusim, leave_pixels_out, process, refusal
from tests.effort import sampled, slowest
from tests.plans import parse_grid
from tests.programs import needs_tensorflow
from tests.scenarios import ROOT

SMALL = ROOT / "scenarios" / "schedules_four_ipus.yaml"
MEMORY = ROOT / "scenarios" / "memory_by_schedule.yaml"
TUTORIAL = ROOT / "scenarios" / "tutorial_step3_pipelining.yaml"
GPU = ROOT / "scenarios" / "gpu_schedules.yaml"
EMPTY_OUT = "--out: expected a folder or a file, got an empty text; '.' is the current folder\n"
FAST = ("--set", "steps=1", "--set", "pipeline.repeat_count=2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An empty folder in which a run of everything has written to a/b, to be read only; and what the command said."""
    place = tmp_path_factory.mktemp("trained")
    return place, ipusim("run", TUTORIAL, *FAST, "--out", place / "a" / "b", "--verbose")


def test_run_writes_every_file_and_prints_a_summary(trained):
    place, done = trained
    assert done.returncode == 0, done.stderr
    folder = place / "a" / "b"
    files = ".ipusim losses.csv memory.npz memory.png scenario.yaml summary.json timeline.npz trace.pftrace.gz"
    assert {path.name for path in folder.iterdir()} == {*files.split(), "trace.png", "trace.svg", "weights.npz"}
    assert list(place.iterdir()) == [place / "a"]
    assert list((place / "a").iterdir()) == [folder]
    figures = ("weight update", "utilisation", "mean loss", "best constant predictor")
    assert [word for word in ("ramp-up", "main", "ramp-down", *figures) if word not in done.stdout] == []
    summary = json.loads((folder / "summary.json").read_text())
    timeline = Timeline.load(folder / "timeline.npz")
    assert summary["execution_cycles"] * 2 >= timeline.makespan_cycles > summary["execution_cycles"]
    losses = (folder / "losses.csv").read_text().splitlines()
    assert losses[0] == "step,execution,micro_batch,loss"
    assert len(losses) == 1 + 2 * 16
    with np.load(folder / "weights.npz") as weights:
        assert weights["dense256/W"].shape == (784, 256)
    assert (folder / "trace.png").read_bytes().startswith(b"\x89PNG")
    assert gzip.decompress((folder / "trace.pftrace.gz").read_bytes())


@slowest
def test_same_bytes_under_two_hash_seeds(trained, tmp_path):
    """That of this process, and another."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    one, other = trained[0] / "a" / "b", tmp_path / "a" / "b"
    done = process("run", TUTORIAL, *FAST, "--out", other, environment={"PYTHONHASHSEED": seed})
    assert done.returncode == 0
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(names) == 12
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of a small run with its picture of lines, to be read only."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        leave_pixels_out(patch)
        assert ipusim("run", SMALL, "--out", folder).returncode == 0
    return folder


@sampled(2)
@pytest.mark.usefixtures("without_pixels")
@pytest.mark.parametrize(
    "zoom", [("--phase", "ramp-up"), ("--phase", "ramp-down"), ("--from", "3", "--to", "20"), ("--phase", "main")]
)
def test_zoomed_pictures_differ_from_the_whole(tmp_path, whole, zoom):
    assert ipusim("run", SMALL, "--out", tmp_path / "zoomed", *zoom).returncode == 0
    zoomed = (tmp_path / "zoomed" / "trace.svg").read_bytes()
    assert (whole / "trace.svg").read_bytes() != zoomed
    answer("show", whole / "timeline.npz", "--out", tmp_path / "again.svg", *zoom)
    assert (tmp_path / "again.svg").read_bytes() == zoomed


@pytest.mark.parametrize(
    ("words", "shape", "name"),
    [
        (("grouped", "--stages", 4, "--count", 8), PlanShape(mapping=(0, 1, 2, 3), micro_batches=8), "grouped"),
        (
            ("interleaved", "--stages", 3, "--inference"),
            PlanShape(mapping=(0, 1, 2), micro_batches=3, training=False),
            "interleaved",
        ),
        (("grouped", "--mapping", "0,1,0", "--count", 6), PlanShape(mapping=(0, 1, 0), micro_batches=6), "grouped"),
        (("Grouped", "--recompute"), PlanShape(mapping=(0, 1), micro_batches=4, recompute=True), "grouped"),
        (("single", "--stages", 2), PlanShape(mapping=(0, 0), micro_batches=1), "single"),
    ],
)
def test_schedule_prints_a_grid_that_parses_back(words, shape, name):
    done = ipusim("schedule", *words)
    plan = plan_of(find(name), shape)
    assert done.stdout == format_grid(plan)
    assert parse_grid(done.stdout) == plan


def test_schedule_recomputes_in_the_mode_that_it_has():
    done = ipusim("schedule", "gpipe", "--recompute", "--count", 4)
    assert done.stdout.startswith("gpipe training with recomputation inside backward, stages on IPUs 0, 1, count 4\n")


def test_devices_lists_the_c2_server():
    done = ipusim("devices")
    assert done.stdout == (ROOT / "tests" / "golden" / "c2_server_devices.txt").read_text().rstrip("\n") + "\n"
    assert ipusim("devices", "pod61").stderr.startswith(
        "SYSTEM: unknown system 'pod61'; did you mean 'pod16' or 'pod64'? Expected one of "
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "missing.yaml"), "missing.yaml"),
        (
            ("show", "missing.npz", "--out", "a.png"),
            "missing.npz: expected a run folder with timeline.npz, or the file timeline.npz, got no such file",
        ),
        (
            ("run", SMALL, "--phase", "main", "--from", "3"),
            "--phase: expected either a phase or cycles",
        ),
        (("run", SMALL, "--phase", "middle"), "got 'middle'"),
        (("run", SMALL, "--execution", "x"), "--execution: expected a whole number, got 'x'"),
        (("run", SMALL, "--from", "-1"), "--from: expected a number from 0 up, got '-1'"),
        (("test", "--workers", "0"), "--workers: expected a number from 1 up, got '0'"),
        (("schedule", "--blocking"), "--blocking: expected SCHEDULE with this option, got none"),
        (("schedule", "grouped", "--count", "3"), "--count: The number of iterations of the pipeline must be"),
        (("run", SMALL, "--execution", "5"), "--execution: expected an execution numbered 0, got 5"),
        (
            ("run", SMALL, "--set", "steps=3", "--execution", "5"),
            "--execution: expected an execution from 0 to 2, got 5",
        ),
        (("run", SMALL, "--from", "5", "--to", "5"), "--from: expected a cycle before --to 5, got 5"),
        (("compare", SMALL, "--schedules", ","), "--schedules: expected entries separated by single commas, got an"),
        (("suggest", SMALL, "--schedules", "groupd"), "--schedules: got 'groupd'; did you mean 'grouped'?"),
        (("compare", SMALL, "--trace", "groupd"), "--trace: expected a trace of 'grouped', 'interleaved', "),
        (("run", SMALL, "--set", "steps"), "--set"),
        # A shell variable without a value would write into the current folder.
        *((("run", GPU, *words), EMPTY_OUT) for words in (("--out", ""), ("--out=",))),
        (("check",), "SCENARIO: expected a scenario, or --schema, got none"),
        (("check", SMALL, "--schema"), "SCENARIO: expected either this option or --schema, got both"),
        (("check", "--schema", "--set", "steps=1"), "--set: expected either this option or --schema, got both"),
        (("validate", "--rates", "amp_ceiling"), "--rates: expected rows to fit the rates to, in --fit, got none"),
        (("schedule", "groupd"), "SCHEDULE: got 'groupd'; did you mean 'grouped'?"),
        (("schedule", "PipeDream"), "got 'PipeDream'; did you mean '1f1b'? Expected a schedule out of grouped, "),
        (("devices", "mk2"), "unknown system 'mk2'; did you mean 'm2000'? Expected one of c2_server, "),
        (("schedule", "grouped", "--mapping", "0,x"), "expected IPUs below 256, separated by commas"),
        (("schedule", "grouped", "--mapping", "0," + "9" * 5000), "--mapping: expected IPUs below 256, separated by"),
        (("schedule", "grouped", "--mapping", ",".join(["0"] * 257)), "--mapping: expected at most 256 stages, got"),
        (
            ("schedule", "grouped", "--stages", str(MAX_STAGES + 1)),
            f"--stages: expected a number up to {MAX_STAGES}, got '257'",
        ),
        (
            ("schedule", "interleaved", "--stages", str(MAX_STAGES), "--count", "4096"),
            "--count: expected at most 1000000 operations, the limit",
        ),
        (("run", SMALL, "--to", "9223372036854775808"), "--to: expected a cycle from 0 to 4611686018427387904, the"),
        (("run", SMALL, "--from", "9223372036854775808"), "--from: expected a cycle from 0 to 46116860184273879"),
        (("run", SMALL, "--execution", "9" * 4000), "--execution: expected an execution numbered 0, got 9999"),
        (
            ("schedule", "grouped", "--mapping", "0,1", "--stages", "3"),
            "--mapping: Each stage must be mapped to an IPU",
        ),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(tmp_path, words, text):
    assert text in refusal(*words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == [], "something was written"


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_folder_in_use_is_refused_before_the_run(tmp_path, monkeypatch, command):
    for module in ("ipusim.runs.execute", "ipusim.app.compare.compare"):
        monkeypatch.setattr(f"{module}.execute", lambda *_: pytest.fail("it ran"))
    with ResultsFolder(tmp_path / "out"):
        done = ipusim(command, MEMORY, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}/out: another run writes its results here; name another folder\n"


def test_help_shows_defaults_and_the_version():
    assert len(ipusim("--help").stdout.splitlines()) <= 24
    assert "reports/<name>" in ipusim("run", "--help").stdout
    assert ipusim("show", "-h").stdout == ipusim("show", "--help").stdout
    assert "the smallest legal one" in " ".join(ipusim("schedule", "--help").stdout.split())
    assert ipusim("--version").stdout.startswith("ipusim 0.")
    listed = ipusim("schedule").stdout.splitlines()
    assert [line.split()[0] for line in listed[::3]] == list(names())
    at = 3 * names().index("zero_bubble_h1")
    assert [line.strip() for line in listed[at + 1 : at + 3]] == [
        "sync: point_to_point, lock_step",
        "supports: training, several stages on one IPU, several IPUs",
    ]


@pytest.mark.usefixtures("without_charts")
def test_a_training_that_diverges_keeps_its_results_and_says_so(tmp_path):
    diverging = ("optimizer.learning_rate=1e6", "steps=2", "pipeline.repeat_count=2", "precision=float32")
    words = [word for each in diverging for word in ("--set", each)]
    done = ipusim("run", TUTORIAL, *words, "--out", tmp_path, columns=None)
    assert done.returncode == 0, done.stderr
    assert ": lower the learning rate" in " ".join(done.stdout.split())
    assert done.stderr == ""
    assert json.loads((tmp_path / "summary.json").read_text())["learning"]["mean_loss_by_step"][-1] is None
    assert "nan" in (tmp_path / "losses.csv").read_text()


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("ipusim", {"numpy", "matplotlib", "pandas", "pydantic", "simpy"}),
        ("ipusim.app.cli", {"numpy", "matplotlib", "simpy", "pydantic", "networkx", "ruamel"}),
        ("ipusim.app.regression.suite", {"pydantic", "simpy", "ruamel"}),  # the parent of workers, which import them
    ],
)
def test_what_begins_a_command_imports_nothing_that_takes_time(module, slow):
    """A clock would tell how busy the machine is."""
    script = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not slow & {*done.stdout.split()}


@pytest.mark.usefixtures("without_charts")
def test_check_ends_with_the_notes_that_run_ends_with(workspace):
    checkpoints = ("--set", "pipeline.recomputation_checkpoints=[dense256]")
    words = (TUTORIAL, *FAST, "--set", "data.samples=96", *checkpoints)
    notes = json.loads(ipusim("run", *words, "--json", cwd=workspace).stdout)["notes"]
    assert len(notes) == 2, notes
    assert ipusim("check", *words).stdout.splitlines()[1:] == [
        ipusim("check", TUTORIAL, *FAST).stdout.splitlines()[1],
        *notes,
    ]


def test_an_empty_argument_of_a_program_is_its_own(tmp_path):
    needs_tensorflow()
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.argv[1:])\n")
    done = ipusim("run", program, "--", "--out", "", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "['--out', '']", done.stderr


def test_micro_batches_in_segments_count_once(tmp_path):
    changes = ("--set", "pipeline.schedule=seq_1f1b", "--set", "pipeline.segments=3")
    done = answer("check", GPU, *changes, cwd=tmp_path)
    assert "4 stages, seq_1f1b in point-to-point, 8 micro-batches per weight update" in " ".join(done.split())
    assert not [*tmp_path.iterdir()]
    planned = answer("schedule", "seq_1f1b", "--stages", 2, "--count", 3)
    assert planned.startswith("seq_1f1b training, stages on IPUs 0, 1, count 3 in 2 segments\n")


def test_a_link_to_nothing_is_not_offered_for_itself(tmp_path):
    (tmp_path / "plan.yaml").symlink_to("none.yaml")
    assert refusal("run", "plan.yaml", cwd=tmp_path) == "plan.yaml: expected a scenario file, got no such file\n"


def test_a_trace_of_malformed_events_has_no_pass(tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "F0", "ts": "abc", "dur": 1}]}')
    right = "trace.json: expected passes, got no event with a name, a time and a length\n"
    assert refusal("import", "trace.json", cwd=tmp_path) == right
