"""Compute prediction intervals: the next training of a kind has its error in the interval with a probability of 80 %.

A row is a published training; rows of a kind have similar models and runs. The throughput of a row is simulated with
rates fitted without the rows of its source. Within a kind, the logarithm of simulated over published throughput is
assumed to have a normal distribution. Student's interval of a kind is too narrow for rows of another source, because
rows of one source resemble each other. The intervals of all kinds are therefore widened by a factor. The factor is
chosen on rows whose kind has at least three rows of other sources: the intervals computed from the
other rows then contain four in five of the rows.
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

#: Share of trainings inside an interval.
INTERVAL_SHARE: Final = 0.8
#: Minimum number of rows to compute an interval.
LEAST_ROWS: Final = 3
#: Maximum difference between the logarithms of equal errors.
_EQUAL_LOGS: Final = 1e-9


@dataclass(frozen=True)
class Interval:
    """Prediction interval of the next row's error.

    Attributes:
        middle: mean of the logarithms of simulated over published throughput.
        half_width: distance of either end from the middle, in logarithms.
    """

    middle: float
    half_width: float

    @classmethod
    def from_rows(cls, rows: Sequence[SimulatedRow], widening: float = 1.0) -> Interval | None:
        """Return the interval of a kind's rows, ``widening`` times as wide as Student's.

        None for fewer rows than :data:`LEAST_ROWS`, and for equal errors, whose interval would have no width.

        Student's half-width for n logarithms is t x s x sqrt(1 + 1 / n): s is their standard deviation, t the quantile
        of Student's distribution with n - 1 degrees of freedom.
        """
        if len(rows) < LEAST_ROWS:
            return None
        from scipy.stats import t  # noqa: PLC0415, 0.5 s to import, which few commands need

        logs = np.array([_log(row) for row in rows])
        if np.ptp(logs) < _EQUAL_LOGS:
            return None
        quantile = float(t.ppf((1 + INTERVAL_SHARE) / 2, len(rows) - 1))
        student_half_width = quantile * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / len(rows))
        return cls(float(np.mean(logs)), widening * student_half_width)

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest error in the interval."""
        return math.expm1(self.middle - self.half_width), math.expm1(self.middle + self.half_width)

    def __str__(self) -> str:
        """Return both ends, in whole per cent."""
        return " to ".join(map(runs.end_text, self.ends))


def rows_by_kind(rows: Iterable[SimulatedRow]) -> Mapping[str, list[SimulatedRow]]:
    """Return rows by kind, skipping rows without a kind, and rows whose host may be the bottleneck."""
    kinds: dict[str, list[SimulatedRow]] = {}
    for simulated in rows:
        if simulated.row.use != "input" and simulated.training.kind:
            kinds.setdefault(simulated.training.kind, []).append(simulated)
    return kinds


def widening_factor(rows: Sequence[SimulatedRow]) -> float:
    """Return the widening factor of all intervals; 1 if no kind has enough rows of other sources."""
    distances = [distance for group in rows_by_kind(rows).values() for distance in distances_in_widths(group)]
    return float(np.quantile(distances, INTERVAL_SHARE, method="lower")) if distances else 1.0


def distances_in_widths(rows: Sequence[SimulatedRow]) -> list[float]:
    """Return the distance of each row of a kind from the middle of an interval, in half-widths of this interval.

    The interval is computed from the rows of other sources. Rows whose other sources give no interval are left out.
    """
    distances = []
    for simulated in rows:
        source = source_of(simulated.row.source)
        interval = Interval.from_rows([peer for peer in rows if source_of(peer.row.source) != source])
        if interval is not None:
            distances.append(abs(_log(simulated) - interval.middle) / interval.half_width)
    return distances


def _log(row: SimulatedRow) -> float:
    return math.log1p(row.reported_error)
