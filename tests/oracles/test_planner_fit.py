"""The fit finds the rates that products were made with, and what it says of the measured ones holds."""

import re
from dataclasses import replace

import numpy as np
import pytest

from ipusim.app.fidelity import product_fit as fit
from ipusim.app.fidelity.product_fit import MeasuredProduct, at_edge, fit_rates, rate_shares
from ipusim.app.fidelity.product_rows import PRODUCTS_FILE, read_rows
from ipusim.hardware.generations import BOW, GC200
from ipusim.pricing.planner.plan import plan_product
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PLANNER_RATES, PlannerRates

SHAPES = [
    Product(size, size, rows, 1, itemsize, itemsize)
    for size in (512, 1024, 4096)
    for rows in (4, 64, 512, 4096)
    for itemsize in (2, 4)
]


@pytest.fixture(scope="module")
def measured():
    return [MeasuredProduct(row.product, row.cycles(BOW.clock_hz)) for row in read_rows(PRODUCTS_FILE)]


def values(rates):
    return np.array([getattr(rates, rate.attribute) for rate in PLANNER_RATES])


def test_rates_that_products_were_made_with_are_found_again(monkeypatch):
    monkeypatch.setattr(fit, "_ROW_SPREAD", 1e-4)  # these measurements are exact
    true = PlannerRates(0.85, 0.8, 900.0, 4.5)
    made = [MeasuredProduct(product, plan_product(product, GC200, true).cycles) for product in SHAPES]
    assert values(fit_rates(made, GC200)) == pytest.approx(values(true), rel=0.02)


def test_a_rate_that_no_product_tells_stays_in_the_middle_of_its_range():
    tiny = [MeasuredProduct(Product(16, 16, 6 * n), 3000.0) for n in range(1, 8)]  # each on one tile or a few
    found = fit_rates(tiny, GC200)
    low, high = next(rate.plausible for rate in PLANNER_RATES if rate.attribute == "vector_slowdown")
    assert found.vector_slowdown == pytest.approx(float(low * high) ** 0.5, rel=0.1)


def test_fewer_products_than_rates_are_refused():
    with pytest.raises(ValueError, match="expected at least 4 measured products, got 3"):
        fit_rates([MeasuredProduct(Product(16, 16, 16), 1e4)] * 3, GC200)


def test_the_rates_in_use_are_those_of_the_measured_products_and_none_is_at_the_edge_of_its_range(measured):
    assert values(fit_rates(measured, BOW)) == pytest.approx(values(DEFAULT_PLANNER_RATES), rel=1e-3)
    assert at_edge(DEFAULT_PLANNER_RATES) == []
    assert at_edge(replace(DEFAULT_PLANNER_RATES, amp_ceiling=0.95, exchange_efficiency=0.6)) == [
        "amp_ceiling",
        "exchange_efficiency",
    ]
    assert all(re.search("fitted", rate.source) and rate.plausible for rate in PLANNER_RATES)


def test_that_the_chip_is_a_bow_shows_in_what_rates_a_gc200_would_need(measured):
    slower = [each._replace(cycles=each.cycles * GC200.clock_hz / BOW.clock_hz) for each in measured]
    assert len(at_edge(fit_rates(slower, GC200))) >= 3


def test_the_share_of_cycles_that_follows_a_rate_is_what_one_per_cent_of_it_does(measured):
    shares = dict(zip([rate.attribute for rate in PLANNER_RATES], rate_shares(measured, BOW), strict=True))
    assert 0.75 < sum(shares.values()) < 0.85  # the rest are starts of passes, which no rate touches
    name = "compute_set_cycles"
    more = replace(DEFAULT_PLANNER_RATES, **{name: getattr(DEFAULT_PLANNER_RATES, name) * 1.01})
    slower = [
        plan_product(each.product, BOW, more).cycles / plan_product(each.product, BOW).cycles - 1 for each in measured
    ]
    assert np.mean(slower) == pytest.approx(shares[name] / 100, rel=0.03)
