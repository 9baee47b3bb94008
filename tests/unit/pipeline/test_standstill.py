"""Plans whose IPUs stand still for ever, each kind of waiter once: the check names all who wait, and their circle."""

import pytest

from ipusim.base.errors import PlanError
from ipusim.lowering.lower import lower
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.pipeline.check import check_plan, violations
from ipusim.pipeline.feeds import OutfeedElements
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import parse_listing

SHAPE = PlanShape(mapping=(0, 1, 2), micro_batches=2)
ASKED = SideInstructions(has_replica_sum=True, gathering_stages=frozenset({1}))


def edited(sync, *changes, side=ASKED):
    """GPipe's Plan with texts of its listing replaced."""
    plan = lower(find("gpipe").order(SHAPE), sync, side)
    text = plan.listing()
    for before, after in changes:
        assert text.count(before) == 1, text
        text = text.replace(before, after)
    table = parse_listing(text)
    return Plan(plan.order, sync, table=plan.table, emitted=plan.emitted, make=lambda: table)


def test_the_plan_itself_ends():
    for sync in Sync:
        assert violations(edited(sync)) == []


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
    plan = edited(Sync.POINT_TO_POINT, ("; send 1->2.1", ""))
    assert [str(each) for each in violations(plan)] == ["IPU 2: 'receive 1->2.1' waits for a tensor that no IPU sends"]


@pytest.mark.parametrize("sync", list(Sync))
def test_an_ipu_that_does_not_sum_up(sync):
    listing = edited(sync).listing().splitlines()
    plan = edited(sync, (listing[1], listing[1].replace("; all-reduce", "")))
    assert [str(each) for each in violations(plan)] == [
        "a deadlock: IPU 0 waits at 'all-reduce' for IPU 1, which waits at 'end' for IPU 0; further IPUs wait for "
        "these: IPU 2 at 'all-reduce'"
    ]


@pytest.mark.parametrize("sync", list(Sync))
def test_an_ipu_that_never_comes_to_the_end(sync):
    listing = edited(sync).listing().splitlines()
    plan = edited(sync, (listing[2], listing[2].removesuffix("; end")))
    assert [str(each) for each in violations(plan)] == [
        "a deadlock: an awaited tensor never arrives: IPU 0 at 'end', IPU 1 at 'end'"
    ]


def test_an_ipu_that_misses_a_merged_copy():
    listing = edited(Sync.LOCK_STEP).listing().splitlines()
    plan = edited(Sync.LOCK_STEP, (listing[0], listing[0].replace("meet; all-reduce", "all-reduce")))
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
    assert [str(each) for each in violations(edited(sync, change))] == [text]


def test_results_before_they_are_made():
    for side, word in ((ASKED, "outfeed 0"), (SideInstructions(OutfeedElements(range(2), 1, True)), "add-results 0")):
        plan = edited(Sync.POINT_TO_POINT, (f"; {word}", ""), ("receive 1->2.0", f"{word}; receive 1->2.0"), side=side)
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
