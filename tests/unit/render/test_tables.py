import pytest

from ipusim.analysis.run_times import run_times
from ipusim.render.tables import BETWEEN, SIDES, Table, fitted, ipu_table, summary_table


def cells(table):
    assert all(len(row) == len(table.header) for row in table.rows)
    return {row[0].strip(): row[1:] for row in table.rows}


def test_summary_table(lock_step):
    found = cells(summary_table(run_times(lock_step("grouped", mapping=(0, 1), count=4, sync=0, exchange=0))))
    assert found["makespan"] == ("1,500 cycles, 937.5 ns",)
    assert found["main"] == ("300 cycles, 187.5 ns",)
    assert found["bubble: idle / (IPUs x makespan)"] == ("20.0%",)
    assert found["effective batch size"] == ("16 x 4 = 64 samples",)
    assert found["pipeline and weight update"] == ("1,650 cycles, 1.031 us",)
    assert "IPUs without a stage" not in found


def test_summary_table_says_which_execution_and_which_ipus_idle(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, ipus=(0, 1, 3, 2), executions=3)
    found = cells(summary_table(run_times(timeline, execution=1)))
    assert "makespan (execution 1 of 3)" in found
    assert found["IPUs without a stage"] == ("3",)


def test_ipu_table(lock_step):
    table = ipu_table(run_times(lock_step("sequential", mapping=(0, 1), count=2, ipus=(1, 0), sync=0, exchange=0)))
    assert table.rows[0] == ("0 (on 1)", "stage0", "50.0%", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%", "50.0%")


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
    parts = fitted(table, width)
    kept = [name for part in parts for name in part.table.header[1:]]
    assert kept == list(table.header[1:])
    for part in parts:
        assert part.table.header[0] == "selection order"
        assert sum(part.widths) + BETWEEN * (len(part.widths) - 1) + SIDES <= width
        for column, name in enumerate(part.table.header):
            whole = column == 0 or part.table.has_numbers(column)
            cells = [row[column] for row in part.table.rows]
            pieces = [*name.split(), *(cells if whole else " ".join(cells).split())]
            assert max(map(len, pieces)) <= part.widths[column]
    assert len(parts) == 1 or width < 400 or columns == 40


def test_a_table_that_fits_is_left_as_it_is():
    table = Table("", ("order", "longest copy, cycles"), (("ZIGZAG", "65,613"),))
    (part,) = fitted(table, 80)
    assert part.table == table
    assert part.widths == (6, 20)
