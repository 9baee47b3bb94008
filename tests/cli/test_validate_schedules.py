"""`ipusim validate --schedules`: the aims that it holds, its tables and files, and when it fails."""

import csv
import io
import json
import re
from collections import Counter

import pytest

from ipusim.app.published import figures, forms, rows, validation
from tests.cli.commands import answer, ipusim
from tests.cli.pages import PAGES

MEASURED = "samples/s of a GPU"


def test_some_values_that_follow_digit_by_digit_and_some_forms_hold():
    """``--every`` holds all values and forms, and their tallies."""
    values = [row for row in rows.read_published() if row.check == rows.DIGITS]
    found = validation.ScheduleValidation(figures.held_values(values[::6]), forms.read_forms()[::4])
    assert len(found.digits) > 15
    assert found.failures() == []


def test_its_four_tallies_are_as_large_as_they_have_to_be(validate_schedules):
    found = validate_schedules.found
    assert len(found.values) >= 250
    assert len(found.digits) >= 90
    assert all(held.holds for held in found.values)
    assert {held.row.name for held in found.explained_values if held.row.table.endswith("table 5")} == {"1F1B-I"}
    assert len([held for held in found.digits if held.row.table == "zero bubble, table 5"]) == 60
    assert len([held for held in found.digits if held.row.figure == "GiB of activations"]) == 8
    measured = [abs(held.error) for held in found.near if held.row.figure == MEASURED]
    assert len(measured) == 36
    assert sum(measured) / 36 <= 0.035
    assert max(measured) <= 0.11
    predicted = [abs(held.error) for held in found.near if held.row.table == "SimuMax, B200"]
    assert len(predicted) == 4
    assert max(predicted) <= 0.03
    outcomes = found.outcomes("zero bubble, table 4", MEASURED)
    assert outcomes.total() == 72
    assert outcomes[validation.SAME] >= 66
    assert {form.schedule for form in found.forms} >= {"gis", "gis_h", "chimera", "dualpipe", "seq_1f1b"}
    for form in found.forms:
        assert len({tuple(point.items()) for point in form.points}) == 20
        assert form.matches == 20


def test_megatrons_order_waits_for_all_copies_of_the_longest_way(validate_schedules):
    """The rates of its order, which are not the printed ones of 1F1B-I, in their order."""
    waits = ".1090 .0847 .0461 .0827 .0644 .0328 .1136 .0878 .0459 .1528 .1192 .0641"
    found = [held for held in validate_schedules.found.values if held.row.check == "p copies hidden"]
    assert [f"{float(held.value):.4f}".removeprefix("0") for held in found] == waits.split()


def test_it_prints_the_tallies_tables_and_explanations_of_its_page(validate_schedules):
    said = validate_schedules.done.stdout
    page = PAGES["reports/published_schedules.md"]
    for verdict in validate_schedules.found.verdicts():
        assert verdict in said
        assert f"- {verdict}\n" in page
    assert re.search(r"Printed values exact or rounded: 9\d of 9\d \(\d+ exact\)", said)
    assert "waits for 2 (p v - 1) copies, which is p more" in said


def test_a_folder_gets_each_table(tmp_path, monkeypatch, validate_schedules):
    monkeypatch.setattr(validation, "validated_schedules", lambda: validate_schedules.found)
    done = ipusim("validate", "--schedules", "--out", tmp_path / "out")
    assert done.stdout.rstrip().endswith("out: digits.csv, errors.csv, rankings.csv, forms.csv")
    with (tmp_path / "out" / "digits.csv").open() as file:
        written = list(csv.DictReader(file))
    assert all(row["source"] and row["assumed"] for row in written)
    assert {row["verdict"] for row in written} >= {"exact", "rounded", "explained: p copies hidden"}


@pytest.fixture
def shortened(tmp_path, monkeypatch):
    """Return a function that leaves one row of each file of the package, with a text in another's place."""

    def shorten(old="", new=""):
        for module, name in ((rows, "PUBLISHED"), (forms, "FORMS")):
            head, row, *_ = getattr(module, name).read_text().splitlines()
            path = tmp_path / f"{name}.csv"
            path.write_text(f"{head}\n{row.replace(old, new) if old else row}\n")
            monkeypatch.setattr(module, name, path)

    return shorten


def test_it_ends_with_0_where_all_holds(shortened):
    shortened()
    assert "Printed values exact or rounded: 1 of 1 (0 exact); 0 more follow" in answer("validate", "--schedules")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("0.2431", "0.2430", "zero bubble, table 5, 1.5B, m 24, 1F1B: expected 0.2430 (digits), got 0.24305"),
        ("c=0.601", "c=1.601", "zero bubble, table 5, 1.5B, m 24, 1F1B: expected 0.2431 (digits), got 0.27011"),
        ("(p - 1)", "p", "gpipe, bubble: expected p * (f + i + w) at 20 points, got this value at 0"),
    ],
)
def test_it_ends_with_1_where_a_value_or_a_form_does_not_follow(shortened, old, new, line):
    shortened(old, new)
    done = ipusim("validate", "--schedules")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == line


def test_it_prints_a_form_alone_which_has_the_failures_too(shortened):
    shortened("0.2431", "0.2430")
    done = {form: ipusim("validate", "--schedules", f"--{form}") for form in ("json", "csv", "markdown")}
    assert {(each.returncode, each.stderr) for each in done.values()} == {(1, "")}
    data = json.loads(done["json"].stdout)
    assert data["failures"] == ["zero bubble, table 5, 1.5B, m 24, 1F1B: expected 0.2430 (digits), got 0.24305"]
    assert data["verdicts"][0].startswith("Printed values exact or rounded: 0 of 1 (0 exact); ")
    value, form = csv.DictReader(io.StringIO(done["csv"].stdout))
    assert value == data["rows"][0] | {"found": "0.24305", "verdict": "does not hold"}
    assert (form["kind"], form["case"], form["verdict"]) == ("form", "gpipe", "20 of 20 points")
    assert "| published in | case | inputs |" in done["markdown"].stdout


def test_a_row_for_each_value_pair_and_form(validate_schedules):
    found = validate_schedules.found
    assert Counter(row["kind"] for row in found.rows()) == {
        "value": len(found.values),
        "pair": found.outcomes().total(),
        "form": len(found.forms),
    }


@pytest.mark.parametrize("name", ["errors.csv", "mine.csv", "mine.json", "mine.md"])
def test_one_file_in_place_of_a_folder(tmp_path, shortened, name):
    shortened()
    answer("validate", "--schedules", "--out", tmp_path / "out" / name)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_file()] == [name]
