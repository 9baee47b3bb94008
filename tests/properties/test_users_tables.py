"""Orders of users' own, which say no period: runs of time alone find it in the passes, and jump as exactly."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.scenario.load import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import CountError, PlanError
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.run import Run
from ipusim.schedules.registry import any_count, find
from ipusim.schedules.repeating import Repeating, with_period
from ipusim.schedules.schedule import Schedule
from ipusim.schedules.torch_csv import write_torch_csv
from tests.effort import sampled
from tests.properties.test_jump import check_the_same
from tests.properties.test_shorter_plans import PERIODIC
from tests.schedules import mapping_of, multiple_of

#: A file with an Order.
FILE = """from ipusim.pipeline.order import Order
from ipusim.schedules.schedule import Schedule

mine = Schedule("mine", lambda shape: Order("mine", shape, table={table}), lambda shape: 1, True, "an Order")
"""
#: Schedules whose passes repeat themselves, and are of whole micro-batches that torch can have in a table.
OF_TORCH = [name for name in PERIODIC if not find(name).mirrored and find(name).segments == 1]
IN_STEP = ("1f1b", "zero_bubble_h1", "interleaved", "sequential")
COUNT = "pipeline.gradient_accumulation_count"
FOUR = PlanShape(mapping=(0, 1, 2, 3), micro_batches=400)
SCENARIO = """
system: {name: m2000, auto_select_ipus: 4}
training: true
memory: report
pipeline:
  schedule: table.csv
  gradient_accumulation_count: 400
  stages:
    - {name: a, forward: 1000, backward: 2000, update: 10, output_bytes: 1 KiB}
    - {name: b, forward: 1100, backward: 2000, update: 10, output_bytes: 1 KiB, gradient_bytes: 1 KiB}
    - {name: c, forward: 1000, backward: 2100, update: 10, output_bytes: 1 KiB, gradient_bytes: 1 KiB}
    - {name: d, forward: 1000, backward: 1900, update: 10, gradient_bytes: 1 KiB}
"""


def joined(first: Order, second: Order) -> Order:
    """Return an Order that runs one behind the other, on each IPU."""
    count = first.shape.micro_batches
    shape = replace(first.shape, micro_batches=count + second.shape.micro_batches)
    return Order("joined", shape, table=np.vstack([first.passes, np.add(second.passes, [0, 0, 0, count])]))


def jumps(run: Run) -> bool:
    """Tell whether a run has jumped within executions."""
    return any(repeat.micro_batches for repeat in run.timeline.repeats)


def table_job(folder: Path, order: Order, *changes: str) -> Job:
    """Return the Job of an Order on four IPUs, as torch writes it."""
    (folder / "table.csv").write_text(write_torch_csv(order))
    (folder / "s.yaml").write_text(SCENARIO)
    return load_job(folder / "s.yaml", [f"{COUNT}={order.shape.micro_batches}", *changes])


@sampled(4)
@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("name", OF_TORCH)
def test_a_table_that_torch_wrote_is_simulated_as_a_whole_one_is(tmp_path: Path, name: str, sync: Sync) -> None:
    """And in part, where stages of unequal times are in step within so many micro-batches."""
    mapping = mapping_of(name, 4)
    multiple = multiple_of(name, 4, len(set(mapping)))
    order = find(name).order(PlanShape(mapping=mapping, micro_batches=200 // multiple * multiple))
    job = table_job(tmp_path, order, f"pipeline.sync={sync.value}", "pipeline.repeat_count=3")
    part = execute(job)
    whole = check_the_same(part)
    if name not in IN_STEP:
        return
    assert job.plan.shape.micro_batches < 40
    assert jumps(part)
    assert len(part.timeline) * 8 < len(whole.timeline) == int(part.timeline.weights.sum())


def test_a_table_repeats_itself_in_as_many_micro_batches_as_its_passes_do(tmp_path: Path) -> None:
    """Stages that go round the IPUs twice: a period is of as many micro-batches as there are IPUs."""
    shape = PlanShape(mapping=(0, 1, 2, 0, 1, 2), micro_batches=300)
    schedule = with_period(Schedule("mine", find("interleaved_1f1b").order, any_count, True, ""), shape)
    assert isinstance(schedule, Repeating)
    assert schedule.step(shape) == 3
    fewer = replace(shape, micro_batches=30)
    assert np.array_equal(schedule.order(fewer).passes, find("interleaved_1f1b").order(fewer).passes)
    assert schedule.order(shape).repeats is None
    for count in (29, 3, 303):
        with pytest.raises(CountError, match=r"expected 300 micro-batches, or up to 2\d\d fewer in steps of 3, got"):
            schedule.order(replace(shape, micro_batches=count))


@pytest.mark.parametrize("name", ["grouped", "interleaved"])
def test_a_table_with_time_steps_is_cut_to_what_its_schedule_lays_out(name: str) -> None:
    schedule = with_period(Schedule("mine", find(name).order, any_count, True, ""), FOUR)
    assert isinstance(schedule, Repeating)
    fewer = replace(FOUR, micro_batches=FOUR.micro_batches - 8 * schedule.step(FOUR))
    cut, right = schedule.order(fewer), find(name).order(fewer)
    assert np.array_equal(cut.table, right.table)
    assert (cut.emitted, cut.offsets, cut.fifo_depths) == (right.emitted, right.offsets, right.fifo_depths)


@pytest.mark.parametrize("sync", list(Sync))
def test_only_the_part_of_a_table_that_was_cut_is_jumped_over(tmp_path: Path, sync: Sync) -> None:
    """Its last 100 micro-batches come one at a time, which repeats itself as well: no block may be found there."""
    parts = [replace(FOUR, micro_batches=count) for count in (300, 100)]
    order = joined(find("1f1b").order(parts[0]), find("sequential").order(parts[1]))
    job = table_job(tmp_path, order, f"pipeline.sync={sync.value}")
    run = execute(job)
    check_the_same(run)
    timeline = run.timeline
    assert jumps(run)
    (block,) = timeline.repeats
    assert block.times * block.micro_batches > 200
    ends = job.plan.shape.micro_batches - 100
    assert timeline.micro_batch[block.first : block.last].max() < ends, "of the first part, as it is cut"


@pytest.mark.parametrize("name", ["gpipe", "drawn"])
def test_a_table_without_a_period_is_simulated_whole(tmp_path: Path, name: str) -> None:
    shape = replace(FOUR, micro_batches=200)
    order = find("gpipe").order(shape)
    if name == "drawn":  # each micro-batch for itself, in any order
        serial, turn = find("sequential").order(shape), random.Random(3).sample(range(200), 200)
        order = Order("drawn", shape, table=np.column_stack([serial.passes[:, :3], np.take(turn, serial.passes[:, 3])]))
    job = table_job(tmp_path, order)
    assert not isinstance(job.schedule, Repeating)
    run = execute(job)
    check_the_same(run)
    assert not jumps(run)


def test_what_is_wrong_in_a_table_is_told_with_its_own_micro_batches(tmp_path: Path) -> None:
    """Near the end, where the table has long repeated itself; in the Order that is cut it is micro-batch 27."""
    passes = find("1f1b").order(FOUR).passes.copy()
    own = np.flatnonzero((passes[:, 0] == 3) & (passes[:, 3] == 397))
    passes[own] = passes[own[::-1]]  # backward before forward
    (tmp_path / "mine.py").write_text(FILE.format(table=passes.tolist()))
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("table.csv", "mine.py:mine"))
    with pytest.raises(PlanError, match=r"3\.397"):
        load_job(tmp_path / "s.yaml")
    with pytest.raises(ScenarioError, match=r"expected the number of micro-batches of table\.csv, 400, got 200"):
        table_job(tmp_path, find("1f1b").order(FOUR), f"{COUNT}=200")
