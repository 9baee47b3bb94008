"""CSV files from anywhere: rows with their lines, columns by their names, and all problems of a file in one go."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.errors import FileError
from ipusim.files import open_file, read_up_to
from ipusim.near_names import did_you_mean, nearest

#: Problems that a message lists.
_LISTED: Final = 20
#: Digits of a whole number that are looked at, for int() takes long over very many.
_DIGITS: Final = 20


@dataclass(frozen=True)
class CsvLine:
    """One row of a file: the line on which it ends, counted from 1, and its cells without white space around them."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CsvRow:
    """One row below the names of the columns.

    Attributes:
        place: where it stands, as ``file:line``.
        cells: the text of each column that was looked for and is there; empty where the row ends before it.
        beyond: cells behind the last column that has a name.
    """

    place: str
    cells: Mapping[str, str]
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns that a file may have, in any order.

    Attributes:
        names: each by the name that messages give it.
        needed: those that must be there.
        others: whether there may be others, which are left alone.
        key: of the title of a column as a file has it, or of a name, what is the same for both.
    """

    names: Sequence[str]
    needed: Sequence[str]
    others: bool
    key: Callable[[str], str] = str.lower


@dataclass(frozen=True)
class CsvTable:
    """The rows of a file, without empty ones, and the titles that it gives to columns."""

    titles: Mapping[str, str]
    rows: tuple[CsvRow, ...]


def read_lines(path: Path, most_bytes: int) -> Iterator[CsvLine]:
    """Yield all rows of a CSV file in UTF-8, empty ones too.

    Raises OSError for a file that cannot be read, and FileError, whose text is the reason, for one of more than
    ``most_bytes`` or that is no CSV.
    """
    with open_file(path) as file:
        data = bytes(read_up_to(file, most_bytes + 1))
    if len(data) > most_bytes:
        raise FileError(f"expected a file of at most {most_bytes} bytes, got a larger one")
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    except UnicodeDecodeError as error:
        raise FileError(f"expected text in UTF-8: {error.reason} at byte {error.start}") from None
    try:
        for cells in reader:
            yield CsvLine(reader.line_num, tuple(cell.strip() for cell in cells))
    except csv.Error as error:
        raise FileError(f"line {reader.line_num}: expected cells separated by commas: {error}") from None


def read_table(path: Path, columns: Columns, most_bytes: int, called: str = "") -> CsvTable:
    """Return the rows of a CSV file whose first row names the columns; ``called`` is the file's name in messages.

    Raises OSError for a file that cannot be read, and FileError that names the file for one that is no CSV, and every
    column that is missing, there twice or unknown.
    """
    called = called or str(path)
    try:
        lines = list(read_lines(path, most_bytes))
    except FileError as error:
        raise FileError(f"{called}: {error}") from None
    header = lines[0] if lines else CsvLine(1, ())
    place, problems = _placed(header.cells, columns)
    refuse([f"{called}:{header.number}: {problem}" for problem in problems])
    rows = tuple(
        CsvRow(
            f"{called}:{line.number}",
            {name: line.cells[at] if at < len(line.cells) else "" for name, at in place.items()},
            tuple(filter(None, line.cells[len(header.cells) :])),
        )
        for line in lines[1:]
        if any(line.cells)
    )
    return CsvTable({name: header.cells[at] for name, at in place.items()}, rows)


def wrong_whole(name: str, text: str, most: int) -> Iterator[str]:
    """Yield what is wrong with a cell that has to be a whole number from 1 to ``most``."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_DIGITS]) <= most):
        yield f"column {name}: expected a whole number from 1 to {most}, got {text!r}"


def wrong_positive(name: str, text: str) -> Iterator[str]:
    """Yield what is wrong with a cell that has to be a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        yield f"column {name}: expected a number above 0, got {text!r}"


def refuse(problems: Sequence[str]) -> None:
    """Raise FileError with all problems, a line each, if there are any; of very many the first."""
    if problems:
        more = [f"and {len(problems) - _LISTED} more"] if len(problems) > _LISTED else []
        raise FileError("\n".join([*problems[:_LISTED], *more]))


def _placed(titles: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Return where each column is, and what is wrong with the titles."""
    known = {columns.key(name): name for name in columns.names}
    keys = [columns.key(title) for title in titles]
    place: dict[str, int] = {}
    for at, key in enumerate(keys):
        if key in known:
            place.setdefault(known[key], at)
    problems = [f"column {name!r} is there twice" for key, name in known.items() if keys.count(key) > 1]
    others = [title for title, key in zip(titles, keys, strict=True) if key not in known and title]
    for name in columns.needed:
        if name not in place:
            near = nearest(name, others)
            found = f", got {near!r}" if near else ""
            problems.append(f"expected a column {name!r} beside {', '.join(columns.needed)}{found}")
            others = [title for title in others if title != near]
    if not columns.others:
        expected = f"expected columns out of {', '.join(columns.names)}"
        problems += [f"{expected}, got {title!r}{did_you_mean(title, columns.names)}" for title in others]
    return place, problems
