from ipusim.app.render.fitted_tables import fit_table
from ipusim.app.render.tables import Table
from tests.printed_tables import printed


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
