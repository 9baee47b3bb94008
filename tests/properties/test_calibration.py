"""Rates with which rows were simulated are found again from these rows, noise included, as surely as is said."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.app.fidelity.calibration import calibrate
from ipusim.app.fidelity.calibration_rows import read_measured
from ipusim.hardware.rates import DEFAULT_RATES, RATES
from tests.effort import draws_everything, rarest, slowest
from tests.machine_costs import stage_rows, throughput_rows, write_scenarios

#: Scenarios, and the micro-batches that their throughputs were measured with.
SIZES = (("large.yaml", 512), ("small.yaml", 64))
OF_STAGES = ("amp_ceiling", "compute_set_cycles", "vector_slowdown", "transcendental_operations")
RANGES = {rate.attribute: rate.plausible or (Fraction(2), Fraction(20)) for rate in RATES}


@st.composite
def values(draw, names):
    """Rates within the inner nine tenths of their ranges."""
    share = st.integers(5, 95).map(lambda percent: Fraction(percent, 100))
    return {name: RANGES[name][0] + draw(share) * (RANGES[name][1] - RANGES[name][0]) for name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate")
    write_scenarios(folder)
    return folder


def of_stages(folder, names, values, noise, seed):
    path = folder / "stages.csv"
    rates = DEFAULT_RATES.with_values(**values)
    path.write_text(stage_rows(folder, ("large.yaml", "small.yaml"), rates, noise, seed))
    return calibrate(read_measured([path]), names)


@settings(max_examples=12 if draws_everything() else 3)
@given(values(OF_STAGES), st.sampled_from([0.0, 0.005, 0.02]), st.integers(0, 10**6))
def test_rates_of_computation_are_found_again_from_stages(folder, wanted, noise, seed):
    found = of_stages(folder, OF_STAGES, wanted, noise, seed)
    assert [each.rate.name for each in found.fitted] == [rate.name for rate in RATES if rate.name in OF_STAGES]
    for each in found.fitted:
        off = abs(float(each.value / wanted[each.rate.attribute]) - 1)
        assert off <= 2 * each.uncertainty + 2e-3, each
    others = {rate.attribute: rate.default for rate in RATES if rate.name not in OF_STAGES}
    assert found.rates.with_values(**wanted) == DEFAULT_RATES.with_values(**wanted, **others)


@rarest
def test_truth_lies_where_it_is_said_to_in_95_of_100_cases(folder):
    wanted = {"compute_set_cycles": Fraction(900), "vector_slowdown": Fraction(4)}
    within = [
        abs(float(each.value / wanted[each.rate.attribute]) - 1) <= each.uncertainty
        for seed in range(40)
        for each in of_stages(folder, tuple(wanted), wanted, 0.02, seed).fitted
    ]
    assert len(within) == 80
    assert 0.90 <= sum(within) / len(within) < 1


@slowest
@settings(max_examples=4)
@given(values(("vector_slowdown", "session_run_ns")), st.integers(0, 10**6))
def test_rates_of_computation_and_host_are_found_again_from_throughputs(folder, wanted, seed):
    path = folder / "rows.csv"
    rows = [f"{name},m2000,4,{size},{count},popart" for name, size in SIZES for count in (8, 30, 1000, 10**6)]
    throughput_rows(path, rows, DEFAULT_RATES.with_values(**wanted), 0.005, seed)
    found = calibrate(read_measured([path]), ("vector_slowdown", "session_run"))
    for each in found.fitted:
        assert abs(float(each.value / wanted[each.rate.attribute]) - 1) <= 2 * each.uncertainty + 2e-3, each
    assert max(map(abs, found.after)) < 0.03
