"""`ipusim import`: what profilers measured, as a table that runs and as a scenario."""

import json
import os
import re

import pytest

from ipusim.app.scenario import load_request
from ipusim.app.scenario.source import read_source
from ipusim.base.errors import printable
from ipusim.runs.request.profile import read_stages
from tests.cli.commands import ipusim, refusal
from tests.scenarios import SCENARIOS

TRACES = sorted((SCENARIOS.parent / "tests" / "golden" / "torch_traces").glob("1F1B_2_rank*.json.gz"))
FILES = {"torch": SCENARIOS / "measured_trace.json", "megatron": SCENARIOS / "measured_timers.log"}


@pytest.mark.parametrize("tool", FILES)
def test_it_prints_a_table_and_writes_it_with_a_scenario_that_runs(tmp_path, tool):
    printed = ipusim("import", FILES[tool])
    assert printed.returncode == 0
    assert printed.stderr.startswith("What the files tell\n")
    done = ipusim("import", FILES[tool], "--out", "plan.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "plan.yaml, plan.csv")
    assert (tmp_path / "plan.csv").read_text() == printed.stdout
    assert len(read_stages(tmp_path / "plan.csv", 10**9)) == 4
    again = ipusim("import", FILES[tool], "--out", "plan.yaml", cwd=tmp_path)  # over what it has written itself
    assert again.stdout == done.stdout
    for name in ("plan.yaml", "plan.csv"):
        checked = ipusim("check", name, cwd=tmp_path)
        assert checked.stdout.startswith(f"{name}: 4 stages, grouped in lock-step")


def test_the_table_of_what_was_believed_goes_to_stderr_and_into_the_scenario(tmp_path):
    printed = ipusim("import", FILES["megatron"])
    (row,) = [line.split() for line in printed.stderr.splitlines() if line.startswith(" measured_timers.log")]
    said = "ranks stated; stages stated by measured_timers.log:1; micro-batches stated"
    assert " ".join(row) == f"measured_timers.log 0 to 7 0 to 3 8 {said}"
    assert printed.stdout.startswith("stage,forward [us],backward [us],update [us],source\n0,")
    assert "Passes and updates with names take " in printed.stderr
    ipusim("import", FILES["megatron"], "--out", "plan.yaml", cwd=tmp_path)
    assert (
        f"# measured_timers.log: rank 0 to 7, stage 0 to 3, micro-batches 8; {said}.\n"
        in (tmp_path / "plan.yaml").read_text()
    )


def test_replay_prints_the_difference_by_part_and_writes_both_runs_and_a_page(tmp_path):
    done = ipusim("import", *TRACES, "--replay", "--out", "replayed", cwd=tmp_path, pictures=False)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        r"Step [123] of 3 measured, the step with the median time, took [\d.]+ m?s; "
        r"the simulation of its plan with the medians of all steps takes [\d.]+ m?s, [+-][\d.]+%\.",
        lines[0],
    )
    assert lines[1].startswith("Most of the difference is ")
    assert lines[2].startswith("Bubble: time without passes, as a share of the ranks' time from the first pass")
    for part in ("copies", "waits", "jitter", "stragglers", "not explained"):
        assert any(re.match(rf" {part}\s+[+-]?[\d.]+ [mu]?s\s+[+-][\d.]+%\s+", line) for line in lines)
    assert {"The step", "The difference by part", "Measured, in ms"} <= {*lines}
    written = "replay.json, replay.png, idle_causes.png, critical_path.png, report.html"
    assert lines[-1] == f"replayed: {written}; the runs measured and simulated"
    page = (tmp_path / "replayed" / "report.html").read_text()
    assert "2 runs: measured, simulated" in page
    for name in ("measured", "simulated"):
        folder = tmp_path / "replayed" / name
        assert {"trace.png", "trace.pftrace.gz", "timeline.npz", "summary.json"} <= {
            path.name for path in folder.iterdir()
        }
    assert not (tmp_path / "replayed" / "measured" / "scenario.yaml").exists()
    again = ipusim("check", "replayed/simulated/scenario.yaml", cwd=tmp_path)
    assert again.stdout.startswith("replayed/simulated/scenario.yaml: 2 stages, order.csv in point-to-point")
    explained = ipusim("explain", "replayed/measured", cwd=tmp_path)
    assert "The effect of changes is not known: this run folder does not hold its scenario." in explained.stdout
    words = ("import", *TRACES, "--replay", "--out", "replayed", "--json")
    said = json.loads(ipusim(*words, cwd=tmp_path, pictures=False).stdout)
    assert said == json.loads((tmp_path / "replayed" / "replay.json").read_text())
    measured, simulated = (said[name]["cycles"] for name in ("measured", "simulated"))
    assert sum(said["difference_cycles"].values()) == measured - simulated


def test_what_cannot_be_replayed_is_one_message_and_nothing_is_written(tmp_path):
    done = refusal("import", FILES["megatron"], "--replay", "--out", "replayed", cwd=tmp_path)
    text = "expected spans with a start time to replay, got only durations of Megatron-LM's timers"
    assert done.splitlines()[-1].endswith(text)
    assert not [*tmp_path.iterdir()]


def test_it_writes_over_no_file_of_anybody_elses(tmp_path):
    (tmp_path / "plan.csv").write_text("stage,forward\na,1\n")
    done = refusal("import", FILES["torch"], "--out", "plan.yaml", cwd=tmp_path)
    assert done.startswith("plan.csv: expected no file, or a table written by ipusim, got another file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.csv"]


def test_import_of_what_was_measured_runs_no_python(tmp_path):
    """A program beside a trace, or under another name, is a file that is no measurement."""
    code = f"import pathlib\npathlib.Path({str(tmp_path / 'it ran')!r}).touch()\n"
    for name in ("program.py", "program.json", "program.log"):
        (tmp_path / name).write_text(code)
    for words in (["program.json"], ["program.log"], [SCENARIOS / "measured_trace.json", "program.py"]):
        assert len(refusal("import", *words, cwd=tmp_path).splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.json", "program.log", "program.py"]


def test_what_it_cannot_read_is_one_message_and_nothing_is_written(tmp_path):
    (tmp_path / "t.json").write_text('{"traceEvents": [\n{"ph": "X"\n')
    done = refusal("import", "t.json", "--out", "plan.yaml", cwd=tmp_path)
    assert done == "t.json:3: expected JSON, got other text: Expecting ',' delimiter\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json"]
    (tmp_path / "t.json").write_text('[{"ph": "X", "name": "a\\nb\\u001b[31m", "dur": 5}]')
    done = ipusim("import", "t.json", cwd=tmp_path)
    assert "the longest spans of other names are 'a\\nb\\x1b[31m': name the passes with --name PASS=NAME" in done.stderr
    assert refusal("import", "none.json", cwd=tmp_path) == "none.json: expected a file, got no such file\n"


@pytest.mark.parametrize("name", [b"x\nname: injected\n#", "x\u2028name: injected".encode(), b"x\x1b[31m", b"x\xff"])
def test_a_scenario_names_the_file_that_it_is_made_of_in_one_line_of_comment(tmp_path, name):
    trace, table = (tmp_path / os.fsdecode(name + suffix) for suffix in (b".json", b".csv"))
    trace.write_bytes((SCENARIOS / "measured_trace.json").read_bytes())
    shown = printable(trace.stem)
    assert ipusim("import", trace.name, "--out", "plan.yaml", cwd=tmp_path).returncode == 0
    head = (tmp_path / "plan.yaml").read_text().splitlines()[:2]
    assert head[0] == f"# 4 stages as torch.profiler measured in {shown}.json."
    assert head[1].startswith("# Machine, ")
    assert load_request(tmp_path / "plan.yaml").name == "plan"
    table.write_bytes((tmp_path / "plan.csv").read_bytes())
    assert read_source(table).text.splitlines()[0].startswith(f"# {shown}.csv, 4 stages as measured. Machine, ")
    assert load_request(table).description.startswith(f"{shown}.csv, 4 stages")
