"""Schedule grids, cell by cell, as Graphcore's compiler lays them out (expected orders of its own tests)."""

from pathlib import Path

import pytest

from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find

CASES = {
    "grouped_2_stages_count_4_recomputation": (
        "grouped",
        PlanShape(mapping=(0, 1), micro_batches=4, training=True, recompute=True),
        8,
    ),
    "grouped_4_stages_count_8": ("grouped", PlanShape(mapping=(0, 1, 2, 3), micro_batches=8), 16),
    "grouped_3_stages_count_6_recomputation": (
        "grouped",
        PlanShape(mapping=(0, 1, 2), micro_batches=6, training=True, recompute=True),
        12,
    ),
    "interleaved_2_stages_count_4_recomputation": (
        "interleaved",
        PlanShape(mapping=(0, 1), micro_batches=4, training=True, recompute=True),
        12,
    ),
    "interleaved_3_stages_count_6_recomputation": (
        "interleaved",
        PlanShape(mapping=(0, 1, 2), micro_batches=6, training=True, recompute=True),
        18,
    ),
    "interleaved_4_stages_count_8": ("interleaved", PlanShape(mapping=(0, 1, 2, 3), micro_batches=8), 24),
    "sequential_2_stages_count_2": ("sequential", PlanShape(mapping=(0, 1), micro_batches=2), 8),
    "inference_3_stages_count_6": ("grouped", PlanShape(mapping=(0, 1, 2), micro_batches=6, training=False), 9),
    "interleaved_inference_ipus_0_1_2_0_count_4": (
        "interleaved",
        PlanShape(mapping=(0, 1, 2, 0), micro_batches=4, training=False),
        12,
    ),
    "grouped_ipus_0_1_0_count_6": ("grouped", PlanShape(mapping=(0, 1, 0), micro_batches=6), 12),
}


def golden(name: str) -> str:
    return (Path(__file__).parent / "grids" / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", CASES)
def test_grid(name):
    schedule, shape, emitted = CASES[name]
    plan = plan_of(find(schedule), shape)
    offsets, *rows = golden(name).splitlines()
    printed = format_grid(plan).splitlines()
    assert printed[2:] == [offsets, *rows]
    assert plan.emitted == emitted


def test_grouped_and_interleaved_inference_are_the_same_grid():
    shape = PlanShape(mapping=(0, 1, 2), micro_batches=6, training=False)
    grouped, interleaved = (format_grid(plan_of(find(name), shape)).splitlines() for name in ("grouped", "interleaved"))
    assert grouped[2:] == interleaved[2:]
