"""Whatever surrounds the process (streams, encodings, backends, names of files, interrupts), no run breaks by it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

from ipusim.app.cli import main
from ipusim.app.cli.app import app
from tests.cli.commands import HEEDING, answer, command_of, ipusim, leave_pixels_out, process
from tests.effort import draws_everything, rarest, sampled, slowest
from tests.scenarios import ROOT

SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
SMALL = ROOT / "scenarios" / "schedules_four_ipus.yaml"
TRAINING = ROOT / "scenarios" / "tutorial_step3_pipelining.yaml"
COMMAND = f"'{sys.executable}' -W error -m ipusim"
FILES = {"summary.json", "timeline.npz", "trace.png", "trace.svg"}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a shell's redirections, and signals")


def is_whole(folder):
    return {path.name for path in folder.iterdir()} >= FILES and not (folder / ".ipusim" / "new").exists()


def says_a_route(printed, encoding):
    """Whether the tables of a run of SMALL were printed in the encoding, with an arrow or what stands for it."""
    arrow = "→" if encoding == "utf-16" else ">"
    return f"1{arrow}0{arrow}2" in printed.decode(encoding)


def test_a_run_prints_in_any_encoding_and_no_backend_of_a_notebook_or_plugin_of_pydantic_gets_in_its_way(tmp_path):
    """In a process of its own: plugins and backends are looked for when libraries are imported."""
    about = tmp_path / "plugins" / "nosy-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nosy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nnosy = nosy:plugin\n")  # there is no such module
    path = os.pathsep.join(filter(None, (str(about.parent), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONIOENCODING": "cp1252", "MPLBACKEND": "nonsense", "PYTHONPATH": path}
    done = process("run", SMALL, "--out", tmp_path / "out", "--verbose", environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert says_a_route(done.stdout, "cp1252")
    assert is_whole(tmp_path / "out")


@contextmanager
def standard_streams(*numbers):
    """Give this process the standard output and error that it would begin with, if these were their descriptors.

    None is a closed one. What Python makes of them, or not, is what it makes when it starts.
    """
    kept = [os.dup(number) for number in (1, 2)]
    sys.stdout.flush()
    sys.stderr.flush()
    streams = {}
    try:
        for number, (name, descriptor) in enumerate(zip(("stdout", "stderr"), numbers, strict=True), start=1):
            if descriptor is None:
                os.close(number)
                streams[name] = streams[f"__{name}__"] = None
            else:
                os.dup2(descriptor, number)
                stream = io.TextIOWrapper(io.FileIO(number, "wb", closefd=False), "utf-8", write_through=True)
                streams[name] = streams[f"__{name}__"] = stream
        with mock.patch.multiple(sys, **streams):
            yield
    finally:
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def called(*words):
    """Call the command with the standard streams as they are, and return its exit code."""
    with mock.patch.object(sys, "argv", ["ipusim", *map(str, words)]):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        for stream in (sys.stdout, sys.stderr):  # as a process does at its end
            stream.flush()
    return code


@pytest.fixture
def descriptors(tmp_path):
    """Return where standard streams may lead, by name: a file, a pipe that nobody reads, a full disk; or closed."""
    reader, unread = os.pipe()
    os.close(reader)
    found = {"closed": None, "unread": unread, "file": os.open(tmp_path / "said", os.O_RDWR | os.O_CREAT)}
    if Path("/dev/full").exists():
        found["full"] = os.open("/dev/full", os.O_WRONLY)
    yield found
    for descriptor in filter(None, found.values()):
        os.close(descriptor)


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("encoding", ["ascii", "utf-16"])
def test_a_run_prints_in_encodings_without_its_characters(tmp_path, encoding):
    """Every scenario is checked and one run; none knows of the others."""
    said = io.BytesIO()
    with io.TextIOWrapper(said, encoding) as stream, mock.patch.object(sys, "stdout", stream):
        checked = SCENARIOS if draws_everything() else SCENARIOS[:: len(SCENARIOS) // 4]
        for path in checked:
            assert called("check", path) == 0
        assert called("run", SMALL, "--verbose", "--out", tmp_path) == 0
        printed = said.getvalue()
    assert len(re.findall(r"\.yaml: \d+ stage", printed.decode(encoding))) == len(checked)
    assert says_a_route(printed, encoding)
    assert is_whole(tmp_path)


@slowest
def test_a_run_is_whole_when_its_reader_leaves(tmp_path):
    """The end of its process too; by default a reader leaves one that goes on, below."""
    line = f"{COMMAND} run '{SMALL}' --out '{tmp_path}' 2>&- | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert is_whole(tmp_path)


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("out", "err", "ends"),
    [
        ("closed", "file", (0, "")),
        ("closed", "closed", (0, "")),
        ("unread", "file", (0, "")),
        ("full", "file", (2, "standard output: No space left on device\n")),
    ],
)
def test_a_run_is_whole_wherever_its_output_goes(tmp_path, descriptors, out, err, ends):
    if out not in descriptors:
        pytest.skip("there is no /dev/full here")
    with standard_streams(descriptors[out], descriptors[err]):
        code = called("run", SMALL, "--out", tmp_path / "out")
    assert (code, (tmp_path / "said").read_text()) == ends
    assert is_whole(tmp_path / "out")


@pytest.mark.parametrize(
    ("out", "err"), [("file", "closed"), ("closed", "closed"), ("unread", "unread"), ("file", "full")]
)
@pytest.mark.parametrize("words", [("--quiet", "--verbose"), ()])
def test_a_mistake_is_exit_code_2_wherever_standard_error_goes(tmp_path, descriptors, out, err, words):
    with standard_streams(descriptors[out], descriptors.get(err)):
        assert called("run", "nowhere.yaml", *words) == 2
    assert (tmp_path / "said").read_text() == ""


#: Names of files, and of their scenarios: control characters, not UTF-8, CJK, mathematics.
ANY_NAMES = {
    b"a\nb\x1b[31m[bold]": "a%0Ab%1B[31m[bold]",
    b"caf\xe9": "caf%E9",
    "日本語 模型".encode(): "日本語 模型",
    b"$\\frac{$": "$\\frac{$",
}


#: Two stages, with what they hold, and so a picture of that too: the titles are what is looked at.
TINY = """
system: {name: m2000, auto_select_ipus: 2}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: one, forward: 2000, backward: 4000, update: 600, stash_bytes: 1 MiB, output_bytes: 4 KiB}
    - {name: two, forward: 2000, backward: 4000, update: 600, stash_bytes: 1 MiB, gradient_bytes: 4 KiB}
"""


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A folder with a scenario of each name, and the results of its run, of whose pictures those of lines are drawn.

    One of them goes to the folder that is its own by default, once more.
    """
    place = tmp_path_factory.mktemp("named")
    lines = []
    for name in ANY_NAMES:
        path = os.fsencode(place) + b"/" + name + b".yaml"
        Path(os.fsdecode(path)).write_text(TINY)
        lines.append((b"run", path, b"--out", path.removesuffix(b".yaml")))
    with pytest.MonkeyPatch.context() as patch:
        leave_pixels_out(patch)
        for words in lines:
            answer(*words, cwd=place)
    answer(b"run", b"caf\xe9.yaml", cwd=place, pictures=False)
    return place


@sampled(2)
@pytest.mark.usefixtures("without_pixels")
@pytest.mark.parametrize(("name", "called"), ANY_NAMES.items(), ids=ANY_NAMES.values())
def test_a_scenario_may_have_any_name(named, name, called):
    folder = named / os.fsdecode(name)
    path = named / os.fsdecode(name + b".yaml")
    assert is_whole(folder)
    assert (folder / "memory.png").exists()
    assert json.loads((folder / "summary.json").read_text("utf-8"))["name"] == called
    assert ElementTree.parse(folder / "trace.svg")
    again = ("show", folder / "timeline.npz", "--out", folder / "again.png")
    for words in (again, ("check", path), ("compare", path, "--schedules", "grouped", "--out", folder)):
        answer(*words)


def test_the_folder_of_a_name_that_is_no_text_can_be_written(named):
    assert is_whole(named / "reports" / "caf%E9")


def interrupted(command, cwd, seen):
    """Start the command, interrupt it once ``seen`` has seen something, or a path is there, and return how it ended.

    That is its exit code, and what it printed after.
    """
    process = subprocess.Popen([*HEEDING, *command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            if isinstance(seen, Path):
                while not seen.exists():
                    assert process.poll() is None
                    time.sleep(0.01)
            else:
                seen(process)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, output, errors


@pytest.mark.parametrize(
    "module",
    [
        *(pytest.param(name, marks=rarest) for name in ("typer", "matplotlib")),
        "ipusim.runs.assemble.assemble",
    ],
)
def test_an_interrupt_while_starting_ends_the_process_at_once(tmp_path, module):
    def imported(process):
        for line in process.stderr:
            if line.rpartition("|")[2].strip().startswith(module):
                return
        pytest.fail(f"{module} was never imported")

    command = [sys.executable, "-X", "importtime", "-m", "ipusim", "run", TRAINING, "--out", "out"]
    code, output, errors = interrupted(command, tmp_path, imported)
    assert code == -signal.SIGINT
    assert output == ""
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@rarest
def test_an_interrupted_program_has_said_what_it_printed_and_leaves_nothing(tmp_path):
    (tmp_path / "program.py").write_text("import time\nprint('begun')\nopen('begun', 'w').close()\ntime.sleep(100)\n")
    command = [sys.executable, "-m", "ipusim", "run", "program.py", "--out", "out"]
    assert interrupted(command, tmp_path, tmp_path / "begun") == (-signal.SIGINT, "begun\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "program.py"]


def test_an_interrupted_run_clears_up_and_says_nothing(tmp_path):
    command = [sys.executable, "-m", "ipusim", "run", TRAINING, "--set", "steps=1000", "--out", "out"]
    assert interrupted(command, tmp_path, tmp_path / "out" / ".ipusim" / "new") == (-signal.SIGINT, "", "")
    assert list(tmp_path.iterdir()) == []


#: Prints 3,000 lines, into which a timer breaks again and again, as an interrupt does into one.
BROKEN_INTO = """
import signal
from ipusim.base.streams import prepare_streams
class Break(Exception): pass
def broken(*_):
    global printing
    if printing:
        printing = False
        raise Break
printing = False
prepare_streams()
signal.signal(signal.SIGALRM, broken)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
for number in range(3000):
    try:
        printing = True
        print(f"<{number}>", flush=True)
        printing = False
    except Break:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_what_an_interrupt_breaks_into_is_not_printed_twice():
    done = subprocess.run([sys.executable, "-c", BROKEN_INTO], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = [int(number) for number in re.findall(r"<(\d+)>", done.stdout)]
    assert printed == sorted(set(printed))
    assert len(printed) > 2000


@slowest
def test_an_interrupt_that_a_library_loses_ends_the_run_all_the_same_and_says_nothing(tmp_path):
    """One that comes within a callback from C is lost, here while the libraries' threads are counted."""
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes, signal, threadpoolctl\n"
        "limit = threadpoolctl.ThreadpoolController.limit\n"
        "def interrupted(self, **given):\n"
        "    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()\n"
        "    return limit(self, **given)\n"
        "threadpoolctl.ThreadpoolController.limit = interrupted\n"
    )
    command = [sys.executable, "-m", "ipusim", "run", TRAINING, "--set", "steps=1000", "--out", tmp_path / "out"]
    how = {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([*HEEDING, *command], check=False, **how)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    assert not (tmp_path / "out").exists()


@slowest
def test_a_run_that_is_told_to_ignore_interrupts_does(tmp_path):
    command = ["bash", "-c", f"trap '' INT; exec {COMMAND} run '{SMALL}' --out '{tmp_path}/out'"]
    code, _, errors = interrupted(command, tmp_path, tmp_path / "out" / ".ipusim" / "new")
    assert (code, errors) == (0, "")
    assert is_whole(tmp_path / "out")


def test_a_shell_completes_every_command_and_its_options(tmp_path):
    def completed(*words):
        typed = {"COMP_WORDS": " ".join(("ipusim", *words)), "COMP_CWORD": str(len(words))}
        with mock.patch.dict(os.environ, {"_IPUSIM_COMPLETE": "complete_bash", **typed}):
            return ipusim().stdout.split()

    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert completed("") == names
    assert completed("va") == ["validate"]
    assert {"--phase", "--out"} <= {*completed("show", "--")}
    # Which shell this is would else be asked of the process that started the tests.
    alone = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    with mock.patch.dict(os.environ, alone):
        command_of.cache_clear()  # as it is asked when commands are made
        assert ipusim("--install-completion", "bash").returncode == 0
        shown = ipusim("--show-completion", "bash").stdout
    installed = (tmp_path / ".bash_completions" / "ipusim.sh").read_text()
    assert "_IPUSIM_COMPLETE=complete_bash" in installed
    assert shown.strip() == installed.strip()
