"""Instructions as text: every code is written, and read back; what is no instruction is refused."""

import random
from dataclasses import replace

import numpy as np

from ipusim.lowering.lower import lower
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.lowering.streams import Stream
from ipusim.pipeline.feeds import OutfeedElements
from ipusim.pipeline.instructions import NONE, Code, text_of
from ipusim.pipeline.moves import Way
from ipusim.pipeline.offload import MovedActivations
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find, names
from tests.orders import random_order
from tests.plans import parse, parse_listing
from tests.schedules import shape_of

TEXTS = {
    (Code.FORWARD, 1, 3, NONE): "F1.3",
    (Code.BACKWARD, 0, 0, NONE): "B0.0",
    (Code.RECOMPUTE, 2, 5, NONE): "R2.5",
    (Code.INPUT_GRADIENT, 10, 11, NONE): "I10.11",
    (Code.WEIGHT_GRADIENT, 1, 3, NONE): "W1.3",
    (Code.MEET, NONE, NONE, 1): "meet",
    (Code.MEET, NONE, NONE, 12): "meet x12",
    (Code.SEND, 0, 3, 1): "send 0->1.3",
    (Code.BLOCKING_SEND, 1, 3, 0): "blocking-send 1->0.3",
    (Code.RECEIVE, 1, 3, 0): "receive 0->1.3",
    (Code.INFEED, NONE, 4, NONE): "infeed 4",
    (Code.OUTFEED, NONE, 4, 1): "outfeed 4",
    (Code.OUTFEED, NONE, 4, 6): "outfeed 4 /6",
    (Code.ADD_RESULTS, NONE, 4, NONE): "add-results 4",
    (Code.OUTFEED_TOTAL, NONE, NONE, NONE): "outfeed-total",
    (Code.BEGIN_IO, 1, 2, 0): "begin-io 0 2",
    (Code.BEGIN_IO, 3, NONE, 0): "begin-io 0 . /3",
    (Code.BEGIN_IO, 1, 2, NONE): "begin-io . 2",
    (Code.END_IO, NONE, NONE, NONE): "end-io",
    (Code.LOAD, 1, NONE, Pass.BACKWARD): "load B1",
    (Code.LOAD, NONE, NONE, NONE): "load update",
    (Code.STORE, 1, NONE, Pass.WEIGHT_GRADIENT): "store W1",
    (Code.STORE, NONE, NONE, NONE): "store update",
    (Code.GATHER, 2, NONE, NONE): "gather 2",
    (Code.GATHER, NONE, NONE, NONE): "gather update",
    (Code.RELEASE, 2, NONE, NONE): "release 2",
    (Code.RELEASE, NONE, NONE, NONE): "release update",
    (Code.SUM_COPIES, NONE, NONE, NONE): "sum-copies",
    (Code.ALL_REDUCE, NONE, NONE, NONE): "all-reduce",
    (Code.COLLECTIVE, 1, 3, Pass.BACKWARD): "collective B1.3",
    (Code.UPDATE, NONE, NONE, NONE): "update",
    (Code.END, NONE, NONE, NONE): "end",
    (Code.LOOK_UP, 1, 3, NONE): "look-up 1.3",
    (Code.UPDATE_ROWS, 0, 12, NONE): "update-rows 0.12",
    (Code.HOST_SUM, NONE, NONE, NONE): "host-sum",
    (Code.HOST_UPDATE, NONE, NONE, NONE): "host-update",
    (Code.MOVE, 1, 3, Way.OUT): "move 1.3 out",
    (Code.MOVED, 1, 3, Way.BACK): "moved 1.3 back",
    (Code.OUTSIDE, 0, 7, Pass.RECOMPUTE): "outside R0.7",
}


def test_every_code_has_its_text():
    assert {code for code, *_ in TEXTS} == set(Code)
    for row, text in TEXTS.items():
        assert text_of(*row) == text
        assert parse(f"  {text} ") == row


def plans():
    """Plans of every schedule in both modes, of a random Order, and with all that a program may ask for."""
    side = SideInstructions(
        outfeed=OutfeedElements(range(12), 1, accumulated=True),
        streams={(kind, stage): Stream(8, 8) for kind in Pass for stage in range(2)},
        updates={0: Stream(8, 8)},
        gathering_stages=frozenset({0}),
        gathering_ipus=frozenset({0, 1}),
        collective_passes=frozenset({(Pass.FORWARD, 1)}),
        host_calls=frozenset({(Pass.BACKWARD, 0)}),
        has_copy_sum=True,
        has_replica_sum=True,
        has_host_sum=True,
        look_up_stages=frozenset({0}),
        row_update_stages=frozenset({0}),
        overlap_copies=False,
        moved=MovedActivations(keep=0),
    )
    for sync in Sync:
        for name in names():
            yield plan_of(find(name), shape_of(name, find(name).mapping(2), 12), sync)
        drawn = random_order(random.Random(1), PlanShape(mapping=(0, 1, 0), micro_batches=12, recompute=True))
        yield lower(drawn, sync, side)
        yield lower(drawn, sync, replace(side, has_host_update=True))
    yield plan_of(find("grouped"), PlanShape(mapping=(0, 1), micro_batches=12, overlapped_io=True))


def test_every_plan_is_read_back_and_all_codes_are_among_them():
    seen = set()
    for plan in plans():
        listing = plan.listing()
        assert np.array_equal(parse_listing(listing), plan.instructions)
        assert [line.partition(":")[0] for line in listing.splitlines()] == [f"IPU {ipu}" for ipu in plan.ipus]
        seen |= set(plan.instructions[:, 1].tolist())
    assert seen == set(Code)
