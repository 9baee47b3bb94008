"""Fit tables to a terminal's width: wrap at words, split into parts, or turn rows into records.

Nothing is cut or left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from rich.cells import cell_len

from ipusim.app.render.tables import Table

#: Characters between two columns of a drawn table.
COLUMN_GAP: Final = 3
#: Characters at the left and right side of a drawn table together.
SIDES: Final = 2
#: Target number of lines of wrapped text.
_LINES: Final = 3
#: Minimum width of a column of wrapped text in characters.
_NARROWEST_TEXT: Final = 18
#: Names in records take at most the terminal's width divided by this number.
_NAMES: Final = 3


@dataclass(frozen=True)
class Part:
    """Table that fits a terminal; ``widths`` are the widths of its columns in characters.

    A table of records has a row for each cell of the original table, with the column's name and the value.
    """

    table: Table
    widths: tuple[int, ...]


def fit_table(table: Table, width: int) -> list[Part]:
    """Return ``table`` for a terminal of ``width`` characters, in several parts if necessary.

    No column is left out and no number broken. Headers break into words first, then text into lines. The first column
    breaks only to save parts or lines. Tables that are still too wide split into parts, and each part begins with the
    first column. If the first column does not identify rows, or is too wide itself, the table becomes records: a line
    ``column: value`` for each cell.
    """
    names = [row[0] for row in table.rows]
    distinct = all(names) and len({*names}) == len(names)
    fitting = []
    for broken in (False, True):
        least = [_least_width(table, column, broken or column > 0) for column in range(len(table.header))]
        groups = _groups(least, width)
        fit = all(_drawn_width([least[column] for column in group]) <= width for group in groups)
        if fit and (distinct or len(groups) == 1):
            fitting.append([_part(table, group, least, width, _place(group, groups)) for group in groups])
    return min(fitting, key=lambda parts: (len(parts), sum(map(_lines, parts))), default=[_records(table, width)])


def _groups(least: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part: the first column, and at least one more."""
    groups: list[list[int]] = [[0]]
    for column in range(1, len(least)):
        if len(groups[-1]) > 1 and _drawn_width([least[number] for number in (*groups[-1], column)]) > width:
            groups.append([0])
        groups[-1].append(column)
    return groups


def _place(group: Sequence[int], groups: Sequence[Sequence[int]]) -> str:
    """Return a remark on the other parts, for the title of a part; empty for a single part."""
    if group is not groups[0]:
        return " (continued)"
    return " (a second table below has further columns)" if groups[1:] else ""


def _part(table: Table, columns: Sequence[int], least: Sequence[int], width: int, remark: str = "") -> Part:
    """Return a part with ``columns``, narrowing the widest columns until they fit."""
    cells = [_widest(table, column) for column in range(len(table.header))]
    widths = {column: max(cells[column], cell_len(table.header[column])) for column in columns}
    while _drawn_width(widths.values()) > width:
        wide = [column for column in columns if widths[column] > least[column]]
        widths[max(wide, key=lambda column: (widths[column] > cells[column], widths[column]))] -= 1
    part = Table(
        f"{table.title}{remark}",
        tuple(table.header[column] for column in columns),
        tuple(tuple(row[column] for column in columns) for row in table.rows),
    )
    return Part(part, tuple(widths.values()))


def _records(table: Table, width: int) -> Part:
    """Return a table as ``column: value`` lines; a row without its first cell continues the previous one."""
    rows = []
    for number, row in enumerate(table.rows):
        if number:
            rows.append(("", ""))
        rows += [(f"{name}:" if name else "", cell) for name, cell in zip(table.header, row, strict=True) if cell]
    names = max((cell_len(name) for name, _ in rows), default=0)
    names = min(names, max(width // _NAMES, max(_longest_word(name) for name in table.header) + 1))
    values = min(max((cell_len(value) for _, value in rows), default=0), max(width - names - COLUMN_GAP - SIDES, 1))
    return Part(Table(table.title, ("", ""), tuple(rows)), (names, values))


def _lines(part: Part) -> int:
    """Return the approximate number of lines of a part's rows."""
    return sum(
        max(len(wrap(cell, width)) for cell, width in zip(row, part.widths, strict=True) if width)
        for row in part.table.rows
    )


def _least_width(table: Table, column: int, broken: bool) -> int:
    """Return the least width of a column, whose text may break into lines if ``broken``."""
    header, cells = _longest_word(table.header[column]), _widest(table, column)
    if not broken or table.has_numbers(column):
        return max(header, cells)
    words = max((_longest_word(row[column]) for row in table.rows), default=0)
    return max(header, words, min(cells // _LINES, _NARROWEST_TEXT))


def _widest(table: Table, column: int) -> int:
    return max((cell_len(row[column]) for row in table.rows), default=0)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _drawn_width(widths: Collection[int]) -> int:
    """Return the width of a drawn table with columns of ``widths``."""
    return sum(widths) + COLUMN_GAP * (len(widths) - 1) + SIDES
