"""Compute tables over stages and units, by dynamic programming over cuts from the last stage back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


def sums(values: Sequence[int] | Table) -> Table:
    """Return the sums of all ranges of ``values``, by start and end; 0 for empty ranges."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(values, dtype=np.int64))])
    return np.asarray(np.triu(ends[None, :] - ends[:, None]))


def maxima(values: Sequence[int] | Table) -> Table:
    """Return the maxima of all ranges of ``values``, by start and end; 0 for empty ranges."""
    values = np.asarray(values, dtype=np.int64)
    result = np.zeros((len(values) + 1, len(values) + 1), dtype=np.int64)
    for start in range(len(values)):
        result[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return result


def least_longest(takes: Numbers) -> Numbers:
    """Return the least cycles of the longest remaining stage, by stage and unit.

    Args:
        takes: cycles of each stage from a first unit to before another unit, shape (stages, units + 1, units + 1).

    Returns:
        Cycles, shape (stages + 1, units + 1); infinite if no cut is possible.
    """
    return _least_from_stage(takes, np.maximum)


def least_sum(takes: Numbers) -> Numbers:
    """Return the least sum over the remaining stages, in the format of :func:`least_longest`."""
    return _least_from_stage(takes, np.add)


def any_cut(possible: npt.NDArray[np.bool_]) -> bool:
    """Return whether some cut consists of ``possible`` stages only."""
    return bool(np.isfinite(least_sum(np.where(possible, 0.0, np.inf))[0, 0]))


def _least_from_stage(takes: Numbers, join: np.ufunc) -> Numbers:
    """Return least cycles of remaining stages, combined by ``join``; no stage is empty."""
    least = np.full((len(takes) + 1, takes.shape[1]), np.inf)
    least[-1, -1] = 0
    without_empty = np.where(np.tri(takes.shape[1], dtype=bool), np.inf, takes)
    for stage in reversed(range(len(takes))):
        least[stage] = join(without_empty[stage], least[stage + 1][None, :]).min(axis=1)
    return least


def closed(possible: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of stages: ``possible`` unchanged, or with an earlier first unit."""
    return np.asarray(np.logical_or.accumulate(possible & np.triu(np.ones(possible.shape[1:], dtype=bool), 1), axis=1))
