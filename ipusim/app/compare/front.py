"""Trade-off front (Pareto): choices that no other choice dominates under two costs."""

from __future__ import annotations

import math
from collections.abc import Sequence


def front(costs: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Return the positions of ``costs`` on the trade-off front (Pareto front), in rising order.

    A choice is off the front if another choice is no worse in either cost and better in at least one. Equal choices
    share their place on the front.
    """
    least = math.inf  # least second cost among choices with lower first cost
    front_rows: list[int] = []
    order = sorted(range(len(costs)), key=lambda position: costs[position])
    for position in order:
        first, second = costs[position]
        if second < least or (front_rows and costs[front_rows[-1]] == (first, second)):
            front_rows.append(position)
            least = second
    return tuple(sorted(front_rows))
