"""Protect files from being overwritten: commands replace only files of ipusim, never their own inputs.

Pictures, pages and scenarios contain a mark of ipusim. Files of a results folder are listed, see
:mod:`ipusim.app.run_folder.folder`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.api import runs
from ipusim.base.errors import FileError, OptionError, OutputError
from ipusim.base.files import check_target, naming, open_file, read_up_to, resolve

#: Bytes searched for a mark at either file end.
_SEARCHED_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class OutputKind:
    """Kind of file that a command writes to a user's path.

    Attributes:
        words: name of the kind.
        marks: by file ending, a pattern that only files of ipusim contain.
    """

    words: str
    marks: dict[str, bytes]


PICTURE: Final = OutputKind(
    "a picture",
    {
        ".png": rb"tEXtSoftware\x00ipusim",
        ".svg": rb"<dc:title>ipusim</dc:title>",
        ".pdf": rb"/Creator \(ipusim\)",
    },
)
PAGE: Final = OutputKind("a page", dict.fromkeys((".html", ".htm"), rb'<meta name="generator" content="ipusim">'))
PIN: Final = OutputKind("a pin", {".json": rb'"format": "ipusim pin"'})
RESULTS: Final = OutputKind("results", {".xml": rb'<testsuite name="ipusim"'})

#: First words of a file of rates.
FIT_WORDS: Final = "Rates fitted by `ipusim validate --fit` to"


def mark_of(command: str) -> str:
    """Return the line that names the writing command in a file."""
    return f"Written by `ipusim {command}`, which overwrites this file if the same output is written again."


def _yaml(words: str, *marks: str) -> OutputKind:
    """Return the kind of YAML files whose comment begins with a mark."""
    alternatives = "|".join(map(re.escape, marks))
    return OutputKind(words, dict.fromkeys((".yaml", ".yml"), f"(?m)^# (?:{alternatives})".encode()))


SUGGESTED: Final = _yaml("a scenario", mark_of("suggest"))
#: Includes files of `scenario`, formerly the command for programs.
IMPORTED: Final = _yaml("a scenario", *map(mark_of, ("import", "scenario")))
IMPORTED_TABLE: Final = OutputKind("a table", {".csv": rb"(?m) by ipusim import$"})
RATES: Final = _yaml("rates", "Rates fitted by `ipusim ")  # by `validate`, or an earlier name of the command


def check_output(path: Path, kind: OutputKind, reads: Iterable[Path] = ()) -> None:
    """Refuse an output path before its content is computed.

    Existing files may be overwritten only if empty, or if of the same kind and written by ipusim; files in ``reads``
    never. Raises OptionError for a wrong file ending, OutputError for other conflicts.
    """
    if path.suffix.lower() not in kind.marks:
        raise OptionError("out", f"expected {kind.words} named {runs.one_of(kind.marks)}, got {path}")
    with naming(path):
        check_target(path)
        refuse_read(path, reads)
        if os.path.lexists(path) and not has_mark(path, kind):
            raise OutputError(
                f"{path}: expected no file, or {kind.words} written by ipusim, got another file: move the file, or "
                "name another"
            )
        _try_to_create(path)


def refuse_read(path: Path, reads: Iterable[Path]) -> None:
    """Refuse to overwrite a file that is read; raises OutputError."""
    for source in reads:
        # Path.resolve would fail on circular links.
        is_same = os.path.realpath(path) == os.path.realpath(source)
        if is_same or (path.exists() and source.exists() and path.samefile(source)):
            raise OutputError(
                f"{path}: expected an output different from all input files, got {source}: name another place"
            )


def has_mark(path: Path, kind: OutputKind | None = None) -> bool:
    """Return whether a file is empty or carries ipusim's mark of ``kind``.

    Without ``kind``, marks of pictures and pages count.
    """
    mark = (kind.marks if kind else PICTURE.marks | PAGE.marks).get(path.suffix.lower())
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = read_up_to(file, _SEARCHED_BYTES)
            file.seek(max(size - _SEARCHED_BYTES, len(data)))
            data += read_up_to(file, _SEARCHED_BYTES)
    except (FileError, OSError):
        return False
    return not size or (mark is not None and re.search(mark, data) is not None)


def _try_to_create(path: Path) -> None:
    """Test the creation of a file and its folders in a temporary folder; raises OSError."""
    target = resolve(path)
    parent = next(parent for parent in target.parents if os.path.lexists(parent))
    with tempfile.TemporaryDirectory(prefix=".ipusim-", dir=parent) as scratch:
        new = Path(scratch, *target.parts[len(parent.parts) :])
        new.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
