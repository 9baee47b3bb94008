"""What IPUs are idle for in a disturbed run: the IPU, the host or the cable that is disturbed, where it is known."""

import numpy as np
import pytest

from ipusim.analysis.causes import idle_causes
from ipusim.analysis.idle_roots import idle_by_root
from ipusim.app.explain.explanation import explain
from ipusim.app.render.verdict import verdict_table
from ipusim.pipeline.plan import Sync
from ipusim.runs.execute import execute
from ipusim.schedules import registry
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import ALL_IPUS
from tests.effort import draws_everything, sampled
from tests.oracles.test_disturbed import job_of
from tests.properties.test_disturbed_runs import LEARNING
from tests.scenarios import job_from
from tests.schedules import mapping_of

FORWARD, BACKWARD, COUNT = 1000, 2000, 16
ROWS = [
    (name, sync) for name in registry.names() if len(set(mapping_of(name, 4))) > 1 for sync in registry.find(name).syncs
]


def run_of(disturbances, schedule, sync, *, system="free", moved=0, count=COUNT, **options):
    """Return the run of equal stages on four IPUs."""
    options |= {"times": (FORWARD, BACKWARD), "moved": moved, "system": {"name": system, "clock": "1 GHz"}}
    return execute(job_of(schedule, 4, count, disturbances, sync, **options))


def words_of(run):
    return dict(verdict_table(run.summary).rows)["disturbances"]


@sampled(3)
@pytest.mark.parametrize(("schedule", "sync"), ROWS)
def test_a_slow_ipu_is_the_one_that_others_wait_for(schedule, sync):
    """Wherever it is, also where others are between it and those that wait; and what they wait for are its passes.

    By default it is every second IPU, of the next schedule the others.
    """
    ipus = sorted(set(mapping_of(schedule, 4)))
    for slow in ipus if draws_everything() else ipus[ROWS.index((schedule, sync)) % 2 :: 2]:
        cost = run_of([{"ipu": slow, "slower": 2}], schedule, sync, count=8).summary.disturbances
        assert cost.cause is Idle.PASSES
        assert next(cost.most_waited_for())[0] == slow


@pytest.mark.parametrize("slow", range(4))
def test_in_lock_step_all_wait_for_the_excess_of_a_slow_ipu_alone(slow):
    """Others idle for as much longer as the run takes, and it for so much less as its passes take longer."""
    run = run_of([{"ipu": slow, "slower": 2}], "grouped", Sync.LOCK_STEP)
    cost = run.summary.disturbances
    assert {source for _, source in cost.waits} == {slow}
    assert cost.idle == {Idle.PASSES: 4 * (cost.cycles - cost.plain_cycles) - COUNT * (FORWARD + BACKWARD)}
    assert f"longer for IPU {slow}" in words_of(run)


def test_a_chain_of_waits_is_for_the_one_at_its_end():
    """Of one micro-batch, all that come before the slow last stage wait for it twice its length more."""
    cost = run_of([{"ipu": 3, "slower": 3}], "1f1b", Sync.POINT_TO_POINT).summary.disturbances
    one = run_of([{"ipu": 3, "slower": 3}], "1f1b", Sync.POINT_TO_POINT, count=4)
    assert next(cost.most_waited_for())[0] == next(one.summary.disturbances.most_waited_for())[0] == 3
    single = run_of([{"ipu": 3, "slower": 3}], "sequential", Sync.POINT_TO_POINT, count=1)
    assert single.summary.disturbances.waits == {(ipu, 3): 2 * (FORWARD + BACKWARD) for ipu in range(3)}


@sampled(2)
@pytest.mark.parametrize(("schedule", "sync"), [("1f1b", Sync.POINT_TO_POINT), ("grouped", Sync.LOCK_STEP)])
@pytest.mark.parametrize(
    "disturbance",
    [{"slower": 20}, {"delay": 50_000}, {"dead": True}, {"dead": True, "from": 60_000}],
    ids=["slow", "late", "dead", "dying"],
)
def test_a_bad_cable_is_copies_that_all_wait_for(schedule, sync, disturbance):
    run = run_of([{"link": [0, 1], **disturbance}], schedule, sync, system="m2000", moved=100_000)
    cost = run.summary.disturbances
    assert cost.cause is Idle.COPIES
    assert cost.idle[Idle.COPIES] > 0.9 * sum(cost.idle.values())
    way = "round the dead cable between IPU 0 and IPU 1 (by way of IPUs 3 and 2)"
    way = way if "dead" in disturbance else "over the cable between IPU 0 and IPU 1"
    assert f"longer for copies {way}" in words_of(run)
    assert cost.waits == {}, "every IPU is healthy"
    more = sum(map(int, idle_by_root(run.timeline).ravel())) - sum(
        map(int, idle_by_root(run_of([], schedule, sync, system="m2000", moved=100_000).timeline).ravel())
    )
    assert cost.cable_cycles == more > 0


@sampled(2)
@pytest.mark.parametrize(("schedule", "sync"), [("1f1b", Sync.POINT_TO_POINT), ("grouped", Sync.LOCK_STEP)])
@pytest.mark.parametrize("link", [(0, 1), (2, 3)])
@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_only_what_is_disturbed_is_named(schedule, sync, link, size):
    """Beside a bad cable an IPU is named where it is slow itself, and in the line of the slowest stage."""
    other = next(ipu for ipu in range(4) if ipu not in link)
    cable = {"link": [*link], "slower": 4}
    alone, both = (
        run_of(disturbances, schedule, sync, system="m2000", moved=size)
        for disturbances in ([cable], [cable, {"ipu": other, "slower": 1.5}])
    )
    assert "longer for IPU" not in words_of(alone)
    named = {source for _, source in both.summary.disturbances.waits}
    assert named == {other} if size == 1000 else named <= {other}, "copies that take long hide the IPU"
    for run in (alone, both):
        assert f"over the cable between IPU {link[0]} and IPU {link[1]}" in words_of(run)
    if size == 1000:
        told = explain(both.timeline, both.job).where_words()
        assert f"Disturbances: {words_of(both)}." in told
    rows = [dict(verdict_table(run.summary).rows)["slowest stage"] for run in (alone, both)]
    assert rows[0] == "none: all stages take equal time"
    assert rows[1] == f"none: all stages take equal time by themselves; disturbances make IPU {other} slower"


def test_a_cable_that_nothing_goes_over_is_named_as_such():
    run = run_of([{"link": [0, 3], "slower": 9}], "1f1b", Sync.POINT_TO_POINT, system="m2000", moved=100_000)
    assert words_of(run).endswith("; no copies go over the cable between IPU 0 and IPU 3")
    assert run.summary.disturbances.slowdown == 1


def run_over_cables(machine, ipus, order, schedule, size, *disturbances):
    """Return the run of equal stages on some IPUs of a machine, each of which sends its neighbours so many bytes."""
    options = {"times": (100_000, 200_000), "moved": size, "system": {"name": machine, "selection_order": order}}
    return execute(job_of(schedule, ipus, 2 * ipus, [*disturbances], **options))


def cuts(run):
    """Return the cables to cut at once: each of a run's system alone, and two rungs of eight IPUs."""
    cables = run.job.system.cables
    joined = [[ipu, other] for ipu, others in cables.items() for other in others if ipu < other]
    rungs = [cable for cable in joined if cable in ([0, 1], [2, 3])]
    return [[cable] for cable in joined] + ([rungs] if len(cables) > 4 else [])


def dead(*cables):
    return [{"link": cable, "dead": True} for cable in cables]


SHORTER = "the run is shorter, because copies share links with other copies than before; no single copy is faster"


@sampled(4)
@pytest.mark.parametrize(("schedule", "size"), [("grouped", 1_000_000), ("1f1b", 100_000), ("1f1b", 10_000_000)])
@pytest.mark.parametrize("order", ["SNAKE", "HOOF", "ZIGZAG"])
@pytest.mark.parametrize(("machine", "ipus"), [("bow_pod16", 8), ("m2000", 4), ("c2_server", 8)])
def test_a_dead_cable_makes_a_run_shorter_only_where_tensors_share_links(machine, ipus, order, schedule, size):
    """Each tensor takes as long or longer by itself; none of the small ones ever shares a link.

    Where they do, a tensor makes those late that it follows; the verdict says it of a run that is shorter.
    """
    place = (machine, ipus, order, schedule, size)
    plain = run_over_cables(*place)
    for cut in cuts(plain):
        run = run_over_cables(*place, *dead(*cut))
        for way, send in run.job.costs.sends.items():
            before = plain.job.costs.sends[way]
            assert send.lead_cycles >= before.lead_cycles
            assert send.cycles >= before.cycles
        shorter = run.timeline.makespan_cycles < plain.timeline.makespan_cycles
        assert not shorter or (schedule == "1f1b" and size > 100_000)
        if shorter or len(cut) > 1:
            assert (SHORTER in words_of(run)) is shorter


@pytest.mark.parametrize(
    ("cable", "milliseconds"),
    [({"link": [0, 1], "dead": True}, "21.26"), ({"link": [4, 5], "slower": 1.5}, "21.03")],
    ids=["dead", "slow"],
)
def test_a_run_that_a_bad_cable_makes_shorter_says_why(cable, milliseconds):
    """As on the page of scenarios: two tensors of a stage share each link, and a bad cable keeps them apart."""
    place = ("bow_pod16", 8, "HOOF", "1f1b", 10_000_000)
    words = words_of(run_over_cables(*place, cable))
    assert f"the run takes {milliseconds} ms, without them 23.59 ms" in words
    assert SHORTER in words
    assert "have room" not in words
    assert SHORTER not in words_of(run_over_cables(*place, cable, {"jitter": "1 %"})), "shorter passes may be why"


@pytest.mark.parametrize("sync", list(Sync))
def test_a_host_that_stalls_is_waited_for(sync):
    data = LEARNING | {"numerics": "off", "pipeline": {**LEARNING["pipeline"], "sync": sync.value}}
    plain = execute(job_from(data)).timeline.makespan_cycles
    stalled = [{"host": "infeed", "stall": 100 * plain, "at": 0}]
    run = execute(job_from(data | {"disturbances": stalled}))
    cost = run.summary.disturbances
    assert 50 < cost.slowdown <= 101
    assert cost.cause is Idle.HOST
    assert cost.idle[Idle.HOST] > 0.9 * sum(cost.idle.values())
    assert "longer for the host" in words_of(run)


def test_a_loss_is_what_all_ipus_are_idle_for():
    lost = {"ipu": 1, "lost": 100_000, "detect": 5000, "restart": 7000, "checkpoint_every": 2}
    run = run_of([lost], "grouped", Sync.LOCK_STEP, repeat_count=4)
    cost = run.summary.disturbances
    assert cost.idle == {Idle.DISTURBANCES: 4 * (cost.cycles - cost.plain_cycles)}
    assert "longer for checkpoints and the loss of an IPU" in words_of(run)
    # A loss behind the run's end is none: its checkpoints alone are written.
    never = run_of([{**lost, "lost": 10**9, "checkpoint": 1000}], "grouped", Sync.LOCK_STEP, repeat_count=4)
    assert "longer for checkpoints;" in f"{words_of(never)};"
    assert never.summary.disturbances.idle == {
        Idle.DISTURBANCES: 4 * 1000
    }  # behind two of four updates, and not the last


@pytest.mark.parametrize("until", [20_000, 60_000, 100_000])
def test_no_cause_is_idled_for_longer_than_all_together(until):
    """Waits for one cause may come in place of waits for another."""
    run = run_of([{"ipu": 0, "slower": 2, "from": 10_000, "until": until}], "grouped", Sync.LOCK_STEP)
    plain = run_of([], "grouped", Sync.LOCK_STEP)
    more = (idle_causes(run.timeline).cycles - idle_causes(plain.timeline).cycles).sum()
    assert all(cycles <= more for cycles in run.summary.disturbances.idle.values())


@sampled(3)
@pytest.mark.parametrize(("schedule", "sync"), ROWS)
def test_every_idle_cycle_is_for_someone_until_an_ipu_is_done(schedule, sync):
    disturbances = [{"ipu": 1, "slower": 1.5}, {"jitter": "10 %"}]
    timeline = run_of(disturbances, schedule, sync, system="m2000", moved=20_000, count=8).timeline
    idle = idle_causes(timeline)
    ipus = range(len(timeline.info.ipus))
    ended = [int(timeline.end[np.isin(timeline.ipu, (ipu, ALL_IPUS))].max(initial=0)) for ipu in ipus]
    expected = idle.cycles.sum(axis=1) - idle.window_cycles + ended
    np.testing.assert_array_equal(idle_by_root(timeline).sum(axis=(1, 2)), expected)
