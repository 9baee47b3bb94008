"""The finished points of a sweep on disk, each as soon as it is there: what an interrupted sweep goes on from.

A line for each, with a key that is a hash of all that the point asks for: its options, and what is in the files that
they name. So a point is taken from a journal only if it would come to the same; points of others do not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from ipusim.errors import OutputError
from ipusim.files import open_file
from ipusim.runs.request.request import Request, given
from ipusim.study.sweep.outcome import Outcome

#: A function in a Python file, as options name it.
_FUNCTION: Final = re.compile(r"(.+\.py):[A-Za-z_][A-Za-z0-9_]*")
_PACKAGE: Final = Path(__file__).parents[2]
_CHUNK_BYTES: Final = 1 << 20


class Keys:
    """Makes the keys of a sweep's points; a file that several of them name is read once."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._contents: dict[Path, str] = {}

    def of(self, request: Request) -> str:
        """Return the key of what ``request`` asks for; its name and description do not matter."""
        asked = {key: value for key, value in given(request.options).items() if key != "name"}
        files = {name: self._content(path) for name, path in sorted(_files(asked, request.folder))}
        text = json.dumps([asked, files], ensure_ascii=False, default=lambda value: {"exactly": str(value)})
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def _content(self, path: Path) -> str:
        if path not in self._contents:
            found = hashlib.sha256()
            try:
                with open_file(path) as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        found.update(chunk)
            except OSError as error:  # the point itself tells
                found.update(str(error.errno).encode())
            self._contents[path] = found.hexdigest()
        return self._contents[path]


def _files(value: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that options name, by their names there: every text that is the name of one."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _files(each, folder)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _files(each, folder)
    elif isinstance(value, str):
        match = _FUNCTION.fullmatch(value)
        name = match[1] if match else value
        try:
            is_file = "\0" not in name and (folder / name).is_file()
        except OSError:  # a text longer than any name
            return
        if is_file:
            yield name, folder / name


def code_digest() -> str:
    """Return a hash of this package's own code: another one may come to other numbers."""
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(f"{path.relative_to(_PACKAGE)} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


class Journal:
    """A file of finished points, open to add others; a line that was cut off is forgotten, and so is other code's."""

    def __init__(self, path: Path) -> None:
        """Take the file; it need not be there."""
        self._path = path
        self._head = json.dumps({"code": code_digest()}) + "\n"
        self._file: BinaryIO | None = None
        self.found: dict[str, Outcome] = {}

    def __enter__(self) -> Self:
        """Read what is there, and open the file; raises OutputError where that cannot be."""
        try:
            kept = self._read()
            self._file = self._path.open("r+b" if kept else "wb")
            self._file.truncate(kept)
            self._file.seek(kept)
            if not kept:
                self._write(self._head.encode())
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror}; name another place") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file; one without any point goes."""
        if self._file is not None:
            self._file.close()
            if not self.found:
                self._path.unlink(missing_ok=True)

    def add(self, key: str, outcome: Outcome) -> None:
        """Note a finished point; it is on disk behind this."""
        self.found[key] = outcome
        self._write((json.dumps({"key": key, "outcome": asdict(outcome)}) + "\n").encode())

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> int:
        """Keep the points of the file; return how many of its bytes are whole lines of this code's."""
        if not self._path.exists():
            return 0
        size = 0
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break
            if number == 0:
                if line != self._head.encode():
                    return 0
            else:
                try:
                    read = json.loads(line)
                    self.found[read["key"]] = Outcome(**read["outcome"])
                except (ValueError, TypeError, KeyError):
                    break
            size += len(line)
        return size
