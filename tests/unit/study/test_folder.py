"""A folder of results takes a whole set or none, on any file system, from one run at a time."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.base.errors import OutputError
from ipusim.base.files import write_file
from tests.package_copies import Interpreter

NAMES = ("a.txt", "b.txt", "c.txt")


def results(folder):
    """Return what a person sees in the folder: its files and their content."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != ".ipusim"}


def waiting(folder):
    """Return what lies in the hidden folder beside the lock and the list."""
    return {path.name for path in (folder / ".ipusim").iterdir()} - {"lock", "files.sha256"}


def write(folder, names=NAMES, outdated=(), **files):
    with ResultsFolder(folder, names, outdated=outdated) as opened:
        opened.write({f"{name}.txt": content.encode() for name, content in files.items()})


#: Runs code in a process of its own that has imported already what results are written with.
FORKED = """
import os, resource, signal, sys, traceback
from pathlib import Path
from ipusim.base.errors import OutputError
from ipusim.base.files import write_file
from ipusim.app.run_folder.folder import ResultsFolder
read, write = os.pipe()
child = os.fork()
if child == 0:
    sys.stdout = sys.stderr = os.fdopen(write, "w")
    try:
        exec({code!r}, globals())
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
os.close(write)
with os.fdopen(read) as printed:
    print(printed.read(), end="")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def interpreter():
    """Return a Python of its own, of which processes fork: what runs in them changes who and what a process may be."""
    with Interpreter(first="import ipusim.app.run_folder.folder") as running:
        yield running


@pytest.fixture
def python(interpreter, tmp_path):
    """Return a function that runs code in a process of its own."""

    def run(code, *words):
        return interpreter.run(FORKED.format(code=textwrap.dedent(code)), *words, folder=tmp_path)

    return run


@pytest.fixture
def elsewhere(tmp_path):
    """Return a folder on another file system than that of ``tmp_path``."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_a_link_to_another_file_system_takes_results(tmp_path, elsewhere):
    (tmp_path / "out").symlink_to(elsewhere)
    write(tmp_path / "out", a="1", b="2")
    assert results(elsewhere) == {"a.txt": "1", "b.txt": "2"}
    write_file(tmp_path / "out" / "picture.png", b"3")
    (tmp_path / "picture.png").symlink_to(elsewhere / "picture.png")
    write_file(tmp_path / "picture.png", b"4")
    assert (results(elsewhere)["picture.png"], waiting(elsewhere)) == ("4", set())


def test_a_mount_point_takes_results(tmp_path):
    mount, unshare = shutil.which("mount"), shutil.which("unshare")
    inside = [unshare, "--mount", "--map-root-user", "sh", "-c"]
    (tmp_path / "out").mkdir()
    mounted = f"{mount} -t tmpfs none '{tmp_path}/out'"
    if not unshare or subprocess.run([*inside, mounted], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    imports = "from pathlib import Path; from ipusim.app.run_folder.folder import ResultsFolder"
    code = f"{imports}\nwith ResultsFolder(Path('{tmp_path}/out')) as results: results.write({{'a': b'1'}})"
    shown = f"{mounted} && {sys.executable} -c \"{code}\" && cat '{tmp_path}/out/a'"
    done = subprocess.run([*inside, shown], check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1", "")


def test_what_is_stale_goes_and_what_a_stranger_wrote_stays(tmp_path):
    (tmp_path / "c.txt").write_text("a stranger's")
    write(tmp_path, NAMES[:2], NAMES[2:], a="1", b="2")
    assert results(tmp_path) == {"a.txt": "1", "b.txt": "2", "c.txt": "a stranger's"}
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, NAMES[:2], NAMES[2:], a="3")
    assert results(tmp_path) == {"a.txt": "3", "c.txt": "a stranger's", "notes.txt": "mine"}


def test_a_file_that_was_changed_since_is_a_strangers(tmp_path):
    write(tmp_path, a="1", b="2", c="3")
    (tmp_path / "b.txt").write_text("2, and a remark")
    write(tmp_path, ("a.txt",), ("b.txt", "c.txt"), a="4")
    assert results(tmp_path) == {"a.txt": "4", "b.txt": "2, and a remark"}


def test_two_commands_share_a_folder(tmp_path):
    write(tmp_path, ("a.txt", "b.txt"), a="1", b="2")
    write(tmp_path, ("c.txt",), c="3")
    write(tmp_path, ("a.txt", "b.txt"), a="4")
    assert results(tmp_path) == {"a.txt": "4", "c.txt": "3"}
    write(tmp_path, ("c.txt", "d.txt"), d="5")
    assert results(tmp_path) == {"a.txt": "4", "d.txt": "5"}


def test_the_list_is_one_that_sha256sum_reads(tmp_path):
    if not shutil.which("sha256sum"):
        pytest.skip("there is no sha256sum here")
    write(tmp_path, a="1", b="2")
    done = subprocess.run(
        ["sha256sum", "-c", ".ipusim/files.sha256"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "a.txt: OK\nb.txt: OK\n"


@pytest.mark.parametrize("at", range(1, 7))
def test_a_move_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch, at):
    write(tmp_path, a="1", b="2", c="3")
    move, moves = os.rename, []

    def failing(name, target, **folders):
        moves.append(target)
        if len(moves) == at:
            raise OSError(16, "Device or resource busy", str(target))
        return move(name, target, **folders)

    monkeypatch.setattr(os, "rename", failing)
    if at == 6:  # a and b go and come, c goes: five moves
        write(tmp_path, a="4", b="5")
        assert results(tmp_path) == {"a.txt": "4", "b.txt": "5"}
        return
    with pytest.raises(OutputError, match="Device or resource busy; name another place"):
        write(tmp_path, a="4", b="5")
    assert results(tmp_path) == {"a.txt": "1", "b.txt": "2", "c.txt": "3"}
    assert waiting(tmp_path) == set()


def test_a_full_disk_leaves_all_as_it_was(tmp_path, python):
    write(tmp_path, a="1", b="2")
    code = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            with ResultsFolder(Path(sys.argv[1])) as opened:
                opened.write({"a.txt": b"3", "b.txt": bytes(2000)})
        except OutputError as error:
            print(error)
    """
    for folder in (tmp_path, tmp_path / "new" / "one"):
        done = python(code, folder)
        assert done.stdout.startswith(f"{folder}: cannot be written: "), done.stdout
    assert results(tmp_path) == {"a.txt": "1", "b.txt": "2"}
    assert waiting(tmp_path) == set()


def test_a_run_that_fails_leaves_nothing_that_was_not_there(tmp_path):
    with pytest.raises(ZeroDivisionError), ResultsFolder(tmp_path / "a" / "b", NAMES):
        assert 1 / 0
    assert list(tmp_path.iterdir()) == []


PARTS = {".ipusim": "a folder", "lock": "a file", "files.sha256": "a file", "new": "a folder", "old": "a folder"}


@pytest.mark.parametrize("part", PARTS)
def test_links_in_place_of_its_own_parts_are_refused(tmp_path, part, refused):
    folder, victim = tmp_path / "out", tmp_path / "victim"
    victim.mkdir()
    write(folder, a="1")
    place = folder / ".ipusim" / part if part != ".ipusim" else folder / part
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(victim)
    text = f"{place}: expected {PARTS[part]}, got a link, which is not followed in a folder of results: remove it, "
    refused(OutputError, f"{text}or name another folder for the results", ResultsFolder(folder, NAMES).__enter__)
    assert [*victim.iterdir()] == []


def test_links_in_place_of_results_are_refused_or_stay(tmp_path):
    folder, victim = tmp_path / "out", tmp_path / "victim"
    write(folder, a="1", b="1", c="1")
    victim.write_text("1")
    for name in ("a.txt", "b.txt"):
        (folder / name).unlink()
        (folder / name).symlink_to(victim)
    (folder / ".ipusim" / "new").mkdir()
    (folder / ".ipusim" / "new" / "b.txt").symlink_to(victim)
    with pytest.raises(OutputError, match=r"a\.txt: expected no file, or a file written by ipusim"):
        write(folder, a="2")
    write(folder, ("c.txt",), ("b.txt",), c="2")
    assert results(folder) == {"a.txt": "1", "b.txt": "1", "c.txt": "2"}
    assert (folder / "b.txt").is_symlink()  # which no run has written
    assert victim.read_text() == "1"


def test_a_folder_among_what_waits_is_refused(tmp_path):
    deep = tmp_path / ".ipusim" / "new" / "sub"
    deep.mkdir(parents=True)
    with pytest.raises(OutputError, match=r"cannot be written: sub: Is a directory; name another place"):
        write(tmp_path, a="1")
    assert deep.is_dir()


def test_a_list_from_anywhere_removes_nothing_that_it_names(tmp_path):
    write(tmp_path / "out", a="1", b="2")
    (tmp_path / "mine.txt").write_text("1")
    listed = tmp_path / "out" / ".ipusim" / "files.sha256"
    digest = listed.read_text().split()[0]
    listed.write_bytes(f"{digest}  ../mine.txt\n{digest}  {tmp_path}/mine.txt\n".encode() + b"\xff\0 damaged\n")
    write(tmp_path / "out", ("c.txt",), c="3")
    assert results(tmp_path / "out") == {"a.txt": "1", "b.txt": "2", "c.txt": "3"}
    assert (tmp_path / "mine.txt").read_text() == "1"
    os.truncate(listed, 2**40)
    with pytest.raises(
        OutputError, match=r"files\.sha256: expected a file of at most 1 MiB, got one of 1 TiB: remove it"
    ):
        write(tmp_path / "out", ("d.txt",), d="3")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX")
def test_a_forked_child_writes_nothing_and_lets_nobody_in(tmp_path, python):
    code = """
        folder = Path(sys.argv[1])
        with ResultsFolder(folder, ("a.txt",)) as opened:
            child = os.fork()
            if child == 0:
                for write in (lambda: opened.write({"a.txt": b"child"}), lambda: opened.write_aside("b", b"child")):
                    try:
                        write()
                    except OutputError as error:
                        print(error)
            else:
                os.waitpid(child, 0)
                try:
                    ResultsFolder(folder).__enter__()
                except OutputError as error:
                    print(error)
                opened.write({"a.txt": b"parent"})
    """
    done = python(code, tmp_path)
    refused = f"{tmp_path}: expected the process that started the run, got a forked child process, "
    assert done.stdout.splitlines() == [
        *[f"{refused}which writes no results"] * 2,
        f"{tmp_path}: another run writes its results here; name another folder",
    ], done.stdout
    assert results(tmp_path) == {"a.txt": "parent"}
    assert waiting(tmp_path) == set()
    write(tmp_path, a="3")


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, python):
    code = """
        ResultsFolder._exchange = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        with ResultsFolder(Path(sys.argv[1]), ("a.txt", "b.txt")) as opened:
            opened.write({"a.txt": b"2", "b.txt": b"2"})
    """
    write(tmp_path, a="1", b="1")
    assert python(code, tmp_path).returncode == -signal.SIGKILL
    assert results(tmp_path) == {"a.txt": "1", "b.txt": "1"}
    assert (tmp_path / ".ipusim" / "new" / "b.txt").read_text() == "2"
    write(tmp_path, a="3")
    assert results(tmp_path) == {"a.txt": "3"}
    assert waiting(tmp_path) == set()


def test_a_file_system_without_locks_takes_results(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    write(tmp_path, a="1")
    assert results(tmp_path) == {"a.txt": "1"}


@pytest.fixture
def public():
    """Return a folder that other users can reach, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_permissions_decide_before_the_run_and_a_writable_folder_under_a_read_only_one_takes_results(public, python):
    code = """
        if os.getuid() == 0:  # whom no permission keeps out
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        for folder in map(Path, sys.argv[1:]):
            try:
                with ResultsFolder(folder) as opened:
                    print("opened")
                    opened.write({"a": b"1"})
                write_file(folder / "b", b"2")
            except OutputError as error:
                print(error)
    """
    writable, locked = public / "writable", public / "locked"
    writable.mkdir()
    locked.mkdir()
    writable.chmod(0o777)
    locked.chmod(0o555)
    public.chmod(0o555)
    try:
        done = python(code, writable, locked, locked / "new")
    finally:
        for folder in (public, locked):
            folder.chmod(0o755)
    assert done.stdout.splitlines() == [
        "opened",
        f"{locked}: cannot be written: .ipusim: Permission denied; name another place",
        f"{locked}/new: cannot be written: Permission denied; name another place",
    ], done.stdout
    assert (writable / "a").read_text() == "1"
    assert (writable / "b").read_text() == "2"


def test_files_have_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    write(tmp_path, a="1")
    write_file(tmp_path / "d.txt", b"2")
    wanted = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    for name in ("a.txt", "d.txt"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == wanted


def test_what_is_in_the_way_is_named_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "out" / "b.txt").mkdir(parents=True)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for folder, reason in (
        (tmp_path / "file", "expected a folder for the results, got a file; name another"),
        (tmp_path / "file" / "out", "cannot be written: .*Not a directory; name another place"),
        (tmp_path / "loop", "cannot be written: .*; name another place"),
        (tmp_path / ("x" * 300), "cannot be written: .*File name too long; name another place"),
        (tmp_path / "out", "b.txt: expected a place for a file, got a folder"),
    ):
        with pytest.raises(OutputError, match=reason), ResultsFolder(folder, NAMES):
            pytest.fail("the folder was opened")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.txt"]
    with pytest.raises(OutputError, match="expected a place for a file, got a folder"):
        write_file(tmp_path / "out", b"")


def test_a_run_keeps_to_its_folder_when_the_working_folder_changes(tmp_path):
    other = tmp_path / "other" / "out" / "a.txt"
    other.parent.mkdir(parents=True)
    other.write_text("another's")
    with contextlib.chdir(tmp_path), ResultsFolder(Path("out"), NAMES) as opened:
        os.chdir("other")
        opened.write({"a.txt": b"1"})
    assert results(tmp_path / "out") == {"a.txt": "1"}
    assert other.read_text() == "another's"


@pytest.mark.parametrize("content", ["mine", "1, and a remark"])
def test_what_no_run_wrote_is_not_written_over_and_that_shows_before_the_work(tmp_path, content):
    write(tmp_path, a="1")
    (tmp_path / "a.txt").write_text(content)
    text = "a.txt: expected no file, or a file written by ipusim, got another file, or a file changed since"
    with pytest.raises(OutputError, match=text), ResultsFolder(tmp_path, NAMES):
        raise AssertionError("the work has begun")
    with ResultsFolder(tmp_path) as opened, pytest.raises(OutputError, match=text):
        opened.write({"a.txt": b"2"})  # of a name that was not told before
    assert results(tmp_path) == {"a.txt": content}


def test_what_is_read_is_not_removed_as_out_of_date_either(tmp_path):
    write(tmp_path, a="1", b="2")
    (tmp_path / "c.txt").write_text("a stranger's")
    with (
        pytest.raises(
            OutputError, match=r"b\.txt: expected an output different from all input files, got .*b\.txt: name"
        ),
        ResultsFolder(tmp_path, ["a.txt"], outdated=["b.txt"], reads=[tmp_path / "b.txt"]),
    ):
        raise AssertionError("the work has begun")
    with ResultsFolder(tmp_path, ["a.txt"], outdated=["b.txt", "c.txt"], reads=[tmp_path / "c.txt"]) as opened:
        opened.write({"a.txt": b"3"})
    assert results(tmp_path) == {"a.txt": "3", "c.txt": "a stranger's"}


def test_links_in_a_circle_are_refused_beside_what_is_read(tmp_path):
    (tmp_path / "a.txt").symlink_to("a.txt")
    with (
        pytest.raises(OutputError, match=r"a\.txt: expected no file, or a file written by ipusim"),
        ResultsFolder(tmp_path, NAMES, reads=[tmp_path / "read.txt"]),
    ):
        raise AssertionError("the work has begun")
