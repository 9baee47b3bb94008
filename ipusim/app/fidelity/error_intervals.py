"""Prediction intervals of errors: the range in which the error of another training of a kind lies four times of five.

The logarithm of simulated over published throughput is taken as normal within a kind of model and run, each row with
its source left out of the fit. Rows of one source are alike, so that Student's interval is too narrow for another
source. One factor stretches the intervals of all kinds: with it four of five rows lie in the interval that rows of
other sources give their kind, where these are three or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.api import runs
from ipusim.app.fidelity.throughput_fit import source_of
from ipusim.app.fidelity.throughputs import SimulatedRow
from ipusim.base.csv_table import csv_bytes

#: The share of trainings in an interval, and the least rows that give one.
SHARE: Final = 0.8
LEAST_ROWS: Final = 3
#: Maximum difference between the logarithms of equal errors.
_EQUAL: Final = 1e-9


@dataclass(frozen=True)
class Interval:
    """The interval of a further row's error.

    Attributes:
        middle: mean of the logarithms of simulated over published throughput.
        width: of the logarithms, to either side.
    """

    middle: float
    width: float

    @classmethod
    def of(cls, rows: Sequence[SimulatedRow], stretch: float = 1.0) -> Interval | None:
        """Return the interval of a kind's rows, ``stretch`` times Student's.

        None for fewer rows than :data:`LEAST_ROWS`, and for equal errors, from which no width follows.

        Of n logarithms Student's width is t x s x sqrt(1 + 1 / n): s is their standard deviation, t the quantile of
        Student's distribution with n - 1 degrees of freedom.
        """
        if len(rows) < LEAST_ROWS:
            return None
        from scipy.stats import t  # noqa: PLC0415, 0.5 s to import, which few commands need

        logs = np.array([_log(row) for row in rows])
        if np.ptp(logs) < _EQUAL:
            return None
        quantile = float(t.ppf((1 + SHARE) / 2, len(rows) - 1))
        student = quantile * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / len(rows))
        return cls(float(np.mean(logs)), stretch * student)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest error in it."""
        return math.expm1(self.middle - self.width), math.expm1(self.middle + self.width)

    def __str__(self) -> str:
        """Return both ends, in whole per cent."""
        return " to ".join(map(runs.end_text, self.ends))


def of_kinds(rows: Iterable[SimulatedRow]) -> Mapping[str, list[SimulatedRow]]:
    """Return the rows of each kind; those that their host may hold back are left out."""
    kinds: dict[str, list[SimulatedRow]] = {}
    for row in rows:
        if row.row.use != "input" and row.kind:
            kinds.setdefault(row.kind, []).append(row)
    return kinds


def intervals(rows: Sequence[SimulatedRow]) -> Mapping[str, Interval | None]:
    """Return the interval of each kind; None for a kind of few rows."""
    stretch = stretched(rows)
    return {kind: Interval.of(of, stretch) for kind, of in of_kinds(rows).items()}


def stretched(rows: Sequence[SimulatedRow]) -> float:
    """Return the factor of all intervals: 1 where no kind has other sources with three rows."""
    apart = [part for of in of_kinds(rows).values() for part in widths_apart(of)]
    return float(np.quantile(apart, SHARE, method="lower")) if apart else 1.0


def widths_apart(rows: Sequence[SimulatedRow]) -> list[float]:
    """Return how far each row of a kind lies from the middle of other sources' rows, in Student's widths of theirs.

    Rows without an interval of others are left out.
    """
    found = []
    for row in rows:
        source = source_of(row.row.source)
        others = Interval.of([other for other in rows if source_of(other.row.source) != source])
        if others is not None:
            found.append(abs(_log(row) - others.middle) / others.width)
    return found


def ranges_csv(rows: Sequence[SimulatedRow]) -> bytes:
    """Return CSV with the interval of each kind, without ends for few rows."""
    lines: list[tuple[object, ...]] = [runs.COLUMNS]
    ranges = intervals(rows)
    for kind, of in of_kinds(rows).items():
        found = ranges[kind]
        ends = ("", "") if found is None else tuple(f"{end:.5f}" for end in found.ends)
        lines.append((kind, len(of), *ends))
    return csv_bytes(lines)


def _log(row: SimulatedRow) -> float:
    return math.log1p(row.judged)
