"""Runs in which one IPU, cable, part of the host or Streaming Memory works at half its speed for a while.

Whatever is slower, and whenever: IPUs' spans still tile the run, it ends where the clock says, and whoever is slower
has done exactly what its work costs.
"""

import random
from fractions import Fraction
from typing import get_args

import pytest

from ipusim.app.scenario import load_job
from ipusim.hardware.disturbances import HostPart, Slower
from ipusim.lowering.lower import complete, lower
from ipusim.machine.simulate import Machine
from ipusim.machine.timeline_info import timeline_info_of
from ipusim.pipeline.plan import Sync
from ipusim.pricing.price import price_plan
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.disturbance_spec import KINDS
from ipusim.runs.request.request import Request
from ipusim.schedules import registry
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import KIND_OF_PASS, PASSES
from tests.effort import sampled, seeds
from tests.oracles.test_host_tables import TEXT as TABLES
from tests.oracles.test_replica_collectives import learned
from tests.plans import context_of
from tests.programs import once
from tests.properties.test_machine_invariants import drawn
from tests.scenarios import SCENARIOS, job_of, timed
from tests.schedules import mapping_of
from tests.timelines import check_tiling

#: One of each kind of resource, of which at least one is at work in every run.
SLOW = ({"ipu": 1}, {"link": (0, 1)}, {"host": "infeed"}, {"host": "outfeed"}, {"streaming_memory": 0})


def executed(plan, program, system, costs, *disturbances):
    """The Timeline of a run without arithmetic, whose clock has ended where its last IPU has."""
    executions, system = program.repeat_count, system.disturbed(disturbances)
    context = context_of(plan, program, system, costs, executions)
    Machine(context).run()
    timeline = context.recorder.timeline(timeline_info_of(plan, program, system, costs.links, executions))
    assert check_tiling(timeline) == context.clock.now
    return timeline


def check_slowdowns(plan, program, system, costs, *slow, whole=False):
    """Run without and with each thing at half its speed, in the middle or as long as that; return what makes it longer.

    What the system has not is left out.
    """
    length = int(executed(plan, program, system, costs).end.max())
    first, last = (1, length) if whole else (length // 5, length // 2 + 1)
    longer = []
    for worker in slow:
        half = Slower(Fraction(2), **worker, from_=first, until=last)
        if [*half.problems(system)]:
            continue
        run = executed(plan, program, system, costs, half)
        longer += [worker] if run.end.max() > length else []
        for row in run.rows(*PASSES).tolist():
            start, end, kind = int(run.start[row]), int(run.end[row]), int(run.kind[row])
            is_slow = run.ipu[row] == worker.get("ipu")
            lost = max(0, min(end, last) - max(start, first)) * Fraction(1, 2) if is_slow else 0
            cycles = costs.passes[KIND_OF_PASS.tolist().index(kind), int(run.stage[row])]
            assert cycles <= end - start - lost < cycles + 1
    return longer


@sampled(3)
@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("sync", list(Sync))
def test_every_schedule_tiles_whatever_is_slower(name, sync):
    if sync not in registry.find(name).syncs:
        pytest.skip("the schedule does not run in this mode")
    sent = {"moved": 40_000, "executions": 2, "system": "m2000", "sync": sync.value}
    job = job_of(name, mapping=mapping_of(name, 4), forward=3000, backward=6000, update=900, **sent)
    feeds = {"infeed.element_bytes": 90_000, "infeed.prefetch_depth": 2}
    feeds |= {"outfeed.element_bytes": 60_000, "outfeed.buffer_depth": 2}
    uneven = {f"pipeline.stages.{stage}.forward": 3000 + 10 * stage for stage in range(4)}
    job = assemble(job.request.replace(feeds | uneven))
    whole = name == "breadth_first"  # in the middle of which no IPU waits for copies
    longer = check_slowdowns(job.plan, job.program, job.system, job.costs, {"ipu": 0}, *SLOW, whole=whole)
    for worker in ({"ipu": 0}, {"host": "infeed"}, *(() if name == "single" else ({"ipu": 1}, {"link": (0, 1)}))):
        assert worker in longer


@sampled(2)
@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("seed", seeds(8))
def test_any_order_tiles_whatever_is_slower(seed, sync):
    """With replicas, Streaming Memory and sums over replicas, as they are drawn."""
    program, order, system = drawn(seed)
    plan = complete(lower(order, sync), program, system.replicas)
    slow = random.Random(seed).sample(SLOW, 3)
    check_slowdowns(plan, program, system, price_plan(plan, program, system), *slow)


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("hosts", [1, 2])
def test_tables_on_the_host_and_sums_over_hosts_tile(load, sync, hosts):
    job = load(TABLES, "numerics=off", f"pipeline.sync={sync.value}", f"system.host.count={hosts}")
    slow = {"host": "tables"}, {"host": "network"}
    longer = check_slowdowns(job.plan, job.program, job.system, job.costs, *slow, *SLOW)
    for worker in slow[:hosts]:
        assert worker in longer


@pytest.mark.parametrize("sync", list(Sync))
def test_passes_with_collectives_tile(sync):
    job = assemble(learned().job.request.replace({"pipeline.schedule": "grouped", "pipeline.sync": sync.value}))
    assert job.costs.collectives
    rounds = [each for calls in job.costs.collectives.values() for call in calls for each in call.cost.rounds]
    ends = {(load.direction.source, load.direction.target) for each in rounds for load in each.links}
    slow = [{"link": tuple(map(job.system.ipus.index, pair))} for pair in sorted(ends)]
    longer = check_slowdowns(job.plan, job.program, job.system, job.costs, *slow, *SLOW)
    for worker in slow:
        assert worker in longer


def test_passes_with_host_computation_tile():
    job = once("outside_compilation").programs[-1].job
    slow = {"host": "outside"}
    assert check_slowdowns(job.plan, job.program, job.system, job.costs, slow) == [slow]


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("overlapped_io", {"host": "infeed"}),
        ("variables_on_host", {"host": "variables"}),
        ("optimizer_state_offload", {"streaming_memory": 0}),
        ("data_parallel_4x4", {"link": (0, 1)}),
    ],
)
def test_scenarios_with_each_facility_tile(name, slow):
    job = load_job(SCENARIOS / f"{name}.yaml", ["numerics=off"])
    assert slow in check_slowdowns(job.plan, job.program, job.system, job.costs, slow, whole=True)


#: Items of a scenario on an m2000, and what is said of each: the key and the text.
REFUSED = [
    ({"ipu": 4, "slower": 2}, "ipu: expected an IPU from 0 to 3 of m2000, got 4"),
    (
        {"ipu": 0, "slower": "50 %"},
        "slower: expected a number, alone or with x, such as '1.5', got '50 %'; 50 % longer is 1.5",
    ),
    (
        {"ipu": 0, "slower": 0.5},
        "slower: expected times from 1 to 1000000, as a number or with a unit such as 1.5, got",
    ),
    (
        {"link": [0, 2], "slower": 2},
        "link: expected two IPUs that a cable joins, got 0 and 2: those of IPU 0 go to 1 and 3; those of IPU 2 go to "
        "1 and 3",
    ),
    ({"link": [0, 7], "delay": 10}, "link: expected two IPUs from 0 to 3 of m2000, got 7"),
    ({"link": [1, 1], "delay": 10}, "link: expected two IPUs that a cable joins, got 1 and 1: those of IPU 1 go to"),
    (
        {"ipu": 0, "slower": 2, "from": 5, "until": 4},
        "until: expected an end no earlier than its begin in cycle 5, got",
    ),
    ({"slower": 2}, "slower: expected one slower part: ipu, link, host or streaming_memory, got none of them"),
    ({"slower": 2, "ipu": 0, "host": "infeed"}, "streaming_memory, got ipu and host"),
    ({"slower": 2, "ipu": 0, "delay": 3}, "delay: expected a delay only with a link, got a delay without a link"),
    ({"streaming_memory": 1, "slower": 2}, "streaming_memory: expected a machine of the device, out of 0, got 1"),
    (
        {"host": "infeeds", "slower": 2},
        "host: expected infeed, outfeed, tables, variables, outside, network or program,",
    ),
    ({"link": [0, 1], "dead": 1}, "dead: expected true or false, got 1"),
    ({"ipu": 9, "jitter": "5 %"}, "ipu: expected an IPU from 0 to 3 of m2000, got 9"),
    ({"ipu": 0, "pace": 2}, "expected a disturbance, which has a key out of slower, delay, jitter, stall"),
    ({"ipu": 0, "jitter": "5 %", "sed": 1}, "sed: expected one of the keys jitter, ipu, seed, got 'sed'; did you mean"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelt_kind_is_named_with_the_right_one(kind):
    """By the key that tells it, and not by those that other kinds have, such as host, which is near lost."""
    for wrong in (f"{kind}{kind[-1]}", kind[:-1], kind.upper()):
        with pytest.raises(RequestError, match=f"{wrong}: expected one of the keys .*; did you mean {kind}"):
            assemble(requested({wrong: 1}))
    with pytest.raises(RequestError, match="got a mapping of 1 key; expected a disturbance"):
        assemble(requested({"host": "infeed"}))


@pytest.mark.parametrize(("item", "text"), REFUSED)
def test_what_a_system_cannot_have_is_refused_by_its_key(item, text):
    with pytest.raises(RequestError) as refused:
        assemble(requested(item))
    (problem,) = refused.value.problems
    assert problem.path[:2] == ("disturbances", 0)
    assert text in str(problem)


def requested(*items):
    """The request of four stages on an m2000 with disturbances."""
    return Request.from_dict({**timed(4), "disturbances": items})


def test_no_cable_dies_in_the_middle_of_a_run_of_two_replicas():
    """Their collectives keep their routes; a cable that is dead from the beginning is in none."""
    two = {"system": {"name": "pod16", "auto_select_ipus": 8}}
    assert assemble(requested({"link": [0, 1], "dead": True}).replace(two)).system.replicas == 2
    with pytest.raises(RequestError, match=r"0\.from: expected a cable that is dead from the beginning, .* cycle 7"):
        assemble(requested({"link": [0, 1], "dead": True, "from": 7}).replace(two))


def test_all_that_is_wrong_is_said_in_one_go():
    with pytest.raises(RequestError) as refused:
        assemble(requested(*(item for item, _ in (REFUSED[0], REFUSED[3], REFUSED[6]))))
    assert [problem.path for problem in refused.value.problems] == [
        ("disturbances", 0, "ipu"),
        ("disturbances", 1, "link"),
        ("disturbances", 2, "until"),
    ]


def test_every_track_of_the_host_can_be_disturbed():
    # A feed is slow for both copies of its stage.
    parts = {track.word for track in HostTrack if not track.word.startswith("second_")} | {"program"}
    assert set(get_args(HostPart)) == parts
