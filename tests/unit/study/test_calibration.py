"""The fit by itself, of rows whose times are known functions of the rates."""

import math
from pathlib import Path

import pytest

from ipusim.app.fidelity.calibration import UndeterminedError, calibrate
from ipusim.app.fidelity.calibration_report import words
from ipusim.app.fidelity.calibration_rows import Rows
from ipusim.hardware.rates import DEFAULT_RATES, RATES

BY_NAME = {rate.name: rate for rate in RATES}


def made(powers, factors):
    """Return rows whose times are products of powers of rates over their defaults, times a factor of each row."""

    def time_ratios(rates):
        logs = {name: math.log(getattr(rates, BY_NAME[name].attribute) / BY_NAME[name].default) for name in powers}
        return [
            factor * math.exp(sum(powers[name][row] * log for name, log in logs.items()))
            for row, factor in enumerate(factors)
        ]

    names = [f"row {number}" for number in range(len(factors))]
    scenarios = ((Path("made.yaml"), DEFAULT_RATES),)
    errors = lambda rates: [time - 1 for time in time_ratios(rates)]  # noqa: E731
    return Rows(names, scenarios, (), time_ratios, errors, files=("made.csv",))


def test_one_rate_is_the_mean_of_the_logarithms_and_as_sure_as_the_t_distribution_says():
    """Times that go with the rate, off by -6, 0 and 3 %: by hand, with Student's t of two degrees."""
    errors = [math.exp(-0.06), 1.0, math.exp(0.03)]
    found = calibrate(made({"vector_slowdown": [1, 1, 1]}, errors), ["vector_slowdown"])
    (fitted,) = found.fitted
    assert float(fitted.value) == pytest.approx(3.053 * math.exp(0.01), rel=2e-4)
    spread = math.sqrt((0.05**2 + 0.01**2 + 0.04**2) / 2)
    assert fitted.uncertainty == pytest.approx(math.expm1(4.3027 * spread / math.sqrt(3)), rel=2e-3)
    assert not fitted.at_edge
    assert found.before == pytest.approx([error - 1 for error in errors])
    assert found.after == pytest.approx([error * math.exp(0.01) - 1 for error in errors], abs=2e-4)


def test_a_row_for_each_rate_meets_them_all_and_leaves_nothing_to_be_sure_by():
    found = calibrate(
        made({"vector_slowdown": [1, 0.5], "compute_set_cycles": [0, 0.5]}, [0.9, 1.2]),
        ["compute_set_cycles", "vector_slowdown"],
    )
    assert found.after == pytest.approx([0, 0], abs=3e-4)
    sets, vector = found.fitted
    assert float(vector.value) == pytest.approx(3.053 / 0.9, rel=5e-4)
    assert float(sets.value) == pytest.approx(614.6 / 1.2**2 * 0.9, rel=5e-4)
    assert (sets.uncertainty, vector.uncertainty) == (None, None)


def test_three_rates_that_make_up_for_each_other_are_one_group():
    one, other = [1.0, 0.2, 0.4, 0.3, 0.6], [0.1, 0.9, 0.5, 0.7, 0.2]
    both = [a + b + extra for a, b, extra in zip(one, other, [0.03, -0.02, 0.02, 0.0, -0.03], strict=True)]
    powers = {"vector_slowdown": one, "compute_set_cycles": other, "transcendental_operations": both}
    (correlated,) = calibrate(made(powers, [1.01, 0.99, 1.0, 1.02, 0.98]), list(powers)).correlated
    assert {rate.name for rate in correlated.rates} == set(powers)
    assert correlated.correlation is None


def test_rates_that_were_not_named_are_fitted_where_the_rows_say_more_than_was_known():
    """The plausible range of amp_ceiling is four deviations of 4.3 %; rows that follow it by a tenth tell 25 %."""
    powers = {"vector_slowdown": [0.8] * 4, "amp_ceiling": [-0.1, 0.1, -0.1, 0.1], "compute_set_cycles": [0.8] * 4}
    found = calibrate(made(powers, [1.02, 0.99, 1.0, 1.01]))
    assert [each.rate.name for each in found.fitted] == ["compute_set_cycles"]
    assert {rate.name: why.partition(";")[0] for rate, why in found.left_out} == {
        "amp_ceiling": "the rows determine the rate less well than its plausible range",
        "exchange_efficiency": "no row depends on the rate",
        "vector_slowdown": "the rows do not distinguish the rate from compute_set_cycles",
        "transcendental_operations": "no row depends on the rate",
        "product_layout_cycles": "no row depends on the rate",
        "pool_layout_cycles": "no row depends on the rate",
        "variable_layout_cycles": "no row depends on the rate",
    }
    with pytest.raises(
        UndeterminedError, match=r"^expected rows that depend on at least one rate, got none\namp_ceiling: no row"
    ):
        calibrate(made({}, [1.0, 1.1]))


def test_rows_left_out_say_from_how_many_on_a_fit_is_better_than_none():
    """All rows 20 % short, each with a scatter of its own: by hand, of one rate that all go with alike."""
    logs = [-0.2, -0.26, -0.14, -0.2]
    found = calibrate(made({"vector_slowdown": [1] * 4}, [math.exp(log) for log in logs]), ["vector_slowdown"])
    by_hand = {0: sum(abs(math.expm1(log)) for log in logs) / 4}
    for size in (1, 2, 3):
        others = [[logs[(row + 1 + behind) % 4] for behind in range(size)] for row in range(4)]
        by_hand[size] = sum(abs(math.expm1(log - sum(of) / size)) for log, of in zip(logs, others, strict=True)) / 4
    assert (dict(found.held_out_errors), found.better_from) == (pytest.approx(by_hand, abs=1e-6), 1)
    assert found.held_out_errors[0] == pytest.approx(sum(map(abs, found.before)) / 4)
    (first, *_) = words(found)
    assert first == (
        f"A row left out of the fit has an error of {by_hand[3]:.1%} on average with rates fitted to 3 other rows, and "
        "18.1% before: rates fitted to at least 1 row are better on unseen rows."
    )


def test_rows_whose_rates_are_right_as_they_are_say_that_a_fit_is_no_better():
    logs = [0.02, -0.03, 0.03, -0.02]
    found = calibrate(made({"vector_slowdown": [1] * 4}, [math.exp(log) for log in logs]), ["vector_slowdown"])
    assert found.better_from is None
    (first, *_) = words(found)
    assert first.endswith("fitted rates are not yet better on unseen rows; add rows.")
