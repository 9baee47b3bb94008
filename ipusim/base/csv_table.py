"""Read CSV files from any source, and report all their problems at once."""

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

#: Maximum number of problems listed in a message.
_MOST_LISTED_PROBLEMS: Final = 20
#: Maximum number of characters of a title in a message.
_MOST_TITLE_CHARACTERS: Final = 60
#: Maximum bytes of a file that is read only for its titles.
_MOST_TITLE_BYTES: Final = 1 << 22
#: Digits read of a whole number, as int() is slow for very many.
_DIGITS: Final = 20
#: A number in place of a title, a sign of a row of values.
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d*)?")
#: Largest measured value; the smallest is its inverse, so that products of a few values are finite and above 0.
_LARGEST_VALUE: Final = 1e12
#: Syntax of a number in a cell; float() also accepts other digits and words.
_POSITIVE: Final = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: Separators in place of commas.
_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class CsvLine:
    """A row of a file: number of the row's last line, counted from 1, and stripped cells."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CsvRow:
    """A row below the titles.

    Attributes:
        position: line of the row, as ``file:line``.
        cells: text per known column of the file; empty beyond the end of the row.
        problems: errors of the row as a whole.
    """

    position: str
    cells: Mapping[str, str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns that a file may have, in any order.

    Attributes:
        names: names of the columns, as in messages.
        required_names: required columns.
        allows_others: whether the file may have unknown columns, which are ignored.
        key: function that maps titles and names to a common key.
    """

    names: Sequence[str]
    required_names: Sequence[str]
    allows_others: bool
    key: Callable[[str], str] = str.lower


@dataclass(frozen=True)
class CsvTable:
    """The non-empty rows of a file, and the file's titles per column, for messages."""

    titles: Mapping[str, str]
    rows: tuple[CsvRow, ...]


def read_lines(path: Path, most_bytes: int) -> Iterator[CsvLine]:
    """Yield every row of a UTF-8 CSV file, including empty rows.

    Raises OSError for an unreadable file, and FileError, whose text is the reason, for a file of more than
    ``most_bytes`` or without CSV content.
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
    """Return the cells of a CSV file's first row; empty for other files. Raises OSError."""
    try:
        return next(read_lines(path, _MOST_TITLE_BYTES), CsvLine(1, ())).cells
    except FileError:
        return ()


def read_table(path: Path, columns: Columns, most_bytes: int, label: str = "") -> CsvTable:
    """Return the rows of a CSV file with titles in the first row.

    Messages name the file as ``label``. Raises OSError for an unreadable file, and FileError, with the file's name,
    for content that is not CSV, or for every missing, repeated or unknown column.
    """
    label = label or str(path)
    try:
        lines = list(read_lines(path, most_bytes))
    except FileError as error:
        raise FileError(f"{label}: {error}") from None
    header = lines[0] if lines else CsvLine(1, ())
    index_of, problems = _place_titles(header.cells, columns)
    refuse([f"{label}:{header.number}: {problem}" for problem in problems or _cells_without_title(lines, columns)])
    rows = tuple(
        CsvRow(
            f"{label}:{line.number}",
            {name: line.cells[index] if index < len(line.cells) else "" for name, index in index_of.items()},
            tuple(_extra_cells(line.cells, len(header.cells))),
        )
        for line in lines[1:]
        if any(line.cells)
    )
    return CsvTable({name: printable(header.cells[index]) for name, index in index_of.items()}, rows)


def checked_rows(
    path: Path, columns: Columns, most_bytes: int, most_rows: int, problems_of: Callable[[CsvRow], Iterable[str]]
) -> tuple[CsvRow, ...]:
    """Return the rows of a CSV file; raises FileError with every problem if any row has a problem."""
    rows = read_table(path, columns, most_bytes).rows
    refuse([f"{row.position}: {problem}" for row in rows for problem in row.problems or problems_of(row)])
    if not 0 < len(rows) <= most_rows:
        raise FileError(f"{path}: expected from 1 to {most_rows} rows below the names of the columns, got {len(rows)}")
    return rows


def csv_bytes(rows: Iterable[Iterable[object]]) -> bytes:
    """Return the content of a CSV file from rows of cells, titles first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def wrong_whole(name: str, text: str, most: int) -> Iterator[str]:
    """Yield the error of a cell without a whole number from 1 to ``most``."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_DIGITS]) <= most):
        yield f"column {name}: expected a whole number from 1 to {most}, got {text!r}"


def wrong_positive(name: str, text: str) -> Iterator[str]:
    """Yield the error of a cell without a positive number up to ``_LARGEST_VALUE``.

    Numbers below 1 / ``_LARGEST_VALUE`` are refused as well.
    """
    value = float(text) if _POSITIVE.fullmatch(text) else 0
    if value > 0 and not 1 / _LARGEST_VALUE <= value <= _LARGEST_VALUE:
        yield f"column {name}: expected a number from {1 / _LARGEST_VALUE:.0e} to {_LARGEST_VALUE:.0e}, got {text!r}"
    elif not value > 0:
        near_names = with_point(text)
        hint = f"; did you mean {' or '.join(near_names)}?" if near_names else ""
        yield f"column {name}: expected a number above 0, got {text!r}{hint}"


def refuse(problems: Sequence[str]) -> None:
    """Raise FileError if there are problems, with a line per problem; long lists are cut."""
    if problems:
        cut_note = (
            [f"and {len(problems) - _MOST_LISTED_PROBLEMS} more"] if len(problems) > _MOST_LISTED_PROBLEMS else []
        )
        raise FileError("\n".join([*problems[:_MOST_LISTED_PROBLEMS], *cut_note]))


def decimal_comma(cells: Sequence[str]) -> str:
    """Return a hint if neighbouring cells form a number with a decimal comma; otherwise an empty text."""
    for whole, part in pairwise(cells):
        if _NUMBER.fullmatch(whole) and whole.lstrip("+-").isdecimal() and part.isdecimal():
            return f"; if {whole},{part} is a number with a decimal comma, write {whole}.{part}"
    return ""


def _extra_cells(cells: Sequence[str], columns: int) -> Iterator[str]:
    """Yield the error of a row with cells beyond the last column."""
    if any(cells[columns:]):
        problem = f"expected {columns} cells, one for each column, got {len(cells)}"
        yield f"{problem}{decimal_comma(cells) or f': nothing says what {next(filter(None, cells[columns:]))!r} is'}"


def _cells_without_title(lines: Sequence[CsvLine], columns: Columns) -> Iterator[str]:
    """Yield the error of an untitled column with cells, such as a pandas index."""
    for index, title in enumerate(() if columns.allows_others else lines[0].cells):
        cell = next((line.cells[index] for line in lines[1:] if index < len(line.cells) and line.cells[index]), "")
        if not title and cell:
            yield f"expected a title above column {index + 1}, got none above {cell!r}: leave an index out"


def _place_titles(titles: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Return the index of every column, and the problems of the titles."""
    names = {columns.key(name): name for name in columns.names}
    keys = [columns.key(title) for title in titles]
    index_of: dict[str, int] = {}
    for index, key in enumerate(keys):
        if key in names:
            index_of.setdefault(names[key], index)
    problems = [f"column {name!r} appears twice" for key, name in names.items() if keys.count(key) > 1]
    unknown_titles = [title for title, key in zip(titles, keys, strict=True) if key not in names and title]
    absent = [name for name in columns.names if name not in index_of]
    near_names = {title: [*all_nearest(columns.key(title), absent)] for title in unknown_titles}
    if not index_of and (_separator("".join(titles)) or not any(near_names.values())):
        return {}, [_no_titles(titles, columns)]
    for name in columns.required_names:
        if name not in index_of:
            near_title = next((title for title in unknown_titles if name in near_names[title]), None)
            hint = "" if near_title is None else f", got {near_title!r}; did you mean {name}?"
            others = [required for required in columns.required_names if required != name]
            besides = f" in addition to {', '.join(others)}" if others else ""
            problems.append(f"expected a column {name!r}{besides}{hint}")
            if near_title is not None:
                unknown_titles.remove(near_title)
                absent.remove(name)
    if not columns.allows_others:
        expected = f"expected columns out of {', '.join(columns.names)}"
        problems += [f"{expected}, got {title!r}{did_you_mean(columns.key(title), absent)}" for title in unknown_titles]
    return index_of, problems


def _no_titles(titles: Sequence[str], columns: Columns) -> str:
    """Return the message about a first row without any known title."""
    expected = f"expected the names of the columns, {', '.join(columns.required_names)}"
    expected += ", and others" if len(columns.names) > len(columns.required_names) else ""
    texts = ", ".join(repr(title[:_MOST_TITLE_CHARACTERS]) for title in titles[:_MOST_LISTED_PROBLEMS])
    if separator_name := _separator("".join(titles)):
        return (
            f"{expected}, separated by commas, got {separator_name} between cells: write commas, and points in numbers"
        )
    if not titles:
        return f"{expected}, in the first row, got nothing"
    if any(map(_NUMBER.fullmatch, titles)):
        return f"{expected}, in the first row, got values: {texts}"
    return f"{expected}, got {texts}"


def _separator(text: str) -> str:
    """Return the separator of a line without commas, in words; empty without a separator."""
    return next((separator_name for separator, separator_name in _SEPARATORS.items() if separator in text), "")
