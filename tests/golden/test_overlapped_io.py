"""Where passes and host copies lie with overlapped I/O: the layouts of Graphcore's overlapped pipeline visitor."""

import pytest

from ipusim.base.errors import CountError
from ipusim.pipeline.check import violations
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import order_violations, parse_grid, time_steps_with_work

#: Steps of a micro-batch's life that run in each time-step: two stages in training, 8 micro-batches.
PROGRAMS = ["-", "0", "1 0", "2 1 0", *["3 2 1 0"] * 5, "3 2 1", "3 2", "3", "-", "-"]
#: The same for four stages in inference, as letters: ramp-up and ramp-down of six time-steps each.
RAMP_UP = ".... a... ba.. cba. dcba dcba"
RAMP_DOWN = "dcba .dcb ..dc ...d .... ...."


def steps(plan):
    rows = [set() for _ in range(plan.emitted)]
    for time_step, _, op in plan.ops():
        rows[time_step].add(plan.shape.step_of(op.kind, op.stage))
    return rows


def grouped(mapping, count, **more):
    return plan_of(find("grouped"), PlanShape(mapping=mapping, micro_batches=count, overlapped_io=True, **more))


def test_two_stages_in_training():
    plan = grouped((0, 1), 8)
    assert plan.emitted == len(PROGRAMS) == 14
    assert steps(plan) == [set(map(int, row.replace("-", "").split())) for row in PROGRAMS]


def test_four_stages_in_inference():
    plan = grouped((0, 1, 2, 3), 8, training=False)
    rows = [*RAMP_UP.split(), *["dcba"] * 2, *RAMP_DOWN.split()]
    assert steps(plan) == [{"abcd".index(letter) for letter in row if letter != "."} for row in rows]


@pytest.mark.parametrize(("mapping", "count"), [((0, 1), 8), ((0, 1, 2), 12), ((0, 1, 0), 18)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
def test_plans_keep_every_rule_and_are_read_back(mapping, count, training, recompute):
    plan = grouped(mapping, count, training=training, recompute=recompute and training)
    steps_of_life = len(mapping) * (2 if training else 1)
    assert not violations(plan)
    assert not order_violations(plan)
    assert time_steps_with_work(plan) == count + steps_of_life - 1
    assert plan.emitted == count + steps_of_life + 2
    assert parse_grid(format_grid(plan)) == plan


def test_counts_that_are_refused():
    text = "This number might be called `gradient_accumulation_count`"
    with pytest.raises(CountError, match="must be at least 6, but it is 4. " + text):
        grouped((0, 1), 4)
    with pytest.raises(CountError, match="must be a multiple of 4, but it is 10. " + text + ".* stricter than Graph"):
        grouped((0, 1), 10)
