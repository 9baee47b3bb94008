"""Grids with a row for each IPU and a column for each time-step, the empty ones at the end included.

They are read off the layouts of Graphcore's compiler (its pipeline visitors and their tests), for training with
RecomputeThenBackpropagate. Where each IPU holds one stage, a cell says the pass and the micro-batch alone.
There every stage has a slot for recomputation, and the last has no program in it.
"""

import re
from pathlib import Path

import pytest

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find

HEADER = re.compile(r"(\w+) (training|inference) ipus ([\d ]+) count (\d+) offsets ([\d ]+)")
GRIDS = {
    block.splitlines()[0]: block.splitlines()[1:]
    for block in (Path(__file__).parent / "rows.txt").read_text().split("\n\n")
}


def numbers(text):
    return tuple(map(int, text.split()))


@pytest.mark.parametrize("header", GRIDS)
def test_rows(header):
    columns, *rows = GRIDS[header]
    schedule, task, mapping, count, offsets = HEADER.fullmatch(header).groups()
    recompute = any("R" in row for row in rows)
    shape = PlanShape(
        mapping=numbers(mapping), micro_batches=int(count), training=task == "training", recompute=recompute
    )
    plan = plan_of(find(schedule), shape)
    assert plan.offsets == numbers(offsets)
    assert plan.emitted == int(columns.removeprefix("columns "))
    cells = plan.cells()
    seen = 0
    for row in rows:
        name, *written = (cell.strip() for cell in row.split("|"))
        ipu = int(name.removeprefix("IPU "))
        assert len(written) == plan.emitted, f"{name}: {len(written)} cells for {plan.emitted} time-steps"
        for time_step, words in enumerate(written):
            right = [read(word, ipu, shape) for word in words.split() if word != "."]
            right = [op for op in right if op[:2] != (Pass.RECOMPUTE, shape.stages - 1)]
            assert cells.get((time_step, ipu), []) == right, (name, time_step)
            seen += len(right)
    assert seen == len(plan.table), f"the grid has {seen} passes, the Plan {len(plan.table)}"


def read(word, ipu, shape):
    """Return the operation of ``F1.3``, or of ``F3`` on the only stage of an IPU."""
    if "." in word:
        return Op.parse(word)
    return Op.parse(f"{word[0]}{shape.mapping.index(ipu)}.{word[1:]}")


def test_there_are_grids_of_every_kind():
    assert len(GRIDS) == 13, f"{len(GRIDS)} grids in tests/golden/rows.txt, of 13: restore it, or count a new one here"
    assert {header.split()[0] for header in GRIDS} == {"grouped", "interleaved"}
