"""The trade-off front: of several choices, those that no other beats in both of two costs."""

from __future__ import annotations

import math
from collections.abc import Sequence


def front(costs: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Return the positions of those of ``costs`` that are on the trade-off front (Pareto's), in rising order.

    A choice is off the front where another costs no more of either, and less of one. Equal ones are on it together.
    """
    least = math.inf  # of the second cost, among all that cost less of the first
    front_rows: list[int] = []
    order = sorted(range(len(costs)), key=lambda position: costs[position])
    for position in order:
        first, second = costs[position]
        if second < least or (front_rows and costs[front_rows[-1]] == (first, second)):
            front_rows.append(position)
            least = second
    return tuple(sorted(front_rows))
