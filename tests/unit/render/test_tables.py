"""Tables of a run, as wide as a terminal, and the width of a text."""

import pytest

from ipusim.analysis.run_times import run_times_of
from ipusim.app.render.fitted_tables import fit_table
from ipusim.app.render.lettering import text_width
from ipusim.app.render.tables import Table, ipu_table, summary_table
from tests.printed_tables import printed


def cells(table):
    assert all(len(row) == len(table.header) for row in table.rows)
    return {row[0].strip(): row[1:] for row in table.rows}


def test_summary_table(lock_step):
    found = cells(summary_table(run_times_of(lock_step("grouped", mapping=(0, 1), count=4, sync=0, exchange=0))))
    assert found["makespan"] == ("1,500 cycles, 937.5 ns",)
    assert found["main"] == ("300 cycles, 187.5 ns",)
    assert found["bubble: idle / (IPUs x makespan)"] == ("20.0%",)
    assert found["effective batch size"] == ("16 x 4 = 64 samples",)
    assert found["pipeline and weight update"] == ("1,650 cycles, 1.031 us",)
    assert "IPUs without a stage" not in found


def test_summary_table_says_which_execution_and_which_ipus_idle(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, ipus=(0, 1, 3, 2), executions=3)
    found = cells(summary_table(run_times_of(timeline, execution=1)))
    assert "makespan (execution 1 of 3)" in found
    assert found["IPUs without a stage"] == ("3",)


def test_ipu_table(lock_step):
    table = ipu_table(run_times_of(lock_step("sequential", mapping=(0, 1), count=2, ipus=(1, 0), sync=0, exchange=0)))
    assert table.rows[0] == ("0", "stage0", "50.0%", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%", "50.0%")


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


def test_spaces_have_no_width():
    assert text_width("  ", 9) == 0
    assert text_width(" a ", 9) == pytest.approx(text_width("a", 9))
