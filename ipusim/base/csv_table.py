"""CSV files from anywhere: rows with their lines, columns by their names, and all problems of a file in one go."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ipusim.base.errors import FileError, printable
from ipusim.base.files import open_file, read_up_to
from ipusim.base.near_names import all_nearest, did_you_mean
from ipusim.base.units import with_point

#: Problems that a message lists.
_LISTED: Final = 20
#: Characters of a title that a message shows.
_SHOWN: Final = 60
#: Bytes of a file whose titles alone are looked at.
_MOST_TITLES: Final = 1 << 22
#: Digits of a whole number that are looked at, for int() takes long over very many.
_DIGITS: Final = 20
#: A number as a title, which only a row of values has.
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d*)?")
#: What is measured of anything lies between this and its inverse, so that products of a few are finite and above 0.
_MOST: Final = 1e12
#: A number of a cell; float() takes other digits and words, too.
_POSITIVE: Final = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: What stands between cells in files that are not separated by commas.
_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class CsvLine:
    """One row of a file: the line on which it ends, counted from 1, and its cells without white space around them."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CsvRow:
    """One row below the names of the columns.

    Attributes:
        position: its line, as ``file:line``.
        cells: the text of each known column of the file; empty where the row ends before it.
        problems: errors of the row as a whole.
    """

    position: str
    cells: Mapping[str, str]
    problems: tuple[str, ...] = ()


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
    """The rows of a file, without empty ones, and the titles that it gives to columns, as messages show them."""

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


def first_titles(path: Path) -> tuple[str, ...]:
    """Return the cells of the first row of a CSV file; empty for other files. Raises OSError."""
    try:
        return next(read_lines(path, _MOST_TITLES), CsvLine(1, ())).cells
    except FileError:
        return ()


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
    index_of, problems = _placed(header.cells, columns)
    refuse([f"{called}:{header.number}: {problem}" for problem in problems or _untitled(lines, columns)])
    rows = tuple(
        CsvRow(
            f"{called}:{line.number}",
            {name: line.cells[at] if at < len(line.cells) else "" for name, at in index_of.items()},
            tuple(_wrong_number(line.cells, len(header.cells))),
        )
        for line in lines[1:]
        if any(line.cells)
    )
    return CsvTable({name: printable(header.cells[at]) for name, at in index_of.items()}, rows)


def csv_bytes(rows: Iterable[Iterable[object]]) -> bytes:
    """Return the content of a CSV file of rows of cells, the names of the columns first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def wrong_whole(name: str, text: str, most: int) -> Iterator[str]:
    """Yield what is wrong with a cell that has to be a whole number from 1 to ``most``."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_DIGITS]) <= most):
        yield f"column {name}: expected a whole number from 1 to {most}, got {text!r}"


def wrong_positive(name: str, text: str) -> Iterator[str]:
    """Yield the error of a cell whose number is not above 0, or not within 1 / ``_MOST`` and ``_MOST``."""
    value = float(text) if _POSITIVE.fullmatch(text) else 0
    if value > 0 and not 1 / _MOST <= value <= _MOST:
        yield f"column {name}: expected a number from {1 / _MOST:.0e} to {_MOST:.0e}, got {text!r}"
    elif not value > 0:
        near = with_point(text)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        yield f"column {name}: expected a number above 0, got {text!r}{hint}"


def refuse(problems: Sequence[str]) -> None:
    """Raise FileError with all problems, a line each, if there are any; of very many the first."""
    if problems:
        more = [f"and {len(problems) - _LISTED} more"] if len(problems) > _LISTED else []
        raise FileError("\n".join([*problems[:_LISTED], *more]))


def decimal_comma(cells: Sequence[str]) -> str:
    """Return a hint at the first cells that are both parts of a number with a decimal comma; nothing where none are."""
    for whole, part in pairwise(cells):
        if _NUMBER.fullmatch(whole) and whole.lstrip("+-").isdecimal() and part.isdecimal():
            return f"; if {whole},{part} is a number with a decimal comma, write {whole}.{part}"
    return ""


def _wrong_number(cells: Sequence[str], columns: int) -> Iterator[str]:
    """Yield what is wrong with a row that has cells behind the last column."""
    if any(cells[columns:]):
        got = f"expected {columns} cells, as many as there are columns, got {len(cells)}"
        yield f"{got}{decimal_comma(cells) or f': nothing says what {next(filter(None, cells[columns:]))!r} is'}"


def _untitled(lines: Sequence[CsvLine], columns: Columns) -> Iterator[str]:
    """Yield the error of a column with cells and without a title, such as an index of pandas."""
    for at, title in enumerate(() if columns.others else lines[0].cells):
        cell = next((line.cells[at] for line in lines[1:] if at < len(line.cells) and line.cells[at]), "")
        if not title and cell:
            yield f"expected a title above column {at + 1}, got none above {cell!r}: leave an index out"


def _placed(titles: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Return where each column is, and what is wrong with the titles."""
    known = {columns.key(name): name for name in columns.names}
    keys = [columns.key(title) for title in titles]
    index_of: dict[str, int] = {}
    for at, key in enumerate(keys):
        if key in known:
            index_of.setdefault(known[key], at)
    problems = [f"column {name!r} is there twice" for key, name in known.items() if keys.count(key) > 1]
    others = [title for title, key in zip(titles, keys, strict=True) if key not in known and title]
    absent = [name for name in columns.names if name not in index_of]
    near = {title: [*all_nearest(columns.key(title), absent)] for title in others}
    if not index_of and (_separator("".join(titles)) or not any(near.values())):
        return {}, [_no_titles(titles, columns)]
    for name in columns.needed:
        if name not in index_of:
            wrong = next((title for title in others if name in near[title]), None)
            got = "" if wrong is None else f", got {wrong!r}; did you mean {name}?"
            problems.append(f"expected a column {name!r} beside {', '.join(columns.needed)}{got}")
            if wrong is not None:
                others.remove(wrong)
                absent.remove(name)
    if not columns.others:
        expected = f"expected columns out of {', '.join(columns.names)}"
        problems += [f"{expected}, got {title!r}{did_you_mean(columns.key(title), absent)}" for title in others]
    return index_of, problems


def _no_titles(titles: Sequence[str], columns: Columns) -> str:
    """Return a message on a first row that names none of the columns."""
    expected = f"expected the names of the columns, {', '.join(columns.needed)}"
    expected += ", and others" if len(columns.names) > len(columns.needed) else ""
    got = ", ".join(repr(title[:_SHOWN]) for title in titles[:_LISTED])
    if called := _separator("".join(titles)):
        return f"{expected}, separated by commas, got {called} between cells: write commas, and points in numbers"
    if not titles:
        return f"{expected}, in the first row, got nothing"
    if any(map(_NUMBER.fullmatch, titles)):
        return f"{expected}, in the first row, got values: {got}"
    return f"{expected}, got {got}"


def _separator(text: str) -> str:
    """Return the separator of a line that has no commas, in words; empty without one."""
    return next((called for separator, called in _SEPARATORS.items() if separator in text), "")
