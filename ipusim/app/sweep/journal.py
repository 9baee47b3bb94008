"""The finished points of a sweep on disk, each as soon as it is there: what an interrupted sweep goes on from.

A line for each, with a key that is a hash of all that the point asks for: its options, and what is in the files that
they name. So a point is taken from a journal only if it would come to the same; points of others do not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from ipusim.api import Request, runs
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.sweep.outcome import Outcome, stored_outcome
from ipusim.base.errors import FileError
from ipusim.base.files import open_file

#: A function in a Python file, as options name it.
_FUNCTION: Final = re.compile(r"(.+\.py):[A-Za-z_][A-Za-z0-9_]*")
_PACKAGE: Final = Path(__file__).parents[2]
#: What the file is called, and most bytes of it: three times the points of a sweep.
_FILE: Final = "sweep.jsonl"
_MOST_BYTES: Final = 1 << 28
#: A line, of a hash and the rest of a JSON object.
_HASHED: Final = b'{"sha256": "%b", %b\n'


class Keys:
    """Makes the keys of a sweep's points; a file that several of them name is read once."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._content: Callable[[Path], str] = cache(_content)

    def of(self, request: Request) -> str:
        """Return the key of what ``request`` asks for; its name and description do not matter."""
        options = {
            key: value for key, value in runs.options_set(request.options).items() if key not in ("name", "expect")
        }
        files = {name: self._content(path) for name, path in sorted(_files(options, request.folder))}
        text = json.dumps([options, files], ensure_ascii=False, default=lambda value: {"exactly": str(value)})
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _content(path: Path) -> str:
    """Return a hash of the bytes of a file, or of the error that reading it ends in."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    except OSError as error:  # the point itself tells
        return hashlib.sha256(str(error.errno).encode()).hexdigest()


def _files(value: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that options name, by their names there: every text that is the name of one."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _files(item, folder)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _files(item, folder)
    elif isinstance(value, str):
        match = _FUNCTION.fullmatch(value)
        name = match[1] if match else value
        try:
            is_file = "\0" not in name and (folder / name).is_file()
        except OSError:  # a text longer than any name
            return
        if is_file:
            yield name, folder / name


@cache
def code_digest() -> str:
    """Return a hash of this package's own code: another one may come to other numbers.

    A process goes on with the code that it has imported, and so with one hash.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Journal:
    """The finished points in a folder of results, open for more; points of other code are dropped.

    Each line begins with a hash of itself and of the code, so that a line which was changed or cut off is none.

    Attributes:
        found: the outcomes, by the keys of their points.
        damaged: lines that are left out, but for a last one that was cut off as its process ended.
    """

    def __init__(self, folder: ResultsFolder) -> None:
        """Take the folder; there need be no points in it."""
        self._folder = folder
        self._head = (json.dumps({"code": code_digest()}) + "\n").encode()
        self._file: BinaryIO | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.damaged = 0

    def __enter__(self) -> Self:
        """Read what is there, and open a file that takes its place; raises OutputError where that cannot be."""
        lines = self._read(self._folder.read_aside(_FILE, _MOST_BYTES))
        self._file = self._folder.write_aside(_FILE, b"".join(lines))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; one without any point goes."""
        if self._file is not None and self._folder.is_mine:
            self._file.close()
            if not self.outcomes:
                self._folder.remove_aside(_FILE)

    def add(self, key: str, outcome: Outcome) -> None:
        """Note a finished point; it is on disk behind this."""
        assert self._file is not None
        self._folder.check_mine()
        self.outcomes[key] = outcome
        text = json.dumps({"key": key, "outcome": asdict(outcome)}).encode()
        self._file.write(self._hashed(text))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _hashed(self, text: bytes) -> bytes:
        """Return the line of a JSON object, which has its hash too."""
        digest = hashlib.sha256(self._head + text).hexdigest().encode()
        return _HASHED % (digest, text[1:])

    def _read(self, content: bytes) -> list[bytes]:
        """Take the points of a file; return its head, and the lines that are whole."""
        head, *lines = content.splitlines(keepends=True) or [b""]
        entries = [self._head]
        for line in lines if head == self._head else ():
            text = b"{" + line[len(_HASHED % (b"0" * 64, b"")) - 1 : -1]
            try:
                if line != self._hashed(text):
                    raise FileError("another hash")
                read = json.loads(text)
                self.outcomes[str(read["key"])] = stored_outcome(read["outcome"])
            except (ValueError, TypeError, KeyError, RecursionError):
                self.damaged += line.endswith(b"\n")
            else:
                entries.append(line)
        return entries
