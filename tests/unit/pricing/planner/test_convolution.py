"""A convolution is planned as the best of the products that compute it."""

from dataclasses import replace

import pytest

from ipusim.base.errors import QuantityError
from ipusim.hardware.generations import GC200
from ipusim.model.work import Convolution, Work
from ipusim.model.work import Product as Dense
from ipusim.pricing.planner.convolution import plan_convolution, products
from ipusim.pricing.planner.plan import plan_product
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.products import plans

PEAK = PlannerRates(1.0, 1.0, 0.0, 0.1)


def test_one_tap_is_a_dense_product():
    plan = plan_convolution(Convolution(positions=512, channels=256, filters=64, taps=1), GC200)
    assert plan.cycles == plan_product(Product(m=64, k=256, n=512), GC200).cycles


def test_neighbours_share_what_they_stream():
    convolution = Convolution(positions=16 * 56 * 56, channels=64, filters=64, taps=9)
    plan = plan_convolution(convolution, GC200)
    assert (plan.product.own_inputs, plan.product.k) == (64, 64 * 9)
    alone = plan_product(replace(plan.product, own_inputs=0), GC200)
    assert plan.cycles < alone.cycles
    assert plan.temporary_bytes < 0.6 * GC200.sram_bytes_per_tile


def test_a_first_layer_of_three_channels_is_expanded():
    first = Convolution(positions=16 * 112 * 112, channels=3, filters=64, taps=49, stride=4)
    plan = plan_convolution(first, GC200)
    assert (plan.product.k, plan.product.own_inputs) == (147, 0)
    tap_by_tap = plan_product(next(iter(products(first, GC200))), GC200)
    assert plan.cycles < tap_by_tap.cycles / 2


def test_channels_by_themselves_are_combined_into_blocks():
    depthwise = Convolution(positions=4096, channels=1, filters=1, taps=31, groups=512)
    plan = plan_convolution(depthwise, GC200)
    assert plan.product.groups < 512
    assert plan.product.groups * plan.product.m == 512
    alone = min(plan_product(product, GC200).cycles for product in products(depthwise, GC200) if product.groups == 512)
    assert plan.cycles < 0.7 * alone
    full = Convolution(positions=4096, channels=512, filters=512, taps=31)
    assert plan.cycles < plan_convolution(full, GC200).cycles


def test_what_is_no_convolution_is_refused():
    with pytest.raises(QuantityError, match="product: expected k of at least 1, got 0"):
        plan_convolution(Convolution(1, 1, 1, 0), GC200)
    with pytest.raises(QuantityError, match="expected own_inputs from 0 to k, 3, got 4"):
        Product(1, 3, 1, own_inputs=4)


def test_of_a_pass_empty_products_have_no_plan_and_those_behind_them_have_theirs():
    whole = Dense(5, 3, 2)
    work = Work((Dense(0, 3, 2), whole, Convolution(0, 2, 3, 1), whole))
    (alone,) = plans(Work((whole,)), GC200, PEAK)
    assert [*plans(work, GC200, PEAK)] == [alone, alone]
