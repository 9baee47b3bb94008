"""Figures of chips and rates: a source for each; rates varied by name, bounded, and felt by what they price."""

from dataclasses import fields, replace
from fractions import Fraction

import pytest

from ipusim.analysis.effects import effects_of
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import QuantityError
from ipusim.hardware.build import build_system
from ipusim.hardware.generations import BOW, GC2, GC200
from ipusim.hardware.host import ASSUMED_HOST, M2000_HOST
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.rates import DEFAULT_RATES, RATES, Rates
from ipusim.model.work import Product, VectorWork, Work
from tests.machine_costs import work_cycles
from tests.scenarios import SCENARIOS

WORK = Work(
    vector=VectorWork(2 * 10**6, 10**6, 10**6, 15 * 10**5),
    sram_bytes=1000,
    exchange_bytes=10**7,
    itemsize=4,
    compute_sets=3,
)


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.name)
def test_every_rate_says_what_is_known_of_it(rate):
    assert rate.default == getattr(DEFAULT_RATES, rate.attribute)
    assert rate.least <= rate.default <= rate.most
    assert rate.meaning
    assert rate.source
    assert rate.evidence
    if rate.plausible is not None:
        low, high = rate.plausible
        assert rate.least <= low < high <= rate.most
        assert low <= rate.default <= high


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate.plausible], ids=lambda rate: rate.name)
def test_a_value_is_at_an_edge_within_a_hundredth_of_the_plausible_range(rate):
    low, high = rate.plausible
    for share, at_edge in (
        (0, True),
        (10**4, True),
        (10**4 + 1, False),
        (10**6 - 10**4, True),
        (10**6 - 10**4 - 1, False),
    ):
        assert rate.at_edge(low + (high - low) * Fraction(share, 10**6)) == at_edge, share


def test_rates_are_all_there_and_named_once():
    assert [*(rate.attribute for rate in RATES), "file"] == [each.name for each in fields(Rates)]
    assert len({rate.name for rate in RATES}) == len(RATES)
    assert DEFAULT_RATES.changed_rates() == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"amp_ceilin": 1}, "did you mean amp_ceiling?"),
        ({"amp_ceiling": 2}, "rates: expected amp_ceiling from 0.01 to 1 of peak, got 2"),
        ({"hop_latency_ns": -1}, "rates: expected hop_latency_ns from 0 to 1e+09 ns, got -1"),
        (
            {"transcendental_operations": 1001},
            "rates: expected transcendental_operations from 1 to 1000 operations, got 1001",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(values, message):
    with pytest.raises(QuantityError) as caught:
        DEFAULT_RATES.with_values(**values)
    assert str(caught.value).endswith(message)


def test_what_takes_time_or_memory_may_take_none():
    """All but an operation of the vector unit, in which all work would end at once."""
    taken = [rate for rate in RATES if rate.unit in ("cycles", "ns", "B") and rate.name != "vector_slowdown"]
    none = DEFAULT_RATES.with_values(**{rate.attribute: 0 for rate in taken})
    assert {getattr(none, rate.attribute) for rate in taken} == {0}


@pytest.mark.parametrize(
    ("values", "cycles"),
    [
        # 3 x 614.6; 10^7 bytes over 1472 x 4 x 1.191; 11.05 x 10^6 floats, 7.05 of them 1.5 x 10^6 transcendentals,
        # of 4 bytes and 3.053 cycles over 1472 x 8 bytes
        ({}, 1844 + 1427 + 11460),
        ({"vector_slowdown": Fraction(4)}, 1844 + 1427 + 15014),
        ({"transcendental_operations": Fraction(2)}, 1844 + 1427 + 7260),
        ({"exchange_efficiency": Fraction(1, 2)}, 1844 + 3397 + 11460),
        ({"compute_set_cycles": Fraction(200)}, 600 + 1427 + 11460),
    ],
)
def test_rates_of_computation_price_work(values, cycles):
    assert work_cycles(WORK, GC200, DEFAULT_RATES.with_values(**values)) == cycles


def test_every_rate_of_products_changes_what_some_product_costs():
    work = Work((Product(1000, 1000, 1000),))
    for name in ("amp_ceiling", "exchange_efficiency", "compute_set_cycles", "vector_slowdown"):
        value = getattr(DEFAULT_RATES, name)
        changed = DEFAULT_RATES.with_values(**{name: value * Fraction(9, 10)})
        assert work_cycles(work, GC200, changed) != work_cycles(work, GC200)


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate.part == "links"], ids=lambda rate: rate.name)
def test_every_rate_of_links_changes_what_some_copy_costs(rate):
    """Between two IPUs alone, between all kinds of places of a larger device, and between pods."""
    places = (
        ("c2_server", 2, [(0, 1)]),
        ("m2000", 2, [(0, 1)]),
        ("m2000", 4, [(0, 1), (0, 3), (0, 2)]),
        ("pod128", 128, [(0, 64)]),
    )

    def costs(rates):
        systems = [(build_system(name, mapping=(0,), ipus=ipus, rates=rates), pairs) for name, ipus, pairs in places]
        return [system.merged_copy({pair: 10**6}) for system, pairs in systems for pair in pairs]

    other = rate.default + 1 if rate.unit == "links" else rate.default / 2
    assert costs(DEFAULT_RATES.with_values(**{rate.attribute: other})) != costs(DEFAULT_RATES)


def test_a_scenario_names_rates_with_units(load):
    text = (SCENARIOS / "schedules_four_ipus.yaml").read_text()
    changes = "rates={amp_ceiling: 0.4, hop_latency: 20 ns, link: 20 GB/s, rung_links: 6}"
    experiment = load(text, changes, "system.name=m2000")
    rates = experiment.system.rates
    assert (rates.amp_ceiling, rates.hop_latency_ns, rates.link_bytes_per_s) == (Fraction(2, 5), 20, 20 * 10**9)
    assert rates.rung_links == 6
    assert effects_of(experiment.program, experiment.system)["rates"] == (
        "amp_ceiling 0.4 of peak, link 20 GB/s, rung_links 6 links, hop_latency 20 ns"
    )
    assert "rates" not in effects_of(experiment.program, load(text).system)


def test_one_overhead_has_one_name_at_a_time(load):
    text = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()
    overhead = "system.overhead=1 us"
    parts = "rates={pre_copy_cycles: 0, pair_exchange: 1 us, beyond_pair_exchange: 1 us, post_copy_cycles: 0}"
    assert load(text, overhead).costs == load(text, parts).costs
    for part in ("pre_copy_cycles: 0", "pair_exchange: 1 us", "beyond_pair_exchange: 1 us", "post_copy_cycles: 0"):
        with pytest.raises(ScenarioError, match=rf"rates.{part.split(':')[0]}: expected this rate or system.overhead"):
            load(text, overhead, f"rates={{{part}}}")


@pytest.mark.parametrize("spec", [GC2, GC200, BOW, M2000_HOST, ASSUMED_HOST], ids=repr)
def test_every_figure_has_a_source(spec):
    figures = {each.name for each in fields(spec) if getattr(spec, each.name) is not None} - {"name", "sources"}
    assert set(spec.sources) == figures
    assert all(source.strip() for source in spec.sources.values())


def test_every_machine_says_where_it_is_from():
    assert all(machine.source and machine.description for machine in MACHINES.values())


@pytest.mark.parametrize(
    ("spec", "fp16_tflops", "fp32_tflops", "exchange_tb_per_s", "sram_mib"),
    [
        (GC2, 124.5, 31.1, 7.78, 304),
        (GC200, 250, 62.4, 7.8, 897),
        (BOW, 350, 87, 10.9, 897),
    ],
    ids=["GC2", "GC200", "BOW"],
)
def test_peak_figures_are_those_published(spec, fp16_tflops, fp32_tflops, exchange_tb_per_s, sram_mib):
    assert 2 * spec.macs_per_cycle(2) * spec.clock_hz / 1e12 == pytest.approx(fp16_tflops, rel=0.005)
    assert 2 * spec.macs_per_cycle(4) * spec.clock_hz / 1e12 == pytest.approx(fp32_tflops, rel=0.005)
    exchange = spec.tiles * spec.exchange_bytes_per_cycle_per_tile * spec.clock_hz
    assert exchange / 1e12 == pytest.approx(exchange_tb_per_s, rel=0.005)
    assert spec.sram_bytes == sram_mib * 2**20


def test_float64_is_charged_as_float32():
    assert GC200.macs_per_cycle(8) == GC200.macs_per_cycle(4) == 1472 * 16


def test_other_element_sizes_are_refused():
    with pytest.raises(QuantityError, match="GC200: expected elements of 2, 4 or 8 bytes, got 1"):
        GC200.macs_per_cycle(1)


def test_a_chip_without_tiles_is_refused():
    with pytest.raises(QuantityError, match="GC2: expected tiles above 0, got 0"):
        replace(GC2, tiles=0)


def test_another_clock_is_no_longer_the_publisher_s():
    slow = GC200.at_clock(1_300_000_000)
    assert (slow.clock_hz, slow.sources["clock_hz"]) == (1_300_000_000, "chosen by the user")
    assert GC200.clock_hz == 1_330_000_000
    assert replace(slow, clock_hz=GC200.clock_hz, sources=GC200.sources) == GC200
