"""Order items of a search by bound: choices, laid out choices, complete cuts."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.bounds import Bounds
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.cuts import Cutter
from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.together import together_under

#: Width of the first portion of a choice's cuts above the choice's least time, as a share of that time.
FIRST: Final = Fraction(1, 200)


@dataclass(frozen=True, eq=False)
class OpenChoice:
    """Choice with a layout; further portions of cuts follow.

    Attributes:
        choice: layout before cutting.
        layouts: layout by selection order.
        cutter: search for cuts.
        possible: mask of the stages, between any two units, that fit in memory.
        common_cycles: least cycles of gradient sums, gathers and host updates; None until a closer look.
        is_raised: whether prices are raised as far as for a search of cuts.
        least_bound: bound; all lower cuts have been pushed.
        width: width of the next portion above the least time, as a share of that time.
        order_bounds: bounds by selection order.
        trials: selection orders and cuts already assembled.
    """

    choice: Choice
    layouts: Mapping[str, Layout]
    cutter: Cutter
    possible: npt.NDArray[np.bool_]
    common_cycles: int | None = None
    is_raised: bool = False
    least_bound: int = 0
    width: Fraction = FIRST
    order_bounds: dict[str, Bounds] = field(default_factory=dict)
    trials: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def bound_under(self, order: str, cuts: tuple[int, ...]) -> int:
        """Return the bound of a complete cut under a selection order, which includes the cut's gradient sums."""
        layout, units = self.layouts[order], self.cutter.units
        if order not in self.order_bounds:
            self.order_bounds[order] = Bounds(units, layout)
        common_cycles = together_under(layout, units, cuts)
        return int(self.order_bounds[order].later_by(common_cycles).cycles(np.array([cuts]))[0])


@dataclass(frozen=True, eq=False)
class CompleteCut:
    """Complete cut with its selection order, empty until chosen."""

    open_choice: OpenChoice
    cuts: tuple[int, ...]
    order: str = ""


#: Bound, plainness, running number, and item: heaps order items by the first three.
Entry = tuple[int, tuple[object, ...], int, Choice | OpenChoice | CompleteCut]


def choice_of(item: Choice | OpenChoice | CompleteCut) -> Choice:
    """Return the choice of an item."""
    if isinstance(item, CompleteCut):
        return item.open_choice.choice
    return item.choice if isinstance(item, OpenChoice) else item


def is_open(heap: list[Entry], best: int | None) -> bool:
    """Return whether a heap has an item with a bound below the ``best`` plan, or any item if no plan is known."""
    return bool(heap) and (best is None or heap[0][0] < best)


class OpenItems:
    """Unexamined items of a search, as heaps.

    Choices have a heap for each family until their closer look; all later items share a heap.
    """

    def __init__(self) -> None:
        """Begin without items."""
        self._choices_of_family: defaultdict[tuple[object, ...], list[Entry]] = defaultdict(list)
        self._later_items: list[Entry] = []
        self._number = 0

    @property
    def heaps(self) -> list[list[Entry]]:
        """Heaps with items."""
        return [heap for heap in (*self._choices_of_family.values(), self._later_items) if heap]

    def push(self, bound: int, item: Choice | OpenChoice | CompleteCut) -> None:
        """Push an item with its bound. Items of equal bound have the order of plainness, then of pushing."""
        choice = choice_of(item)
        is_first = isinstance(item, Choice) or (isinstance(item, OpenChoice) and item.common_cycles is None)
        heap = self._choices_of_family[choice.family] if is_first else self._later_items
        heapq.heappush(heap, (bound, choice.plainness, self._number, item))
        self._number += 1

    def families(self, first: Collection[tuple[object, ...]], preferred_syncs: Collection[object]) -> list[list[Entry]]:
        """Return the heaps of families: families in ``first``, then further families, each group by lowest bound.

        Among equal bounds, families with a sync mode in ``preferred_syncs`` come first.
        """

        def rank(family: tuple[object, ...]) -> tuple[object, ...]:
            bound, plainness, number, item = self._choices_of_family[family][0]
            return family not in first, bound, plainness, choice_of(item).sync not in preferred_syncs, number

        return [self._choices_of_family[family] for family in sorted(self._choices_of_family, key=rank)]

    def next_heap(self, best: int | None) -> list[Entry] | None:
        """Return the heap of the next item; None if no bound is below the ``best`` plan.

        Once a plan is known, choices come before cuts.
        """
        heaps = [heap for heap in self.heaps if is_open(heap, best)]
        if best is not None:
            heaps = [heap for heap in heaps if heap is not self._later_items] or heaps
        return min(heaps, key=lambda heap: heap[0][:3], default=None)

    def items_below(self, best: int | None) -> Iterator[Choice | OpenChoice | CompleteCut]:
        """Yield the items with a bound below the ``best`` plan, or all items if no plan is known."""
        return (item for bound, *_, item in chain.from_iterable(self.heaps) if best is None or bound < best)
