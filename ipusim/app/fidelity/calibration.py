"""Fit rates to a user's measurements: choose the rates that the rows determine, and find values and uncertainties.

A rate is a number that prices work, such as bytes per second of a link. A row is a measured training or stage pass.
Fits use logarithms of times and rates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from ipusim.api import Rates, hardware, pricing, runs
from ipusim.app.fidelity.calibration_rows import Rows
from ipusim.app.fidelity.rate_problem import Problem, Vector, round_digits
from ipusim.base.errors import IpusimError, OptionError
from ipusim.base.near_names import did_you_mean, expected_last, list_names

#: Relative standard deviation of measured against simulated times, for the automatic choice of rates (assumed;
#: published throughputs scatter at least as much).
_ROW_SPREAD: Final = 0.025
#: Width of a rate's range in standard deviations of its prior.
_RANGE_DEVIATIONS: Final = 4
#: Widest range of a prior, as a logarithm: a factor of two to both sides of the middle (assumed).
_WIDEST_RANGE: Final = math.log(4)
#: A row depends on a rate if the logarithm of its time changes by at least this over the rate's range.
_LEAST_LOG_EFFECT: Final = 1e-3
#: Correlation of two fitted rates above which rows hardly distinguish them.
_CORRELATED: Final = 0.95
#: Cosine of two rates' effects above which rows cannot distinguish both rates: two free rates then have a hundred times
#: the standard deviation of one free rate.
_JOINT_COSINE: Final = 1 - 1e-4
#: A rate belongs to an undetermined combination if its component of the unit vector is larger than this.
_LEAST_VECTOR_COMPONENT: Final = 0.1
#: Probability that a rate lies in its uncertainty range.
_CONFIDENCE: Final = 0.95
#: Digits of a fitted rate.
_DIGITS: Final = 4


class UndeterminedError(IpusimError):
    """The rows do not determine some rates; the text advises which rows to add."""


@dataclass(frozen=True)
class FittedRate:
    """A fitted rate.

    Attributes:
        rate: description of the rate.
        before: value in the scenarios.
        value: best-fitting value, to four digits.
        uncertainty: half the 95 % range of the rate, as a share of its value; None for a fit with as many rates as
            rows.
        at_edge: whether the value is within a hundredth of an end of the range.
    """

    rate: hardware.Rate
    before: Fraction
    value: Fraction
    uncertainty: float | None
    at_edge: bool


@dataclass(frozen=True)
class CorrelatedRates:
    """Rates that rows hardly distinguish; ``correlation`` is None for more than two rates."""

    rates: tuple[hardware.Rate, ...]
    correlation: float | None


@dataclass(frozen=True)
class Calibration:
    """Fitted rates, and row errors before and after the fit.

    Attributes:
        rows: the measurements.
        rates: values of the rates, fitted or not.
        fitted: fitted rates.
        before, after: (simulated - measured) / measured per row, with the scenarios' rates and with the fitted rates.
        correlated: groups of rates that rows hardly distinguish.
        left_out: rates that the rows do not determine, with reasons; empty if the rates were requested by name.
        held_out_errors: mean absolute error of rows held out of the fit, by number of rows in the fit; at 0, the error
            with the scenarios' rates.
    """

    rows: Rows
    rates: Rates
    fitted: tuple[FittedRate, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    correlated: tuple[CorrelatedRates, ...]
    left_out: tuple[tuple[hardware.Rate, str], ...]
    held_out_errors: Mapping[int, float]

    @property
    def better_from(self) -> int | None:
        """Number of rows from which fits predict held-out rows better than the scenarios' rates; None if none do."""
        start, *fits = self.held_out_errors.items()
        worse = [count for count, error in fits if error >= start[1]]
        better = [count for count, _ in fits if count > max(worse, default=0)]
        return min(better, default=None)


def calibrate(rows: Rows, names: Sequence[str] = ()) -> Calibration:
    """Return the least-squares fit of the rates called ``names`` to the rows.

    Without names, candidates are rates of computation and rates of the rows' hosts. The fit then includes the
    candidates that the rows determine better than the plausible ranges do, and at most one rate fewer than rows. Raises
    OptionError for a name that is not the name of a rate to fit, UndeterminedError for rates that the rows do not
    determine, and the errors of pricing.
    """
    requests = _rates_of_names(names)
    count = len(rows.names)
    if not count:
        raise UndeterminedError(f"{', '.join(rows.files)}: expected a row with a measured and simulated time")
    if len(requests) > count:
        raise UndeterminedError(
            f"expected at least as many rows as rates, {len(requests)}, got {count}: measure more, or fit fewer rates"
        )
    problem = Problem(rows, requests or _default_rates(rows))
    left_out: tuple[tuple[hardware.Rate, str], ...] = ()
    if not requests:
        problem, left_out = _determined_problem(problem)
    _refuse_undetermined(problem, problem.slopes(problem.start))
    x = problem.best()
    _refuse_undetermined(problem, problem.slopes(x))
    return _calibration(problem, x, left_out)


def _rates_of_names(names: Sequence[str]) -> tuple[hardware.Rate, ...]:
    """Return the rates called ``names``; raises OptionError for an unknown rate, or a rate that cannot be fitted."""
    rates = {rate.name: rate for rate in hardware.RATES}
    for name in names:
        if name not in rates:
            hint = did_you_mean(name, list(rates))
            raise OptionError(
                "rates", expected_last(f"got {name!r}", hint, f"rates out of {list_names([*rates], name)}")
            )
        if rates[name].unit == "links":
            raise OptionError("rates", f"expected rates that can take any value, got {name}, a whole number of links")
        if list(names).count(name) > 1:
            raise OptionError("rates", f"expected each rate once, got {name} twice")
    return tuple(rates[name] for name in names)


def _default_rates(rows: Rows) -> tuple[hardware.Rate, ...]:
    """Return the rates of computation, and the host rates of the rows' frameworks."""
    hosts = {"session_run_ns", "offchip_stream_ns"} if rows.frameworks else set()
    hosts |= {"pytorch_offchip_state_ns" if name == "pytorch" else "offchip_state_ns" for name in rows.frameworks}
    return tuple(rate for rate in hardware.RATES if rate.part == "computation" or rate.attribute in hosts)


def _determined_problem(problem: Problem) -> tuple[Problem, tuple[tuple[hardware.Rate, str], ...]]:
    """Return the fit of the rates that the rows determine, and the other rates with reasons.

    Rates are tried in order of effect on the rows. A rate is accepted if the rows then determine every accepted rate at
    least as well as the prior: the standard deviation is at most a quarter of the range.
    """
    slopes = problem.slopes(problem.start)
    priors = np.minimum(problem.high - problem.low, _WIDEST_RANGE) / _RANGE_DEVIATIONS
    effects = _effects(problem, slopes)
    accepted_columns: list[int] = []
    left_out: dict[int, str] = {}
    for column in np.argsort(-np.linalg.norm(slopes, axis=0) * priors, kind="stable").tolist():
        rate, names = problem.free_rates[column], [problem.free_rates[index].name for index in accepted_columns]
        with_column = [*accepted_columns, column]
        if effects[column] < _LEAST_LOG_EFFECT:
            left_out[column] = f"no row depends on the rate; {_advice(rate)}"
        elif np.any(_deviations(slopes[:, [column]], _ROW_SPREAD) > priors[column]):
            left_out[column] = f"the rows determine the rate less well than its plausible range; {_advice(rate)}"
        elif len(accepted_columns) == max(1, len(slopes) - 1):
            left_out[column] = f"{len(slopes)} rows determine only {runs.one_of(names)}"
        elif np.any(_deviations(slopes[:, with_column], _ROW_SPREAD) > priors[with_column]):
            left_out[column] = f"the rows do not distinguish the rate from {runs.one_of(names)}; {_advice(rate)}"
        else:
            accepted_columns.append(column)
    if not accepted_columns:
        reasons = [f"{problem.free_rates[column].name}: {reason}" for column, reason in sorted(left_out.items())]
        raise UndeterminedError("\n".join(["expected rows that depend on at least one rate, got none", *reasons]))
    determined = Problem(problem.rows, [problem.free_rates[column] for column in sorted(accepted_columns)])
    return determined, tuple((problem.free_rates[column], left_out[column]) for column in sorted(left_out))


def _deviations(slopes: Vector, spread: float) -> Vector:
    """Return the standard deviations of the rates' logarithms, for rows with the standard deviation ``spread``."""
    if _smallest_eigenvalue(slopes) < 1 - _JOINT_COSINE:
        return np.full(slopes.shape[1], np.inf)
    deviations: Vector = spread * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    return deviations


def _refuse_undetermined(problem: Problem, slopes: Vector) -> None:
    """Raise UndeterminedError for rates without effect on rows, and for indistinguishable rates."""
    without_effect = [
        rate
        for rate, effects in zip(problem.free_rates, _effects(problem, slopes), strict=True)
        if effects < _LEAST_LOG_EFFECT
    ]
    if without_effect:
        raise UndeterminedError(
            "\n".join(
                f"{rate.name}: expected a row that depends on the rate, got none: {_advice(rate)}"
                for rate in without_effect
            )
        )
    if _smallest_eigenvalue(slopes) < 1 - _JOINT_COSINE:
        direction = _gram_eigen(slopes)[1][:, 0]
        joint_rates = [
            rate
            for rate, component in zip(problem.free_rates, direction, strict=True)
            if abs(component) > _LEAST_VECTOR_COMPONENT
        ]
        names = [rate.name for rate in joint_rates]
        terms = Counter(law.name for rate in joint_rates for law in pricing.laws_with(rate.attribute))
        distinct_terms = [name for name, count in terms.items() if count == 1]
        raise UndeterminedError(
            f"{', '.join(names)}: expected rows that distinguish the rates, got rows in which only their common effect "
            f"shows: fit {runs.one_of(names)}{f', or {_advise_terms(distinct_terms)}' if distinct_terms else ' only'}"
        )


def _effects(problem: Problem, slopes: Vector) -> Vector:
    """Return, for each rate, the largest change of any row's time over the rate's range, as a logarithm."""
    effects: Vector = np.max(np.abs(slopes), axis=0) * (problem.high - problem.low)
    return effects


def _advice(rate: hardware.Rate) -> str:
    """Return advice: name a row that would determine the rate."""
    if rate.name == "session_run":
        return "add a row of a program with a framework whose session run takes milliseconds"
    if rate.part == "host":
        framework = "framework pytorch" if rate.name.startswith("pytorch") else "a framework other than pytorch"
        return f"add a row of {framework} with optimizer state off chip and few micro-batches per weight update"
    return _advise_terms([law.name for law in pricing.laws_with(rate.attribute)])


def _advise_terms(terms: Sequence[str]) -> str:
    """Return advice to add a row in which the named terms of the cost weigh more."""
    return f"add a row with a larger share of time in {runs.one_of(terms)} (`ipusim check SCENARIO --costs`)"


def _gram_eigen(slopes: Vector) -> tuple[Vector, Vector]:
    """Return eigenvalues, ascending, and eigenvectors of the Gram matrix of normalised rate slopes.

    The smallest eigenvalue is 0 for linearly dependent slopes, and 1 - c for two rates with slope cosine c.
    """
    unit = slopes / np.linalg.norm(slopes, axis=0)
    values, vectors = np.linalg.eigh(unit.T @ unit)
    return values, vectors


def _smallest_eigenvalue(slopes: Vector) -> float:
    return float(_gram_eigen(slopes)[0][0])


def _correlated(problem: Problem, slopes: Vector) -> tuple[CorrelatedRates, ...]:
    """Return the groups of rates that rows hardly distinguish, merged from correlated pairs."""
    inverse = np.linalg.inv(slopes.T @ slopes)
    deviations = np.sqrt(np.diag(inverse))
    correlations = inverse / np.outer(deviations, deviations)
    groups: list[set[int]] = []
    for first, second in np.argwhere(np.triu(np.abs(correlations) > _CORRELATED, 1)).tolist():
        overlaps = [group for group in groups if group & {first, second}]
        groups = [group for group in groups if group not in overlaps] + [set.union({first, second}, *overlaps)]
    correlated = []
    for group in groups:
        correlation = float(correlations[min(group), max(group)]) if len(group) == 2 else None
        correlated.append(CorrelatedRates(tuple(problem.free_rates[column] for column in sorted(group)), correlation))
    return tuple(correlated)


def _calibration(problem: Problem, x: Vector, left_out: tuple[tuple[hardware.Rate, str], ...]) -> Calibration:
    """Return the calibration with fitted rates: logarithms ``x``, rounded to few digits."""
    slopes = problem.slopes(x)
    values = [round_digits(math.exp(log), _DIGITS) for log in x]
    by_attribute = {rate.attribute: value for rate, value in zip(problem.free_rates, values, strict=True)}
    rates = problem.rows.rates.with_values(**by_attribute)
    positions = (x - problem.low) / (problem.high - problem.low)
    fits = tuple(
        FittedRate(rate, getattr(problem.rows.rates, rate.attribute), value, uncertainty, not 0.01 < position < 0.99)
        for rate, value, uncertainty, position in zip(
            problem.free_rates,
            values,
            _uncertainties(problem.log_errors(rates), slopes),
            positions.tolist(),
            strict=True,
        )
    )
    errors_before, errors_after = (tuple(problem.rows.errors(rate_set)) for rate_set in (problem.rows.rates, rates))
    correlated, held_out_errors = _correlated(problem, slopes), _held_out_errors(problem)
    return Calibration(problem.rows, rates, fits, errors_before, errors_after, correlated, left_out, held_out_errors)


def _held_out_errors(problem: Problem) -> dict[int, float]:
    """Return the mean of |simulated - measured| / measured over held-out rows, by number of rows in the fit.

    Each row is held out in turn, and rates are fitted to the rows after it, with the first row after the last. Times
    are linearised with the slopes at the scenarios' rates.
    """
    start, slopes = problem.start, problem.slopes(problem.start)
    log_errors = problem.log_errors(problem.rates(start))
    count, rates = slopes.shape
    mean_errors = {0: float(np.mean(np.abs(np.expm1(log_errors))))}
    for size in range(rates, count):
        errors = []
        for row in range(count):
            neighbours = [(row + 1 + offset) % count for offset in range(size)]
            step = np.linalg.lstsq(slopes[neighbours], -log_errors[neighbours], rcond=None)[0]
            step = np.clip(start + step, problem.low, problem.high) - start
            errors.append(abs(np.expm1(log_errors[row] + slopes[row] @ step)))
        mean_errors[size] = float(np.mean(errors))
    return mean_errors


def _uncertainties(log_errors: Vector, slopes: Vector) -> list[float | None]:
    """Return half the 95 % ranges of the rates, relative to the rates.

    Log errors give the spread of the rows. With as many rates as rows the uncertainties are None.
    """
    from scipy.stats import t  # noqa: PLC0415, 0.5 s to import

    count, rates = slopes.shape
    if count == rates:
        return [None] * rates
    spread = math.sqrt(float(np.sum(np.square(log_errors))) / (count - rates))
    quantile = t.ppf((1 + _CONFIDENCE) / 2, count - rates)
    return [float(np.expm1(deviation * quantile)) for deviation in _deviations(slopes, spread)]
