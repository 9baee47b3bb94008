"""What IPUs are idle for in a disturbed run: the IPU, the host or the cable that is disturbed, where it is known."""

from itertools import pairwise

import numpy as np
import pytest

from ipusim.analysis.causes import idle_causes
from ipusim.analysis.idle_roots import idle_by_root
from ipusim.app.explain.explanation import explain
from ipusim.app.render.verdict import verdict_table
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.schedules import registry
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import ALL_IPUS
from tests.effort import draws_everything, sampled
from tests.schedules import mapping_of

FORWARD, BACKWARD, COUNT = 1000, 2000, 16
ROWS = [
    (name, sync) for name in registry.names() if len(set(mapping_of(name, 4))) > 1 for sync in registry.find(name).syncs
]


def run_of(disturbances, schedule, sync, *, system="free", size=0, **options):
    """Return the run of equal stages on four IPUs."""
    mapping = mapping_of(schedule, 4)
    stages = [{"name": f"s{number}", "forward": FORWARD, "backward": BACKWARD} for number in range(len(mapping))]
    for one, other in pairwise(stages):
        one["output_bytes"] = other["gradient_bytes"] = size
    pipeline = {"schedule": schedule, "sync": sync.value, "gradient_accumulation_count": COUNT, "stages": stages}
    pipeline["device_mapping"] = list(mapping)
    data = {"system": {"name": system, "clock": "1 GHz"}, "pipeline": pipeline | options}
    return execute(assemble(Request.from_dict(data | {"disturbances": disturbances})))


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
        cost = run_of([{"ipu": slow, "slower": 2}], schedule, sync, gradient_accumulation_count=8).summary.disturbances
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
    one = run_of([{"ipu": 3, "slower": 3}], "1f1b", Sync.POINT_TO_POINT, gradient_accumulation_count=4)
    assert next(cost.most_waited_for())[0] == next(one.summary.disturbances.most_waited_for())[0] == 3
    single = run_of([{"ipu": 3, "slower": 3}], "sequential", Sync.POINT_TO_POINT, gradient_accumulation_count=1)
    assert single.summary.disturbances.waits == {(ipu, 3): 2 * (FORWARD + BACKWARD) for ipu in range(3)}


@sampled(2)
@pytest.mark.parametrize(("schedule", "sync"), [("1f1b", Sync.POINT_TO_POINT), ("grouped", Sync.LOCK_STEP)])
@pytest.mark.parametrize(
    "disturbance",
    [{"slower": 20}, {"delay": 50_000}, {"dead": True}, {"dead": True, "from": 60_000}],
    ids=["slow", "late", "dead", "dying"],
)
def test_a_bad_cable_is_copies_that_all_wait_for(schedule, sync, disturbance):
    run = run_of([{"link": [0, 1], **disturbance}], schedule, sync, system="m2000", size=100_000)
    cost = run.summary.disturbances
    assert cost.cause is Idle.COPIES
    assert cost.idle[Idle.COPIES] > 0.9 * sum(cost.idle.values())
    way = "round the dead cable between IPU 0 and IPU 1 (by way of IPUs 3 and 2)"
    way = way if "dead" in disturbance else "over the cable between IPU 0 and IPU 1"
    assert f"longer for copies {way}" in words_of(run)
    assert cost.waits == {}, "every IPU is healthy"
    more = sum(map(int, idle_by_root(run.timeline).ravel())) - sum(
        map(int, idle_by_root(run_of([], schedule, sync, system="m2000", size=100_000).timeline).ravel())
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
        run_of(disturbances, schedule, sync, system="m2000", size=size)
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
    run = run_of([{"link": [0, 3], "slower": 9}], "1f1b", Sync.POINT_TO_POINT, system="m2000", size=100_000)
    assert words_of(run).endswith("; no copies go over the cable between IPU 0 and IPU 3")
    assert run.summary.disturbances.slowdown == 1


def run_over_cables(machine, ipus, order, schedule, size, *disturbances):
    """Return the run of equal stages on some IPUs of a machine, each of which sends its neighbours so many bytes."""
    stages = [{"name": f"s{number}", "forward": 100_000, "backward": 200_000} for number in range(ipus)]
    for one, other in pairwise(stages):
        one["output_bytes"] = other["gradient_bytes"] = size
    data = {
        "system": {"name": machine, "selection_order": order},
        "pipeline": {"schedule": schedule, "gradient_accumulation_count": 2 * ipus, "stages": stages},
        "memory": "report",
        "disturbances": [*disturbances],
    }
    return execute(assemble(Request.from_dict(data)))


def cuts(run):
    """Return the cables to cut at once: each of a run's system alone, and two rungs of eight IPUs."""
    cables = run.job.system.cables
    joined = [[ipu, other] for ipu, others in cables.items() for other in others if ipu < other]
    rungs = [cable for cable in joined if cable in ([0, 1], [2, 3])]
    return [[cable] for cable in joined] + ([rungs] if len(cables) > 4 else [])


def dead(*cables):
    return [{"link": cable, "dead": True} for cable in cables]


def unshared_cycles(run):
    """Return the makespan in point-to-point if each tensor had its links to itself: a longest path.

    Passes stay in the order of each IPU, with the cycles that they have in the run; a tensor takes the lead and the
    cycles that its route has by itself.
    """
    timeline, last = run.timeline.expanded(), len(run.job.program.stages) - 1
    rows = timeline.rows(SpanKind.FORWARD, SpanKind.BACKWARD)
    rows = rows[np.argsort(timeline.start[rows], kind="stable")]
    columns = (timeline.kind, timeline.stage, timeline.micro_batch, timeline.start, timeline.end)
    free, made = [0] * (last + 1), {}
    for kind, stage, micro_batch, start, end in zip(*(column[rows].tolist() for column in columns), strict=True):
        forward = kind == SpanKind.FORWARD
        source = stage - 1 if forward else stage + 1
        begin = free[stage]
        if 0 <= source <= last:
            send = run.job.costs.sends[0, 0, source, stage]
            begin = max(begin, made[kind, source, micro_batch] + send.lead_cycles + send.cycles)
        free[stage] = made[kind, stage, micro_batch] = begin + end - start
    return max(free)


SHORTER = "the run is shorter, because copies share links with other copies than before; no single copy is faster"


@sampled(4)
@pytest.mark.parametrize("order", ["SNAKE", "HOOF", "ZIGZAG"])
@pytest.mark.parametrize(("machine", "ipus"), [("bow_pod16", 8), ("m2000", 4), ("c2_server", 8)])
def test_a_dead_cable_makes_no_run_in_time_steps_faster(machine, ipus, order):
    place = (machine, ipus, order, "grouped", 1_000_000)
    plain = run_over_cables(*place)
    for cut in cuts(plain):
        assert run_over_cables(*place, *dead(*cut)).timeline.makespan_cycles >= plain.timeline.makespan_cycles


@sampled(4)
@pytest.mark.parametrize("size", [100_000, 10_000_000])
@pytest.mark.parametrize("order", ["SNAKE", "HOOF", "ZIGZAG"])
@pytest.mark.parametrize(("machine", "ipus"), [("bow_pod16", 8), ("m2000", 4), ("c2_server", 8)])
def test_a_dead_cable_makes_a_run_shorter_only_where_tensors_share_links(machine, ipus, order, size):
    """Each tensor takes as long or longer by itself, and so does the run if tensors never share a link.

    Where they do, a tensor makes those late that it follows; the verdict says it of a run that is shorter.
    """
    place = (machine, ipus, order, "1f1b", size)
    plain = run_over_cables(*place)
    alone, makespan = unshared_cycles(plain), plain.timeline.makespan_cycles
    assert makespan == alone if size == 100_000 else makespan >= alone
    for cut in cuts(plain):
        run = run_over_cables(*place, *dead(*cut))
        for way, send in run.job.costs.sends.items():
            before = plain.job.costs.sends[way]
            assert send.lead_cycles >= before.lead_cycles
            assert send.cycles >= before.cycles
        assert run.timeline.makespan_cycles >= unshared_cycles(run) >= alone
        shorter = run.timeline.makespan_cycles < makespan
        assert makespan > alone or not shorter
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
    data = {
        "system": {"name": "m2000"},
        "data": {"type": "synthetic", "shape": [500], "classes": 3, "samples": 64},
        "model": {
            "layers": [
                {"name": "hidden", "type": "dense", "units": 8, "activation": "tanh"},
                {"name": "scores", "type": "dense", "units": 3},
                {"name": "far", "type": "softmax_cross_entropy"},
            ]
        },
        "pipeline": {"splits": ["scores"], "gradient_accumulation_count": 8, "sync": sync.value},
        "numerics": "off",
    }
    plain = execute(assemble(Request.from_dict(data))).timeline.makespan_cycles
    stalled = [{"host": "infeed", "stall": 100 * plain, "at": 0}]
    run = execute(assemble(Request.from_dict(data | {"disturbances": stalled})))
    cost = run.summary.disturbances
    assert cost.slowdown > 50
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
    eight = {"gradient_accumulation_count": 8}
    timeline = run_of(disturbances, schedule, sync, system="m2000", size=20_000, **eight).timeline
    idle = idle_causes(timeline)
    ipus = range(len(timeline.info.ipus))
    ended = [int(timeline.end[np.isin(timeline.ipu, (ipu, ALL_IPUS))].max(initial=0)) for ipu in ipus]
    expected = idle.cycles.sum(axis=1) - idle.window_cycles + ended
    np.testing.assert_array_equal(idle_by_root(timeline).sum(axis=(1, 2)), expected)
