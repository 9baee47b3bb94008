"""A folder of results: open to one run at a time, and written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from filelock import FileLock, Timeout

from ipusim.errors import OutputError
from ipusim.files import check_target, naming

#: Hidden folder inside a folder of results, on its file system therefore, and what lies in it: the lock of
#: whoever writes, what was written (as sha256sum lists it), new files until all are there, old ones until all are.
_OWN: Final = ".ipusim"
_LOCK, _LIST, _NEW, _OLD = "lock", "files.sha256", "new", "old"
#: What file systems that know no locks answer.
_NO_LOCKS: Final = (errno.EOPNOTSUPP, errno.ENOLCK)


class ResultsFolder:
    """A folder that nobody else writes results into from ``__enter__`` to ``__exit__``.

    Both that and whether it takes files shows on entering, before results are computed. Without
    results nothing stays that was not there. Every method raises OutputError naming what cannot be written.
    """

    def __init__(self, folder: Path, names: Collection[str] = ()) -> None:
        """Take the folder, and the names of all files that may be written: what a new set leaves out is removed."""
        self._shown = folder
        self._folder = folder.absolute()
        self._own = self._folder / _OWN
        self._names = frozenset(names)
        self._made: list[Path] = []
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        """Make the folder, refuse it where another run writes into it, and clear up after one that was killed."""
        with ExitStack() as stack, naming(self._shown):
            if self._folder.exists() and not self._folder.is_dir():
                raise OutputError(f"{self._shown}: expected a folder for the results, got a file; name another")
            stack.callback(self._remove_made)
            self._made = [path for path in (self._own, *self._own.parents) if not path.exists()]
            self._own.mkdir(parents=True, exist_ok=True)
            self._take_lock(stack)
            stack.callback(self._clear)
            self._clear()
            (self._own / _NEW).mkdir()
            (self._own / _OLD).mkdir()
            self._check_places(self._names)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Let others write."""
        self._exit.close()

    def aside(self, name: str) -> Path:
        """Return the path of a file that is no result, and stays from run to run: what an interrupted one goes on from.

        The folder stays as well, as long as that is there.
        """
        return self._own / name

    def write(self, files: Mapping[str, bytes]) -> None:
        """Put ``files`` (name to content) in place of those of the same names, when all of them lie on disk.

        Of the names that may be written but are not now, a file goes if it is listed as an earlier
        run's and is still what that wrote; strangers' files stay. On a failure all is as it was.
        """
        with naming(self._shown):
            self._check_places(files)
            for name, content in files.items():
                (self._own / _NEW / name).write_bytes(content)
            before = self._listed()
            now = {name: _listing(name, content) for name, content in files.items()}
            stale = [name for name in sorted(self._names - files.keys()) if self._is_own(name, before)]
            self._list(before | set(now.values()))  # both, should this be killed before the end
            self._exchange(files.keys(), stale)
            others = {line for line in before if line.partition("  ")[2] not in self._names | files.keys()}
            self._list(others | set(now.values()))
            self._made = []

    def _take_lock(self, stack: ExitStack) -> None:
        try:
            stack.enter_context(FileLock(self._own / _LOCK, timeout=0))
        except Timeout:
            raise OutputError(f"{self._shown}: another run writes its results here; name another folder") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def _clear(self) -> None:
        for name in (_NEW, _OLD):
            shutil.rmtree(self._own / name, ignore_errors=True)

    def _remove_made(self) -> None:
        """Remove the folders that were made for results that did not come, innermost first."""
        with suppress(OSError):
            if self._own in self._made:
                (self._own / _LOCK).unlink(missing_ok=True)
            for path in self._made:
                path.rmdir()

    def _check_places(self, names: Collection[str]) -> None:
        for name in names:
            check_target(self._shown / name)

    def _listed(self) -> set[str]:
        path = self._own / _LIST
        return set(path.read_text("utf-8", "replace").splitlines()) if path.exists() else set()

    def _list(self, lines: Collection[str]) -> None:
        new = self._own / _NEW / _LIST
        new.write_text(
            "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.partition("  ")[::-1])), "utf-8"
        )
        new.replace(self._own / _LIST)

    def _is_own(self, name: str, listed: Collection[str]) -> bool:
        path = self._folder / name
        return path.is_file() and not path.is_symlink() and _listing(name, path.read_bytes()) in listed

    def _exchange(self, names: Collection[str], stale: Collection[str]) -> None:
        """Move old files away and new ones in, then stale ones away; on a failure or an interrupt all goes back."""
        with ExitStack() as back:
            for name in (*names, *stale):
                target, new, old = (folder / name for folder in (self._folder, self._own / _NEW, self._own / _OLD))
                if os.path.lexists(target):
                    target.rename(old)
                    back.callback(old.rename, target)
                if name in names:
                    new.rename(target)
                    back.callback(target.rename, new)
            back.pop_all()


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` (name to content) into ``folder`` as :class:`ResultsFolder` does; raises OutputError."""
    with ResultsFolder(folder, files.keys()) as results:
        results.write(files)


def _listing(name: str, content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}"
