"""Keep a sweep's finished points on disk, so that an interrupted sweep continues.

A line holds a point with a key: a hash of the point's options and of all files named in options. Only points with an
equal key are reused.
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

#: Python function as named in options: file and function.
_FUNCTION: Final = re.compile(r"(.+\.py):[A-Za-z_][A-Za-z0-9_]*")
#: Folder of this package.
_PACKAGE: Final = Path(__file__).parents[2]
#: Name of the journal's file.
_FILE: Final = "sweep.jsonl"
#: Maximum size of the file in bytes, enough for three times as many points as a sweep may have.
_MOST_BYTES: Final = 1 << 28
#: Line of the file: a hash, followed by the remainder of a JSON object.
_HASHED: Final = b'{"sha256": "%b", %b\n'


def key_of(request: Request, hash_of: Callable[[Path], str]) -> str:
    """Return the key of a request, independent of name, description and expectations, with the hash of every file."""
    options = {key: value for key, value in runs.options_set(request.options).items() if key not in ("name", "expect")}
    files = {name: hash_of(path) for name, path in sorted(_files(options, request.folder))}
    text = json.dumps([options, files], ensure_ascii=False, default=lambda value: {"exactly": str(value)})
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def file_hash(path: Path) -> str:
    """Return a hash of a file's bytes, or of the error on reading it."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    except OSError as error:  # reported by the point itself
        return hashlib.sha256(str(error.errno).encode()).hexdigest()


def _files(value: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that options name: every text that names an existing file."""
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
        except OSError:  # text longer than any file name
            return
        if is_file:
            yield name, folder / name


@cache
def code_digest() -> str:
    """Return a hash of this package's code: other code may give other numbers.

    A process keeps its imported code, hence a cached hash.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Journal:
    """Finished and refused points in a results folder; points computed by different code are dropped.

    Every line begins with a hash of itself and of the code, to detect changed or truncated lines.

    Attributes:
        outcomes: outcomes by the keys of their points.
        damaged: number of invalid lines; a last line that was cut off when its process ended does not count.
    """

    def __init__(self, folder: ResultsFolder) -> None:
        """Prepare the journal of ``folder``, which may have no journal yet."""
        self._folder = folder
        self._head = (json.dumps({"code": code_digest()}) + "\n").encode()
        self._file: BinaryIO | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.damaged = 0

    def __enter__(self) -> Self:
        """Read the journal, and open its replacement; raises OutputError on failure."""
        lines = self._read(self._folder.read_aside(_FILE, _MOST_BYTES))
        self._file = self._folder.write_aside(_FILE, b"".join(lines))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, and remove a file without any run."""
        if self._file is not None and self._folder.is_mine:
            self._file.close()
            if not any(outcome.has_run for outcome in self.outcomes.values()):
                self._folder.remove_aside(_FILE)

    def add(self, key: str, outcome: Outcome) -> None:
        """Store a finished point, and wait until it is on disk."""
        assert self._file is not None
        self._folder.check_mine()
        self.outcomes[key] = outcome
        text = json.dumps({"key": key, "outcome": asdict(outcome)}).encode()
        self._file.write(self._with_hash(text))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _with_hash(self, text: bytes) -> bytes:
        """Return a JSON object as line with hash."""
        digest = hashlib.sha256(self._head + text).hexdigest().encode()
        return _HASHED % (digest, text[1:])

    def _read(self, content: bytes) -> list[bytes]:
        """Store the points of a file; return its head and valid lines."""
        head, *lines = content.splitlines(keepends=True) or [b""]
        entries = [self._head]
        for line in lines if head == self._head else ():
            text = b"{" + line[len(_HASHED % (b"0" * 64, b"")) - 1 : -1]
            try:
                if line != self._with_hash(text):
                    raise FileError("another hash")
                read = json.loads(text)
                self.outcomes[str(read["key"])] = stored_outcome(read["outcome"])
            except (ValueError, TypeError, KeyError, RecursionError):
                self.damaged += line.endswith(b"\n")
            else:
                entries.append(line)
        return entries
