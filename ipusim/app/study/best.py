"""The best of several outcomes: one rule for comparisons and sweeps."""

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
    """Return the outcomes that fit their memory, or have no known memory, by rank.

    The least cost comes first. Equal costs rank by the fullest IPU's bytes if all are known, else by their order.

    Args:
        outcomes: outcomes in the order of the request.
        cost: returns the cost of an outcome; less is better.
        fits: returns the answer to whether an outcome fits; None for a refusal, which has no rank.
        peak_bytes: returns the bytes of an outcome's fullest IPU; None for unknown memory.

    Example:
        >>> best_first([3, 1, 2], float, lambda _: analysis.Fits.YES, lambda _: None)
        [1, 2, 3]
    """
    equals: defaultdict[float, list[T]] = defaultdict(list)
    for outcome in outcomes:
        if analysis.usable(fits(outcome)):
            equals[cost(outcome)].append(outcome)
    ranked: list[T] = []
    for least in sorted(equals):
        peaks = [peak for outcome in equals[least] if (peak := peak_bytes(outcome)) is not None]
        if len(peaks) == len(equals[least]):
            order = sorted(range(len(peaks)), key=peaks.__getitem__)
            ranked += (equals[least][position] for position in order)
        else:
            ranked += equals[least]
    return ranked
