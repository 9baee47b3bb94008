"""Fit rates to published throughputs: to the rows whose use is ``fitted``, and with sources left out in turn.

Four rates have no other measurement: the host's time per resent optimizer value; the host's time for optimizer state
off chip, in PyTorch and in other frameworks; the cycles to lay out a variable in a weight update. A row's time is
linear in these rates, and linear least squares give the most likely values. Row times have a standard deviation of a
few per cent. Rates have a normal prior around the middle of the plausible range, which is four standard deviations
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
from ipusim.app.fidelity.throughputs import Prepared, SimulatedRow

#: Rates fitted to throughputs, by attribute.
FITTED: Final = ("optimizer_value_ns", "offchip_state_ns", "pytorch_offchip_state_ns", "variable_layout_cycles")
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
    def of(cls, prepared: Prepared, row: SimulatedRow) -> _Linear:
        """Return the seconds of a row with its scenario's rates."""
        slopes = np.array([_slope(prepared, row, name) for name in FITTED])
        return cls(source_of(prepared.row.source), row.seconds_published, row.seconds, slopes)


def with_sources_left_out(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> list[float | None]:
    """Return the items a second of each row with its source left out of the fit; None for a source that is in no fit.

    ``rows`` are the simulated rows of ``prepared``, in the same order.
    """
    linear = [_Linear.of(training, row) for training, row in zip(prepared, rows, strict=True)]
    fitted = [each for each, row in zip(linear, rows, strict=True) if row.row.use == "fitted"]
    values = _in_use(prepared) if prepared else np.zeros(len(FITTED))
    fits = {
        source: _fit([each for each in fitted if each.source != source], values)
        for source in {each.source for each in fitted}
    }
    throughputs: list[float | None] = []
    for each, row in zip(linear, rows, strict=True):
        if each.source in fits:
            seconds = each.simulated + float(each.slopes @ (fits[each.source] - values))
            throughputs.append(row.items_per_s * each.simulated / seconds)
        else:
            throughputs.append(None)
    return throughputs


def fitted_rates(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> Mapping[str, float]:
    """Return the rates by attribute, fitted to all rows whose ``use`` is ``fitted``."""
    return dict(zip(FITTED, _fit(_fitted(prepared, rows), _in_use(prepared)).tolist(), strict=True))


def speaking(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> Mapping[str, int]:
    """Return the number of rows that a rate changes, over its range, by more than a row's standard deviation."""
    spans = _ranges()[1] - _ranges()[0]
    felt = [row.slopes * spans > _SPREAD * row.published for row in _fitted(prepared, rows)]
    return dict(zip(FITTED, np.sum(felt, axis=0).tolist(), strict=True))


def source_of(text: str) -> str:
    """Return the publisher of a row: the text of the source before the first semicolon."""
    return text.partition(";")[0].strip()


def _fitted(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> list[_Linear]:
    """Return the rows that rates are fitted to."""
    pairs = zip(prepared, rows, strict=True)
    return [_Linear.of(training, row) for training, row in pairs if training.row.use == "fitted"]


def _slope(prepared: Prepared, row: SimulatedRow, rate: str) -> float:
    """Return the seconds of a row's weight update per unit of a rate."""
    if rate == "variable_layout_cycles":
        return prepared.variables / prepared.jobs[0].system.clock_hz
    value = getattr(prepared.rates, rate)
    twice = prepared.rates.with_values(**{rate: 2 * value})
    return (row.with_rates(twice).seconds - row.seconds) / float(value)


def _in_use(prepared: Sequence[Prepared]) -> Vector:
    values: Vector = np.array([float(getattr(prepared[0].rates, name)) for name in FITTED])
    return values


def _ranges() -> tuple[Vector, Vector]:
    """Return both ends of the plausible ranges."""
    known = {rate.attribute: rate.plausible for rate in hardware.RATES}
    ends = [known[name] or (Fraction(0), Fraction(0)) for name in FITTED]
    return np.array([float(low) for low, _ in ends]), np.array([float(high) for _, high in ends])


def _fit(rows: Sequence[_Linear], values: Vector) -> Vector:
    """Return the most likely rates within their ranges, for rows simulated with the rates ``values``."""
    low, high = _ranges()
    deviations = (high - low) / _DEVIATIONS
    left = [np.diag(1 / deviations)]
    right = [(low + high) / 2 / deviations]
    for row in rows:
        spread = _SPREAD * row.published
        left.append(row.slopes[np.newaxis, :] / spread)
        right.append(np.array([(row.published - row.simulated + row.slopes @ values) / spread]))
    solution: Vector = np.linalg.lstsq(np.concatenate(left), np.concatenate(right), rcond=None)[0]
    return np.clip(solution, low, high)
