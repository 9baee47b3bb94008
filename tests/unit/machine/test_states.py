"""What stands at the end of an execution: the same as before it is the same again, and only then."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ipusim.hardware.build import build_system
from ipusim.lowering.lower import complete
from ipusim.machine.execution_end import ExecutionEnd
from ipusim.machine.recurrence import Mark, periods
from ipusim.machine.simulate import Machine
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.price import price_plan
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import context_of

EXECUTIONS = 8


def executed(program, sync, ipus=None):
    """The states at the ends of the executions, and how long each of these took."""
    system = build_system("m2000", mapping=program.shape.mapping, ipus=ipus)
    plan = complete(plan_of(find(program.schedule), program.shape, sync), program, system.replicas)
    machine = Machine(context_of(plan, program, system, price_plan(plan, program, system), EXECUTIONS))
    states, ended, release = [], [0], ExecutionEnd._release

    def end(meeting, span):
        if not meeting._replicas[0]:
            states.append(machine.state())
            ended.append(machine._clock.now)
        release(meeting, span)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ExecutionEnd, "_release", end)
        machine.run()
    assert len(states) == EXECUTIONS
    return states, np.diff(ended).tolist()


def drawn(seed):
    rng = random.Random(seed)
    stages = rng.randint(2, 4)
    shape = PlanShape(mapping=tuple(range(stages)), micro_batches=2 * stages)
    profiles = tuple(
        StageProfile(
            f"s{index}",
            rng.randint(1, 5000),
            rng.randint(1, 5000),
            5,
            output_bytes=1000,
            gradient_bytes=1000,
            accumulator_bytes=64,
        )
        for index in range(stages)
    )
    sizes = (0, 5_000, 60_000)
    return PipelineProgram(
        profiles,
        shape,
        rng.choice(("grouped", "gpipe", "1f1b", "zero_bubble_h1")),
        repeat_count=EXECUTIONS,
        infeed=Infeed(rng.choice(sizes), rng.choice((1, 3, 20))),
        outfeed=Outfeed(rng.choice(sizes), buffer_depth=rng.choice((1, 3, 20))),
    )


@pytest.mark.parametrize("sync", list(Sync))
def test_states_are_equal_where_executions_are(sync):
    same = 0
    for seed in range(12):
        states, took = executed(drawn(seed), sync, ipus=random.Random(seed).choice((4, None)))
        assert len(states) == EXECUTIONS
        for at in range(EXECUTIONS - 2):
            if states[at] == states[at + 1]:
                same += 1
                assert took[at + 1] == took[at + 2]
    assert same > 40


@pytest.mark.parametrize("sync", list(Sync))
def test_states_are_equal_from_the_second_execution_on_where_nothing_changes(sync):
    program = drawn(3)
    quiet = PipelineProgram(program.stages, program.shape, "1f1b", repeat_count=EXECUTIONS)
    states, took = executed(quiet, sync)
    assert states[1:] == [states[1]] * (EXECUTIONS - 1)
    assert len(set(took[1:])) == 1


@pytest.mark.parametrize("sync", list(Sync))
def test_states_tell_executions_of_a_step_apart_where_results_leave_behind_its_last(sync):
    """Steps of two executions, whose results are quickly with the host; but for feeds without a cost all are alike."""
    shape = PlanShape(mapping=(0, 1), micro_batches=4)
    profiles = tuple(StageProfile(f"s{index}", 10, 20, 5000) for index in (0, 1))
    for size, alike in ((60, False), (0, True)):
        program = PipelineProgram(profiles, shape, "1f1b", repeat_count=2, outfeed=Outfeed(size, "LAST"))
        states, _ = executed(program, sync)
        assert [states[at] == states[at + 1] for at in range(EXECUTIONS - 3)] == [alike] * (EXECUTIONS - 3)
        assert all(states[at] == states[at + 2] for at in range(EXECUTIONS - 3))


def test_a_host_that_falls_behind_little_by_little_makes_states_differ():
    """It is a little slower than the IPUs: its buffer fills up over several executions, and then they wait for it."""
    shape = PlanShape(mapping=(0, 1), micro_batches=4)
    size = 60_000
    drain = build_system("m2000", mapping=(0, 1)).host_drain_cycles(size)
    copying = build_system("m2000", mapping=(0, 1)).outfeed_cycles(size)
    found = set()
    for less in range(0, 4 * drain, drain // 8):
        profiles = tuple(
            StageProfile(f"s{index}", 10, max((4 * drain - copying - less) // 5, 0), 0) for index in (0, 1)
        )
        program = PipelineProgram(
            profiles, shape, "1f1b", repeat_count=EXECUTIONS, outfeed=Outfeed(size, buffer_depth=3)
        )
        states, took = executed(program, Sync.POINT_TO_POINT)
        for at in range(EXECUTIONS - 2):
            assert states[at] != states[at + 1] or took[at + 1] == took[at + 2]
        found.add(len(set(took[1:])))
    assert max(found) > 2, "the host never falls behind: the programs show nothing"


@pytest.mark.parametrize("sync", list(Sync))
def test_states_recur_within_an_execution_where_micro_batches_are_told_from_the_current_one(sync):
    """1F1B, every time that the first IPU begins a forward pass: what each IPU is at, and all that stands."""
    shape, count = PlanShape(mapping=(0, 1, 2), micro_batches=30), 30
    profiles = tuple(
        StageProfile(f"s{index}", 900, 2000, 5, output_bytes=100, gradient_bytes=100) for index in range(3)
    )
    program, system = PipelineProgram(profiles, shape, "1f1b"), build_system("m2000", mapping=shape.mapping)
    plan = complete(plan_of(find("1f1b"), shape, sync), program, system.replicas)
    machine = Machine(context_of(plan, program, system, price_plan(plan, program, system), 1))
    clock, ipus = machine._clock, machine.ipus
    processes = [clock.process(ipu.run()) for ipu in ipus]
    lists = [plan.instructions[plan.instructions[:, 0] == ipu][:, 1:4].tolist() for ipu in range(3)]
    forward = [at for at, (code, *_) in enumerate(lists[0]) if code == 0]
    assert len(forward) == count
    counted, absolute = [], []
    while any(process.is_alive for process in processes):
        clock.step()
        begun = len(counted)
        if begun < count and ipus[0].position == forward[begun] + 1:
            until = tuple(clock.cycles_until(process) for process in processes)
            rows = tuple(lists[ipu.id.shard][ipu.position - 1] for ipu in ipus)
            current = tuple((code, stage, micro_batch - begun) for code, stage, micro_batch in rows if micro_batch >= 0)
            counted.append((machine.state(begun), until, current))
            absolute.append(machine.state())
    assert len(counted) == count
    steady = range(9, 21)
    assert all(counted[at] == counted[at + 3] for at in steady), "as many micro-batches as stages come again and again"
    assert sync.meets or all(absolute[at] != absolute[at + 3] for at in steady), "by their own numbers no two are alike"
    assert counted[0] not in counted[1:], "the ramp-up is no part of that"


def test_periods_are_found_from_the_first_mark_on_and_the_last_and_shortest_first():
    marks = [Mark(0, number, (0, 0), 10 * number, (3 * number,), "steady") for number in range(5)]
    found = [(one.micro_batch, two.micro_batch) for one, two in periods(marks, lambda one, two: True)]
    assert found == [(2, 3), (0, 2), (1, 2), (0, 1)]
