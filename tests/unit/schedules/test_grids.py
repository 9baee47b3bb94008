"""Offsets, counts and FIFO depths of every schedule, and the rules by their text."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import CountError, IpusimError, PlanError, ProgramError, UnsupportedProgramError
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import recomputation
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import nearest_counts, plan_of
from ipusim.schedules import registry
from ipusim.schedules.features import PLAIN, Feature
from ipusim.schedules.interleaved import offsets
from ipusim.schedules.registry import find
from tests.plans import parse_grid
from tests.schedules import registered

FOUR = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("mapping", "right"),
    [
        *(((0, 1, 2, 0, 0, 2, 1, 0), (0, 2)), ((0, 1, 2, 3, 3, 2, 1, 0), (0, 2, 4, 6))),
        *(((0, 1, 2, 1, 0, 1), (0, 1)), ((0, 1, 2, 0), (0, 2))),
    ],
)
def test_offsets_of_interleaved_inference_on_ipus_with_several_stages(mapping, right):
    assert offsets(PlanShape(mapping=mapping, micro_batches=1, training=False)) == right


@pytest.mark.parametrize(
    ("name", "count", "right"),
    [
        ("grouped", 8001, (8000, 8008)),
        ("dualpipe", 8001, (8000, 8002)),
    ],
)
def test_nearest_counts(name, count, right):
    schedule, laid_out = find(name), []

    def order(shape):
        laid_out.append(shape.micro_batches)
        return schedule.order(shape)

    shape = PlanShape(mapping=(0, 1, 2, 3), micro_batches=count, mirrored=schedule.mirrored)
    assert nearest_counts(replace(schedule, order=order), shape) == right
    assert max(laid_out) < 100  # a short run stands for a long one


def test_count_of_zero():
    with pytest.raises(
        CountError, match=r"^The number of iterations of the pipeline must be at least 8, but it is 0\."
    ):
        plan_of(find("grouped"), PlanShape(mapping=FOUR, micro_batches=0))


def relaid(order: Order, **header) -> Order:
    """``order`` under the name mine, and with other arguments of its header."""
    names = ("offsets", "emitted", "fifo_depths", "copy_rule", "table")
    return Order("mine", order.shape, **{name: getattr(order, name) for name in names} | header)


@pytest.fixture
def mine():
    """Register a schedule named mine: Grouped, whatever else is asked for, whose Order a function changes."""

    def register(change=relaid, **attributes):
        def order(shape: PlanShape) -> Order:
            plain = find("grouped").order(replace(shape, serialization=1))
            plain.shape = shape
            return change(plain)

        own = replace(find("grouped"), name="mine", order=order, **{"supports": PLAIN} | attributes)
        around.enter_context(registered(own))

    with ExitStack() as around:
        yield register


TIMED = """
system: {name: free}
pipeline:
  schedule: mine
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 10, backward: 20, output_bytes: 8}
    - {name: b, forward: 10, backward: 20}
infeed: {element_bytes: 8}
"""


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (
            ["system.name=m2000", "system.io_tiles.num_io_tiles=32", "system.io_tiles.place_ops_on_io_tiles=true"],
            "pipeline.schedule",
            "Input and output on I/O tiles are overlapped with computation by the schedule grouped only, not by mine.",
        ),
        (
            ["pipeline.allow_recompute=true"],
            "pipeline.allow_recompute",
            "Pipeline schedule Mine does not support recomputation of activations.",
        ),
        (
            ["pipeline.batch_serialization_iterations=2", "pipeline.device_mapping=[0, 0]"],
            "pipeline.schedule",
            "Batch serialization is only supported with the `Sequential` schedule.",
        ),
    ],
    ids=["I/O tiles", "recomputation", "batch serialization"],
)
def test_a_schedule_of_ones_own_is_not_given_what_it_cannot_lay_out(load, mine, overrides, key, text):
    mine()
    assert load(TIMED).program.schedule == "mine"
    with pytest.raises(IpusimError) as caught:
        load(TIMED, *overrides)
    assert [(problem.key, problem.text) for problem in caught.value.problems] == [(key, text)]


def test_a_schedule_of_ones_own_recomputes_in_the_modes_that_it_names(load, mine):
    mine(supports=PLAIN | {Feature.RECOMPUTE_THEN_BACKPROPAGATE})
    assert load(TIMED, "pipeline.allow_recompute=true").program.shape.recompute
    with pytest.raises(UnsupportedProgramError, match="does not support 'Recompute_and_backpropagate_interleaved'"):
        plan_of(find("mine"), PlanShape(mapping=(0, 1), micro_batches=4, recompute_inline=True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda order: find("grouped").order(replace(order.shape, micro_batches=2 * order.shape.micro_batches)),
            "schedule 'mine': expected an Order of micro_batches 8, got one of 16",
        ),
        (
            lambda order: find("grouped").order(replace(order.shape, mapping=(1, 0))),
            "schedule 'mine': expected an Order of mapping (0, 1), got one of (1, 0)",
        ),
        (lambda order: order.table, "schedule 'mine': expected an Order, got array("),
        (
            lambda order: Order.from_passes("mine", order.shape, {}),
            "schedule 'mine': expected an Order with passes, got an empty one",
        ),
        (
            lambda order: Order.from_passes("mine", order.shape, {0: [(0, 0, 0.5)]}),
            "got 0.5 in the pass (0, 0, 0.5) of IPU 0",
        ),
        (
            lambda order: Order.from_passes("mine", order.shape, {"a": ["F0.0"]}),
            "got 'a' in the pass 'F0.0' of IPU 'a'",
        ),
        (
            lambda order: Order.from_passes("mine", order.shape, {0: [(0, 0)]}),
            "passes: expected a kind, a stage and a micro-batch, got (0, 0)",
        ),
        (
            lambda order: Order.from_passes("mine", order.shape, {0: None}),
            "expected the passes of IPU 0 one after the other, got",
        ),
        (
            lambda order: Order.from_passes("mine", order.shape, {0: [(0, 0, 10**30)]}),
            "micro-batches as whole numbers below 4611686018427387904, got 1000000",
        ),
        (
            partial(relaid, copy_rule="merged"),
            "copy_rule: expected one of CopyRule.MERGED, CopyRule.EACH_STAGE, CopyRule.CROSSING, got 'merged'",
        ),
        (
            partial(relaid, emitted=10**9),
            "emitted: expected at most 38 time-steps, one for each of 32 passes and 6 empty ones, got 1000000000",
        ),
        (partial(relaid, offsets=(-1,)), "offsets: expected a tuple of whole numbers from 0 up, got (-1,)"),
        (partial(relaid, fifo_depths=(2, -1)), "fifo_depths: expected a tuple of whole numbers from 0 up, got (2, -1)"),
        (partial(relaid, table=np.zeros((10, 4), int)), "table: expected whole numbers in rows of time_step, ipu,"),
        (partial(relaid, table=np.full((1, 5), 0.5)), "got float64 of shape (1, 5)"),
    ],
    ids=[
        *("count", "mapping", "no Order", "no pass", "half a pass", "no IPU", "too short", "no passes", "too large"),
        *("copy rule", "emitted", "offsets", "depths", "columns", "fractions"),
    ],
)
def test_an_order_that_is_not_what_was_asked_for_is_refused(load, mine, change, text):
    mine(change)
    with pytest.raises(PlanError) as direct:
        plan_of(find("mine"), PlanShape(mapping=(0, 1), micro_batches=8))
    assert text in str(direct.value)
    with pytest.raises(IpusimError) as caught:
        load(TIMED)
    (problem,) = caught.value.problems
    assert (problem.key, problem.text) == ("pipeline.schedule", str(direct.value))


@pytest.mark.parametrize(
    "wrong",
    [{"name": name} for name in (7, "", "Mine", "my schedule", "naïve", "a" * 65)] + [{"order": 3}, {"multiple": ()}],
)
def test_a_wrong_registration_is_refused_and_leaves_scenarios_readable(load, wrong):
    (argument,) = wrong
    with pytest.raises(ProgramError, match=f"^{argument}: expected a "):
        registry.register(replace(find("grouped"), **{"name": "mine"} | wrong))
    assert "mine" not in registry.names()
    assert load(TIMED, "pipeline.schedule=grouped").program.schedule == "grouped"


@pytest.mark.parametrize(
    ("name", "mode", "used"),
    [
        ("grouped", "Auto", "RecomputeThenBackpropagate"),
        ("grouped", "RecomputeAndBackpropagateInterleaved", "RecomputeAndBackpropagateInterleaved"),
        ("interleaved", "Auto", "RecomputeThenBackpropagate"),
        ("sequential", "Auto", "RecomputeAndBackpropagateInterleaved"),
        ("sharded", "Auto", "RecomputeAndBackpropagateInterleaved"),
    ],
)
def test_recomputation_modes(name, mode, used):
    assert recomputation(mode, find(name).recomputation_modes, name) == used


def test_recomputation_inside_the_backward_pass_adds_no_operation():
    plain, inline = (
        plan_of(find("grouped"), PlanShape(mapping=FOUR, micro_batches=8, recompute_inline=again))
        for again in (False, True)
    )
    assert (plain.table == inline.table).all()
    text = format_grid(inline)
    assert "training with recomputation inside backward" in text
    assert parse_grid(text) == inline
