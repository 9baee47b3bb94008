"""What a new figure and a new form of results cost: one row each, and all commands have it."""

import csv
import json

import pytest

from tests.scenarios import ROOT

SCENARIO = ROOT / "scenarios" / "schedules_four_ipus.yaml"
LARGE = ROOT / "scenarios" / "memory_by_schedule.yaml"
COUNT = "pipeline.gradient_accumulation_count"
ROW = """    Figure(
        "micro_batch_rate",
        "number",
        "micro-batches of a second",
        "throughput.micro_batches_per_s",
        measure="rate",
        column="micro_batches_per_s",
        head="micro-batches/s",
        chart="micro-batches/s",
    ),
    Figure(
        "always_live",
        "bytes",
        "bytes allocated during the whole run",
        "memory.ipus.{}.resident_bytes",
        "most",
        measure="resident",
        column="resident_bytes",
        head="always live",
        in_tables=True,
        chart="always live, MiB",
    ),
    Figure(
        "whole_run_use",
        "share",
        "arithmetic of the whole run",
        "verdict.efficiency",
        measure="use",
        column="whole_run_use",
        head="use",
        chart="use, %",
    ),
"""
FORM = """    ".lines": OutputForm(lambda result: b"%d rows\\n" % len(result.rows()), "lines", "the number of rows"),
"""
RUN = f"""
import sys
import ipusim
from ipusim.app.cli import app
scenario, large = sys.argv[1:]
vary = ["sweep", scenario, "--vary", "{COUNT}=8,16", "--workers", "1", "--out", "swept", "--measure", "rate"]
app(vary, standalone_mode=False)
app(vary, standalone_mode=False)
app(["compare", scenario, "--schedules", "gpipe,1f1b", "--out", "compared"], standalone_mode=False)
app(["compare", scenario, "--schedules", "gpipe,1f1b", "--out", "rows/rows.csv"], standalone_mode=False)
app(["compare", scenario, "--schedules", "gpipe,1f1b", "--out", "rows/rows.lines"], standalone_mode=False)
app(["sweep", "--help"], standalone_mode=False)
app([*vary, "--lines"], standalone_mode=False)
app(["run", scenario, "--set", "expect.micro_batch_rate=at least 1", "--out", "ran"], standalone_mode=False)
app(["sweep", large, "--vary", "{COUNT}=8,16", "--workers", "1", "--out", "held", "--measure", "resident",
    "--set", "pipeline.schedule=sequential", "--markdown"], standalone_mode=False)
app(["compare", large, "--schedules", "sequential,sharded", "--out", "compared-large", "--markdown"],
    standalone_mode=False)
expected = ["--set", "pipeline.schedule=sequential", "--set", "expect.always_live=at least 1 MiB"]
app(["run", large, *expected, "--set", "steps=1", "--out", "ran-large"], standalone_mode=False)
app(["check", large, *expected], standalone_mode=False)
swept = ipusim.sweep(scenario, {{"{COUNT}": [8, 16]}}, measure="micro_batch_rate", workers=1)
print("notebook", [outcome.micro_batches_per_s for outcome in swept.outcomes], swept.best)
"""


BESIDE = {}


def change(package):
    package.leave_pictures_out()
    package.put("analysis/figures.py", "FIGURES: Final = (\n", "FIGURES: Final = (\n" + ROW)
    package.put("app/study/forms.py", "FORMS: Final = {\n", "FORMS: Final = {\n" + FORM)


@pytest.fixture(scope="module")
def results(changed):
    """The folder of results of the package with the row, and what was printed there."""
    return changed.place, " ".join(changed(RUN, SCENARIO, LARGE).split())


def test_points_are_ranked_and_told_by_it(results):
    place, printed = results
    rows = list(csv.DictReader((place / "swept" / "sweep.csv").read_text().splitlines()))
    summary = json.loads((place / "ran" / "summary.json").read_text())  # of 8 micro-batches, as the first point is
    assert float(rows[0]["whole_run_use"]) == summary["verdict"]["efficiency"] != float(rows[1]["whole_run_use"])
    right = [float(row["samples_per_s"]) for row in rows]  # a micro-batch is a sample here
    assert [float(row["micro_batches_per_s"]) for row in rows] == right
    assert "by rate: gradient_accumulation_count 16, with a rate of" in printed
    assert "2 of 2 points are taken from an earlier sweep." in printed, "the journal has it"
    assert "micro-batches/s" in printed
    assert (place / "swept" / "sweep.svg").read_text().count("micro-batches/s") > 0
    assert f"notebook {right} {{'{COUNT}': 16}}" in printed


def test_comparisons_and_expectations_know_it(results):
    place, printed = results
    for row in json.loads((place / "compared" / "comparison.json").read_text()):
        assert row["figures"]["micro_batch_rate"] == row["summary"]["throughput"]["micro_batches_per_s"]
    for row in csv.DictReader((place / "rows" / "rows.csv").read_text().splitlines()):
        assert row["micro_batches_per_s"] == row["samples_per_s"]
        assert 0 < float(row["whole_run_use"]) < 1
    assert "met micro_batch_rate:" in printed


def test_a_form_is_printed_and_written(results):
    place, printed = results
    assert (place / "rows" / "rows.lines").read_text() == "2 rows\n"
    assert "--lines print only the number of rows" in printed
    assert " 2 rows " in printed


def test_a_figure_of_memory_follows_too(results):
    """Sweeps, comparisons and checks take memory from the part of the summary that needs no run."""
    place, printed = results
    summary = json.loads((place / "ran-large" / "summary.json").read_text())
    most = max(ipu["resident_bytes"] for ipu in summary["memory"]["ipus"])
    rows = list(csv.DictReader((place / "held" / "sweep.csv").read_text().splitlines()))
    assert [int(row["resident_bytes"]) for row in rows] == [most, most]
    assert "by resident: gradient_accumulation_count 8, with a resident of" in printed
    assert printed.count("| always live |") == 2, "a column of the sweep, and of the comparison"
    compared = json.loads((place / "compared-large" / "comparison.json").read_text())
    assert {row["schedule"]: row["figures"]["always_live"] for row in compared}["sequential"] == most
    assert printed.count("met always_live:") == 2, "before the run, and after it"
