"""Tables that commands print, recorded, and read back from what stands on the terminal."""

import contextlib
import io
import itertools
import os
from unittest import mock

from rich.cells import cell_len

from ipusim.app.render import fitted_tables
from ipusim.app.render.fitted_tables import COLUMN_GAP, fit_table
from ipusim.app.terminal import print_tables

#: Columns of a table that is printed to a pipe.
PIPE = 140


@contextlib.contextmanager
def recorded():
    """Give the list that every table goes to which is printed meanwhile."""
    tables = []

    def record(table, width):
        tables.append(table)
        return fit_table(table, width)

    with mock.patch.object(fitted_tables, "fit_table", record):
        yield tables


def printed(table, width):
    """The lines that a table is printed as, in a terminal of a width or, without one, to a pipe."""
    stream = io.StringIO()
    with mock.patch.dict(os.environ), contextlib.redirect_stdout(stream):
        os.environ.pop("COLUMNS", None)
        if width:
            os.environ["COLUMNS"] = str(width)
        print_tables(table)
    return stream.getvalue().splitlines()


def assert_whole(table, width):
    """Assert that what is printed of a table has every column, cell and digit, and is not too wide.

    The characters between the edges of a column are, but for blanks, its cells from top to bottom; in a column of
    numbers each line is one of them.
    """
    lines, parts = printed(table, width), fit_table(table, width or PIPE)
    assert max(map(cell_len, lines)) <= (width or PIPE)
    if parts[0].table.header == table.header or any(parts[0].table.header):
        assert [name for part in parts for name in part.table.header[part is not parts[0] :]] == [*table.header]
        assert all(
            column in zip(*table.rows, strict=True) for part in parts for column in zip(*part.table.rows, strict=True)
        )
    else:  # records
        cells = [(f"{name}:", cell) for row in table.rows for name, cell in zip(table.header, row, strict=True) if cell]
        assert [row for part in parts for row in part.table.rows if any(row)] == cells
    for part, shown in zip(parts, _by_part(lines, [part.table.title for part in parts]), strict=True):
        _assert_columns(part, shown)


def _by_part(lines, titles):
    """The lines of each part below its title, which may be broken into lines."""
    starts, ends, number = [], [], 0
    for title in titles:
        number, high = next(
            (first, high)
            for first in range(number, len(lines))
            for high in range(1, 4)
            if _bare(*lines[first : first + high]) == _bare(title)
        )
        starts.append(number)
        number += high
        ends.append(number)
    return [lines[end:start] for end, start in itertools.zip_longest(ends, starts[1:])]


def _assert_columns(part, shown):
    head = next((number for number, line in enumerate(shown) if set(line.strip()) == {"─"}), 0)
    left = 1
    for place, across in enumerate(part.widths):
        above, below = (
            [_between(line, left, left + across) for line in of] for of in (shown[:head], shown[head + 1 :])
        )
        cells = [row[place] for row in part.table.rows]
        assert _bare(*above) == _bare(part.table.header[place])
        assert _bare(*below) == _bare(*cells)
        if part.table.has_numbers(place):
            assert [*filter(None, map(str.strip, below))] == [*filter(None, cells)]
        left += across + COLUMN_GAP


def _between(line, left, right):
    """The characters in some columns of the terminal."""
    ends = list(itertools.accumulate(map(cell_len, line)))
    return "".join(character for character, end in zip(line, ends, strict=True) if left < end <= right)


def _bare(*texts):
    return "".join("".join(texts).split())
