"""Runs in which one IPU, link direction, host port, host or Streaming Memory works at half its speed for a while.

Whatever is slower, and whenever: IPUs' spans still tile the run, it ends where the clock says, and whoever is slower
has done exactly what its work costs.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.base.errors import DeviceError
from ipusim.hardware.build import build_system
from ipusim.hardware.disturbances import Slower
from ipusim.hardware.resources import Resource
from ipusim.lowering.lower import complete, lower
from ipusim.machine.executor import NullExecutor, Replicas
from ipusim.machine.simulate import Machine
from ipusim.machine.timeline_info import timeline_info_of
from ipusim.model.profile import StageProfile
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.pricing.price import price_plan
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.problems import RequestError
from ipusim.schedules import registry
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import KIND_OF_PASS, PASSES, SpanKind
from tests.effort import seeds
from tests.house_schedules import mapping_of
from tests.oracles.test_host_tables import TEXT as TABLES
from tests.oracles.test_replica_collectives import LEARNED, learned, request_of
from tests.places import SCENARIOS
from tests.properties.test_machine_invariants import drawn
from tests.ran_programs import once
from tests.tiling import check_tiling

HALF = Fraction(1, 2)
#: One of each kind of resource, of which at least one is at work in every run.
SLOW = (
    Resource("IPU", 1),
    Resource("link", "0→1 rung"),
    Resource("host port", 0, HostTrack.INFEED),
    Resource("host port", 0, HostTrack.OUTFEED),
    Resource("host", 0, HostTrack.INFEED),
    Resource("Streaming Memory", 0),
)


def executed(plan, program, system, costs, *disturbances):
    """The Timeline of a run without arithmetic, whose clock has ended where its last IPU has."""
    executions, system = program.repeat_count, replace(system, disturbances=disturbances)
    together = Replicas((NullExecutor(),) * system.replicas)
    machine = Machine(plan, program, system, costs, together, executions)
    machine.run()
    timeline = machine.recorder.timeline(timeline_info_of(plan, program, system, costs.links, executions))
    assert check_tiling(timeline) == machine._clock.now
    return timeline


def has(system, resource):
    """Whether a system has a resource."""
    try:
        resource.check(system.resources)
    except DeviceError:
        return False
    return True


def check_slowdowns(plan, program, system, costs, *slow, whole=False):
    """Run without and with each slowdown, in the middle or as long as that; return those that make the run longer.

    What the system has not is left out.
    """
    length = int(executed(plan, program, system, costs).end.max())
    first, last = (1, length) if whole else (length // 5, length // 2 + 1)
    longer = set()
    for worker in filter(lambda resource: has(system, resource), slow):
        run = executed(plan, program, system, costs, Slower(worker, HALF, first, last))
        longer |= {worker} if run.end.max() > length else set()
        for row in run.rows(*PASSES).tolist():
            start, end, kind = int(run.start[row]), int(run.end[row]), int(run.kind[row])
            lost = max(0, min(end, last) - max(start, first)) * HALF if Resource("IPU", run.ipu[row]) == worker else 0
            cycles = costs.passes[KIND_OF_PASS.tolist().index(kind), int(run.stage[row])]
            assert cycles <= end - start - lost < cycles + 1
    return longer


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("sync", list(Sync))
def test_every_schedule_tiles_whatever_is_slower(name, sync):
    schedule = registry.find(name)
    if sync not in schedule.syncs:
        pytest.skip("the schedule does not run in this mode")
    alone = name == "single"
    mapping = mapping_of(name, 4)
    shape = PlanShape(mapping=mapping, micro_batches=8)
    assert 8 % schedule.multiple(shape) == 0
    profiles = tuple(
        StageProfile(
            f"s{index}",
            3_000 + 10 * index,
            6_000,
            900,
            output_bytes=40_000,
            gradient_bytes=40_000,
            accumulator_bytes=4_000,
            state_bytes=4_000,
        )
        for index in range(4)
    )
    feeds = {"infeed": Infeed(90_000, 2), "outfeed": Outfeed(60_000, buffer_depth=2)}
    program = PipelineProgram(profiles, shape, name, repeat_count=3, **feeds)
    system = build_system("m2000", mapping=shape.mapping)
    plan = complete(plan_of(schedule, shape, sync), program, system.replicas)
    costs, whole = (
        price_plan(plan, program, system),
        name == "breadth_first",
    )  # in the middle of which no IPU waits for copies
    longer = check_slowdowns(plan, program, system, costs, Resource("IPU", 0), *SLOW, whole=whole)
    assert {Resource("IPU", 0), Resource("host port", 0, HostTrack.INFEED)} <= longer
    assert alone or {Resource("IPU", 1), Resource("link", "0→1 rung")} <= longer


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
    slow = Resource("host", 0, HostTrack.TABLES), Resource("host port", 0, HostTrack.TABLES), Resource("network")
    longer = check_slowdowns(job.plan, job.program, job.system, job.costs, *slow, *SLOW)
    assert {*slow[:2], *slow[2 : 1 + hosts]} <= longer


@pytest.mark.parametrize("sync", list(Sync))
def test_passes_with_collectives_tile(sync):
    _, program = learned(LEARNED["uneven"], np.ones((2, 6)), 2)
    job = assemble(request_of(program).replace({"pipeline.schedule": "grouped", "pipeline.sync": sync.value}))
    assert job.costs.collectives
    rounds = [each for calls in job.costs.collectives.values() for call in calls for each in call.cost.rounds]
    slow = [Resource("link", label) for label in {load.direction.label for each in rounds for load in each.links}]
    assert set(slow) <= check_slowdowns(job.plan, job.program, job.system, job.costs, *slow, *SLOW)


def test_passes_with_host_computation_tile():
    job = once("outside_compilation").recorded[-1].job
    slow = Resource("host", 0, HostTrack.OUTSIDE), Resource("host port", 0, HostTrack.OUTSIDE)
    assert set(slow) <= check_slowdowns(job.plan, job.program, job.system, job.costs, *slow)


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("overlapped_io", Resource("host port", 0, HostTrack.INFEED)),
        ("variables_on_host", Resource("host", 0, HostTrack.VARIABLES)),
        ("optimizer_state_offload", Resource("Streaming Memory", 0)),
        ("data_parallel_4x4", Resource("link", "0→1 rung")),
    ],
)
def test_scenarios_with_each_facility_tile(name, slow):
    job = load_job(SCENARIOS / f"{name}.yaml", ["numerics=off"])
    assert slow in check_slowdowns(job.plan, job.program, job.system, job.costs, slow, whole=True)


@pytest.mark.parametrize("sync", list(Sync))
def test_a_disturbance_that_changes_nothing_changes_nothing(sync):
    """At full speed, or of no length: the same bytes. Behind the end of the run: the same spans.

    There links that are as busy as each other are carried one by one, as any may be slower.
    """
    program, order, system = drawn(3)
    plan = complete(lower(order, sync), program, system.replicas)
    costs = price_plan(plan, program, system)
    plain = executed(plan, program, system, costs)
    worker = Resource("IPU", 1)
    for idle in (Slower(worker, Fraction(1)), Slower(worker, HALF, 100, 100)):
        assert executed(plan, program, system, costs, idle) == plain
    late = executed(plan, program, system, costs, Slower(worker, HALF, int(plain.end.max())))
    for name in ("start", "end", "kind", "ipu", "stage", "micro_batch", "link", "bytes"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(late, name), err_msg=name)


def test_disturbances_act_together():
    """An IPU at half its speed twice over takes four times as long."""
    program, order, system = drawn(3)
    plan = complete(lower(order, Sync.POINT_TO_POINT), program, system.replicas)
    costs = price_plan(plan, program, system)
    slow = Slower(Resource("IPU", 0), HALF)
    run = executed(plan, program, system, costs, slow, slow)
    for row in run.rows(*PASSES).tolist():
        cycles = costs.passes[KIND_OF_PASS.tolist().index(run.kind[row]), int(run.stage[row])]
        assert run.end[row] - run.start[row] == cycles * (1 if run.ipu[row] else 4)


@pytest.mark.parametrize(
    ("disturbance", "text"),
    [
        (Slower(Resource("IPU", 4), HALF), "expected a resource of the kind 'IPU' out of numbers from 0 to 3, got 4"),
        (Slower(Resource("ipu", 0), HALF), "got 'ipu'; did you mean IPU?"),
        (Slower(Resource("link", "0→3 rung"), HALF), "of the kind 'link' out of 0→1 rung, .*, got '0→3 rung'"),
        (Slower(Resource("IPU", 0), Fraction(2)), "expected a speed from 0, only until some cycle, to 1, got 2"),
        (Slower(Resource("IPU", 0), Fraction(0), 5), "expected a speed .*, got 0 from cycle 5 on"),
        (Slower(Resource("IPU", 0), HALF, 5, 4), "got from cycle 5 until 4"),
    ],
)
def test_what_a_system_cannot_have_is_refused(disturbance, text):
    with pytest.raises(DeviceError, match=re.escape(text).replace(r"\.\*", ".*")):
        replace(build_system("m2000", mapping=(0, 1, 2, 3)), disturbances=(disturbance,))
    request = load_job(SCENARIOS / "overlapped_io.yaml", ["numerics=off"]).request
    with pytest.raises(RequestError, match="disturbances: expected"):
        assemble(replace(request, disturbances=(replace(disturbance, first=-1),)))


def test_a_worker_that_stands_still_goes_on_where_it_stopped():
    program, order, system = drawn(1)
    plan = complete(lower(order, Sync.POINT_TO_POINT), program, system.replicas)
    costs = price_plan(plan, program, system)
    length = int(executed(plan, program, system, costs).end.max())

    still = [Slower(Resource("IPU", ipu), Fraction(0), 1, length) for ipu in range(system.count)]
    run = executed(plan, program, system, costs, *still)
    assert length < run.end.max() <= 2 * length
    assert SpanKind.FORWARD in run.kind
