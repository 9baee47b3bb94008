"""The rules that every Plan keeps, each broken once, and grids that do not parse."""

import numpy as np
import pytest

from ipusim.base.errors import PlanError
from ipusim.lowering.lower import lower
from ipusim.pipeline.check import check_plan, violations
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.instructions import COLUMNS, Code
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.waits import feeds
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import parse_grid, with_table

PLAN = plan_of(find("grouped"), PlanShape(mapping=(0, 1), micro_batches=4))


def edited(change):
    """The Plan's grid with one text replaced, read back."""
    before, after = change
    text = format_grid(PLAN)
    assert text.count(before) == 1
    return parse_grid(text.replace(before, after))


BROKEN = {
    "missing": ("F0.3 ", "", "F0.3 never runs; each runs exactly once"),
    "dependency": (
        "  0  F0.0      | .",
        "  0  F0.0      | F1.0",
        "time-step 0, IPU 1: F1.0 needs F0.0, which runs too late, in time-step 0",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule(name):
    before, after, text = BROKEN[name]
    plan = edited((before, after))
    assert text in [str(violation) for violation in violations(plan)]
    with pytest.raises(PlanError):
        check_plan(plan)


@pytest.mark.parametrize("sync", [Sync.POINT_TO_POINT, Sync.LOCK_STEP])
@pytest.mark.parametrize(
    ("swapped", "text"),
    [
        (("F0.0-0", "F0.0-1"), "F0.0-1 needs F0.0-0, which its IPU runs later"),
        (("B1.1-1", "B1.1-0"), "B1.1-0 needs B1.1-1, which its IPU runs later"),
    ],
)
def test_segments_of_a_micro_batch_run_in_order_and_back(swapped, text, sync):
    order = find("seq_1f1b").order(PlanShape(mapping=(0, 1), micro_batches=4, segments=2))
    assert violations(lower(order, sync)) == []
    names = [Op(Pass(kind), *of).text(2) for kind, *of in order.passes[:, 1:].tolist()]
    table, rows = order.passes.copy(), [names.index(name) for name in swapped]
    table[rows] = table[rows[::-1]]
    plan = lower(Order("mine", order.shape, table=table), sync)
    assert any(text in str(violation) for violation in violations(plan))


@pytest.mark.parametrize("micro_batch", [-4, 4])
def test_an_element_of_the_infeed_for_no_micro_batch_of_the_plan_breaks_a_rule(micro_batch):
    table = PLAN.instructions.copy()
    row = np.flatnonzero(
        (table[:, COLUMNS.index("code")] == Code.INFEED) & (table[:, COLUMNS.index("micro_batch")] == 0)
    )
    table[row, COLUMNS.index("micro_batch")] = micro_batch
    plan = Plan(PLAN.order, PLAN.sync, table=PLAN.table.copy(), emitted=PLAN.emitted, make=lambda: table)
    assert [str(violation) for violation in feeds(plan)] == [
        f"IPU 0: 'infeed {micro_batch}' comes too late for its pass",
        "IPU 0: F0.0 gets no element of the infeed",
    ]


def test_message_shows_the_bad_row():
    with pytest.raises(PlanError) as caught:
        check_plan(edited(("B1.3", "B1.2")))
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "the plan breaks rules in 3 places: time-step 5, IPU 1: B1.2 runs a second time; each runs exactly once"
    )
    assert [line for line in lines if "<--" in line] == [
        "  5  >B0.2<    | >B1.2<  <-- ERROR HERE: B1.2 runs a second time; each runs exactly once"
    ]


def test_a_plan_that_keeps_the_rules_is_checked_in_columns(monkeypatch):
    """No object is made for any of 131,072 operations: an object each took twice as long as the simulation."""

    def none(*_):
        raise AssertionError("an operation became an object")

    monkeypatch.setattr("ipusim.pipeline.check.Op", none)
    assert violations(plan_of(find("grouped"), PlanShape(mapping=tuple(range(64)), micro_batches=1024))) == []


def test_plans_compare_and_print():
    assert plan_of(find("grouped"), PlanShape(mapping=(0, 1), micro_batches=4)) == PLAN
    assert plan_of(find("interleaved"), PlanShape(mapping=(0, 1), micro_batches=4)) != PLAN
    assert PLAN != "a plan"
    assert repr(PLAN) == "<Plan grouped in lock-step: 16 passes, 8 time-steps>"
    with pytest.raises(ValueError, match="read-only"):
        PLAN.stage[0] = 1


def test_a_plan_of_ones_own_without_fifo_depths():
    order = Order("mine", PLAN.shape, offsets=(0,), emitted=8, fifo_depths=(), table=PLAN.table)
    plan = lower(order, Sync.LOCK_STEP)
    with pytest.raises(PlanError, match="the plan breaks a rule: expected a FIFO depth for each of 2 stages, got 0"):
        check_plan(plan)


def test_an_operation_on_an_ipu_without_a_stage_is_shown():
    table = PLAN.table.copy()
    table[0, 1] = 5
    with pytest.raises(PlanError, match=r">F0\.0<  <-- ERROR HERE: F0\.0 runs on IPU 5, but its stage lives on IPU 0"):
        check_plan(with_table(PLAN, table))


@pytest.mark.parametrize("sync", list(Sync))
def test_the_mark_is_shown_however_many_ipus_there_are(sync):
    """Those around it are shown, by their numbers: a row of all is too long to read."""
    order = find("gpipe").order(PlanShape(mapping=tuple(range(64)), micro_batches=4))
    table = order.passes.copy()
    rows = np.flatnonzero(table[:, 0] == 40)
    table[rows] = table[rows[::-1]]  # backward first
    with pytest.raises(PlanError) as caught:
        check_plan(lower(Order("mine", order.shape, table=table), sync))
    lines = str(caught.value).splitlines()
    assert "; IPUs 36 to 43" in lines[3]
    assert any(">B40.3<" in line and "ERROR HERE: B40.3" in line for line in lines)
    assert all(line.split("  <--")[0].count("|") == 7 for line in lines[4:])
    assert sum(map(len, lines)) < 4000
