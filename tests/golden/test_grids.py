"""Schedule grids, cell by cell, as Graphcore's compiler lays them out (expected orders of its own tests)."""

from pathlib import Path

import pytest

from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import parse_grid

#: Schedule, IPUs of the stages, count, time-steps that are emitted, and what else the shape has.
CASES = {
    "grouped_2_stages_count_4_recomputation": ("grouped", (0, 1), 4, 8, {"recompute": True}),
    "grouped_4_stages_count_8": ("grouped", (0, 1, 2, 3), 8, 16, {}),
    "interleaved_4_stages_count_8": ("interleaved", (0, 1, 2, 3), 8, 24, {}),
    "sequential_2_stages_count_2": ("sequential", (0, 1), 2, 8, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_grid_is_printed_as_graphcores_and_read_back(name):
    schedule, mapping, count, emitted, more = CASES[name]
    plan = plan_of(find(schedule), PlanShape(mapping=mapping, micro_batches=count, **more))
    printed = format_grid(plan)
    golden = Path(__file__).parent / "grids" / f"{name}.txt"
    assert printed.splitlines()[2:] == golden.read_text().splitlines()
    assert plan.emitted == emitted
    assert parse_grid(printed) == plan


def test_grouped_and_interleaved_inference_are_the_same_grid():
    shape = PlanShape(mapping=(0, 1, 2), micro_batches=6, training=False)
    grouped, interleaved = (format_grid(plan_of(find(name), shape)).splitlines() for name in ("grouped", "interleaved"))
    assert grouped[2:] == interleaved[2:]
