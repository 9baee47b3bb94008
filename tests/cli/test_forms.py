"""The results of every command as JSON, as CSV and as Markdown, alone on standard output."""

import csv
import io
import json

import pytest

from tests.cli.commands import answer, ipusim, refusal
from tests.effort import sampled
from tests.scenarios import SCENARIOS

FOUR, MEMORY = "schedules_four_ipus.yaml", "memory_by_schedule.yaml"
ROWS = f"model,machine,ipus,micro_batch,count,items_per_s\n{FOUR},m2000,4,1,8,4000\n"
COUNT = "pipeline.gradient_accumulation_count"
SWEEP = "sweep", FOUR, "--vary", f"{COUNT}=8,16", "--workers", "1"
#: Each command with what its JSON has (keys, or those of the first of a list), the columns that its CSV begins with,
#: and a text that its Markdown has.
COMMANDS = {
    "run": (("run", FOUR), {"makespan_cycles", "bubble"}, ["figure", "value", "unit"], "| throughput |"),
    "check": (("check", MEMORY), {"name", "fits", "ipus", "moves"}, ["ipu", "peak_bytes", "sram_bytes"], "| change |"),
    "check costs": (("check", FOUR, "--costs"), {"costs"}, ["of", "term", "cycles"], "| of | term |"),
    "compare": (("compare", FOUR), {"name", "figures", "best"}, ["name", "source", "schedule"], "| run | time per"),
    "sweep": (SWEEP, {"best", "points"}, [COUNT], "| samples per s |"),
    "sweep slower": (("sweep", FOUR, "--slower", "2", "--workers", "1"), {"slowdowns"}, ["disturbances"], "| slower |"),
    "suggest": (
        ("suggest", FOUR, "--seconds", "inf", "--schedules", "grouped,1f1b"),
        {"outcome", "changes", "plans"},
        ["plan", "schedule", "sync"],
        "| plan | schedule |",
    ),
    "suggest order": (
        ("suggest", FOUR, "--order", "--seconds", "1000", "--schedules", "1f1b", "--set", f"{COUNT}=2"),
        {"is_optimal", "bound_cycles"},
        ["name", "source", "schedule"],
        "The bound comes from ",
    ),
    "explain": (("explain", FOUR), {"waterfall", "what_if"}, ["ipu"], "| part | cycles |"),
    "test": (("test", FOUR, "--workers", "1"), {"scenario", "result"}, ["scenario", "result"], "1 held"),
    "validate": (
        ("validate", "--rows", "rows.csv"),
        {"verdicts", "rows"},
        ["kind", "name", "unit", "measured", "simulated", "error"],
        "| model | framework |",
    ),
    "import": (("import", "measured_timers.log"), {"tool", "stages"}, ["stage", "forward [us]"], "| stage | what |"),
    "schedule": (("schedule", "1f1b", "--stages", "2"), {"mapping", "passes"}, ["time_step", "ipu"], "F0.0 |"),
    "schedules": (("schedule",), {"schedule", "sync"}, ["schedule", "summary"], "1f1b"),
    "devices": (("devices",), {"machine", "devices"}, ["id", "ipus"], "PCI Domain"),
    "figures": (("devices", "--figures"), {"machine", "figures"}, ["table", "name"], "| figure | value |"),
}
FORMS = ("--json", "--csv", "--markdown")


@pytest.fixture
def place(tmp_path, monkeypatch, without_charts):
    for name in (FOUR, MEMORY, "measured_timers.log"):
        (tmp_path / name).write_bytes((SCENARIOS / name).read_bytes())
    (tmp_path / "rows.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_its_results_in_a_form_alone(place, command, form):
    words, keys, columns, said = COMMANDS[command]
    done = ipusim(*words, form)
    assert done.returncode == 0, done.stderr
    if form == "--json":
        data = json.loads(done.stdout)
        assert done.stdout == json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        assert keys <= (data[0] if isinstance(data, list) else data).keys()
    elif form == "--csv":
        header, *rows = csv.reader(io.StringIO(done.stdout))
        assert header[: len(columns)] == columns
        assert {len(row) for row in rows} == {len(header)}
    else:
        assert said in done.stdout
        # Each table has as many cells in each line, and nothing is broken by a terminal's width.
        tables = [part.splitlines() for part in done.stdout.split("\n\n") if part.startswith("| ")]
        assert all(len({line.replace("\\|", "").count("|") for line in lines}) == 1 for lines in tables)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_one_form(place, command):
    assert refusal(*COMMANDS[command][0], "--csv", "--json") == "--json: expected one of --json and --csv, got both\n"
    assert not (place / "reports").exists()


def test_json_is_the_file_and_csv_has_the_numbers_of_the_file(place):
    printed = ipusim("run", FOUR, "--json").stdout
    assert printed.encode() == (place / "reports" / "schedules_four_ipus" / "summary.json").read_bytes()
    compared = ipusim("compare", FOUR, "--out", "compared", "--json").stdout
    assert compared.encode() == (place / "compared" / "comparison.json").read_bytes()
    swept = ipusim(*SWEEP, "--out", "swept", "--csv").stdout
    assert swept.encode() == (place / "swept" / "sweep.csv").read_bytes()
    explained = ipusim("explain", FOUR, "--out", "explained", "--json").stdout
    assert explained.encode() == (place / "explained" / "explanation.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "forms"),
    [
        (("compare", FOUR), ("json", "png")),
        (("explain", FOUR), ("csv", "png")),
        (SWEEP, ("md",)),
        (("validate", "--rows", "rows.csv"), ("json", "csv")),
    ],
)
def test_a_file_in_place_of_a_folder_has_the_form_of_its_ending(place, words, forms):
    for form in forms:
        # A file of the folder's, of some commands, which is then the one file all the same.
        out = place / f"place of {form}" / f"throughputs.{form}"
        answer(*words, "--out", out)
        assert [path.name for path in out.parent.iterdir() if path.is_file()] == [out.name]
        option = {"json": "--json", "csv": "--csv", "md": "--markdown"}.get(form)
        if option:
            assert out.read_text() == ipusim(*words, "--out", place / "folder", option).stdout
