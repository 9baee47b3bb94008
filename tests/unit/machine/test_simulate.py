"""Time on the machine: closed forms on the free system, lock-step, links, host streams, deadlock."""

from dataclasses import replace

import pytest

from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.model.profile import StageProfile
from ipusim.model.work import VectorWork, Work
from ipusim.pipeline.feeds import Infeed
from ipusim.pipeline.order import CopyRule, Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from tests.plans import price_and_run


def program(shape, schedule="grouped", forward=1, backward=2, **changes):
    profiles = tuple(StageProfile(f"s{i}", forward, backward, 0) for i in range(shape.stages))
    return PipelineProgram(profiles, shape, schedule, **changes)


def run(shape, schedule, system="free", **changes):
    prog = program(shape, schedule, **changes)
    device = build_system(system, mapping=shape.mapping, pipelined=find(schedule).pipelined)
    return price_and_run(plan_of(find(schedule), shape), prog, device)


def test_sequential_syncs_after_every_stage_and_sharding_only_where_a_tensor_crosses():
    shape = PlanShape(mapping=(0, 1), micro_batches=3)
    profiles = tuple(StageProfile(f"s{i}", 10, 20, 0, output_bytes=100, gradient_bytes=100) for i in range(2))
    prog = PipelineProgram(profiles, shape)
    system = build_system("m2000", mapping=(0, 1))
    sequential, sharded = (
        price_and_run(plan_of(find(name), shape), prog, system) for name in ("sequential", "sharded")
    )
    assert len(sequential.rows(SpanKind.SYNC)) == 4 * 3
    assert len(sharded.rows(SpanKind.SYNC)) == 2 * 3
    assert len(sequential.rows(SpanKind.EXCHANGE)) == len(sharded.rows(SpanKind.EXCHANGE)) == 2 * 3
    shape = PlanShape(mapping=(0, 0), micro_batches=3)
    alone = price_and_run(plan_of(find("single"), shape), replace(prog, shape=shape), system)
    assert (len(alone.rows(SpanKind.SYNC, SpanKind.EXCHANGE)), alone.makespan_cycles) == (0, 3 * 60)


@pytest.mark.parametrize(("rule", "syncs"), [(CopyRule.MERGED, 5), (CopyRule.EACH_STAGE, 5), (CopyRule.CROSSING, 2)])
def test_the_second_half_of_a_backward_pass_hands_nothing_on(rule, syncs):
    shape = PlanShape(mapping=(0, 1), micro_batches=1)
    order = Order.from_passes("mine", shape, {0: ["F0.0", "I0.0", "W0.0"], 1: ["F1.0", "I1.0", "W1.0"]})
    order.copy_rule = rule
    profiles = tuple(StageProfile(f"s{i}", 10, 20, 0, output_bytes=100, gradient_bytes=100) for i in range(2))
    prog = PipelineProgram(profiles, shape)
    timeline = price_and_run(lower(order, Sync.LOCK_STEP), prog, build_system("m2000", mapping=(0, 1)))
    assert len(timeline.rows(SpanKind.SYNC)) == syncs
    assert len(timeline.rows(SpanKind.EXCHANGE)) == (5 if rule is CopyRule.MERGED else 2)


def test_the_free_system_keeps_a_given_weight_update_and_counts_none():
    shape, free = PlanShape(mapping=(0, 1), micro_batches=4), build_system("free", mapping=(0, 1))
    for update, cycles in ((40, 40), ((Work(vector=VectorWork(10**9), itemsize=4),), 0)):
        prog = PipelineProgram((StageProfile("a", 10, 10, 7), StageProfile("b", 10, 10, update)), shape, repeat_count=3)
        timeline = price_and_run(plan_of(find("grouped"), shape), prog, free)
        assert timeline.makespan_cycles == 3 * (5 * 20 + max(7, cycles))


def test_infeed_waits_only_when_the_host_is_behind():
    shape = PlanShape(mapping=(0, 1), micro_batches=32)
    slow, fast = (
        run(shape, "grouped", "m2000", infeed=Infeed(50_000), forward=cycles, backward=cycles)
        for cycles in (10, 30_000)
    )
    assert len(slow.rows(SpanKind.INFEED)) == len(fast.rows(SpanKind.INFEED)) == 32
    fills = fast.rows(SpanKind.HOST)
    assert len(fills) == 32
    fill = int(fast.end[fills[0]] - fast.start[fills[0]])
    assert fill == build_system("m2000", mapping=(0, 1)).host_fill_cycles(50_000)
    waits = fast.rows(SpanKind.HOST_WAIT)
    assert fast.end[waits].tolist() == [fill], "with prefetching only the first element is waited for"
    first = slow.rows(SpanKind.HOST_WAIT)
    assert slow.start[first[0]] == 0


def test_prefetch_depth_bounds_how_far_the_host_runs_ahead():
    shape = PlanShape(mapping=(0, 1), micro_batches=32)
    for depth in (1, 3, 8):
        timeline = run(
            shape, "sequential", "m2000", infeed=Infeed(1000, prefetch_depth=depth), forward=50_000, backward=50_000
        )
        fills = timeline.end[timeline.rows(SpanKind.HOST)]
        taken = timeline.end[timeline.rows(SpanKind.INFEED)]
        ahead = [int((fills <= time).sum() - (taken <= time).sum()) for time in fills.tolist()]
        assert max(ahead) == depth


def test_progress_is_told_every_time_step():
    shape = PlanShape(mapping=(0, 1), micro_batches=4)
    told = []
    price_and_run(
        plan_of(find("grouped"), shape),
        program(shape, repeat_count=2),
        build_system("free", mapping=(0, 1)),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[0] == (1, 18)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert len(told) == 16
