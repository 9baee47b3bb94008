"""Find the best-fitting rates for rows: least squares over logarithms of times and rates, within bounds.

A rate's range is the plausible range, or else the rate's bounds. A row's time depends on the planner's split of
products over tiles; splits, and with them times, jump when rates change. Pricing is slow. An iteration therefore first
determines slopes: derivatives of the logarithm of a time by the logarithm of a rate. The absolute slope is the share of
the time that is proportional to the rate or its inverse. Slopes are central differences with a step wider than a jump.
The iteration then solves for the best rates, assuming that a time is a sum of such shares. Iterations end when the
rates stop changing. One sequence of iterations starts from the scenarios' rates, another in mid-range; the best rates
of both sequences are the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Rates, hardware
from ipusim.app.fidelity.calibration_rows import Rows

#: Step of the central differences to either side, as a logarithm of a rate.
_STEP: Final = 0.02
#: Maximum number of iterations.
_MOST_ITERATIONS: Final = 8
#: Iterations end if no logarithm of a rate changes by as much as this.
_LEAST_STEP: Final = 1e-3
#: Lower limit of the factor by which a time changes: shares of a time may overlap and sum to more than 1, so that the
#: factor would be negative.
_LEAST_CHANGE: Final = 1e-6
#: Digits of intermediate rates: enough to resolve a step, and few enough for fast exact arithmetic.
_DIGITS: Final = 9

Vector = npt.NDArray[np.float64]


class Problem:
    """Least-squares problem: log errors of rows as a function of the logarithms of rates."""

    def __init__(self, rows: Rows, free_rates: Sequence[hardware.Rate]) -> None:
        """Fit the rates ``free_rates``; other rates keep the values of the rows' scenarios."""
        self.rows = rows
        self.free_rates = tuple(free_rates)
        ranges = [_range(rate) for rate in free_rates]
        self.low, self.high = (np.log([float(ends[side]) for ends in ranges]) for side in (0, 1))
        self._log_errors: dict[Rates, Vector] = {}

    @property
    def start(self) -> Vector:
        """Logarithms of the scenarios' rates, moved into range; a rate of zero becomes the middle of the range."""
        values = np.array([float(getattr(self.rows.rates, rate.attribute)) for rate in self.free_rates])
        logs = np.log(np.where(values, values, np.exp((self.low + self.high) / 2)))
        return np.clip(logs, self.low, self.high)

    def rates(self, x: Vector) -> Rates:
        """Return the full set of rates, with the logarithms ``x`` for the fitted rates."""
        values = {
            rate.attribute: round_digits(math.exp(log), _DIGITS) for rate, log in zip(self.free_rates, x, strict=True)
        }
        return self.rows.rates.with_values(**values)

    def log_errors(self, rates: Rates) -> Vector:
        """Return, per row, the logarithm of the ratio of simulated to measured time."""
        if rates not in self._log_errors:
            self._log_errors[rates] = np.log(self.rows.time_ratios(rates))
        return self._log_errors[rates]

    def slopes(self, x: Vector) -> Vector:
        """Return the derivatives of the rows' log errors by the rates' logarithms, as central differences."""
        least = [math.log(rate.least) if rate.least > 0 else -np.inf for rate in self.free_rates]
        most = [math.log(rate.most) for rate in self.free_rates]
        columns = []
        for column in range(len(x)):
            ends = []
            for sign in (-1, 1):
                point = x.copy()
                point[column] = np.clip(x[column] + sign * _STEP, least[column], most[column])
                ends.append(point)
            lower, upper = (self.log_errors(self.rates(end)) for end in ends)
            columns.append((upper - lower) / (ends[1][column] - ends[0][column]))
        return np.array(columns).T

    def best(self) -> Vector:
        """Return the logarithms of the rates with the least sum of squared errors."""
        points = [x for start in (self.start, (self.low + self.high) / 2) for x in self._points_from(start)]
        return min(points, key=lambda x: np.sum(np.square(self.log_errors(self.rates(x)))))

    def _points_from(self, x: Vector) -> list[Vector]:
        """Return the logarithms of the rates at the start, ``x``, and after every iteration."""
        points = [x]
        for _ in range(_MOST_ITERATIONS):
            x = _solve(self.log_errors(self.rates(x)), self.slopes(x), x, self.low, self.high)
            points.append(x)
            if np.max(np.abs(x - points[-2])) < _LEAST_STEP:
                break
        return points


def _solve(log_errors: Vector, slopes: Vector, x: Vector, low: Vector, high: Vector) -> Vector:
    """Return the logarithms of the best-fitting rates, with times modelled as sums of shares.

    A time changes by the factor 1 + sum of share * (growth - 1). The share of a rate is the absolute slope. The growth
    is the rate's growth, or the inverse's growth for a negative slope.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415, 0.2 s to import, needed by few commands

    shares, signs = np.abs(slopes), np.sign(slopes)

    def residuals(logs: Vector) -> Vector:
        factor = 1 + np.sum(shares * np.expm1(signs * (logs - x)), axis=1)
        residual: Vector = log_errors + np.log(np.maximum(factor, _LEAST_CHANGE))
        return residual

    margin = 1e-9 * (high - low)
    solution = least_squares(residuals, np.clip(x, low + margin, high - margin), bounds=(low, high))
    best_logs: Vector = solution.x
    return best_logs


def round_digits(value: float, digits: int) -> Fraction:
    """Return the exact fraction of a value rounded to ``digits`` digits."""
    return Fraction(f"{value:.{digits}g}")


def _range(rate: hardware.Rate) -> tuple[Fraction, Fraction]:
    """Return a rate's plausible range, or else its bounds; the lower end is at least a thousandth of the default.

    For a default of zero the lower end is at least a thousandth of the upper end.
    """
    least, most = rate.plausible or (rate.least, rate.most)
    return max(least, (rate.default or most) / 1000), most
