"""What ``--out`` names is written over only where ipusim has written it; that shows before any work, for all commands.

No command writes over what it reads.
"""

import shutil

import pytest

import ipusim.app.synthesize.synthesis  # binds its functions before `no_work` replaces them
from tests.cli.commands import answer, ipusim
from tests.effort import sampled
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
PROGRAM = """
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat())
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
run = ipu.ipu_compiler.compile(
    lambda: ipu.pipelining_ops.pipeline([tf.abs, tf.abs], 4, infeed_queue=infeed, outfeed_queue=outfeed))
with tf.Session() as session:
    session.run(infeed.initializer)
    session.run(run)
"""
ROWS = "model,machine,ipus,micro_batch,count,items_per_s\nresnet50,pod16,1,16,1,3000\n"
PRODUCTS = "m,k,n,dtype,TFLOP/s\n1024,1024,1024,fp16,100\n"


@pytest.fixture
def place(four_run, tmp_path, without_charts):
    """A folder with something to read for every command."""
    shutil.copytree(four_run, tmp_path / "run")
    shutil.copy(FOUR, tmp_path / "m.yaml")
    (tmp_path / "p.py").write_text(PROGRAM)
    (tmp_path / "r.csv").write_text(ROWS)
    (tmp_path / "products.csv").write_text(PRODUCTS)
    return tmp_path


#: Of each command that writes one file: its words, the endings that the file may have, and where its work begins.
FILES = {
    "import": (("import", "p.py"), ".yaml", "ipusim.ipu.programs.program_file.ProgramFile.run"),
    "suggest": (("suggest", "m.yaml"), ".yaml", "ipusim.app.suggest.suggestion.suggest"),
    "validate --fit": (("validate", "--fit", "r.csv"), ".yaml", "ipusim.app.fidelity.calibration.calibrate"),
    "show": (("show", "run"), ".png", "ipusim.app.run_folder.pictures.picture"),
    "show, drawn": (("show", "run"), ".svg", "ipusim.app.run_folder.pictures.picture"),
    "report": (("report", "run"), ".html", "ipusim.app.page.page.report_page"),
    "report, played": (("report", "--play", "run"), ".html", "ipusim.app.page.page.report_page"),
}
#: Of each command that writes a folder: its words, a file that it writes there, and where its work begins.
FOLDERS = {
    "run": (("run", "m.yaml"), "summary.json", "ipusim.runs.execute.execute"),
    "a program": (("run", "p.py"), "summary.json", "ipusim.ipu.programs.program_file.ProgramFile.run"),
    "sweep": (
        ("sweep", "m.yaml", "--vary", "pipeline.schedule=grouped,interleaved"),
        "sweep.csv",
        "ipusim.app.sweep.sweep.sweep",
    ),
    "compare": (("compare", "m.yaml"), "comparison.json", "ipusim.app.compare.compare.compare"),
    "explain": (("explain", "run"), "explanation.json", "ipusim.app.explain.explanation.explain"),
    "explain a scenario": (("explain", "m.yaml"), "idle_causes.png", "ipusim.runs.session.Session.run"),
    "show, tables": (("show", "run"), "spans.csv", "ipusim.app.run_folder.export.export_files"),
    "validate": (
        ("validate", "--products", "products.csv"),
        "products.csv",
        "ipusim.app.fidelity.validation.validation_of",
    ),
    "validate --schedules": (
        ("validate", "--schedules"),
        "digits.csv",
        "ipusim.app.published.validation.validated_schedules",
    ),
}


@pytest.fixture
def no_work(monkeypatch):
    """Let the work of any command fail."""

    def begun(*_words, **_options):
        raise AssertionError("the work has begun")

    for _, _, work in (*FILES.values(), *FOLDERS.values()):
        monkeypatch.setattr(work, begun)


def output(folder, command):
    """Return what ``--out`` names for a folder: of tables one of its files."""
    return f"{folder}/{FOLDERS[command][1]}" if command == "show, tables" else folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".ipusim" not in path.parts}


def check_refused(done, text, folder, before):
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert contents(folder) == before
    assert not list(folder.glob(".ipusim-*"))


@pytest.mark.parametrize("command", FILES)
def test_a_file_of_another_is_not_written_over(command, place, no_work):
    words, suffix, _ = FILES[command]
    (place / f"mine{suffix}").write_text("mine: 1\n")
    (place / "notes.txt").write_text("mine\n")
    (place / f"folder{suffix}").mkdir()
    before = contents(place)
    for out, text in (
        (f"mine{suffix}", "written by ipusim, got another file: move the file, or name another"),
        ("notes.txt", f"named {'.png, .svg, .pdf, ' if command.startswith('show') else suffix}"),
        (f"folder{suffix}", "expected a place for a file, got a folder"),
        (f"notes.txt/new{suffix}", f"notes.txt/new{suffix}: cannot be written"),
        (f"{'x' * 300}{suffix}", "cannot be written: "),
        (f"/proc/nowhere/new{suffix}", "cannot be written: "),
    ):
        check_refused(ipusim(*words, "--out", out, cwd=place), text, place, before)


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("import", "p.py"), "p.py"),
        (("suggest", "m.yaml"), "m.yaml"),
        (("suggest", "m.yaml"), "run/../m.yaml"),
        (("suggest", "m.yaml"), "link.yaml"),
        (("suggest", "m.yaml"), "hard.yaml"),
        (("suggest", "link.yaml"), "m.yaml"),
        (("validate", "--fit", "r.csv"), "m.yaml"),
        (("validate", "--fit", "r.csv"), "r.csv"),
        (("show", "run/timeline.npz"), "run/timeline.npz"),
        (("report", "run"), "run/summary.json"),
    ],
)
def test_what_is_read_is_not_written_over(words, out, place, no_work):
    (place / "link.yaml").symlink_to("m.yaml")
    (place / "hard.yaml").hardlink_to(place / "m.yaml")
    before = contents(place)
    check_refused(ipusim(*words, "--out", out, cwd=place), "expected", place, before)


@pytest.mark.parametrize("command", FOLDERS)
def test_files_of_another_in_a_folder_are_not_written_over(command, place, no_work):
    words, name, _ = FOLDERS[command]
    (place / "out").mkdir()
    (place / "out" / name).write_text("mine\n")
    (place / "notes.txt").write_text("mine\n")
    before = contents(place)
    text = f"out/{name}: expected no file, or a file written by ipusim, got another file, or a file changed"
    check_refused(ipusim(*words, "--out", output("out", command), cwd=place), text, place, before)
    text = "notes.txt: expected a folder for the results, got a file"
    check_refused(ipusim(*words, "--out", output("notes.txt", command), cwd=place), text, place, before)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "mine/scenario.yaml", "--out", "mine"),
        ("run", "changed/scenario.yaml", "--out", "changed"),
        ("run", "changed/scenario.yaml", "--out", "link"),
        ("validate", "--products", "valid/products.csv", "--out", "valid"),
    ],
)
def test_a_folder_is_not_written_over_what_is_read_from_it(words, place, no_work):
    for name, copied in (("mine/scenario.yaml", "m.yaml"), ("valid/products.csv", "products.csv")):
        (place / name).parent.mkdir()
        shutil.copy(place / copied, place / name)
    shutil.copytree(place / "run", place / "changed")
    with (place / "changed" / "scenario.yaml").open("a") as scenario:
        scenario.write("# mine\n")
    (place / "link").symlink_to("changed")
    before = contents(place)
    check_refused(ipusim(*words, cwd=place), "expected an output different from all input files, got ", place, before)


@pytest.mark.parametrize("out", [(), ("--out", "reports/schedules_four_ipus"), ("--out", "link")])
def test_a_folder_is_written_again_from_the_scenario_that_a_run_wrote_there(out, place):
    folder = place / "reports" / "schedules_four_ipus"
    (place / "link").symlink_to(folder)
    shutil.copytree(place / "run", folder)
    before = contents(folder)
    for _ in range(2):
        answer("run", "reports/schedules_four_ipus/scenario.yaml", *out, cwd=place)
        assert contents(folder) == before


#: Words with which commands that try much try less, and draw less.
LESS = {
    "suggest": ("--schedules", "grouped", "--orders", "ZIGZAG", "--recompute", "no", "--offload", "no"),
    "show": ("--to", "900"),
    "show, drawn": ("--to", "900"),
    "compare": ("--schedules", "grouped,sharded"),
    **dict.fromkeys(("explain", "explain a scenario"), ("--what", "pipeline.gradient_accumulation_count=16")),
}


@sampled(2)
@pytest.mark.parametrize("command", sorted(FILES.keys() - {"validate --fit"}))
def test_what_ipusim_has_written_it_writes_over(command, place, monkeypatch):
    words, suffix, _ = FILES[command]
    more = LESS.get(command, ())
    monkeypatch.undo()  # draw whole pictures
    for _ in range(2):
        done = ipusim(*words, *more, "--out", f"new/out{suffix}", cwd=place)
        assert (done.returncode, done.stderr) == (0, "p.py is a program: it is run\n" if command == "import" else "")
    (place / f"empty{suffix}").touch()
    assert ipusim(*words, *more, "--out", f"empty{suffix}", cwd=place).returncode == 0
    assert (place / f"empty{suffix}").read_bytes() == (place / "new" / f"out{suffix}").read_bytes()


@sampled(2)
@pytest.mark.parametrize("command", sorted(FOLDERS.keys() - {"validate", "validate --schedules"}))
def test_a_folder_that_ipusim_has_written_it_writes_over(command, place):
    words, name, _ = FOLDERS[command]
    for _ in range(2):
        answer(*words, *LESS.get(command, ()), "--out", output("out", command), cwd=place)
    assert (place / "out" / name).exists()
