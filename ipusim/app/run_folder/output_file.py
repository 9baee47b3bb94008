"""Which files an output may replace: those that ipusim has written, and never an input of the command.

A picture, a page and a scenario say in themselves that ipusim has made them; of the files of a folder of results its
list does, see :mod:`ipusim.app.run_folder.folder`.
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

#: Bytes at either end of a file in which the mark of its writer is looked for.
_LOOKED_AT: Final = 1 << 16


@dataclass(frozen=True)
class OutputKind:
    """A kind of file that a command writes to a path of the user's.

    Attributes:
        words: what it is, in words.
        marks: by the endings that its name may have: a pattern that stands in what ipusim has made alone.
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

#: How a file of rates begins.
FITTED: Final = "Rates fitted by `ipusim validate --fit` to"


def mark_of(command: str) -> str:
    """Return the words that say in a file which command writes over it."""
    return f"Written by `ipusim {command}`, which writes over this file where it is its output again."


def _yaml(words: str, *marks: str) -> OutputKind:
    """Return the kind of YAML files with a line of comment that begins with one of ``marks``."""
    either = "|".join(map(re.escape, marks))
    return OutputKind(words, dict.fromkeys((".yaml", ".yml"), f"(?m)^# (?:{either})".encode()))


SUGGESTED: Final = _yaml("a scenario", mark_of("suggest"))
#: With the files of `scenario`, the command that wrote those of programs before.
IMPORTED: Final = _yaml("a scenario", *map(mark_of, ("import", "scenario")))
ORDER: Final = OutputKind(
    "an order", {".py": rb"(?m)^\"\"\"The Order that `ipusim (suggest --order|synthesize)` found"}
)
IMPORTED_TABLE: Final = OutputKind("a table", {".csv": rb"(?m) by ipusim import$"})
RATES: Final = _yaml("rates", "Rates fitted by `ipusim ")  # by a command that had other names


def check_output(path: Path, kind: OutputKind, reads: Iterable[Path] = ()) -> None:
    """Refuse a path to which a file of a kind cannot be written, before it is computed.

    What is there is written over only where it is empty, or a file of that kind which ipusim has made; never one that
    the command ``reads``. Raises OptionError for another ending of the name, OutputError for the rest.
    """
    if path.suffix.lower() not in kind.marks:
        raise OptionError("out", f"expected {kind.words} named {runs.one_of(kind.marks)}, got {path}")
    with naming(path):
        check_target(path)
        refuse_read(path, reads)
        if os.path.lexists(path) and not has_mark(path, kind):
            raise OutputError(
                f"{path}: expected {kind.words} that ipusim has written, or none, got another file: move it, or name "
                "another"
            )
        _try(path)


def refuse_read(path: Path, reads: Iterable[Path]) -> None:
    """Refuse to write over a file that is read; raises OutputError."""
    for other in reads:
        # Links in a circle, of which Path.resolve makes an error, may stand at either.
        is_same = os.path.realpath(path) == os.path.realpath(other)
        if is_same or (path.exists() and other.exists() and path.samefile(other)):
            raise OutputError(f"{path}: expected another file than one that is read, got {other}: name another place")


def has_mark(path: Path, kind: OutputKind | None = None) -> bool:
    """Tell whether a file is empty, or says that ipusim has made it; without a ``kind`` of a picture or a page."""
    mark = (kind.marks if kind else PICTURE.marks | PAGE.marks).get(path.suffix.lower())
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = read_up_to(file, _LOOKED_AT)
            file.seek(max(size - _LOOKED_AT, len(data)))
            data += read_up_to(file, _LOOKED_AT)
    except (FileError, OSError):
        return False
    return not size or (mark is not None and re.search(mark, data) is not None)


def _try(path: Path) -> None:
    """Create the file and its folders in a temporary folder and remove them; raises OSError where that fails."""
    target = resolve(path)
    there = next(parent for parent in target.parents if os.path.lexists(parent))
    with tempfile.TemporaryDirectory(prefix=".ipusim-", dir=there) as waiting:
        new = Path(waiting, *target.parts[len(there.parts) :])
        new.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
