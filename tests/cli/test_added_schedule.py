"""What a schedule of the house costs: a module and a row of the registry; grids, both sync modes, runs, docs follow."""

from __future__ import annotations

import csv

import pytest

MODULE = '''"""Last in, first out: all forward passes, then backward the other way round."""

from __future__ import annotations

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.rules import check_count, check_stages


def order(shape: PlanShape) -> Order:
    """Return the Order; raises ProgramError for fewer than two stages and CountError for a count below 1."""
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    passes = {}
    for ipu in set(shape.mapping):
        own = [stage for stage in range(shape.stages) if shape.mapping[stage] == ipu]
        there = [Op(Pass.FORWARD, stage, micro) for stage in own for micro in range(shape.micro_batches)]
        passes[ipu] = there + [Op(Pass.BACKWARD, *op[1:]) for op in reversed(there)]
    return Order.from_passes("lifo", shape, passes)
'''
WORDS = "gpipe with backward the other way round"
ROW = f"""        _gpu_schedule("lifo", lifo.order, "{WORDS}", _GPU_TRAINING, period=None),
"""
SCENARIO = """\
system: {name: m2000}
data: {type: synthetic, shape: [5], classes: 3, samples: 48}
model:
  layers:
    - {name: hidden, type: dense, units: 8, activation: tanh}
    - {name: more, type: dense, units: 8, activation: tanh}
    - {name: scores, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {schedule: lifo, splits: [more, scores], micro_batch_size: 2, gradient_accumulation_count: 5}
optimizer: {type: sgd, learning_rate: 0.5}
steps: 3
precision: float64
"""
#: Prints the losses of a run whose files nobody looks at: pictures take longer than all the rest.
LOSSES = """
import sys
from ipusim.runs.execute import execute
from ipusim.app.scenario import load_job
print(*(each.loss for each in execute(load_job("s.yaml", sys.argv[1:])).learning.losses))
"""


BESIDE = {"s.yaml": SCENARIO}


def change(package):
    package.leave_pictures_out()
    package.write("schedules/lifo.py", MODULE)
    imported, row = "    interleaved_1f1b,\n", '        _gpu_schedule("1f1b", '
    package.put("schedules/registry.py", imported, imported + "    lifo,\n")
    package.put("schedules/registry.py", row, ROW + row)


def test_it_has_a_grid_and_instructions(changed):
    two = ("schedule", "lifo", "--stages", "2", "--count", "2")
    grid = changed.ipusim(*two, "--sync", "lock_step")
    assert [line.split()[1:] for line in grid.splitlines() if line.strip()[:1].isdigit()] == [
        ["F0.0", "|", "."],
        ["F0.1", "|", "F1.0"],
        [".", "|", "F1.1"],
        [".", "|", "B1.1"],
        ["B0.1", "|", "B1.0"],
        ["B0.0", "|", "."],
    ]
    assert "receive 1->0.1; B0.1" in changed.ipusim(
        "schedule", "lifo", "--stages", "2", "--count", "2", "--as", "instructions"
    )
    assert WORDS in changed.ipusim("schedule")


def test_it_trains_in_both_sync_modes_as_gpipe_does(changed):
    changed.ipusim("run", "s.yaml", "--set", "pipeline.sync=lock_step", "--out", "out")
    with (changed.place / "out" / "losses.csv").open() as file:
        first = [float(row["loss"]) for row in csv.DictReader(file)]
    assert len(first) == 15
    for schedule in ("lifo", "gpipe"):
        told = changed(LOSSES, f"pipeline.schedule={schedule}", "pipeline.sync=point_to_point")
        assert list(map(float, told.split())) == pytest.approx(first, rel=1e-12)


def test_what_it_does_not_support_is_refused(changed):
    words = ("check", "s.yaml", "--set", "pipeline.allow_recompute=true")
    refused = changed.ipusim(*words, "--set", "pipeline.recomputation_mode=RecomputeThenBackpropagate", returncode=2)
    assert "Pipeline schedule Lifo does not support 'Recompute_then_backpropagate'" in refused
    assert "did you mean lifo?" in changed.ipusim("check", "s.yaml", "--set", "pipeline.schedule=lifi", returncode=2)
