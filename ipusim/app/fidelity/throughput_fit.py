"""Fit rates to published throughputs: to the rows whose use is ``fitted``, and with sources left out in turn.

Four rates have no other measurement: the host's time for resent optimizer values, in PyTorch and in other frameworks;
the host's time for optimizer state off chip in PyTorch; the cycles to lay out a variable in a weight update. A row's
time is linear in these rates, and linear least squares give the most likely values. Row times have a standard deviation
of a few per cent. Rates have a normal prior around the middle of the plausible range, which is four standard deviations
wide. A rate without effect on any row therefore stays in the middle of its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import hardware
from ipusim.app.fidelity.throughputs import PreparedRow, SimulatedRow

#: Rates fitted to throughputs, by attribute.
FIT_RATES: Final = (
    "optimizer_value_ns",
    "pytorch_optimizer_value_ns",
    "pytorch_offchip_state_ns",
    "variable_layout_cycles",
)
#: Relative standard deviation of published against simulated times (assumed).
_SPREAD: Final = 0.025
_DEVIATIONS: Final = 4

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Linear:
    """Seconds of a row's weight update: published, simulated with the rates in use, and per unit of a fitted rate."""

    source: str
    published: float
    simulated: float
    slopes: Vector

    @classmethod
    def from_row(cls, training: PreparedRow, row: SimulatedRow) -> _Linear:
        """Return the seconds of a row with its scenario's rates."""
        slopes = np.array([_slope(training, row, name) for name in FIT_RATES])
        return cls(source_of(training.row.source), row.seconds_published, row.seconds, slopes)


def with_sources_left_out(trainings: Sequence[PreparedRow], rows: Sequence[SimulatedRow]) -> list[float | None]:
    """Return the items a second of each row with its source left out of the fit; None for a source that is in no fit.

    ``rows`` are the simulated rows of ``trainings``, in the same order.
    """
    linear = [_Linear.from_row(training, row) for training, row in zip(trainings, rows, strict=True)]
    fit_rows = [entry for entry, row in zip(linear, rows, strict=True) if row.row.use == "fitted"]
    values = _in_use(trainings) if trainings else np.zeros(len(FIT_RATES))
    fits = {
        source: _fit([entry for entry in fit_rows if entry.source != source], values)
        for source in {entry.source for entry in fit_rows}
    }
    throughputs: list[float | None] = []
    for entry, row in zip(linear, rows, strict=True):
        if entry.source in fits:
            seconds = entry.simulated + float(entry.slopes @ (fits[entry.source] - values))
            throughputs.append(row.items_per_s * entry.simulated / seconds)
        else:
            throughputs.append(None)
    return throughputs


def fitted_rates(trainings: Sequence[PreparedRow], rows: Sequence[SimulatedRow]) -> Mapping[str, float]:
    """Return the rates by attribute, fitted to all rows whose ``use`` is ``fitted``."""
    return dict(zip(FIT_RATES, _fit(_fit_rows(trainings, rows), _in_use(trainings)).tolist(), strict=True))


def speaking(trainings: Sequence[PreparedRow], rows: Sequence[SimulatedRow]) -> Mapping[str, int]:
    """Return the number of rows that a rate changes, over its range, by more than a row's standard deviation."""
    spans = _ranges()[1] - _ranges()[0]
    felt = [row.slopes * spans > _SPREAD * row.published for row in _fit_rows(trainings, rows)]
    return dict(zip(FIT_RATES, np.sum(felt, axis=0).tolist(), strict=True))


def source_of(text: str) -> str:
    """Return the publisher of a row: the text of the source before the first semicolon."""
    return text.partition(";")[0].strip()


def _fit_rows(trainings: Sequence[PreparedRow], rows: Sequence[SimulatedRow]) -> list[_Linear]:
    """Return the rows that rates are fitted to."""
    pairs = zip(trainings, rows, strict=True)
    return [_Linear.from_row(training, row) for training, row in pairs if training.row.use == "fitted"]


def _slope(training: PreparedRow, row: SimulatedRow, rate: str) -> float:
    """Return the seconds of a row's weight update per unit of a rate."""
    if rate == "variable_layout_cycles":
        return training.variables / training.jobs[0].system.clock_hz
    value = getattr(training.rates, rate)
    twice = training.rates.with_values(**{rate: 2 * value})
    return (row.with_rates(twice).seconds - row.seconds) / float(value)


def _in_use(trainings: Sequence[PreparedRow]) -> Vector:
    values: Vector = np.array([float(getattr(trainings[0].rates, name)) for name in FIT_RATES])
    return values


def _ranges() -> tuple[Vector, Vector]:
    """Return both ends of the plausible ranges."""
    ranges = {rate.attribute: rate.plausible for rate in hardware.RATES}
    ends = [ranges[name] or (Fraction(0), Fraction(0)) for name in FIT_RATES]
    return np.array([float(low) for low, _ in ends]), np.array([float(high) for _, high in ends])


def _fit(rows: Sequence[_Linear], values: Vector) -> Vector:
    """Return the most likely rates within their ranges, for rows simulated with the rates ``values``."""
    low, high = _ranges()
    deviations = (high - low) / _DEVIATIONS
    coefficients = [np.diag(1 / deviations)]
    targets = [(low + high) / 2 / deviations]
    for row in rows:
        spread = _SPREAD * row.published
        coefficients.append(row.slopes[np.newaxis, :] / spread)
        targets.append(np.array([(row.published - row.simulated + row.slopes @ values) / spread]))
    solution: Vector = np.linalg.lstsq(np.concatenate(coefficients), np.concatenate(targets), rcond=None)[0]
    return np.clip(solution, low, high)
