import pytest

from ipusim.app.render.fitted_tables import COLUMN_GAP, SIDES, fit_table
from ipusim.app.render.tables import Table
from tests.printed_tables import printed


def wide_table(columns, rows=3):
    header = ("selection order", *(f"longest copy number {column}, cycles" for column in range(columns)), "IPUs")
    cells = [
        (f"SNAKE {row} (used)", *(f"{row + column:,} of 1,024" for column in range(columns)), "0 1 3 2 4 5 7 6 " * 4)
        for row in range(rows)
    ]
    return Table("Selection orders", header, tuple(cells))


@pytest.mark.parametrize("width", [40, 60, 80, 140, 400])
@pytest.mark.parametrize("columns", [0, 1, 5, 12, 40])
def test_a_table_keeps_every_column_at_any_width(width, columns):
    table = wide_table(columns)
    parts = fit_table(table, width)
    kept = [name for part in parts for name in part.table.header[1:]]
    assert kept == list(table.header[1:])
    for part in parts:
        assert part.table.header[0] == "selection order"
        assert sum(part.widths) + COLUMN_GAP * (len(part.widths) - 1) + SIDES <= width
        for column, name in enumerate(part.table.header):
            cells = [row[column] for row in part.table.rows]
            pieces = [*name.split(), *(cells if part.table.has_numbers(column) else " ".join(cells).split())]
            assert max(map(len, pieces)) <= part.widths[column]
    assert len(parts) == 1 or width < 400 or columns == 40


def test_a_table_that_fits_is_left_as_it_is():
    table = Table("", ("order", "longest copy, cycles"), (("ZIGZAG", "65,613"),))
    (part,) = fit_table(table, 80)
    assert part.table == table
    assert part.widths == (6, 20)


def test_names_of_rows_are_broken_only_where_that_takes_fewer_lines():
    name, words = "bubble: idle / (IPUs x makespan)", "507,948 cycles, 383.4 us, of an execution"
    (part,) = fit_table(Table("", ("", ""), ((name, "43.3%"), ("makespan", words))), 80)
    assert part.widths == (len(name), len(words))
    (part,) = fit_table(Table("", ("", ""), ((name, "43.3%"), *[("makespan", words)] * 8)), 54)
    assert part.widths[0] < len(name)
    (part,) = fit_table(Table("", ("", ""), ((name, "43.3%"), ("of", "50.0%"))), 60)
    assert part.widths[0] == len(name)


def test_rows_that_their_first_cell_does_not_tell_apart_come_as_records():
    rows = (("forward", "launches", "10,266,400", "ceil" * 10), ("", "exchange", "7", ""), ("", "matrix", "8", "1 + 2"))
    table = Table("Costs", ("of", "term", "cycles", "formula"), rows)
    assert len(fit_table(table, 80)[0].widths) == 4
    lines = [line.rstrip() for line in printed(table, 60)]
    assert lines == [
        "Costs",
        "",
        " of:        forward",
        " term:      launches",
        " cycles:    10,266,400",
        " formula:   ceilceilceilceilceilceilceilceilceilceil",
        "",
        " term:      exchange",
        " cycles:    7",
        "",
        " term:      matrix",
        " cycles:    8",
        " formula:   1 + 2",
        "",
    ]
