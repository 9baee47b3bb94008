"""Phases, bubble and use of IPUs where there are no time-steps: numbers by hand, four equal stages."""

import json

import numpy as np
import pytest

from ipusim.analysis.phases import MAIN, RAMP_DOWN, RAMP_UP, WEIGHT_UPDATE, phases_of
from ipusim.analysis.run_times import run_times_of
from ipusim.app.render.tables import ipu_table
from ipusim.app.render.window import phase_window
from ipusim.base.errors import TimelineError
from ipusim.pipeline.plan import Sync
from ipusim.timeline.timeline import Timeline
from tests.scenarios import run, timeline


def bounds(found):
    return [(phase.name, phase.start, phase.end) for phase in phases_of(found)]


def test_1f1b_ramps_until_the_last_ipu_begins_and_from_when_it_ends():
    # f = 100, b = 200: IPU 3 runs from 300 to 300 + 8 * 300, the pipeline takes (8 + 3) * 300.
    assert bounds(timeline("1f1b")) == [
        (RAMP_UP, 0, 300),
        (MAIN, 300, 2700),
        (RAMP_DOWN, 2700, 3300),
        (WEIGHT_UPDATE, 3300, 3350),
    ]
    assert {(phase.first_time_step, phase.last_time_step) for phase in phases_of(timeline("1f1b"))} == {(None, None)}


def test_zero_bubble_ends_with_all_ipus_at_nearly_the_same_time():
    # f = i = w = 100: IPU 3 begins at 300 and never waits; IPU 0 ends last, within its bubble of 300.
    found = bounds(timeline("zero_bubble_h1"))
    assert found[:2] == [(RAMP_UP, 0, 300), (MAIN, 300, 2700)]
    assert found[-1] == (WEIGHT_UPDATE, 2700, 2750)


def test_there_is_no_main_phase_where_an_ipu_ends_before_another_begins():
    # Two micro-batches forward through four IPUs: IPU 0 ends at 200, IPU 3 begins at 300 and ends at 500.
    found = timeline("gpipe", count=2, inference=True)
    assert bounds(found) == [(RAMP_UP, 0, 300), (RAMP_DOWN, 300, 500)]
    assert (phase_window(found, "ramp-down").start, phase_window(found, "ramp-down").end) == (292, 500)


def test_a_single_ipu_is_all_main():
    assert bounds(timeline("1f1b", mapping=(0, 1), count=1))[:2] == [(RAMP_UP, 0, 100), (MAIN, 100, 400)]
    assert bounds(timeline("single", mapping=(0, 0), count=2, sync="point_to_point"))[0] == (MAIN, 0, 1200)


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
