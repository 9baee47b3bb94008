"""The rules that every Plan keeps, each broken once, grids that do not parse, and Plans that stand still for ever.

The check names all who wait, each kind of waiter once, and their circle.
"""

import numpy as np
import pytest

from ipusim.base.errors import PlanError
from ipusim.lowering.lower import lower
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.pipeline.check import check_plan, violations
from ipusim.pipeline.feeds import OutfeedElements
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.instructions import COLUMNS, Code
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.waits import feeds
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import parse_grid, parse_listing, with_table

PLAN = plan_of(find("grouped"), PlanShape(mapping=(0, 1), micro_batches=4))


def edited(change):
    """The Plan's grid with one text replaced, read back."""
    before, after = change
    text = format_grid(PLAN)
    assert text.count(before) == 1
    return parse_grid(text.replace(before, after))


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


SHAPE = PlanShape(mapping=(0, 1, 2), micro_batches=2)
ASKED = SideInstructions(has_replica_sum=True, gathering_stages=frozenset({1}))


def altered(sync, *changes, side=ASKED):
    """GPipe's Plan with texts of its listing replaced."""
    plan = lower(find("gpipe").order(SHAPE), sync, side)
    text = plan.listing()
    for before, after in changes:
        assert text.count(before) == 1, text
        text = text.replace(before, after)
    table = parse_listing(text)
    return Plan(plan.order, sync, table=plan.table, emitted=plan.emitted, make=lambda: table)


def test_tensors_that_wait_for_each_other():
    """IPU 1 wants a gradient before it hands on what that is the gradient of; IPU 0 waits behind the two."""
    order = Order.from_passes(
        "mine",
        SHAPE,
        {
            0: ["F0.0", "F0.1", "B0.0", "B0.1"],
            1: ["F1.0", "B1.0", "F1.1", "B1.1"],
            2: ["F2.0", "F2.1", "B2.0", "B2.1"],
        },
    )
    plan = lower(order, Sync.POINT_TO_POINT)
    text = (
        "a deadlock: IPU 1 waits at 'receive 2->1.0' for IPU 2, which waits at 'receive 1->2.1' for IPU 1; further "
        "IPUs wait for these: IPU 0 at 'receive 1->0.0'"
    )
    assert [str(each) for each in violations(plan)] == [text]
    with pytest.raises(PlanError) as caught:
        check_plan(plan)
    first, *grid = str(caught.value).splitlines()
    assert first == f"the plan breaks a rule: {text}"
    assert [row.split("  <--")[0] for row in grid if "<--" in row] == [
        "  2  B0.0 | >B1.0< | F2.0",
        "  4  .    | B1.1   | >F2.1<",
    ]
    # In lock-step the same Order has a pass before what it needs.
    assert {each.rule for each in violations(lower(order, Sync.LOCK_STEP))} == {"dependency"}


def test_a_tensor_that_nobody_sends():
    plan = altered(Sync.POINT_TO_POINT, ("; send 1->2.1", ""))
    assert [str(each) for each in violations(plan)] == ["IPU 2: 'receive 1->2.1' waits for a tensor that no IPU sends"]


@pytest.mark.parametrize("sync", list(Sync))
def test_an_ipu_that_does_not_sum_up(sync):
    listing = altered(sync).listing().splitlines()
    plan = altered(sync, (listing[1], listing[1].replace("; all-reduce", "")))
    assert [str(each) for each in violations(plan)] == [
        "a deadlock: IPU 0 waits at 'all-reduce' for IPU 1, which waits at 'end' for IPU 0; further IPUs wait for "
        "these: IPU 2 at 'all-reduce'"
    ]


@pytest.mark.parametrize("sync", list(Sync))
def test_an_ipu_that_never_comes_to_the_end(sync):
    listing = altered(sync).listing().splitlines()
    plan = altered(sync, (listing[2], listing[2].removesuffix("; end")))
    assert [str(each) for each in violations(plan)] == [
        "a deadlock: an awaited tensor never arrives: IPU 0 at 'end', IPU 1 at 'end'"
    ]


def test_an_ipu_that_misses_a_merged_copy():
    listing = altered(Sync.LOCK_STEP).listing().splitlines()
    plan = altered(Sync.LOCK_STEP, (listing[0], listing[0].replace("meet; all-reduce", "all-reduce")))
    steps = plan.emitted
    found = [str(each) for each in violations(plan)]
    assert found == [
        f"time-step 0, IPU 0: meets the other IPUs {steps - 1} times, but these wait for a meeting after each of "
        f"{steps} time-steps",
        "a deadlock: IPU 0 waits at 'all-reduce' for IPU 1, which waits at 'meet' for IPU 0; further IPUs wait for "
        "these: IPU 2 at 'meet'",
    ]


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("infeed 1; F0.1", "F0.1; infeed 1"), "IPU 0: 'infeed 1' comes too late for its pass"),
        (("infeed 1; F0.1", "infeed 1; infeed 1; F0.1"), "IPU 0: 'infeed 1' is copied a second time"),
        (("infeed 1; F0.1", "F0.1"), "IPU 0: F0.1 gets no element of the infeed"),
        (("outfeed 1; ", "outfeed 1; outfeed 1; "), "IPU 2: 'outfeed 1' is copied a second time"),
        (("outfeed 1; ", "outfeed 0; "), "IPU 2: 'outfeed 0' is copied a second time"),
    ],
)
def test_feeds_for_which_the_host_never_comes(sync, change, text):
    assert [str(each) for each in violations(altered(sync, change))] == [text]


def test_results_before_they_are_made():
    for side, word in ((ASKED, "outfeed 0"), (SideInstructions(OutfeedElements(range(2), 1, True)), "add-results 0")):
        plan = altered(Sync.POINT_TO_POINT, (f"; {word}", ""), ("receive 1->2.0", f"{word}; receive 1->2.0"), side=side)
        assert [str(each) for each in violations(plan)] == [f"IPU 2: '{word}' comes before its pass"]


def test_io_tiles_are_fed_in_their_time_steps():
    shape = PlanShape(mapping=(0, 1), micro_batches=8, overlapped_io=True)
    plan = plan_of(find("grouped"), shape)
    assert violations(plan) == []
    text = plan.listing()
    assert text.count("begin-io . 3") == 1
    table = parse_listing(text.replace("begin-io . 3", "begin-io . 2"))
    found = violations(Plan(plan.order, plan.sync, table=plan.table, emitted=plan.emitted, make=lambda: table))
    assert [str(each) for each in found] == [
        "IPU 0: 'begin-io . 2' is copied a second time",
        "IPU 0: F0.3 gets no element of the infeed",
    ]


@pytest.mark.parametrize("sync", list(Sync))
def test_what_is_kept_longer_than_its_buffers(sync):
    order = find("1f1b").order(SHAPE)
    kept = Order("mine", SHAPE, table=order.table, fifo_depths=(0, 0, 0))
    found = [str(each) for each in violations(lower(kept, sync))]
    places = {Sync.LOCK_STEP: ("time-step 1, ", "time-step 2, "), Sync.POINT_TO_POINT: ("", "")}[sync]
    assert found == [
        f"{place}IPU {stage}: with F{stage}.1, stage {stage} holds 2 micro-batches; its FIFO allows 1"
        for stage, place in enumerate(places)
    ]


def test_a_stage_that_there_is_not():
    with pytest.raises(PlanError, match=r"^table: expected stages from 0 to 2, got 0 to 3$"):
        Order.from_passes("mine", SHAPE, {0: ["F0.0", "F3.0"]})


@pytest.mark.parametrize("sync", list(Sync))
def test_a_micro_batch_that_there_is_not(sync):
    passes = {0: ["F0.0", "F0.1", "B0.0", "B0.1", "F0.2"], 1: ["F1.0", "F1.1", "B1.0", "B1.1"]}
    order = Order.from_passes("mine", SHAPE, passes | {2: ["F2.0", "F2.1", "B2.0", "B2.1"]})
    place = "time-step 6, " if sync is Sync.LOCK_STEP else ""
    found = [str(each) for each in violations(lower(order, sync))]
    assert found[0] == f"{place}IPU 0: F0.2 is no operation of this pipeline"
