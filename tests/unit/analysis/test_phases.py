"""Phases and figures of hand-made Timelines, and where there are no time-steps: numbers by hand, four equal stages."""

import json

import numpy as np
import pytest

from ipusim.analysis.executions import executions_of, find_execution
from ipusim.analysis.phases import MAIN, RAMP_DOWN, RAMP_UP, WEIGHT_UPDATE, execution_phases, phases_of
from ipusim.analysis.run_times import run_times_of
from ipusim.app.render.tables import ipu_table
from ipusim.base.errors import TimelineError
from ipusim.pipeline.plan import Sync
from ipusim.timeline.timeline import Timeline
from tests.scenarios import run, timeline

FOUR = {"mapping": (0, 1, 2, 3), "count": 8}
FREE = {"sync": 0, "exchange": 0}


UPDATE = (WEIGHT_UPDATE, None, None)
THREE = {"mapping": (0, 1, 2), "count": 6, "training": False}


@pytest.mark.parametrize(
    ("schedule", "more", "phases"),
    [
        ("grouped", FOUR, [(RAMP_UP, 0, 6), (MAIN, 7, 7), (RAMP_DOWN, 8, 15), UPDATE]),
        ("grouped", FOUR | {"recompute": True}, [(RAMP_UP, 0, 6), (MAIN, 7, 7), (RAMP_DOWN, 8, 15), UPDATE]),
        ("grouped", FOUR | FREE, [(RAMP_UP, 0, 6), (MAIN, 7, 7), (RAMP_DOWN, 8, 14), UPDATE]),
        ("interleaved", FOUR, [(RAMP_UP, 0, 5), (MAIN, 6, 15), (RAMP_DOWN, 16, 23), UPDATE]),
        ("sequential", FOUR, [(MAIN, 0, 63), UPDATE]),
        ("sharded", FOUR, [(MAIN, 0, 63), UPDATE]),
        ("grouped", THREE | FREE, [(RAMP_UP, 0, 1), (MAIN, 2, 5), (RAMP_DOWN, 6, 7)]),
    ],
    ids=[
        "grouped",
        "recomputations fill no slot",
        "no empty step at the end",
        "interleaved",
        "one at a time",
        "sharded",
        "inference",
    ],
)
def test_phases_in_time_steps(lock_step, schedule, more, phases):
    found = execution_phases(lock_step(schedule, **more))
    assert [(phase.name, phase.first_time_step, phase.last_time_step) for phase in found] == phases


def test_boundaries_in_cycles(lock_step):
    # Two IPUs, f = 100, b = 200, sync 10, copy 20: time-steps 0 and 1 last 130, 2 has B1 F1 and lasts 330.
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    assert [(phase.start, phase.end) for phase in phases_of(timeline)] == [
        (0, 130 + 130 + 330),
        (590, 590 + 330),
        (920, 920 + 330 + 230 + 230 + 30),
        (1740, 1890),
    ]


def test_an_outfeed_at_the_end_belongs_to_the_ramp_down(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4, training=False, outfeed=40)
    assert phases_of(timeline)[-1].end == timeline.makespan_cycles


def test_executions_follow_each_other(lock_step):
    timeline = lock_step("interleaved", **FOUR, executions=3, infeed=30, host_wait=5)
    found = executions_of(timeline)
    assert [each.index for each in found] == [0, 1, 2]
    assert [each.start for each in found[1:]] == [each.end for each in found[:-1]]
    assert len({each.execution_cycles for each in found}) == 1
    assert {each.update_cycles for each in found} == {150}
    assert phases_of(timeline)[4:8] == execution_phases(timeline, 1)


def test_an_execution_that_is_not_there(lock_step):
    with pytest.raises(TimelineError, match=r"expected an execution of the Timeline \(0 to 0\), got 3"):
        find_execution(lock_step(), 3)


def test_a_count_below_the_overlap_has_no_main(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    keep = timeline.micro_batch != 3
    assert [phase.name for phase in phases_of(type(timeline)(timeline.info, timeline._table[keep]))] == [
        RAMP_UP,
        WEIGHT_UPDATE,
    ]


def test_an_empty_timeline_has_no_phases(lock_step):
    timeline = lock_step()
    assert phases_of(type(timeline)(timeline.info, timeline._table[:0])) == ()


def test_bubble_definitions_differ_where_they_should(lock_step):
    # Two IPUs, G = 4, f = 1, b = 2 (hundreds): makespan 15, arithmetic 12 on each; IPU 0 is busy from 0 to 15
    # with the last backward, IPU 1 from 1 to 13.
    found = run_times_of(lock_step("grouped", mapping=(0, 1), count=4, **FREE)).bubble
    assert (found.ideal_cycles, found.idle_cycles, found.rank_cost_cycles) == (1200, 600, 1500)
    assert (found.idle_fraction, found.overhead, found.rank_cost_rate) == (600 / 3000, 300 / 1200, 300 / 1500)
    assert found.span_idle_fraction == 300 / 2700


def test_throughput_counts_the_weight_update(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4, executions=5, **FREE, clock_hz=1_000_000)
    rates = run_times_of(timeline).throughput
    assert (rates.run_cycles, rates.effective_batch_size, rates.samples) == (5 * (1500 + 150), 64, 320)
    assert rates.samples_per_s == pytest.approx(320 / 8250e-6)
    assert rates.micro_batches_per_s == pytest.approx(20 / 8250e-6)
    assert rates.weight_update_period_s == pytest.approx(1650e-6)


def test_to_dict_is_json_with_seconds_beside_cycles(lock_step):
    found = run_times_of(lock_step("interleaved", mapping=(0, 1), count=4, clock_hz=1_000_000))
    data = json.loads(json.dumps(found.times_dict(), allow_nan=False))
    assert data["makespan_s"] == pytest.approx(data["makespan_cycles"] * 1e-6)
    assert data["phases"][0]["name"] == "ramp-up"
    assert sum(phase["cycles"] for phase in data["phases"]) == data["execution_cycles"]
    assert data["execution_cycles"] == data["makespan_cycles"] + data["weight_update_cycles"]
    assert data["bubble"]["idle_fraction"] == found.bubble.idle_fraction
    assert all(isinstance(use["compute_cycles"], int) for use in data["run_use"])
    assert (data["run_use"][0]["weight_update_cycles"], data["pipeline_use"][0]["weight_update_cycles"]) == (150, 0)


def test_a_pipeline_that_takes_no_time(lock_step):
    timeline = lock_step("sequential", mapping=(0, 1), count=2, forward=0, backward=0, **FREE)
    found = run_times_of(timeline)
    assert (found.makespan_cycles, found.bubble.idle_fraction, found.weight_update_cycles) == (0, 0.0, 150)


def bounds(found):
    return [(phase.name, phase.start, phase.end) for phase in phases_of(found)]


SHORT = {"mapping": (0, 1), "count": 1}
SINGLE = {"mapping": (0, 0), "count": 2, "sync": "point_to_point"}


@pytest.mark.parametrize(
    ("schedule", "more", "expected"),
    [
        # f = 100, b = 200: IPU 3 runs from 300 to 300 + 8 * 300, the pipeline takes (8 + 3) * 300.
        ("1f1b", {}, [(RAMP_UP, 0, 300), (MAIN, 300, 2700), (RAMP_DOWN, 2700, 3300), (WEIGHT_UPDATE, 3300, 3350)]),
        # f = i = w = 100: IPU 3 begins at 300 and never waits; IPU 0 ends last, within its bubble of 300.
        ("zero_bubble_h1", {}, [(RAMP_UP, 0, 300), (MAIN, 300, 2700), (WEIGHT_UPDATE, 2700, 2750)]),
        # Two micro-batches forward through four IPUs: IPU 0 ends at 200, IPU 3 begins at 300 and ends at 500.
        ("gpipe", {"count": 2, "inference": True}, [(RAMP_UP, 0, 300), (RAMP_DOWN, 300, 500)]),
        ("1f1b", SHORT, [(RAMP_UP, 0, 100), (MAIN, 100, 400), (RAMP_DOWN, 400, 600), (WEIGHT_UPDATE, 600, 650)]),
        ("single", SINGLE, [(MAIN, 0, 1200), (WEIGHT_UPDATE, 1200, 1300)]),
    ],
)
def test_phases_without_time_steps(schedule, more, expected):
    found = timeline(schedule, **more)
    assert bounds(found) == expected
    assert {(phase.first_time_step, phase.last_time_step) for phase in phases_of(found)} == {(None, None)}


def test_an_update_that_begins_before_the_pipeline_ends_is_no_part_of_the_pipeline():
    found = run_times_of(timeline("1f1b", update=50))
    assert (found.makespan_cycles, found.weight_update_cycles) == (3300, 50)
    last = found.pipeline_use[3].cycles
    assert (last["forward"], last["backward"], last["weight_update"]) == (800, 1600, 0)
    assert found.run_use[3].cycles["weight_update"] == 50
    # It waits for the first tensor until 300, updates from 2700 on, and waits for the others from 2750 on.
    assert (last["receive_wait"], last["sync_wait"]) == (300, 550)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_parts_of_an_ipus_time_add_up_to_the_makespan(schedule):
    table = ipu_table(run_times_of(timeline(schedule, update=50)))
    assert table.header[-1] == "weight update"
    assert [row[-1] for row in table.rows] == ["0.0%", "1.5%", "1.5%", "1.5%"]  # 50 of 3300 cycles
    for row in table.rows:
        assert sum(float(cell.removesuffix("%")) for cell in row[2:]) == pytest.approx(100, abs=0.2)
    assert "weight update" not in ipu_table(run_times_of(timeline(schedule, sync="lock_step"))).header


def test_a_timeline_keeps_its_mode_and_files_without_one_are_of_lock_step(tmp_path):
    found = timeline("1f1b")
    found.save(tmp_path / "new.npz")
    assert Timeline.load(tmp_path / "new.npz") == found
    assert Timeline.load(tmp_path / "new.npz").info.sync is Sync.POINT_TO_POINT
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    for name, sync in (("old", None), ("wrong", "sometimes")):
        said = json.loads(arrays["info"].tobytes()) | {"sync": sync}
        info = {key: value for key, value in said.items() if value is not None}
        np.savez(tmp_path / f"{name}.npz", **arrays | {"info": np.frombuffer(json.dumps(info).encode(), np.uint8)})
    assert Timeline.load(tmp_path / "old.npz").info.sync is Sync.LOCK_STEP
    with pytest.raises(TimelineError, match="info has sync sometimes"):
        Timeline.load(tmp_path / "wrong.npz")


def test_selection_orders_are_judged_by_their_sends():
    reports = {each.order: each for each in run("1f1b", system="m2000", moved=1 << 20).summary.selection_orders}
    costs = run("1f1b", system="m2000", moved=1 << 20).job.costs.sends
    used = next(each for each in reports.values() if each.used)
    assert used.execution_cycles == 8 * sum(send.lead_cycles + send.cycles for send in costs.values())
    assert used.copy_cycles == max(send.lead_cycles + send.cycles for send in costs.values())
    assert reports["ZIGZAG"].execution_cycles > used.execution_cycles  # it crosses two links in the middle
    assert reports["HOOF"].execution_cycles < used.execution_cycles
    assert run("1f1b", system="m2000", moved=1 << 20).summary.faster_order.order == "HOOF"
