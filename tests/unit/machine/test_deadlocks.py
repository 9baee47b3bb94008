"""Everything that an IPU may wait for in either sync mode, made to wait for ever: who waits, and for whom."""

from dataclasses import replace

import pytest

from ipusim.base.errors import DeadlockError
from ipusim.hardware.build import build_system
from ipusim.lowering.lower import complete, lower
from ipusim.machine import delivery
from ipusim.machine.host import HostStream
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.links import Links
from ipusim.machine.simulate import simulate
from ipusim.machine.streaming_memory import RemoteMemory
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.price import price_plan
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from tests.plans import parse_listing, price_and_run

HEAD = "no event is left, but the pipeline is not done:"
FREE = Sync.POINT_TO_POINT


def program(stages, **changes):
    shape = PlanShape(mapping=tuple(range(stages)), micro_batches=2)
    profiles = tuple(
        StageProfile(f"s{index}", 10, 20, 0, output_bytes=64, gradient_bytes=64) for index in range(stages)
    )
    return PipelineProgram(profiles, shape, "gpipe", **changes)


def stopped(process, *arguments):
    """Stand in for a process that does nothing."""
    yield process._clock.event_at(1)


def deadlock(action):
    with pytest.raises(DeadlockError) as caught:
        action()
    first, *lines = str(caught.value).splitlines()
    assert first == HEAD
    return [line.removeprefix("  ") for line in lines]


def run(prog, order=None, sync=FREE):
    plan = plan_of(find(prog.schedule), prog.shape, sync) if order is None else lower(order, sync)
    return price_and_run(plan, prog, build_system("m2000", mapping=prog.shape.mapping))


def test_tensors_that_wait_for_each_other_and_who_waits_behind_them():
    prog = program(3)
    passes = {0: ["F0.0", "F0.1", "B0.0", "B0.1"], 1: ["F1.0", "B1.0", "F1.1", "B1.1"]}
    order = Order.from_passes("mine", prog.shape, passes | {2: ["F2.0", "F2.1", "B2.0", "B2.1"]})
    assert deadlock(lambda: run(prog, order)) == [
        "IPU 0 waits for the output of B1.0 on IPU 1",
        "IPU 1 waits for the output of B2.0 on IPU 2",
        "IPU 2 waits for the output of F1.1 on IPU 1",
        "the circle: IPU 1 waits for IPU 2 waits for IPU 1",
    ]


def test_a_link_that_never_delivers(monkeypatch):
    monkeypatch.setattr(delivery, "lanes_of", lambda _: set())  # tensors on lanes need no delivery
    monkeypatch.setattr(Links, "carry", lambda *_: None)
    assert deadlock(lambda: run(program(2, overlap_copies=False))) == [
        "IPU 0 waits for the delivery of the output of F0.0 to IPU 1",
        "IPU 1 waits for the output of F0.0 on IPU 0",
    ]


def test_a_link_that_never_delivers_in_lock_step(monkeypatch):
    monkeypatch.setattr(Interconnect, "_deliver", lambda *_: None)
    lines = deadlock(lambda: run(replace(program(2), schedule="sequential"), sync=Sync.LOCK_STEP))
    copy = "waits for the inter-IPU copy, which 1 of its links have not delivered"
    assert lines == [f"IPU 0 {copy}", f"IPU 1 {copy}"]


def without(plan, ipu, word):
    """The Plan, one of its IPUs without an instruction."""
    lines = plan.listing().splitlines()
    assert lines[ipu].count(f"; {word}") == 1
    lines[ipu] = lines[ipu].replace(f"; {word}", "")
    table = parse_listing("\n".join(lines))
    return Plan(plan.order, plan.sync, table=plan.table, emitted=plan.emitted, make=lambda: table)


@pytest.mark.parametrize("sync", list(Sync))
def test_an_ipu_that_comes_to_the_end_without_the_sum_over_replicas(sync):
    """Two replicas sum up their gradients."""
    shape = PlanShape(mapping=(0, 1), micro_batches=2)
    profiles = tuple(StageProfile(f"s{index}", 10, 20, 5, accumulator_bytes=64) for index in range(2))
    prog, system = PipelineProgram(profiles, shape, "gpipe"), build_system("m2000", mapping=shape.mapping, ipus=4)
    plan = complete(plan_of(find("gpipe"), shape, sync), prog, system.replicas)
    broken = without(plan, 1, "all-reduce")
    costs = price_plan(plan, prog, system)
    late = "the sum over replicas, which waits for IPU 1, 3"
    lines = deadlock(lambda: simulate(broken, prog, system, costs=costs))
    ends = {Sync.LOCK_STEP: ("0, 2", "0, 2"), FREE: ("0", "2")}[sync]
    assert lines[:4] == [
        f"IPU 0 waits for {late}",
        f"IPU 1 waits for the end of the execution, which waits for IPU {ends[0]}",
        f"IPU 2 waits for {late}",
        f"IPU 3 waits for the end of the execution, which waits for IPU {ends[1]}",
    ]
    assert lines[4:] == ["the circle: IPU 0 waits for IPU 1 waits for IPU 0"]


def test_an_ipu_that_never_comes_to_the_end():
    prog = program(2)
    system = build_system("m2000", mapping=prog.shape.mapping)
    plan = complete(plan_of(find("gpipe"), prog.shape, FREE), prog, 1)
    broken = without(plan, 1, "end")
    assert deadlock(lambda: simulate(broken, prog, system, costs=price_plan(plan, prog, system))) == [
        "IPU 0 waits for the end of the execution, which waits for IPU 1"
    ]


def behind(sync, ipu, first):
    """Return the line of an IPU that waits for the first one of its replica."""
    reason = "the output of F0.0 on" if sync is FREE else "the inter-IPU copy, which waits for"
    return f"IPU {ipu} waits for {reason} IPU {first}"


@pytest.mark.parametrize(
    ("feeds", "sync", "lines"),
    [
        *(
            ({"infeed": Infeed(100)}, sync, ["IPU 0 waits for the next element of the infeed", behind(sync, 1, 0)])
            for sync in Sync
        ),
        (
            {"outfeed": Outfeed(100, buffer_depth=1)},
            FREE,
            ["IPU 0 waits for the output of B1.0 on IPU 1", "IPU 1 waits for room in the outfeed's buffer"],
        ),
    ],
)
def test_a_host_that_stops(monkeypatch, feeds, sync, lines):
    monkeypatch.setattr(HostStream, "_host_process", stopped)
    assert deadlock(lambda: run(program(2, **feeds), sync=sync)) == lines


SHARDED = """
system: {name: pod16, auto_select_ipus: 4, enable_remote_buffers: true, minimum_remote_tensor_size: 1 B,
         sync_replicas_independently: true}
pipeline:
  schedule: grouped
  gradient_accumulation_count: 4
  replicated_weight_sharding: true
  stages:
    - {name: a, forward: 10, backward: 20, update: 5, output_bytes: 8, parameter_bytes: 64, state_bytes: 64}
    - {name: b, forward: 10, backward: 20, update: 5, parameter_bytes: 64, state_bytes: 64}
infeed: {element_bytes: 64}
"""


#: Options of each sync mode.
IN = {Sync.LOCK_STEP: (), FREE: ("pipeline.schedule=1f1b", "system.sync_replicas_independently=false")}


@pytest.mark.parametrize("sync", Sync)
def test_an_all_gather_that_a_replica_never_comes_to(load, monkeypatch, sync):
    """The host of replica 1 stops: its first IPU waits for it, and that of replica 0 for the all-gather with it."""
    init, own = HostStream.__init__, HostStream._host_process

    def remember(stream, *positional, replica, **named):
        stream._replica = replica
        init(stream, *positional, replica=replica, **named)

    monkeypatch.setattr(HostStream, "__init__", remember)
    monkeypatch.setattr(
        HostStream, "_host_process", lambda stream: own(stream) if stream._replica == 0 else stopped(stream)
    )
    experiment = load(SHARDED, *IN[sync])
    assert experiment.plan.sync is sync
    assert deadlock(lambda: execute(experiment)) == [
        "IPU 0 waits for the all-gather, which waits for IPU 2",
        behind(sync, 1, 0),
        "IPU 2 waits for the next element of the infeed",
        behind(sync, 3, 2),
    ]


@pytest.mark.parametrize("sync", Sync)
def test_streaming_memory_that_stops(load, monkeypatch, sync):
    alone = "system.auto_select_ipus=2", "pipeline.replicated_weight_sharding=false"
    experiment = load(SHARDED, *alone, *IN[sync])
    monkeypatch.setattr(RemoteMemory, "transfer", lambda memory, size: memory._clock.event())
    monkeypatch.setattr(RemoteMemory, "_serve", stopped)
    assert deadlock(lambda: execute(experiment)) == [
        "IPU 0 waits for the load of 64 bytes in Streaming Memory",
        "IPU 1 waits for the load of 64 bytes in Streaming Memory",
    ]
