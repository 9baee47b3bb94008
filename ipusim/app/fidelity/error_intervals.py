"""Prediction intervals of errors: the range in which the error of another training of a kind lies four times of five.

The logarithm of simulated over published throughput is taken as normal within a kind of model and run. Each row counts
with its source left out of the fit. Several rows of one program count each, so that a kind of one program alone says
less of others than its interval does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ipusim.api import runs
from ipusim.app.fidelity.throughput_fit import source_of
from ipusim.app.fidelity.throughputs import SimulatedRow
from ipusim.base.csv_table import csv_bytes

#: The share of trainings in an interval, and the least rows that give one.
SHARE: Final = 0.8
LEAST_ROWS: Final = 3


def of_kinds(rows: Iterable[SimulatedRow]) -> Mapping[str, list[SimulatedRow]]:
    """Return the rows of each kind; those that their host may hold back are left out."""
    kinds: dict[str, list[SimulatedRow]] = {}
    for row in rows:
        if row.row.use != "input" and row.kind:
            kinds.setdefault(row.kind, []).append(row)
    return kinds


def interval(rows: Sequence[SimulatedRow]) -> tuple[float, float] | None:
    """Return both ends of the interval of a further row's error; None for fewer rows than :data:`LEAST_ROWS`.

    The mean of n logarithms, and t x s x sqrt(1 + 1 / n) to either side: s is their standard deviation, t the quantile
    of Student's distribution with n - 1 degrees of freedom.
    """
    if len(rows) < LEAST_ROWS:
        return None
    from scipy.stats import t  # noqa: PLC0415, 0.5 s to import, which few commands need

    logs = np.log([1 + row.judged for row in rows])
    quantile = float(t.ppf((1 + SHARE) / 2, len(rows) - 1))
    width = quantile * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / len(rows))
    mean = float(np.mean(logs))
    return math.expm1(mean - width), math.expm1(mean + width)


def inside_of_others(rows: Sequence[SimulatedRow]) -> list[bool]:
    """Return for each row of a kind whether it lies in the interval of other sources' rows, where these give one."""
    found = []
    for row in rows:
        source = source_of(row.row.source)
        ends = interval([other for other in rows if source_of(other.row.source) != source])
        if ends is not None:
            found.append(ends[0] <= row.judged <= ends[1])
    return found


def ranges_csv(rows: Sequence[SimulatedRow]) -> bytes:
    """Return CSV with the interval of each kind, without ends for few rows."""
    lines: list[tuple[object, ...]] = [runs.COLUMNS]
    for kind, of in of_kinds(rows).items():
        ends = interval(of)
        lines.append((kind, len(of), *([f"{end:.3f}" for end in ends] if ends else ("", ""))))
    return csv_bytes(lines)
