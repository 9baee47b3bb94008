"""Inputs after public reports of people who plan or debug pipelines: the right stages, or a refusal that says why."""

import re
from pathlib import Path

import pytest

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.profiles.written import scenario_text
from ipusim.app.scenario.measured import measured_text
from ipusim.base.errors import FileError

CASES = Path(__file__).parent / "cases"
FOUR = {number: (10_000 * (number + 1), 20_000 * (number + 1), 5000 + 1000 * number) for number in range(4)}
HOST = {number: (10 * (number + 1), 20 * (number + 1), 5) for number in range(4)}
RIGHT = {
    "megatron-tp-pp-dp": (FOUR, 4, ()),
    "threads-lost": ({n: HOST[n][:2] for n in HOST}, None, ("forward=forward", "backward=backward")),
    "glob-order": ({n: (10 * (n + 1), 20 * (n + 1), 5) for n in range(12)}, 4, ()),
    "merged-process-name": ({n: HOST[n] for n in range(2)}, 4, ()),
    "overlap-count": (HOST, 4, ()),
    "optimizer-per-chunk": (dict.fromkeys(range(4), (5, 9, 80)), 4, ()),
    "nested-receive": (HOST, 4, ()),
    "begin-end-events": (HOST, 4, ()),
    "two-cycles": ({n: HOST[n] for n in range(2)}, 4, ()),
    "nvtx-csv": ({0: (1, 2)}, None, ("forward=forward", "backward=backward")),
    "parts-of-a-pass": ({0: (10, 20), 1: (20, 40)}, None, ("forward=attn(F)+mlp(F)", "backward=attn(B)+mlp(B)")),
}


def stages(case, names=(), parts=None):
    return stages_of(read_measured(sorted((CASES / case).iterdir()), names, parts=parts))


@pytest.mark.parametrize("case", RIGHT)
def test_stages_and_count_are_those_of_the_report(case):
    expected, count, names = RIGHT[case]
    found = stages(case, names, 2 if case == "parts-of-a-pass" else None)
    medians = [tuple(figure.median for figure in figures.values()) for figures in found.stages.values()]
    assert medians == [*expected.values()]
    assert (found.count, len(found.sources)) == (count, len([*(CASES / case).iterdir()]))


def test_each_cycle_of_a_profiler_adds_its_measurements():
    assert {figures["forward"].count for figures in stages("two-cycles").stages.values()} == {8}


@pytest.mark.parametrize(
    ("case", "names", "said"),
    [
        (
            "missing-rank",
            (),
            r"got none of rank 2 of world_size 4, which .*r0\.json: distributedInfo says: import these",
        ),
        (
            "parts-of-a-pass",
            ("forward=*(F)", "backward=*(B)"),
            r"got attn\(F\) and mlp\(F\) on rank 0: name the pass with --name",
        ),
        ("parts-of-a-pass", ("forward=attn(E)+mlp(E)",), r"expected spans named attn\(E\) .*; did you mean attn\("),
        (
            "1f1b-names",
            (),
            r"got weight updates alone; the longest spans of other names are 'my_fwd', 'gloo:send': name",
        ),
        ("deepspeed-log", (), r"a line of DeepSpeed's timers, which the line does not contain: set the option count"),
    ],
)
def test_what_is_left_open_is_refused(case, names, said):
    with pytest.raises(FileError, match=said):
        stages(case, names)


def test_deepspeeds_times_of_one_rank_are_a_stage_if_a_person_says_so():
    files = [*(CASES / "deepspeed-log").iterdir()]
    with pytest.raises(FileError, match="a statement of DeepSpeed's stages, got none: set the option stages"):
        stages_of(read_measured(files, count=4))
    (figures,) = stages_of(read_measured(files, count=4), 1).stages.values()
    assert [round(float(figure.median), 1) for figure in figures.values()] == [696_462.5, 1_288_305.0, 12_500.0]


def test_tables_that_are_no_stages_are_named():
    with pytest.raises(FileError, match="a summary of NVTX ranges by nsys: convert the summary with `ipusim import`"):
        measured_text(CASES / "nvtx-csv" / "a.csv")
    with pytest.raises(FileError, match=r"a\.csv:4: column stage: expected a stage, got 'total', a row over all"):
        measured_text(CASES / "total-row" / "a.csv")


def test_a_column_without_a_title_is_refused_where_it_has_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",stage,forward [ms]\n0,0,1\n1,1,2\n")
    with pytest.raises(
        FileError, match=r"a\.csv:1: expected a title above column 1, got none above '0': leave an index out"
    ):
        measured_text(path)
    path.write_text("stage,forward [ms],\n0,1,\n1,2,\n")  # as spreadsheets write an empty column
    assert "2 stages as measured" in measured_text(path)


def test_the_scenario_says_what_was_believed():
    text = scenario_text(stages("megatron-tp-pp-dp"), "p.csv", ["a.log"])
    (line,) = re.findall(r"^# a\.log: (.*)$", text, re.MULTILINE)
    assert line.startswith("rank 0 to 7, stage 0 to 3, micro-batches 4; ranks stated; stages stated by ")
    assert "order by " in line
    assert line.endswith("tensor parallelism assumed to be 1; micro-batches stated.")
