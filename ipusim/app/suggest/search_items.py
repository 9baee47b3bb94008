"""Items of a search: choices, laid out choices with cuts to come, and complete cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.bounds import Bounds
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.cuts import Cutter
from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.together import together_under

#: Width of the first portion of a choice's cuts, above and relative to the choice's least time.
FIRST: Final = Fraction(1, 200)


@dataclass(frozen=True, eq=False)
class OpenChoice:
    """Choice that is laid out, with further portions of cuts to come.

    Attributes:
        choice: layout before cutting.
        layouts: layout by selection order.
        cutter: search for cuts.
        possible: mask of the stages, between any two units, that fit in memory.
        common_cycles: least cycles of gradient sums, gathers and host updates; None before the second look.
        is_raised: whether prices are raised as far as for a search of cuts.
        least_bound: bound; cuts below it have been pushed.
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
    """Complete cut, with a selection order if already chosen."""

    open_choice: OpenChoice
    cuts: tuple[int, ...]
    order: str = ""


#: Item to look at, after its bound, plainness and running number.
Entry = tuple[int, tuple[object, ...], int, Choice | OpenChoice | CompleteCut]


def choice_of(item: Choice | OpenChoice | CompleteCut) -> Choice:
    """Return the choice of an item."""
    if isinstance(item, CompleteCut):
        return item.open_choice.choice
    return item.choice if isinstance(item, OpenChoice) else item
