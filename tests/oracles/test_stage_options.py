"""availableMemoryProportion and partialsType: how products are planned, what that takes, and what they hold."""

import pytest

from ipusim.hardware.generations import GC200
from ipusim.pipeline.holders import Holder
from ipusim.pricing.planner.plan import plan_product
from ipusim.pricing.planner.product import Product
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind

SRAM = 1472 * 624 * 1024
SCENARIO = """
system: {name: m2000}
data: {type: synthetic, shape: [6, 6, 16], classes: 3, samples: 256}
model:
  layers:
    - {name: conv, type: conv2d, filters: 80, kernel_size: [3, 3]}
    - {name: flatten, type: flatten}
    - {name: dense, type: dense, units: 400, activation: tanh}
    - {name: logits, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [dense], micro_batch_size: 64, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.01}
numerics: off
"""


@pytest.fixture
def load(load):
    return lambda *changes, text=SCENARIO: load(text, *changes)


def options(kind, share):
    return f"{{{kind}_options: {{availableMemoryProportion: {share}}}}}"


def both(name, first, second):
    return f"pipeline.{name}_propagation_stages_poplar_options=[{first}, {second}]"


def lengths(experiment, kind):
    timeline = execute(experiment).timeline
    found = []
    for stage in range(2):
        rows = (timeline.kind == kind) & (timeline.stage == stage)
        found += set((timeline.end[rows] - timeline.start[rows]).tolist())
    return found


def plan(m, k, n, share, partials=4):
    return plan_product(Product(m=m, k=k, n=n, itemsize=4, partials_itemsize=partials), GC200, memory_proportion=share)


@pytest.mark.parametrize("share", [1e-3, 5e-3, 1e-2, 0.6])
def test_products_are_planned_in_the_memory_that_they_may_take(load, share):
    """dense makes 400 of 4 x 4 x 80 numbers of each of 64 samples, logits 3 of those 400."""
    limited = load(both("forward", "{}", options("matmul", share)))
    plain = load()
    before, after = (lengths(experiment, SpanKind.FORWARD) for experiment in (plain, limited))
    assert after[0] == before[0]
    own, usual = ([plan(400, 1280, 64, each), plan(3, 400, 64, each)] for each in (share, 0.6))
    assert after[1] - before[1] == sum(each.cycles for each in own) - sum(each.cycles for each in usual)
    assert own[0].fits == (share > 1e-3)
    assert all(each.temporary_bytes <= share * SRAM / 1472 for each in own if each.fits)
    assert (after[1] > before[1]) == (share < 0.1)


def test_what_the_largest_product_of_an_ipu_holds_is_set_aside(load):
    found = execute(load()).memory.footprint
    dense = [plan(400, 1280, 64, 0.6), plan(1280, 400, 64, 0.6), plan(400, 64, 1280, 0.6)]
    held = [dict(each.resident)[Holder.TEMPORARY] for each in found.ipus]
    assert held[1] == 1472 * max(each.temporary_bytes for each in dense) > held[0] > 0
    on_one = execute(load("pipeline.device_mapping=[0, 0]")).memory.footprint
    assert [dict(each.resident)[Holder.TEMPORARY] for each in on_one.ipus] == [max(held)]


def test_partial_sums_of_another_type_are_converted_and_take_their_bytes(load):
    changes = "precision=float16", "system.matmuls.poplar_options.partialsType=half"
    half, single = (lengths(load(*each), SpanKind.FORWARD)[1] for each in (changes, changes[:1]))
    products = [
        sum(
            plan_product(Product(m=m, k=k, n=64, itemsize=2, partials_itemsize=size), GC200).cycles
            for m, k in ((400, 1280), (3, 400))
        )
        for size in (2, 4)
    ]
    assert single - half == products[1] - products[0] > 0


def test_each_pass_has_its_own_options(load):
    plain = load()
    forward = load(both("forward", options("convolution", 2e-3), "{}"))
    backward = load(both("backward", options("convolution", 2e-3), "{}"))
    for experiment, changed in ((forward, SpanKind.FORWARD), (backward, SpanKind.BACKWARD)):
        for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
            before, after = lengths(plain, kind), lengths(experiment, kind)
            assert (after[0] > before[0]) is (kind == changed)
            assert after[1] == before[1]


def test_options_of_one_kind_leave_the_other_alone(load):
    experiment = load(both("forward", options("matmul", 1e-7), options("convolution", 1e-7)))
    assert lengths(experiment, SpanKind.FORWARD) == lengths(load(), SpanKind.FORWARD)


def test_options_of_the_system_hold_where_a_stage_gives_none(load):
    general = "system.matmuls.poplar_options.availableMemoryProportion=2e-3"
    conv = "system.convolutions.poplar_options.availableMemoryProportion=2e-3"
    by_stage = load(
        both("forward", options("convolution", 2e-3), options("matmul", 2e-3)),
        both("backward", options("convolution", 2e-3), options("matmul", 2e-3)),
    )
    assert load(general, conv).program.stages == by_stage.program.stages
    own = load(general, both("forward", "{}", options("matmul", 0.5))).program.stages[1]
    assert own.forward == load(both("forward", "{}", options("matmul", 0.5))).program.stages[1].forward
    assert own.backward == by_stage.program.stages[1].backward


def test_a_weight_update_without_products_is_left_as_it_is(load):
    change = f"pipeline.weight_update_poplar_options={options('matmul', 1e-7)}"
    assert load(change).program.stages == load().program.stages


def test_a_system_may_say_how_products_are_planned_where_cycles_are_given(load):
    """It is one of the machine's settings: who tries measured cycles on a model leaves it in."""
    cycles = "pipeline.cycles=[{forward: 10}, {forward: 10}]"
    stages = load(cycles, "system.matmuls={poplar_options: {partialsType: half}}").program.stages
    assert stages == load(cycles).program.stages
