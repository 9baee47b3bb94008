"""Folders of strangers: whatever stands in place of a file or folder of a run, every command ends, and only inside.

Of one that the run itself has written, one part is replaced by what nobody would write; then nothing outside of the
folder changes, no code of it runs, and the command says in one message what is wrong, or does without.
"""

import contextlib
import functools
import gzip
import hashlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import webbrowser
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import ipusim
from ipusim.app.run_folder import view
from ipusim.app.run_folder.memory_file import _CURVE_COLUMNS as OF_CURVES
from ipusim.app.run_folder.memory_file import _ENTRY_COLUMNS as OF_ENTRIES
from ipusim.base.errors import IpusimError
from ipusim.timeline.timeline import Span
from tests.cli.commands import ipusim as command_line
from tests.effort import sampled, share, slowest
from tests.forged_files import archive, bomb

SCENARIO = """
system: {name: m2000}
steps: 2
data: {type: synthetic, shape: [4], classes: 3, samples: 64}
model:
  layers:
    - {name: a, type: dense, units: 4}
    - {name: b, type: dense, units: 3}
    - {name: loss, type: softmax_cross_entropy}
pipeline:
  splits: [b]
  gradient_accumulation_count: 4
  micro_batch_size: 2
  outfeed_mask: [false, false]
optimizer: {type: sgd, learning_rate: 0.1}
"""
SWEEP = ("sweep", "../scenario.yaml", "--vary", "pipeline.gradient_accumulation_count=4,8,12", "--workers", 1)
#: What a sweep has to find, whatever stands in its journal.
BEST = "gradient_accumulation_count 12, with "
#: Longest and largest that a command may be: seconds, and bytes beyond what the tests take.
MOST_S = 30
MOST_BYTES = 400 << 20

WORDS = {
    "report": ("report", "."),
    "report of several": ("report", "../other", ".", "--out", "../page.html"),
    "report --play": ("report", "--play", "../other", ".", "--out", "../play.html"),
    "explain": ("explain", "."),
    "explain --out": ("explain", "../other", "--out", "."),
    "show": ("show", "."),
    "show --perfetto": ("show", ".", "--perfetto"),
    "show, tables": ("show", ".", "--out", "spans.csv"),
    "compare": ("compare", ".", "../scenario.yaml", "--out", "../compared"),
    "compare --out": ("compare", "../other", "../scenario.yaml", "--out", "."),
    "run --out": ("run", "../scenario.yaml", "--out", "."),
    "sweep --out": (*SWEEP, "--out", "."),
}
#: What each command reads, and has to refuse where it is no file.
OWN = (".ipusim", ".ipusim/lock", ".ipusim/files.sha256", ".ipusim/new", ".ipusim/old")
RUN = ("summary.json", "timeline.npz")
READ = {
    "report": (*RUN, "memory.npz", "scenario.yaml", "explanation.json", *OWN),
    "report of several": (*RUN, "memory.npz", "scenario.yaml", "explanation.json"),
    "report --play": RUN,
    "explain": (*RUN, "scenario.yaml", *OWN),
    "explain --out": OWN,
    "show": ("timeline.npz",),
    "show --perfetto": ("trace.pftrace.gz",),
    "show, tables": ("timeline.npz", "memory.npz", *OWN),
    "compare": RUN,
    "compare --out": OWN,
    "run --out": OWN,
    "sweep --out": (*OWN, ".ipusim/sweep.jsonl"),
    "load": (*RUN, "losses.csv", "weights.npz", "outputs.npz", "memory.npz", "scenario.yaml"),
}


class Hung(BaseException):
    """A command that has not ended in time."""


@contextlib.contextmanager
def in_time():
    def end(*_):
        raise Hung

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(MOST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resident(what):
    """Return the bytes that this process takes (VmRSS), or has taken at most since it last forgot (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def load(folder):
    try:
        run = ipusim.load(folder)
        said = repr((run.weights, run.outputs, run.losses(), run.memory_over_time(), run.explain()))
    except (IpusimError, OSError) as error:
        return subprocess.CompletedProcess("load", 2, "", str(error))
    return subprocess.CompletedProcess("load", 0, said, "")


def do(command, folder):
    """Run a command in a folder; `show --perfetto` with a browser that ends it at once."""
    if command == "load":
        return load(folder)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with (
        mock.patch.object(Figure, "savefig"),  # which leaves a picture empty: pixels take most of the time
        mock.patch.object(view, "local_perfetto", return_value=folder),
        mock.patch.object(webbrowser, "open", side_effect=lambda _: signal.raise_signal(signal.SIGTERM)),
    ):
        try:
            return command_line(*WORDS[command], cwd=folder)
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)


def tree(folder):
    """Return everything in a folder: links as what they say, files as which they are and what is in them."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            found[str(path)] = (path.stat().st_ino, content)
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return a folder with all that commands leave in one: of a run, of a sweep, and of one that was killed."""
    top = tmp_path_factory.mktemp("strangers")
    (top / "scenario.yaml").write_text(SCENARIO)
    folder = top / "real"
    folder.mkdir()
    assert do("run --out", folder).returncode == 0
    shutil.copytree(folder, top / "other")
    for command in ("explain", "show, tables", "show", "report", "sweep --out"):
        ended = do(command, folder)
        assert (ended.returncode, ended.stderr) == (0, ""), command
    for name in ("new", "old"):
        (folder / ".ipusim" / name).mkdir()
        (folder / ".ipusim" / name / "summary.json").write_text("{}")
    shutil.copytree(folder, top / "victim")
    shutil.copytree(folder / ".ipusim", top / "victim", dirs_exist_ok=True)
    return folder


@functools.cache
def packed(name):
    """Return a small file that takes very much once it is unpacked, or parsed."""
    match Path(name).suffix:
        case ".npz":
            columns = {"timeline.npz": ("start", "info", *Span._fields[1:]), "memory.npz": (*OF_CURVES, *OF_ENTRIES)}
            return bomb(2700 << 20, *columns.get(name, ("a",)))
        case ".gz":
            return gzip.compress(bytes(100 << 20))
    return b"[" * 100_000 + b"\n"


class Opens:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("ran",))


def bind(path):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def fill(path):
    (path / "sub").mkdir(parents=True)
    (path / "file").write_text("a stranger's")


def stretch(path):
    path.touch()
    os.truncate(path, 2**40)


def code_in(path):
    return archive(info=pickle.dumps(Opens())) if path.suffix == ".npz" else pickle.dumps(Opens())


def name_code(path, before, named):
    """Write a scenario that names a function, of which the file leaves something as soon as it runs."""
    path.write_text(SCENARIO.replace(before, named))
    (path.parent / "evil.py").write_text("import os\nos.mkdir('ran')\ndef f(x): return x\n")


def same(path, victim):
    """Return the file outside that has the name of a part, or another."""
    return next(found for found in (victim / path.name, victim / "lock") if found.is_file())


def damaged(content, random):
    """Return bytes of which a few are others, and that end early or late."""
    data = np.frombuffer(content or b"\n", np.uint8).copy()
    data[random.integers(len(data), size=3)] = random.integers(256, size=3)
    return np.resize(data, int(random.integers(1, 2 * len(data)))).tobytes()


#: What puts what nobody would write in place of a part: from its path, the folder outside that has the same parts, the
#: bytes that it had, and what draws numbers.
KINDS = {
    "link to a file": lambda path, victim, *_: path.symlink_to(same(path, victim)),
    "link to a folder": lambda path, victim, *_: path.symlink_to(victim),
    "link to nothing": lambda path, victim, *_: path.symlink_to(victim / "nothing"),
    "link in a circle": lambda path, *_: path.symlink_to(path.name),
    "endless link": lambda path, *_: path.symlink_to("/dev/zero"),
    "pipe": lambda path, *_: os.mkfifo(path),
    "socket": lambda path, *_: bind(path),
    "endless file": lambda path, *_: stretch(path),
    "second name": lambda path, victim, *_: os.link(same(path, victim), path),
    "folder": lambda path, *_: fill(path),
    "bomb": lambda path, *_: path.write_bytes(packed(path.name)),
    "code": lambda path, *_: path.write_bytes(code_in(path)),
    "random bytes": lambda path, _victim, _content, random: path.write_bytes(random.bytes(int(random.integers(5000)))),
    "damaged": lambda path, _victim, content, random: path.write_bytes(damaged(content, random)),
    "schedule in Python": lambda path, *_: name_code(path, "  splits: [b]\n", "  splits: [b]\n  schedule: evil.py:f\n"),
    "layer in Python": lambda path, *_: name_code(path, "type: dense, units: 4", "python: 'evil.py:f'"),
}
#: What is refused in place of every part that is read: a list or a folder of any content may be one.
NO_FILES = tuple(KINDS)[:8]


#: Every command with one of the two parts of a scenario that name code, in turn, and with both where all is run.
NAMING = [
    pytest.param(command, kind, marks=() if (number + later) % 2 == 0 else slowest)
    for number, command in enumerate(READ)
    for later, kind in enumerate(("schedule in Python", "layer in Python"))
]


def check(real, command, part, kind, seed):
    """Do a command on a folder of which one part is replaced, and look at all that it must not do."""
    top = real.parent
    outside = [top / name for name in ("victim", "other", "scenario.yaml")]
    folder, victim, path = top / "stranger", top / "victim", top / "stranger" / part
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        shutil.copytree(real, folder)
        content = path.read_bytes() if path.is_file() else b""
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        KINDS[kind](path, victim, content, np.random.default_rng(seed))
        before = [tree(each) for each in outside]
        Path("/proc/self/clear_refs").write_text("5")
        taken = resident("VmRSS")
        with in_time():
            ended = do(command, folder)
        assert resident("VmHWM") - taken < MOST_BYTES
        assert [tree(each) for each in outside] == before
        assert not list(top.rglob("ran"))
        assert not Path("ran").exists()
    assert ended.returncode in (0, 2)
    assert (ended.returncode == 0) or ended.stderr.strip()
    assert "Traceback" not in ended.stderr
    assert "more memory than there is" not in ended.stderr
    is_refused = kind in NO_FILES or (kind == "bomb" and part.endswith(".npz"))
    if is_refused and part in READ[command] and (kind, part) != ("endless file", ".ipusim/lock"):  # which is not read
        assert ended.returncode == 2
        assert Path(part).name in ended.stderr
    if command == "sweep --out" and ended.returncode == 0:
        assert ended.stdout.startswith(f"Best of 3 points by throughput: {BEST}")


@sampled(2)
@pytest.mark.parametrize(("command", "kind"), NAMING)
def test_no_command_on_a_folder_runs_what_its_scenario_names(real, command, kind):
    check(real, command, "scenario.yaml", kind, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="what memory a command takes is looked up as Linux has it")
@given(data=st.data())
@settings(max_examples=share(40))
def test_a_command_on_a_strangers_folder_ends_and_changes_nothing_outside(real, data):
    command = data.draw(st.sampled_from(tuple(READ)))
    parts = sorted(str(path.relative_to(real)) for path in real.rglob("*"))
    part = data.draw(st.sampled_from(READ[command]) | st.sampled_from(parts))
    check(real, command, part, data.draw(st.sampled_from(tuple(KINDS))), data.draw(st.integers(0, 999)))
