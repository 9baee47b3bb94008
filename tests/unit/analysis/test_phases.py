import pytest

from ipusim.analysis.executions import executions_of, find_execution
from ipusim.analysis.phases import MAIN, RAMP_DOWN, RAMP_UP, WEIGHT_UPDATE, execution_phases, phases_of
from ipusim.base.errors import TimelineError

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
