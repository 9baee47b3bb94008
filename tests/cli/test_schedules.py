"""`ipusim schedule` in both sync modes, in every format, and with schedules from files."""

import json

import numpy as np
import pytest

from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from ipusim.schedules.torch_csv import write_torch_csv
from tests.cli.commands import answer, ipusim, refusal
from tests.cli.pages import ROOT
from tests.plans import parse_listing
from tests.scenarios import GOLDEN

SMALL = ROOT / "scenarios" / "schedules_four_ipus.yaml"
#: What a grid without time-steps begins with.
HEAD = """\
1f1b training, stages on IPUs 0, 1, 2, count 4
point-to-point, a row is the time of one pass, and copies take no time, FIFO depths 2, 1, 0
offsets of stages: none
"""


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero_bubble_h1", "grouped"])
def test_such_a_grid_has_every_pass_in_its_order(name):
    shape = PlanShape(mapping=(0, 1, 2), micro_batches=6)
    done = ipusim("schedule", name, "--stages", 3, "--count", 6, "--sync", "Point_to_Point")
    passes = {ipu: [] for ipu in range(3)}
    for row in done.stdout.splitlines()[3:]:
        for ipu, cell in enumerate(row[5:].split("|")):
            passes[ipu] += [word for word in cell.split() if word != "."]
            assert len(cell.split()) == 1
    plan = plan_of(find(name), shape, Sync.POINT_TO_POINT)
    again = Order.from_passes(name, shape, passes).passes
    right = plan.order.passes[np.argsort(plan.order.passes[:, 0], kind="stable")]
    assert again.tolist() == right.tolist()


def test_the_sync_mode_is_the_schedules_own_or_the_one_that_is_asked_for():
    assert ipusim("schedule", "1f1b", "--stages", 3, "--count", 4).stdout.startswith(HEAD)
    meeting = ipusim("schedule", "gpipe", "--sync", "lock_step").stdout.splitlines()
    assert meeting[1].startswith("time-steps 4 emitted, copies")
    grid = ipusim("schedule", "grouped").stdout.splitlines()
    assert grid[1].startswith(f"time-steps 8 emitted, {len(grid[3:])} with passes, copies")


@pytest.mark.parametrize("sync", list(Sync))
def test_instructions_parse_back(sync):
    done = ipusim("schedule", "1f1b", "--stages", 3, "--count", 5, "--sync", sync.value, "--as", "instructions")
    plan = plan_of(find("1f1b"), PlanShape(mapping=(0, 1, 2), micro_batches=5), sync)
    assert parse_listing(done.stdout).tolist() == plan.instructions.tolist()


def test_csv_is_the_same_in_both_sync_modes_and_reads_back(tmp_path):
    words = ("--mapping", "0,1,0,1", "--count", 4)
    shape = PlanShape(mapping=(0, 1, 0, 1), micro_batches=4)
    text = write_torch_csv(find("interleaved_1f1b").order(shape))
    for sync in Sync:
        done = ipusim("schedule", "interleaved_1f1b", *words, "--sync", sync.value, "--as", "torch")
        assert done.stdout == text
    (tmp_path / "mine.csv").write_bytes(text.encode())
    again = ipusim("schedule", "mine.csv", cwd=tmp_path)
    right = ipusim("schedule", "interleaved_1f1b", *words)
    assert again.stdout == right.stdout.replace("interleaved_1f1b", "mine.csv")
    assert ipusim("schedule", "mine.csv", "--stages", 4, "--as", "torch", cwd=tmp_path).stdout == text
    (tmp_path / "mine.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    met = "mine.csv: with sends that block, every send meets its receive.\n"
    assert answer("schedule", "mine.csv", "--blocking", cwd=tmp_path) == met
    (tmp_path / "mine.csv").write_text("0F0\n,1F0\n")
    assert answer("schedule", "mine.csv", cwd=tmp_path).startswith("mine.csv inference, stages on IPUs 0, 1, count 1\n")


def test_a_python_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from ipusim.pipeline.order import Order\n"
        "def one(shape):\n"
        "    passes = {ipu: [f'F{s}.0', f'B{s}.0'] for s, ipu in enumerate(shape.mapping)}\n"
        "    return Order.from_passes('one', shape, passes)\n"
    )
    done = ipusim("schedule", "mine.py:one", "--stages", 3, "--as", "torch", cwd=tmp_path)
    assert done.stdout == "0F0,,,,,0B0\r\n,1F0,,,1B0\r\n,,2F0,2B0\r\n"


def test_a_scenario_is_compared_under_files_of_its_folder(tmp_path):
    (tmp_path / "four.yaml").write_text(SMALL.read_text())
    (tmp_path / "torch.csv").write_bytes((GOLDEN / "torch_schedules" / "GPipe_4_4_8.csv").read_bytes())
    words = ("compare", tmp_path / "four.yaml", "--schedules", "1f1b,torch.csv", "--out", tmp_path / "out")
    answer(*words, cwd=ROOT)
    rows = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [row["schedule"] for row in rows] == ["1f1b", "torch.csv"]
    assert [row["summary"]["makespan_cycles"] for row in rows] == [33_000, 33_000]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("1f1b", "--sync", "lockstep"), "--sync: expected lock_step or point_to_point, got 'lockstep'; did you mean"),
        (("1f1b", "--as", "troch"), "--as: expected grid, instructions or torch, got 'troch'; did you mean torch?"),
        (("grouped", "--recompute", "--as", "torch"), "of torch, got R0.0: leave out recomputation"),
        (("good.csv", "--count", "3"), "expected the number of micro-batches of good.csv, 2, got 3\n"),
        (("good.csv", "--stages", "3"), "expected stages on IPUs 0, 1, as in good.csv, got 0, 1, 2"),
        (("good.csv", "--inference"), "The pipelining schedule 'good.csv' does not support inference."),
        (
            ("good.csv", "--blocking"),
            "good.csv: with sends that block, ranks hang: rank 0 waits in 0SEND_F1 (after F0.1) ",
        ),
        (("none.csv",), "'none.csv': cannot read"),
        (("none.py:one",), "'none.py:one': cannot read"),
    ],
)
def test_mistakes_are_one_message(tmp_path, words, text):
    (tmp_path / "good.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert text in refusal("schedule", *words, cwd=tmp_path)
