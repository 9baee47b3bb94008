"""Write a results folder, with a lock for a single writer and atomic updates."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, Self

from filelock import FileLock, Timeout

from ipusim.app.run_folder.output_file import has_mark, refuse_read
from ipusim.app.scenario.write import SCENARIO_FILE
from ipusim.base.errors import FileError, OutputError
from ipusim.base.files import check_target, kind_of, naming, open_run_file, read_run_file

#: Hidden folder inside a results folder, hence on the same file system. The next four names are parts of this folder.
_LIST_FOLDER: Final = ".ipusim"
#: Lock of the writer.
_LOCK: Final = "lock"
#: List of files in sha256sum format.
_LIST: Final = "files.sha256"
#: New files, until all are complete.
_NEW: Final = "new"
#: Old files, until replaced.
_OLD: Final = "old"
#: Required types of the parts: the folder may belong to another program, and links may lead anywhere.
_PARTS: Final[dict[str, Callable[[int], bool]]] = {
    _LOCK: stat.S_ISREG,
    _LIST: stat.S_ISREG,
    _NEW: stat.S_ISDIR,
    _OLD: stat.S_ISDIR,
}
#: Line of the list.
_LINE: Final = re.compile(r"[0-9a-f]{64}  \S.*")
#: Maximum size of the list in bytes; a run writes two dozen files, with a line for each.
_MOST_LIST_BYTES: Final = 1 << 20
#: Largest file, in bytes, that is compared with the hash of an earlier run's file.
_MOST_BYTES: Final = 1 << 30
#: Bytes per read of this comparison.
_CHUNK_BYTES: Final = 1 << 20
#: Errors of file systems without locks.
_NO_LOCKS: Final = (errno.EOPNOTSUPP, errno.ENOLCK)


class ResultsFolder:
    """Results folder, locked against other runs from ``__enter__`` to ``__exit__``.

    Conflicts and unusable places raise errors on entering, before results are computed. Without results, no new file or
    folder stays. Every method raises OutputError with the path that cannot be written.

    The folder may come from anybody: parts are opened relative to descriptors, never through links. A forked child of
    the entering process writes and removes nothing.
    """

    def __init__(
        self,
        folder: Path,
        names: Collection[str] = (),
        *,
        outdated: Collection[str] = (),
        reads: Collection[Path] = (),
        may_be_link: bool = True,
    ) -> None:
        """Prepare a folder, without touching it.

        Args:
            folder: path of the folder.
            names: files that may be written; files missing from a new set are removed.
            outdated: files of other commands that become outdated and are removed.
            reads: inputs of the command, never overwritten or removed.
            may_be_link: whether the folder itself may be a link, as for a path given by a person.
        """
        self._name = folder
        self._folder = folder.absolute()
        self._names = frozenset((*names, *outdated))
        self._outdated = frozenset(outdated)
        self._reads = tuple(reads)
        self._may_be_link = may_be_link
        self._new_folders: list[Path] = []
        self._exit = ExitStack()
        #: Descriptors of the folder, of the hidden folder in it, and of the two inside.
        self._descriptors: dict[str, int] = {}
        self._process = 0

    def __enter__(self) -> Self:
        """Create and lock the folder, and clear up after a killed run."""
        with ExitStack() as stack, naming(self._name):
            if self._folder.exists() and not self._folder.is_dir():
                raise OutputError(f"{self._name}: expected a folder for the results, got a file; name another")
            stack.callback(self._remove_new_folders)
            list_folder = self._folder / _LIST_FOLDER
            self._new_folders = [path for path in (list_folder, *list_folder.parents) if not os.path.lexists(path)]
            self._open_parts(stack)
            stack.callback(self._remove_lock)
            self._take_lock(stack)
            stack.callback(self._clear_quietly)
            self._clear()
            for name in (_NEW, _OLD):
                os.mkdir(name, dir_fd=self._descriptors[_LIST_FOLDER])
                self._open_folder(stack, name, self._descriptors[_LIST_FOLDER])
            self._check_places(self._names)
            self._process = os.getpid()
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the folder's lock."""
        if self.is_mine:
            self._exit.close()

    @property
    def is_mine(self) -> bool:
        """Whether this process entered the folder; forked children must leave it alone."""
        return self._process == os.getpid()

    def check_mine(self) -> None:
        """Refuse any process except the entering one; raises OutputError."""
        if not self.is_mine:
            raise OutputError(
                f"{self._name}: expected the process that started the run, got a forked child process, which writes "
                "no results"
            )

    def read_aside(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file in the hidden folder; empty if missing.

        Such files stay from run to run. Raises OutputError for anything except a file of at most ``most_bytes``.
        """
        self._check_part(_LIST_FOLDER, name, stat.S_ISREG)
        try:
            with naming(self._name), suppress(FileNotFoundError):
                return read_run_file(Path(name), most_bytes, self._descriptors[_LIST_FOLDER])
        except FileError as error:
            raise OutputError(f"{self._name / _LIST_FOLDER}/{error}: remove it, or name another folder") from None
        return b""

    def write_aside(self, name: str, content: bytes) -> BinaryIO:
        """Replace a file in the hidden folder, and return it open at its end.

        The file and its folder stay until :meth:`remove_aside`.
        """
        self.check_mine()
        with naming(self._name):
            file = self._create(name)
            file.write(content)
            file.flush()
            os.replace(name, name, src_dir_fd=self._descriptors[_NEW], dst_dir_fd=self._descriptors[_LIST_FOLDER])
        return file

    def remove_aside(self, name: str) -> None:
        """Remove a file from the hidden folder."""
        self.check_mine()
        with naming(self._name), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptors[_LIST_FOLDER])

    def write(self, files: Mapping[str, bytes]) -> None:
        """Replace files by name once every new file is on disk.

        Files that may be written but are missing from ``files`` are removed if an earlier run wrote them and they are
        unchanged; foreign files stay. On failure the folder is unchanged.
        """
        self.check_mine()
        with naming(self._name):
            self._check_places(files)
            for name, content in files.items():
                with self._create(name) as file:
                    file.write(content)
            old_lines = self._read_list()
            new_lines = {_list_line(hashlib.sha256(content), name) for name, content in files.items()}
            stale = [name for name in sorted(self._names - files.keys()) if self._is_own(name, old_lines)]
            self._write_list(
                old_lines | new_lines
            )  # old and new files count as ipusim's, even if the process is killed
            self._exchange(files.keys(), stale)
            foreign_lines = {line for line in old_lines if line.partition("  ")[2] not in self._names | files.keys()}
            self._write_list(foreign_lines | new_lines)
            self._new_folders = []

    def _open_parts(self, stack: ExitStack) -> None:
        """Create and open the folder and its hidden folder."""
        if not self._may_be_link and self._folder.is_symlink():
            raise OutputError(f"{self._name}: expected a folder, got {kind_of(stat.S_IFLNK)}; name another")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open_folder(stack, "", None)
        self._check_part("", _LIST_FOLDER, stat.S_ISDIR)
        with suppress(FileExistsError):
            os.mkdir(_LIST_FOLDER, dir_fd=self._descriptors[""])
        self._open_folder(stack, _LIST_FOLDER, self._descriptors[""])
        for name, has_right_type in _PARTS.items():
            self._check_part(_LIST_FOLDER, name, has_right_type)

    def _open_folder(self, stack: ExitStack, name: str, parent: int | None) -> None:
        follow = self._may_be_link and not name
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        self._descriptors[name] = os.open(name or self._folder, flags, dir_fd=parent)
        stack.callback(os.close, self._descriptors[name])

    def _check_part(self, folder: str, name: str, has_right_type: Callable[[int], bool]) -> None:
        """Refuse an existing part of the wrong type; raises OutputError."""
        with suppress(FileNotFoundError):
            mode = os.lstat(name, dir_fd=self._descriptors[folder]).st_mode
            if not has_right_type(mode):
                kind = "a folder" if has_right_type is stat.S_ISDIR else "a file"
                raise OutputError(
                    f"{self._name / folder / name}: expected {kind}, got {kind_of(mode)}: remove it, or name another "
                    "folder for the results"
                )

    def _take_lock(self, stack: ExitStack) -> None:
        try:
            stack.enter_context(FileLock(self._folder / _LIST_FOLDER / _LOCK, timeout=0))
        except Timeout:
            raise OutputError(f"{self._name}: another run writes its results here; name another folder") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def _clear(self) -> None:
        """Remove the folders of new and old files with their files."""
        for name in (_NEW, _OLD):
            with suppress(FileNotFoundError), ExitStack() as stack:
                self._open_folder(stack, name, self._descriptors[_LIST_FOLDER])
                for file in list(os.scandir(self._descriptors[name])):
                    os.unlink(file.name, dir_fd=self._descriptors[name])
                os.rmdir(name, dir_fd=self._descriptors[_LIST_FOLDER])

    def _clear_quietly(self) -> None:
        with suppress(OSError):
            self._clear()

    def _remove_lock(self) -> None:
        if self._folder / _LIST_FOLDER in self._new_folders:
            with suppress(OSError):
                os.unlink(_LOCK, dir_fd=self._descriptors[_LIST_FOLDER])

    def _remove_new_folders(self) -> None:
        """Remove the folders that were created if no results were written, innermost first."""
        with suppress(OSError):
            for path in self._new_folders:
                path.rmdir()

    def _check_places(self, names: Collection[str]) -> None:
        """Refuse to overwrite folders, inputs and foreign files.

        The folder's own scenario may be an input: a repeated run writes the scenario again.
        """
        lines = self._read_list()
        for name in sorted(names):
            path, file, is_own = self._name / name, self._folder / name, self._is_own(name, lines)
            if name in self._outdated and not is_own:
                continue  # stays unchanged
            check_target(path)
            if not (is_own and name == SCENARIO_FILE):
                refuse_read(path, self._reads)
            if os.path.lexists(file) and not (is_own or has_mark(file)):
                raise OutputError(
                    f"{path}: expected no file, or a file written by ipusim, got another file, or a file changed "
                    "since: move the file, or name another folder"
                )

    def _create(self, name: str) -> BinaryIO:
        """Return a new file in the folder of new files."""
        return open(name, "xb", opener=partial(os.open, mode=0o666, dir_fd=self._descriptors[_NEW]))

    def _read_list(self) -> set[str]:
        lines = self.read_aside(_LIST, _MOST_LIST_BYTES).decode("utf-8", "replace").splitlines()
        return set(filter(_LINE.fullmatch, lines))

    def _write_list(self, lines: Collection[str]) -> None:
        text = "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.partition("  ")[::-1]))
        self.write_aside(_LIST, text.encode()).close()

    def _is_own(self, name: str, lines: Collection[str]) -> bool:
        """Return whether a file is unchanged since an earlier run wrote it."""
        if not any(line.endswith(f"  {name}") for line in lines):
            return False
        digest = hashlib.sha256()
        try:
            with open_run_file(Path(name), self._descriptors[""]) as file:
                if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                    return False
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        except OSError:
            return False
        return _list_line(digest, name) in lines

    def _exchange(self, names: Collection[str], stale: Collection[str]) -> None:
        """Move old files away, new files in, and stale files away. On failure or interrupt every move is undone."""
        with ExitStack() as undo:
            for name in (*names, *stale):
                with suppress(FileNotFoundError):
                    self._move(name, "", _OLD)
                    undo.callback(self._move, name, _OLD, "")
                if name in names:
                    self._move(name, _NEW, "")
                    undo.callback(self._move, name, "", _NEW)
            undo.pop_all()

    def _move(self, name: str, source: str, target: str) -> None:
        os.rename(name, name, src_dir_fd=self._descriptors[source], dst_dir_fd=self._descriptors[target])


def _list_line(content: hashlib._Hash, name: str) -> str:
    return f"{content.hexdigest()}  {name}"
