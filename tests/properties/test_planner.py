"""The planner: no plan beats the floors of the hardware, none does less work in more time, and no other is better."""

import itertools
import math
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ipusim.base.errors import QuantityError
from ipusim.hardware.formulas import formula_text
from ipusim.hardware.generations import BOW, GC2, GC200, GENERATIONS, find_ipu
from ipusim.model.work import Convolution
from ipusim.pricing.planner.convolution import plan_convolution
from ipusim.pricing.planner.matrix_unit import matrix_unit
from ipusim.pricing.planner.plan import plan_product
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PLANNER_RATES, PlannerRates
from ipusim.pricing.planner.splits import splits
from ipusim.pricing.planner.work import split_cycles, split_work
from tests.effort import share

SIZES = st.integers(1, 3000)
TYPES = st.sampled_from([(2, 2), (2, 4), (4, 4)])
#: By what a rate is better or worse than by default, in numbers that fractions have too.
FACTORS = st.sampled_from([1.0, 0.5, 2.0])
#: Everything at its best: what is left are counts.
PEAK = PlannerRates(1.0, 1.0, 0.0, 0.1)


@st.composite
def products(draw):
    itemsize, partials = draw(TYPES)
    groups = draw(st.sampled_from([1, 1, 2, 12, 100]))
    return Product(draw(SIZES), draw(SIZES), draw(SIZES), groups, itemsize, partials)


def cycles(product, ipu=GC200, rates=DEFAULT_PLANNER_RATES, memory=0.6):
    return plan_product(product, ipu, rates, memory).cycles


@settings(max_examples=share(40), deadline=None)
@given(products(), st.sampled_from(GENERATIONS))
def test_no_product_is_faster_than_the_matrix_unit_at_peak_or_than_what_must_be_received(product, ipu):
    plan = plan_product(product, ipu, PEAK)
    assert plan.cycles >= product.macs / ipu.macs_per_cycle(product.itemsize)
    split = plan.split
    steps = split.output_steps * split.input_steps
    # However operands are spread at first, the tile that receives most gets its even share of all that moves.
    rows = split.groups * split.rows * split.inputs * (1 - 1 / split.output_parts)
    weights = split.groups * split.inputs * split.outputs * (1 - 1 / split.row_parts)
    least = steps * product.itemsize * (rows + weights) / (2 * ipu.exchange_bytes_per_cycle_per_tile)
    assert {term.name: term.cycles for term in plan.terms}["exchange"] >= math.floor(least)


@settings(max_examples=share(40), deadline=None)
@given(products())
def test_a_split_holds_the_whole_product_on_the_tiles_and_in_the_memory_that_there_are(product):
    plan = plan_product(product, GC200)
    split = plan.split
    unit = matrix_unit(GC200, product.itemsize, product.partials_itemsize)
    assert split.tiles <= GC200.tiles
    assert split.rows * split.row_parts >= product.n
    assert split.groups * split.group_parts >= product.groups
    assert split.outputs * split.output_parts * split.output_steps >= product.m
    assert split.inputs * split.input_parts * split.input_steps >= product.k
    assert split.outputs % unit.outputs == split.inputs % unit.inputs == 0
    operands = split.groups * split.inputs * (split.rows + split.outputs) * product.itemsize
    assert plan.temporary_bytes >= operands
    assert plan.fits == (plan.temporary_bytes <= 0.6 * GC200.sram_bytes_per_tile)


@settings(max_examples=share(25), deadline=None)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 5), st.integers(1, 3), st.integers(1, 24), TYPES, st.data())
def test_no_split_of_all_that_there_are_is_better(rows, output_blocks, input_blocks, groups, tiles, types, data):
    """An oracle: every number of parts of every dimension, one by one, from the formulas as they are written.

    A block of the matrix unit that is not full takes as long as a full one.
    """
    itemsize, partials = types
    unit = matrix_unit(GC200, itemsize, partials)
    m, k = output_blocks * unit.outputs, input_blocks * unit.inputs
    less = data.draw(st.integers(0, unit.outputs - 1)), data.draw(st.integers(0, unit.inputs - 1))
    product = Product(m - less[0], k - less[1], rows, groups, itemsize, partials)
    name = data.draw(st.sampled_from([each.name for each in fields(PlannerRates)]))
    rates = replace(DEFAULT_PLANNER_RATES, **{name: getattr(DEFAULT_PLANNER_RATES, name) * data.draw(FACTORS)})
    # One part more than things leaves a tile of a pair without work, and its neighbour still shares.
    every = itertools.product(*(range(1, each + 2) for each in (rows, output_blocks, input_blocks, groups)))
    best = min(one_by_one(product, unit, rates, *each) for each in every if math.prod(each) <= tiles)
    assert cycles(product, replace(GC200, tiles=tiles), rates) == best


def one_by_one(product, unit, rates, row_parts, output_parts, input_parts, group_parts):
    """Return the cycles of one split, in scalars."""
    rows, groups = -(-product.n // row_parts), -(-product.groups // group_parts)
    outputs = -(-product.m // unit.outputs // output_parts)
    inputs = -(-product.k // unit.inputs // input_parts)
    passes = groups * outputs * inputs
    each = -(-rows // 6)
    streamed = groups * rows * inputs * unit.inputs * product.itemsize * (output_parts - 1) / output_parts
    weights = passes * unit.inputs * unit.outputs * product.itemsize * (row_parts - 1) / row_parts
    received = min(streamed / (1 + (output_parts % 2 == 0)) + weights, streamed + weights / (1 + (row_parts % 2 == 0)))
    sums = groups * rows * outputs * unit.outputs * product.partials_itemsize
    zero = groups * outputs * 6 * unit.row_cycles * each if product.itemsize == 4 else 0
    adds = input_parts > 1 or product.partials_itemsize != product.itemsize
    speed = 4 * rates.exchange_efficiency
    return (
        math.ceil((2 + (input_parts > 1)) * rates.compute_set_cycles)
        + math.ceil(math.ceil(received) / speed)  # whole bytes
        + passes * unit.inputs * unit.outputs * product.itemsize // 16
        + math.ceil(
            50
            + passes * (7 + 6 * unit.worker_cycles)
            + (passes * 6 * unit.row_cycles * each + zero) / rates.amp_ceiling
        )
        + math.ceil(math.ceil(sums * (input_parts - 1) / input_parts) / speed)
        + math.ceil(adds * sums * rates.vector_slowdown / 8)
    )


@settings(max_examples=share(40), deadline=None)
@given(products(), st.sampled_from([1, 30, 60]), st.sampled_from([0.6, 0.3, 0.1]))
# Where steps are faster although a split without, or with fewer, fits.
@example(Product(1887, 2460, 922, 1, 4, 4), 30, 0.6)
@example(Product(248, 1263, 2015, 1, 2, 4), 30, 0.1)
def test_no_steps_of_all_that_there_may_be_are_better(product, tiles, memory):
    """Whatever steps the search leaves out, what it finds is the best of them all."""
    ipu = replace(GC200, tiles=tiles)
    plan = plan_product(product, ipu, DEFAULT_PLANNER_RATES, memory)
    unit = matrix_unit(ipu, product.itemsize, product.partials_itemsize)
    limit = memory * ipu.sram_bytes_per_tile
    outputs, inputs = -(-product.m // unit.outputs), -(-product.k // unit.inputs)
    found = []
    for a, b in itertools.product([1, 2, 4, 8, 16, 32, 64], repeat=2):
        if a <= outputs and b <= inputs and a * b <= 64:
            some = splits(product.n, -(-outputs // a), -(-inputs // b), product.groups, tiles)
            work = split_work(product, some, unit, a * b, b)
            excess = np.maximum(work.temporary_bytes - limit, 0)
            least = excess == excess.min()
            found.append((excess.min(), split_cycles(work, ipu, DEFAULT_PLANNER_RATES).total[least].min()))
    assert (max(plan.temporary_bytes - limit, 0), plan.cycles) == min(found)


def test_every_term_says_what_it_is_made_of():
    plan = plan_product(Product(1024, 1024, 256), BOW)
    assert plan.cycles == sum(term.cycles for term in plan.terms)
    for term in plan.terms:
        assert eval(formula_text(term.cycles).text, {"ceil": math.ceil}) == term.cycles, term
    assert [term.name for term in plan.terms] == ["launches", "exchange", "loading", "matrix", "reduction", "adding"]
    assert all(term.cycles for term in plan.terms)


def test_generations_differ_in_their_matrix_unit():
    assert [matrix_unit(ipu, 2, 2).outputs for ipu in GENERATIONS] == [8, 16, 16]
    assert [matrix_unit(ipu, 2, 4).outputs for ipu in GENERATIONS] == [8, 8, 8]
    assert [matrix_unit(ipu, size, size).row_cycles for ipu in (GC2, GC200) for size in (2, 4)] == [4, 4, 4, 8]
    product = Product(2048, 2048, 2048, partials_itemsize=2)
    assert cycles(product, GC2) > 2 * cycles(product, GC200)
    assert cycles(product, BOW) == cycles(product, GC200)
    assert find_ipu("bow") is BOW
    with pytest.raises(QuantityError, match=r"unknown IPU .GC20.: expected GC2, GC200 or BOW; did you mean GC200"):
        find_ipu("GC20")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"m": 0}, "expected m of at least 1, got 0"),
        ({"itemsize": 8}, "expected elements of 2 or 4 bytes, got 8"),
        ({"itemsize": 4, "partials_itemsize": 2}, "expected partial sums of 4 bytes, got 2"),
    ],
)
def test_what_is_no_product_is_refused(wrong, text):
    with pytest.raises(QuantityError, match=text):
        Product(**{"m": 1, "k": 1, "n": 1, **wrong})


def test_what_is_no_proportion_is_refused():
    with pytest.raises(QuantityError, match="proportion of memory above 0"):
        plan_product(Product(1, 1, 1), GC200, memory_proportion=0)
    assert [rate.attribute for rate in PLANNER_RATES] == [each.name for each in fields(PlannerRates)]


def test_a_product_is_planned_in_milliseconds_and_only_once():
    plan_product.cache_clear()
    product = Product(1024, 4096, 1024)
    began = time.perf_counter()
    first = plan_product(product, GC200)
    assert time.perf_counter() - began < 1.0
    assert plan_product(replace(product), GC200) is first


CONVOLUTIONS = st.builds(
    Convolution,
    positions=st.integers(1, 5000),
    channels=st.integers(1, 200),
    filters=st.integers(1, 200),
    taps=st.sampled_from([1, 3, 9, 25]),
    stride=st.sampled_from([1, 2, 4]),
    groups=st.sampled_from([1, 3, 32]),
)


@settings(max_examples=share(20), deadline=None)
@given(CONVOLUTIONS)
def test_a_convolution_is_never_faster_than_the_matrix_unit_and_more_of_it_never_faster(convolution):
    assert plan_convolution(convolution, GC200, PEAK).cycles >= convolution.macs / GC200.macs_per_cycle(2)
    plan = plan_convolution(convolution, GC200)
    for name in ("positions", "filters", "taps"):
        larger = plan_convolution(replace(convolution, **{name: getattr(convolution, name) * 2}), GC200)
        if plan.fits and larger.fits:
            assert larger.cycles >= plan.cycles
