import pytest

from ipusim.analysis.executions import executions_of, find_execution
from ipusim.analysis.phases import MAIN, RAMP_DOWN, RAMP_UP, WEIGHT_UPDATE, execution_phases, phases_of
from ipusim.base.errors import TimelineError

FOUR = {"mapping": (0, 1, 2, 3), "count": 8}
FREE = {"sync": 0, "exchange": 0}


def steps(timeline):
    return [(phase.name, phase.first_time_step, phase.last_time_step) for phase in execution_phases(timeline)]


def test_grouped_main_of_four_stages_is_time_step_7_to_7(lock_step):
    expected = [(RAMP_UP, 0, 6), (MAIN, 7, 7), (RAMP_DOWN, 8, 15), (WEIGHT_UPDATE, None, None)]
    assert steps(lock_step("grouped", **FOUR)) == expected


def test_without_copies_the_empty_time_step_at_the_end_leaves_nothing(lock_step):
    assert steps(lock_step("grouped", **FOUR, **FREE))[2] == (RAMP_DOWN, 8, 14)


def test_interleaved_main_of_four_stages_is_time_step_6_to_15(lock_step):
    expected = [(RAMP_UP, 0, 5), (MAIN, 6, 15), (RAMP_DOWN, 16, 23), (WEIGHT_UPDATE, None, None)]
    assert steps(lock_step("interleaved", **FOUR)) == expected


@pytest.mark.parametrize("schedule", ["sequential", "sharded"])
def test_one_micro_batch_at_a_time_is_all_main(lock_step, schedule):
    assert steps(lock_step(schedule, **FOUR)) == [(MAIN, 0, 63), (WEIGHT_UPDATE, None, None)]


def test_recomputations_fill_no_slot(lock_step):
    assert steps(lock_step("grouped", **FOUR, recompute=True)) == steps(lock_step("grouped", **FOUR))


def test_inference_has_no_weight_update(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, training=False, **FREE)
    assert steps(timeline) == [(RAMP_UP, 0, 1), (MAIN, 2, 5), (RAMP_DOWN, 6, 7)]


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
