"""Fit rates to the published throughputs whose use is ``fitted``: to all rows, and with each source left out in turn.

Four rates follow from no other measurement: the host's time for resent optimizer values, in PyTorch and in other
frameworks; the host's time for optimizer state off chip in PyTorch; the cycles to lay out a variable in a weight
update. A row's time is linear in these rates, and generalised least squares give the most likely values. Errors of row
times are normal, with two parts. All rows of a program, a model in a framework, have the first part in common: their
simulated layers and host code are equal. Second parts are independent. Rates have a normal prior around the middle of
the plausible range, which is four standard deviations wide. A rate without effect on any row therefore stays in the
middle of its range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import hardware
from ipusim.app.fidelity.throughputs import SimulatedRow

#: Rates fitted to throughputs, by attribute.
FIT_RATES: Final = (
    "optimizer_value_ns",
    "pytorch_optimizer_value_ns",
    "pytorch_offchip_state_ns",
    "variable_layout_cycles",
)
#: Relative standard deviations of simulated against published times, for the error common to a program's rows and for
#: independent errors of rows. These deviations maximise the rows' likelihood, integrated over the rates.
PROGRAM_SPREAD: Final = 0.028
ROW_SPREAD: Final = 0.025
#: Width of a plausible range in standard deviations of the prior.
_RANGE_DEVIATIONS: Final = 4

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _LinearRow:
    """Seconds of a row's weight update as a linear function of the rates.

    Attributes:
        source: publisher of the row.
        program: model and framework of the row.
        published: published seconds.
        simulated: seconds simulated with the rates in use.
        slopes: additional seconds per unit of each rate.
    """

    source: str
    program: tuple[str, str]
    published: float
    simulated: float
    slopes: Vector

    @classmethod
    def from_row(cls, simulated: SimulatedRow) -> _LinearRow:
        """Return the seconds of a row with its scenario's rates."""
        slopes = np.array([_slope(simulated, name) for name in FIT_RATES])
        row = simulated.row
        program = (row.model, row.framework)
        return cls(source_of(row.source), program, simulated.seconds_published, simulated.seconds, slopes)


def with_sources_left_out(rows: Sequence[SimulatedRow]) -> list[float | None]:
    """Return each row's items a second, with rates fitted without its source; None for a source without fitted rows."""
    linear = [_LinearRow.from_row(row) for row in rows]
    fit_rows = [entry for entry, simulated in zip(linear, rows, strict=True) if simulated.row.use == "fitted"]
    rates_in_use = _rates_in_use(rows) if rows else np.zeros(len(FIT_RATES))
    fits = {
        source: _fit([entry for entry in fit_rows if entry.source != source], rates_in_use)
        for source in {entry.source for entry in fit_rows}
    }
    throughputs: list[float | None] = []
    for entry, simulated in zip(linear, rows, strict=True):
        if entry.source in fits:
            seconds = entry.simulated + float(entry.slopes @ (fits[entry.source] - rates_in_use))
            throughputs.append(simulated.items_per_s * entry.simulated / seconds)
        else:
            throughputs.append(None)
    return throughputs


def fitted_rates(rows: Sequence[SimulatedRow]) -> tuple[Mapping[str, float], Mapping[str, int]]:
    """Fit the rates to all rows with the use ``fitted``. Return the rates, and numbers of determining rows by rate.

    A row determines a rate if the rate's range changes the row's time by more than a standard deviation.
    Keys are attributes of Rates.
    """
    fit_rows = [_LinearRow.from_row(simulated) for simulated in rows if simulated.row.use == "fitted"]
    low, high = _ranges()
    spread = math.hypot(PROGRAM_SPREAD, ROW_SPREAD)
    counts = np.sum([row.slopes * (high - low) > spread * row.published for row in fit_rows], axis=0)
    rates = _fit(fit_rows, _rates_in_use(rows)).tolist()
    return dict(zip(FIT_RATES, rates, strict=True)), dict(zip(FIT_RATES, counts.tolist(), strict=True))


def source_of(text: str) -> str:
    """Return the publisher of a row: the text of the source before the first semicolon."""
    return text.partition(";")[0].strip()


def _slope(row: SimulatedRow, rate: str) -> float:
    """Return the seconds of a row's weight update per unit of a rate."""
    training = row.training
    if rate == "variable_layout_cycles":
        return training.variables / training.jobs[0].system.clock_hz
    value = getattr(training.rates, rate)
    doubled = training.rates.with_values(**{rate: 2 * value})
    return (row.with_rates(doubled).seconds - row.seconds) / float(value)


def _rates_in_use(rows: Sequence[SimulatedRow]) -> Vector:
    rates_in_use: Vector = np.array([float(getattr(rows[0].training.rates, name)) for name in FIT_RATES])
    return rates_in_use


def _ranges() -> tuple[Vector, Vector]:
    """Return both ends of the plausible ranges."""
    ranges = {rate.attribute: rate.plausible for rate in hardware.RATES}
    ends = [ranges[name] or (Fraction(0), Fraction(0)) for name in FIT_RATES]
    return np.array([float(low) for low, _ in ends]), np.array([float(high) for _, high in ends])


def _fit(rows: Sequence[_LinearRow], rates_in_use: Vector) -> Vector:
    """Return the most likely rates within their ranges, for rows simulated with the rates ``rates_in_use``."""
    low, high = _ranges()
    deviations = (high - low) / _RANGE_DEVIATIONS
    count = len(rows)
    same_program = np.array([first.program == second.program for first in rows for second in rows])
    covariance = PROGRAM_SPREAD**2 * same_program.reshape(count, count) + ROW_SPREAD**2 * np.eye(count)
    slopes = np.array([row.slopes / row.published for row in rows]).reshape(count, len(FIT_RATES))
    # Shares of the published times that the rates must explain.
    shares = np.array([1 - row.simulated / row.published for row in rows]) + slopes @ rates_in_use
    independent = np.linalg.inv(np.linalg.cholesky(covariance))
    coefficients = np.concatenate([np.diag(1 / deviations), independent @ slopes])
    targets = np.concatenate([(low + high) / 2 / deviations, independent @ shares])
    solution: Vector = np.linalg.lstsq(coefficients, targets, rcond=None)[0]
    return np.clip(solution, low, high)
