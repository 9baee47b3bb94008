"""CSV files from anywhere: columns by name in any order, and what is wrong with all of them told by line."""

import re

import pytest

from ipusim.base.csv_table import Columns, CsvLine, CsvRow, read_lines, read_table, refuse, wrong_positive
from ipusim.base.errors import FileError

STRICT = Columns(("stage", "forward", "note"), ("stage", "forward"), allows_others=False)


OWN = "own.csv"


def test_lines_have_the_numbers_of_the_file_whatever_ends_them(own):
    path = own(b'\xef\xbb\xbfa, b \r\n\r\n"two\nlines",c\n')
    assert list(read_lines(path, 100)) == [CsvLine(1, ("a", "b")), CsvLine(2, ()), CsvLine(4, ("two\nlines", "c"))]


def test_columns_are_found_by_name_in_any_order_and_empty_rows_are_left_out(own):
    table = read_table(own("Forward,STAGE\n1,a\n , \n\n2\n3,c,4,,5\n"), STRICT, 1000, "p.csv")
    assert table.titles == {"stage": "STAGE", "forward": "Forward"}
    assert table.rows == (
        CsvRow("p.csv:2", {"stage": "a", "forward": "1"}),
        CsvRow("p.csv:5", {"stage": "", "forward": "2"}),
        CsvRow(
            "p.csv:6",
            {"stage": "c", "forward": "3"},
            ("expected 2 cells, one for each column, got 5: nothing says what '4' is",),
        ),
    )


@pytest.mark.parametrize("inside", ["\x0b", "\x1c", "\x85", "\u2028", "\n", "\x1b"])
def test_a_title_breaks_no_line_of_a_message(own, inside):
    columns = Columns(("stage",), ("stage",), allows_others=False, key=lambda title: title[:5])
    (title,) = read_table(own(f'"stage{inside}[s]"\n0\n'), columns, 1000).titles.values()
    assert title == f"stage{repr(inside)[1:-1]}[s]"
    assert title.isprintable()


def test_other_columns_are_left_alone_where_they_may_be_and_told_all_at_once_where_not(own):
    path = own("stage,forwrd,not,bakward,stage\n")
    with pytest.raises(FileError) as caught:
        read_table(path, STRICT, 1000, "p.csv")
    assert str(caught.value).splitlines() == [
        "p.csv:1: column 'stage' appears twice",
        "p.csv:1: expected a column 'forward' in addition to stage, got 'forwrd'; did you mean forward?",
        "p.csv:1: expected columns out of stage, forward, note, got 'not'; did you mean note?",
        "p.csv:1: expected columns out of stage, forward, note, got 'bakward'",
    ]
    lenient = Columns(("stage", "note"), ("stage",), allows_others=True)
    assert read_table(own("x,stage\n1,2\n"), lenient, 1000).rows[0].cells == {"stage": "2"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a" * 21, "expected a file of at most 20 bytes, got a larger one"),
        (b"a,\xff", "expected text in UTF-8: invalid start byte at byte 2"),
        ('a\n"b', "line 2: expected cells separated by commas: unexpected end of data"),
    ],
)
def test_what_is_no_csv_is_refused_with_the_reason_alone_and_a_table_names_the_file(own, content, text):
    path = own(content)
    with pytest.raises(FileError, match=f"^{re.escape(text)}$"):
        list(read_lines(path, 20))
    with pytest.raises(FileError, match=f"^{re.escape(f'{path}: {text}')}$"):
        read_table(path, STRICT, 20)
    with pytest.raises(OSError, match="No such file"):
        read_table(path.with_name("none.csv"), STRICT, 20)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "expected the names of the columns, stage, forward, and others, in the first row, got nothing"),
        (
            "a,5,11\n",
            "expected the names of the columns, stage, forward, and others, in the first row, got values: "
            "'a', '5', '11'",
        ),
        ("x,y\n", "expected the names of the columns, stage, forward, and others, got 'x', 'y'"),
        (
            "stage;forward\na;5,5\n",
            "expected the names of the columns, stage, forward, and others, separated by commas, "
            "got semicolons between cells: write commas, and points in numbers",
        ),
    ],
)
def test_a_first_row_without_any_title_is_one_problem(own, content, text):
    with pytest.raises(FileError, match=f"^{re.escape(f'p.csv:1: {text}')}$"):
        read_table(own(content), STRICT, 1000, "p.csv")


def test_of_very_many_problems_the_first_are_listed():
    refuse([])
    with pytest.raises(FileError) as caught:
        refuse([f"problem {number}" for number in range(23)])
    assert str(caught.value).splitlines() == [*(f"problem {number}" for number in range(20)), "and 3 more"]


@pytest.mark.parametrize(
    ("text", "got"),
    [
        *((text, "") for text in ("1", "+5.25", "5.", ".5", "1e3", "2.5E-3", "1e12", "1e-12")),
        *((text, "above 0") for text in ("", "0", "-1", "nan", "inf", "1_0", "0x1", "٣", "５", "1e٣", "x")),
        *((text, "from 1e-12 to 1e+12") for text in ("1e308", "1e999", "1.1e12", "9e-13")),
    ],
)
def test_a_measured_number_is_above_0_and_of_ordinary_size_in_plain_digits(text, got):
    assert list(wrong_positive("m", text)) == [f"column m: expected a number {got}, got {text!r}"] * bool(got)
