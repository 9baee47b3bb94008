"""Traces of torch's pipelines, imported against the programs that were run, and held beside their simulations."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.pipeline.ops import Op
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.trace_files import replayed_files

FOLDER = Path(__file__).with_name("torch_traces")
PROGRAMS = json.loads((FOLDER / "programs.json").read_text())
#: Schedules whose object does not say the order of passes, by the names that they have here.
SINGLE = {"GPipe": "gpipe", "1F1B": "1f1b"}


def files(name):
    return sorted(FOLDER.glob(f"{name}_rank*.json.gz"))


@cache
def beside_simulation(name):
    return replayed_files(files(name))


def order_of(name, program):
    """Return the passes of each rank as the program had them."""
    schedule, _, ranks = name.partition("_")
    if schedule not in SINGLE:
        return [[one for cell in row for one in passes_in(cell)] for row in program["orders"]]
    shape = PlanShape(mapping=tuple(range(int(ranks))), micro_batches=program["count"], training=True)
    plan = plan_of(find(SINGLE[schedule]), shape)
    return [[text(op) for ipu, *op in plan.order.passes.tolist() if ipu == rank] for rank in range(int(ranks))]


def text(op):
    kind, stage, micro_batch = Op(*op)
    return f"{stage}{'FB'[kind]}{micro_batch}"


def passes_in(cell):
    return cell.partition("(")[2].partition(")")[0].split(";") if cell.startswith("(") else [cell]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_orders_and_counts_are_those_of_the_program(name):
    program = PROGRAMS[name]
    stages = stages_of(read_measured(files(name)))
    where = {stage: rank for rank, own in enumerate(program["stages"]) for stage in own}
    assert stages.mapping == tuple(where[stage] for stage in range(len(where)))
    assert stages.count == program["count"]
    rows = beside_simulation(name).order.splitlines()
    assert [row.split(",") for row in rows] == order_of(name, program)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith("_2")])
def test_two_ranks_are_explained_to_two_percent_and_take_the_time_of_their_medians_to_five(name):
    found = beside_simulation(name)
    step = found.measured_run.timeline.makespan_cycles  # the median of three
    difference = step - found.simulated_run.timeline.makespan_cycles
    assert found.steps == 3
    assert abs(found.parts["not explained"]) <= 0.02 * step
    assert sum(found.parts.values()) == difference
    assert abs(difference) <= 0.05 * step


def test_traces_are_small_and_name_no_computer():
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert sum(sizes) < 2_000_000
    for path in FOLDER.glob("*.gz"):
        data = json.loads(gzip.decompress(path.read_bytes()))
        assert set(data) == {"schemaVersion", "distributedInfo", "traceEvents"}
        assert all(set(event) == {"ph", "cat", "name", "pid", "tid", "ts", "dur"} for event in data["traceEvents"])
