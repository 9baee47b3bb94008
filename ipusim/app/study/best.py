"""Rank outcomes, for comparisons and sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from ipusim.api import analysis

T = TypeVar("T")


def best_first(
    outcomes: Iterable[T],
    cost: Callable[[T], float],
    fits: Callable[[T], analysis.Fits | None],
    peak_bytes: Callable[[T], int | None],
) -> list[T]:
    """Return the outcomes that fit, or have unknown memory, by rank.

    The lowest cost ranks first. Ties rank by the fullest IPU's bytes, or by order if bytes of any tied outcome are
    unknown.

    Args:
        outcomes: outcomes in the order of the request.
        cost: function from an outcome to its cost; less is better.
        fits: function from an outcome to its fit; None for a refusal, which has no rank.
        peak_bytes: function from an outcome to its fullest IPU's bytes; None for unknown memory.

    Example:
        >>> best_first([3, 1, 2], float, lambda _: analysis.Fits.YES, lambda _: None)
        [1, 2, 3]
    """
    outcomes_by_cost: defaultdict[float, list[T]] = defaultdict(list)
    for outcome in outcomes:
        if analysis.fits_or_unknown(fits(outcome)):
            outcomes_by_cost[cost(outcome)].append(outcome)
    in_order: list[T] = []
    for lowest_cost in sorted(outcomes_by_cost):
        peaks = [peak for outcome in outcomes_by_cost[lowest_cost] if (peak := peak_bytes(outcome)) is not None]
        if len(peaks) == len(outcomes_by_cost[lowest_cost]):
            order = sorted(range(len(peaks)), key=peaks.__getitem__)
            in_order += (outcomes_by_cost[lowest_cost][position] for position in order)
        else:
            in_order += outcomes_by_cost[lowest_cost]
    return in_order
