"""Orders of users' own, which say no period: runs of time alone find it in the passes, and jump as exactly."""

import math
import random
from collections.abc import Iterator
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
from tests.effort import draws_everything, sampled, slowest
from tests.properties.test_jump import check_the_same, jobs
from tests.replay.requests import scenario_of

#: A file with an Order.
FILE = """import numpy as np
from ipusim.pipeline.order import CopyRule, Order
from ipusim.schedules.features import Feature
from ipusim.schedules.schedule import Schedule

TABLE = np.array({table})


def order(shape):
    return Order("mine", shape, table=TABLE, **{header}, copy_rule=CopyRule({rule!r}))


MORE = {{"mirrored": {mirrored}, "segments": {segments}}}
mine = Schedule("mine", order, lambda shape: 1, True, "an Order", supports=frozenset(Feature), **MORE)
"""
#: Micro-batches of a table that is long enough to jump where its schedule does.
LONG = 200
COUNT = "pipeline.gradient_accumulation_count"
HOUSE = ["memory=report"]
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


def as_a_table(job: Job, sort: str) -> Order:
    """Return the Order of a Job's schedule: with its time-steps, without, or two of a part of its count each."""
    shape = job.program.shape
    if sort.startswith("joined"):
        step = math.lcm(job.schedule.multiple(shape), shape.serialization)
        first = max(shape.micro_batches // step * int(sort[-1]) // 5, 1) * step
        parts = [replace(shape, micro_batches=count) for count in (first, shape.micro_batches - first)]
        return joined(*map(job.schedule.order, parts))
    order = job.schedule.order(shape)
    return order if sort == "timed" else Order("plain", shape, table=order.passes)


def file_of(order: Order, header: dict[str, object]) -> str:
    """Return a file with the table of an Order, and that of its header."""
    more = {"mirrored": order.shape.mirrored, "segments": order.shape.segments}
    return FILE.format(table=order.table.tolist(), header=header, rule=order.copy_rule.value, **more)


def users_jobs(folder: Path) -> Iterator[tuple[str, Job, str]]:
    """Yield Jobs that are drawn of the house's schedules, under files that hold their Orders, and of which sort."""
    rng = random.Random(5)
    for name, job in jobs({"cycles": 60}, folder, seed=5):
        if job.program.shape.overlapped_io or job.program.shape.micro_batches < 40:
            continue
        sort = rng.choice(["timed", "plain", "joined 1", "joined 4"])
        order = as_a_table(job, sort)
        if job.schedule.order(job.program.shape).joined.any():  # which the table of the file does not say
            continue
        names = ("offsets", "emitted", "fifo_depths")
        header = {each: getattr(order, each) for each in names} if order.emitted is not None else {}
        (folder / "mine.py").write_text(file_of(order, header))
        request = replace(job.request, folder=folder).replace({"pipeline.schedule": "mine.py:mine"})
        (folder / "s.yaml").write_text(scenario_of(request.to_dict()))
        yield f"{name} {job.schedule.name} {sort}", load_job(folder / "s.yaml"), sort


def run_checked(job: Job, name: str = "") -> tuple[Run, Run]:
    """Hold a run that may jump against one of the whole Plan; return both."""
    part = execute(job)
    return part, check_the_same(part, name)


def jumps(run: Run) -> bool:
    """Tell whether a run has jumped within executions."""
    return any(repeat.micro_batches for repeat in run.timeline.repeats)


@slowest
def test_drawn_tables_jump_and_change_nothing(tmp_path: Path) -> None:
    """A table of a house's schedule jumps where that schedule does, if it is long enough; others where they may."""
    jumped = {"as the house": 0, "joined": 0}
    least = 10 if draws_everything() else 5
    for checked, (name, job, sort) in enumerate(users_jobs(tmp_path)):
        if checked >= least and min(jumped.values()) >= 1 and sum(jumped.values()) >= 3:
            break  # before all that could be drawn
        has_jumped = jumps(run_checked(job, name)[0])
        if sort.startswith("joined"):
            jumped["joined"] += has_jumped
        elif job.program.shape.micro_batches >= LONG:
            house = load_job(tmp_path / "drawn.yaml", [*HOUSE, f"{COUNT}={job.program.shape.micro_batches}"])
            assert has_jumped == jumps(execute(house)), name
            jumped["as the house"] += has_jumped
    assert min(jumped.values()) >= 1, jumped
    assert sum(jumped.values()) >= 3, jumped


def table_job(folder: Path, order: Order, *changes: str) -> Job:
    """Return the Job of an Order on four IPUs, as torch writes it."""
    (folder / "table.csv").write_text(write_torch_csv(order))
    (folder / "s.yaml").write_text(SCENARIO)
    return load_job(folder / "s.yaml", [f"{COUNT}={order.shape.micro_batches}", *changes])


@sampled(2)
@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("name", ["1f1b", "zero_bubble_h1", "interleaved", "sequential"])
def test_a_table_that_torch_wrote_is_simulated_in_part(tmp_path: Path, name: str, sync: Sync) -> None:
    order = find(name).order(replace(FOUR, micro_batches=200))
    job = table_job(tmp_path, order, f"pipeline.sync={sync.value}", "pipeline.repeat_count=3")
    assert job.plan.shape.micro_batches < 40
    part, whole = run_checked(job)
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


@pytest.mark.parametrize("sync", list(Sync))
def test_only_the_part_of_a_table_that_was_cut_is_jumped_over(tmp_path: Path, sync: Sync) -> None:
    """Its last 100 micro-batches come one at a time, which repeats itself as well: no block may be found there."""
    parts = [replace(FOUR, micro_batches=count) for count in (300, 100)]
    order = joined(find("1f1b").order(parts[0]), find("sequential").order(parts[1]))
    job = table_job(tmp_path, order, f"pipeline.sync={sync.value}")
    run, _ = run_checked(job)
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
    assert not jumps(run_checked(job)[0])


def test_what_is_wrong_in_a_table_is_told_with_its_own_micro_batches(tmp_path: Path) -> None:
    """Near the end, where the table has long repeated itself; in the Order that is cut it is micro-batch 27."""
    passes = find("1f1b").order(FOUR).passes.copy()
    own = np.flatnonzero((passes[:, 0] == 3) & (passes[:, 3] == 397))
    passes[own] = passes[own[::-1]]  # backward before forward
    order = Order("wrong", FOUR, table=passes)
    (tmp_path / "mine.py").write_text(file_of(order, {}))
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("table.csv", "mine.py:mine"))
    with pytest.raises(PlanError, match=r"3\.397"):
        load_job(tmp_path / "s.yaml")
    with pytest.raises(ScenarioError, match=r"expected the number of micro-batches of table\.csv, 400, got 200"):
        table_job(tmp_path, find("1f1b").order(FOUR), f"{COUNT}=200")
