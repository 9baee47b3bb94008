"""Two exact dynamic programmes over cuts, from the last stage back: the least longest stage, and the least sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def least_longest(takes: Numbers) -> Numbers:
    """Return, for each stage and unit, the least cycles of the longest stage from there on under any cut.

    ``takes`` are what each stage takes from any unit to before any other, shape (stages, units + 1, units + 1); the
    result has shape (stages + 1, units + 1), infinite where no cut is left.
    """
    return _from_behind(takes, np.maximum)


def least_sum(takes: Numbers) -> Numbers:
    """Return the least sum over the stages, as :func:`least_longest` returns that of the longest."""
    return _from_behind(takes, np.add)


def any_cut(possible: npt.NDArray[np.bool_]) -> bool:
    """Tell whether some cut has ``possible`` stages alone."""
    return bool(np.isfinite(least_sum(np.where(possible, 0.0, np.inf))[0, 0]))


def _from_behind(takes: Numbers, join: np.ufunc) -> Numbers:
    """Return the least of what each stage, of one unit at least, and those behind it take, ``join``."""
    least = np.full((len(takes) + 1, takes.shape[1]), np.inf)
    least[-1, -1] = 0
    proper = np.where(np.tri(takes.shape[1], dtype=bool), np.inf, takes)
    for stage in reversed(range(len(takes))):
        least[stage] = join(proper[stage], least[stage + 1][None, :]).min(axis=1)
    return least
