"""The parts of a run's time where closed forms tell them."""

import pytest

from ipusim.pipeline.plan import Sync
from ipusim.runs.execute import execute
from ipusim.runs.waterfall import balanced
from ipusim.schedules import registry
from ipusim.timeline.time_parts import TimePart
from tests.effort import draws_everything, sampled
from tests.scenarios import job_from
from tests.schedules import goes_around, is_a_v, mapping_of

FORWARD, BACKWARD, COUNT = 100, 200, 16
#: Cycles of fill and drain with gaps in main, of p equal stages, each on an IPU, under the schedules whose closed form
#: does not depend on how IPUs wait for each other, by p; of the halves of a backward pass each takes half of it.
WAITS = {
    "grouped": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "popart": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "gpipe": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "sequential": lambda p: COUNT * (p - 1) * (FORWARD + BACKWARD),
    "sharded": lambda p: COUNT * (p - 1) * (FORWARD + BACKWARD),
}
#: The same where tensors go point to point: stages of some come round the IPUs twice, or are as many of three
#: equal halves; what those halves leave idle is the way of the first micro-batch down the IPUs alone.
FREE = {
    "1f1b": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "eager_1f1b": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "interleaved_1f1b": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "gis": lambda p: (p - 1) * (FORWARD + BACKWARD // 2),
    "breadth_first": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "zero_bubble_h1": lambda p: (p - 1) * FORWARD,
    "zero_bubble_h2": lambda p: (p - 1) * FORWARD,
    "zbv": lambda p: (p - 1) * FORWARD,
}


def job_of(schedule, lengths, sync=None, mapping=None, count=COUNT, **more):
    """Return the Job of stages of such lengths, (forward, backward) each, on the free system."""
    stages = [
        {"name": f"s{number}", "forward": forward, "backward": backward}
        for number, (forward, backward) in enumerate(lengths)
    ]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
    pipeline |= {"sync": sync.value} if sync else {}
    pipeline |= {"device_mapping": mapping} if mapping else {}
    return job_from({"system": {"name": "free"}, "pipeline": pipeline | more})


def parts_of(job):
    """Return the parts of the run's time that take any."""
    return {part: cycles for part, cycles in execute(job).summary.waterfall.cycles.items() if cycles}


HOUSE = sorted(registry.HOUSE - {"single"})


@sampled(3)
@pytest.mark.parametrize("ipus", [2, 4, 8])
@pytest.mark.parametrize("name", HOUSE)
def test_equal_stages_have_no_imbalance_and_what_ipus_wait_is_the_closed_form(name, ipus):
    """However IPUs wait for each other: by default in one way of theirs, from number to number another one."""
    schedule = registry.find(name)
    turn = (HOUSE.index(name) + ipus.bit_length()) % len(schedule.syncs)
    twice = goes_around(name) or is_a_v(name)
    mapping = [*mapping_of(name, 2 * ipus)] if twice else [*range(ipus)]
    for sync in schedule.syncs if draws_everything() else schedule.syncs[turn : turn + 1]:
        parts = parts_of(job_of(name, [(FORWARD, BACKWARD)] * len(mapping), sync, mapping))
        waits = parts.pop(TimePart.FILL_AND_DRAIN, 0) + parts.pop(TimePart.GAPS_IN_MAIN, 0)
        assert parts == {TimePart.USEFUL: len(mapping) // ipus * COUNT * (FORWARD + BACKWARD)}
        known = WAITS | (FREE if sync is Sync.POINT_TO_POINT else {})
        if name in known:
            assert waits == known[name](ipus)


@pytest.mark.parametrize(
    ("forward", "mapping", "expected"),
    [
        ([10, 10, 10, 14], [0, 1, 2, 3], [11, 11, 11, 11]),
        ([10, 10, 10, 13], [0, 1, 2, 3], [11, 11, 11, 10]),
        ([5, 20, 30, 8], [0, 1, 2, 0], [11, 21, 21, 10]),
        ([6, 6], [0, 1], [6, 6]),
    ],
)
def test_balance_gives_every_ipu_an_equal_part_in_whole_cycles(forward, mapping, expected):
    job = job_of("grouped", [(cycles, 1) for cycles in forward], mapping=mapping, count=COUNT)
    found = balanced(job, {key: cycles for key, cycles in job.costs.passes.items() if key[0] == 0})
    assert [found[0, stage] for stage in range(len(forward))] == expected


def test_what_is_left_over_of_a_kind_goes_on_where_that_of_the_kind_before_ended():
    job = job_of("grouped", [(10, 20), (11, 21), (10, 20), (11, 20)])
    found = balanced(job, {key: cycles for key, cycles in job.costs.passes.items() if key[0] < 2})
    assert [found[0, stage] for stage in range(4)] == [11, 11, 10, 10]
    assert [found[1, stage] for stage in range(4)] == [20, 20, 21, 20]


def test_what_costs_nothing_takes_no_time():
    stage = {"forward": 100, "backward": 200, "update": 50, "output_bytes": 64}
    stages = [{"name": f"s{number}", **stage} for number in range(4)]
    job = job_from({"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 8, "stages": stages}})
    assert parts_of(job) == {TimePart.USEFUL: 2_400, TimePart.FILL_AND_DRAIN: 900, TimePart.UPDATE: 50}


@pytest.mark.parametrize("count", [8, 24, 240, 100_000])
@pytest.mark.parametrize("sync", [Sync.LOCK_STEP, Sync.POINT_TO_POINT])
def test_halves_that_round_apart_are_counted_where_they_stand_of_any_count(sync, count):
    """DualPipe waits (N - 2) F, on two IPUs nothing, and its ramps alone have backward passes in halves."""
    cycles = execute(job_of("dualpipe", [(123, 246), (1000, 1000)], sync, count=count)).summary.waterfall.cycles
    # Either IPU runs both stages for half of the micro-batches. A backward pass of 623 cycles is 312 + 312 in halves
    # of the first stage, 311 + 311 of the second; an IPU has one more of the first ones.
    assert cycles[TimePart.USEFUL] == count // 2 * (1123 + 1246) + 1
    assert (cycles[TimePart.FILL_AND_DRAIN], cycles[TimePart.GAPS_IN_MAIN]) == (0, 0)
