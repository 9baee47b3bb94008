"""Rates that explain rows best: least squares over the logarithms of times and rates, each rate within its range.

The range is the plausible one, or a rate's bounds where there is none. What a row costs depends on the plans of its
products, which jump as rates change, and pricing takes long. So shares and rates are found in turns: how much of
each row's time follows each rate, by steps to both sides that are wide beside a jump; then the rates that explain the
rows best if every time is a sum of such shares, each growing as its rate does or falling as it does; until the rates
stay as they are. The rates of the scenarios and the middle of all ranges are both begun with, and the best met are
kept.
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

#: Half of what a rate is varied by to see what follows it, as a logarithm.
_STEP: Final = 0.02
#: Turns at most, and how much less than this a rate may change in the last one.
_MOST_TURNS: Final = 8
_SAME: Final = 1e-3
#: What is left of a time at least, where shares overlap.
_LEAST_CHANGE: Final = 1e-6
#: Digits of a rate on the way: more than a step shows, and few enough for exact arithmetic to be fast.
_DIGITS: Final = 9

Vector = npt.NDArray[np.float64]


class Problem:
    """Rows and rates as vectors of logarithms."""

    def __init__(self, rows: Rows, fitted: Sequence[hardware.Rate]) -> None:
        """Fit ``fitted``, the others as the rows' scenarios have them."""
        self.rows = rows
        self.fitted = tuple(fitted)
        ranges = [_range(rate) for rate in fitted]
        self.low, self.high = (np.log([float(ends[side]) for ends in ranges]) for side in (0, 1))
        self._known: dict[Rates, Vector] = {}

    @property
    def start(self) -> Vector:
        """The rates of the scenarios, or the nearest in range."""
        values = [max(float(getattr(self.rows.rates, rate.attribute)), 1e-300) for rate in self.fitted]
        return np.clip(np.log(values), self.low, self.high)

    def rates(self, x: Vector) -> Rates:
        """Return all rates, those that are fitted with logarithms ``x``."""
        values = {rate.attribute: rounded(math.exp(at), _DIGITS) for rate, at in zip(self.fitted, x, strict=True)}
        return self.rows.rates.with_values(**values)

    def misfits(self, rates: Rates) -> Vector:
        """Return for each row the logarithm of its simulated time over the measured one."""
        if rates not in self._known:
            self._known[rates] = np.log(self.rows.times(rates))
        return self._known[rates]

    def cost(self, x: Vector) -> float:
        """Return the sum of squares."""
        return float(np.sum(np.square(self.misfits(self.rates(x)))))

    def slopes(self, x: Vector) -> Vector:
        """Return the derivative of each row's misfit with respect to each rate, over a step to both sides."""
        least = [math.log(rate.least) if rate.least > 0 else -np.inf for rate in self.fitted]
        most = [math.log(rate.most) for rate in self.fitted]
        columns = []
        for at in range(len(x)):
            ends = []
            for sign in (-1, 1):
                moved = x.copy()
                moved[at] = np.clip(x[at] + sign * _STEP, least[at], most[at])
                ends.append(moved)
            below, above = (self.misfits(self.rates(end)) for end in ends)
            columns.append((above - below) / (ends[1][at] - ends[0][at]))
        return np.array(columns).T

    def best(self) -> Vector:
        """Return the logarithms of the rates that explain the rows best."""
        met = [each for start in (self.start, (self.low + self.high) / 2) for each in self._met_from(start)]
        return min(met, key=self.cost)

    def _met_from(self, x: Vector) -> list[Vector]:
        """Return what is met in turns of shares and rates from ``x`` on."""
        met = [x]
        for _ in range(_MOST_TURNS):
            x = _solved(self.misfits(self.rates(x)), self.slopes(x), x, self.low, self.high)
            met.append(x)
            if np.max(np.abs(x - met[-2])) < _SAME:
                break
        return met


def _solved(misfits: Vector, slopes: Vector, x: Vector, low: Vector, high: Vector) -> Vector:
    """Return the logarithms of the rates that explain rows best whose times are sums of shares.

    A time changes by the factor 1 + sum of share x (growth - 1): the share of a rate is the amount of its slope, and
    its growth that of the rate, or of its inverse where the time falls as the rate grows.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415, 0.2 s to import, which few commands need

    shares, signs = np.abs(slopes), np.sign(slopes)

    def residuals(logs: Vector) -> Vector:
        changed = 1 + np.sum(shares * np.expm1(signs * (logs - x)), axis=1)
        found: Vector = misfits + np.log(np.maximum(changed, _LEAST_CHANGE))
        return found

    margin = 1e-9 * (high - low)
    found = least_squares(residuals, np.clip(x, low + margin, high - margin), bounds=(low, high))
    solved: Vector = found.x
    return solved


def rounded(value: float, digits: int) -> Fraction:
    """Return a value with so many digits, exactly."""
    return Fraction(f"{value:.{digits}g}")


def _range(rate: hardware.Rate) -> tuple[Fraction, Fraction]:
    """Return the plausible range of a rate, or else its bounds, from a thousandth of the default up."""
    least, most = rate.plausible or (rate.least, rate.most)
    return max(least, rate.default / 1000), most
