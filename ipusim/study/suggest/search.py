"""Best first: what may be fastest is looked at first, and nothing is left that could be faster than the best found.

A choice is worth its lower bound; once it is laid out a better one, and then its cuts come, those with the lowest
bounds first, in portions. A cut is assembled and simulated when no bound is lower than its own. The search ends when
no bound is lower than the best simulated time, which proves that plan the best; or at a limit, and then the lowest
bound that is left says how much faster any other plan could be.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

import numpy as np

from ipusim.reuse import Reuse
from ipusim.study.suggest.bounds import Bounds
from ipusim.study.suggest.choices import Choice, Limits, choices, orders_of, possible
from ipusim.study.suggest.cuts import Cutter
from ipusim.study.suggest.given import TIME_ALONE, Given, changed
from ipusim.study.suggest.layout import Layout, Layouts, collective_cycles, collectives_of
from ipusim.study.suggest.room import room_of
from ipusim.study.suggest.terms import on_any
from ipusim.study.suggest.trial import Trial, laid_out, simulated
from ipusim.study.suggest.units import Units, units_of

#: By how much more than its least the first portion of a choice's cuts may take; each next one half as much again.
_FIRST: Final = Fraction(1, 200)
_GROWS: Final = Fraction(3, 2)
#: Cuts begun at once beyond which the worst are dropped.
_MOST: Final = 400_000
#: Passes of a plan that takes no time to speak of to simulate.
_PASSES: Final = 10_000
#: Times its least beyond which nothing is looked for.
_FAR: Final = 64
#: Of what lies between a choice's least and the best time known, the first portion is so large a part.
_PORTIONS: Final = 3
#: Bounds that are looked at for each runner-up.
_LOOKED: Final = 100
#: Cuts begun at once for these, and cycles that none takes.
_FEW: Final = 300
_NEVER: Final = 1 << 61


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan that was simulated.

    Attributes:
        choice: how the model is laid out.
        cuts: the first unit of each stage.
        units: what was cut.
        trial: what came of it.
    """

    choice: Choice
    cuts: tuple[int, ...]
    units: Units
    trial: Trial

    @property
    def cycles(self) -> int:
        """Cycles of an execution with its weight update."""
        assert self.trial.cycles is not None
        return self.trial.cycles


@dataclass(eq=False)
class Searched:
    """How a search went.

    Attributes:
        known: cycles of the given plan, where it is legal and within the limits: nothing slower is looked at.
        plans: those that were simulated, the fastest first; all of them fit.
        choices: ways to lay the model out but for its cuts.
        refused: how many of them a rule refuses, by its words.
        bounded: cuts, begun or whole, that were bounded.
        assembled, simulated: plans that were.
        misfits: plans that did not fit the memory after all.
        too_large: choices that fit the memory under no cut.
        least_bytes: the least that the fullest IPU of any plan needs.
        left: the lowest bound of what was not looked at; None where that is everything.
        stopped: what ended the search before that; empty where it is proven.
    """

    known: int | None = None
    plans: list[Plan] = field(default_factory=list)
    choices: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bounded: int = 0
    assembled: int = 0
    misfits: int = 0
    too_large: int = 0
    least_bytes: int | None = None
    left: int | None = None
    stopped: str = ""

    @property
    def simulated(self) -> int:
        """Plans that were simulated."""
        return len(self.plans)

    @property
    def shown(self) -> tuple[Plan, ...]:
        """The best plan of each kind, the fastest first."""
        return tuple({plan.choice.kind: plan for plan in reversed(self.plans)}[kind] for kind in self._kinds)

    @property
    def _kinds(self) -> tuple[tuple[object, ...], ...]:
        return tuple(dict.fromkeys(plan.choice.kind for plan in self.plans))

    @property
    def best(self) -> int | None:
        """The best simulated time, in cycles; None where nothing fits so far."""
        if self.plans and self.known is not None:
            return min(self.known, *(plan.cycles for plan in self.plans))
        return min((plan.cycles for plan in self.plans), default=self.known)


#: The first unit of each stage of an IPU, and the one behind it.
Stages = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class _Open:
    """A choice laid out, whose cuts come portion by portion; IPUs known to be ``full`` need not be tried again."""

    choice: Choice
    layouts: Mapping[str, Layout]
    units: Units
    cutter: Cutter
    together: int | None = None
    above: int = 0
    width: Fraction = _FIRST
    alone: dict[str, Bounds] = field(default_factory=dict)
    full: set[tuple[int, Stages]] = field(default_factory=set)

    def on_ipus(self, cuts: Sequence[int]) -> Iterator[tuple[int, Stages]]:
        """Yield each IPU with the first and the last unit of each of its stages: all that its memory depends on."""
        for ipu in dict.fromkeys(self.choice.mapping):
            own = [stage for stage, each in enumerate(self.choice.mapping) if each == ipu]
            yield ipu, tuple((cuts[stage], cuts[stage + 1]) for stage in own)


@dataclass(frozen=True, eq=False)
class _Leaf:
    """A whole cut, under a selection order where that is settled."""

    opened: _Open
    cuts: tuple[int, ...]
    order: str = ""


class Search:
    """A search for the plan of least time."""

    def __init__(
        self,
        given: Given,
        limits: Limits,
        again: Reuse,
        *,
        most: int,
        until: float | None = None,
        known: int | None = None,
    ) -> None:
        """Search within ``limits``, with at most ``most`` simulations, and until a moment of time.monotonic.

        What was assembled of the model before is taken from ``again``.
        """
        self._given, self._limits = given, limits
        self._most, self._until = most, until
        self._units: dict[int, Units] = {}
        self._again = again
        self._layouts = Layouts(given, again)
        self._heap: list[tuple[int, tuple[object, ...], int, Choice | _Open | _Leaf]] = []
        self._number = 0
        self._collectives: dict[tuple[object, ...], int] = {}
        self.found = Searched(known)

    def run(self, told: Callable[[Searched], None] = lambda _: None) -> Searched:
        """Search, and return what was found; raises OptionError for limits that leave nothing."""
        found = self.found
        first = self.units(
            self._limits.micro_batch_sizes[0] if self._limits.micro_batch_sizes else self._given.micro_batch_size
        )
        for choice in choices(self._given, self._limits, first):
            found.choices += 1
            if not possible(choice, first):
                found.refused["units that share weights do not come to one IPU"] += 1
                continue
            self._push(self._at_least(choice), choice)
        while self._heap:
            bound, *_, item = self._heap[0]
            best = found.best
            if best is not None and bound >= best:
                break
            if self._stop():
                found.left = bound if found.left is None else min(found.left, bound)
                break
            heapq.heappop(self._heap)
            told(found)
            match item:
                case Choice():
                    self._lay_out(bound, item)
                case _Open():
                    self._cut(item)
                case _Leaf():
                    self._try(item)
        if found.left is not None and found.best is not None and found.left >= found.best:
            found.left = None
        found.stopped = found.stopped if found.left is not None else ""
        self._sort()
        return found

    def runners_up(self, count: int) -> None:
        """Simulate a good plan of each of the ``count`` next kinds, by their bounds: no more is said of them.

        Kinds with far more passes than the best plan has, which take long to simulate, are left out.
        """
        most = _PASSES + 2 * max((plan.choice.passes for plan in self.found.plans), default=0)
        seen = {plan.choice.kind for plan in self.found.plans}
        looked_at = 0
        while self._heap and len(seen) <= count and looked_at < _LOOKED * count:
            *_, item = heapq.heappop(self._heap)
            choice = _choice_of(item)
            if choice.kind in seen or choice.passes > most:
                continue
            looked_at += 1
            before = len(self.found.plans)
            match item:
                case Choice():
                    self._lay_out(self._at_least(item), item)
                case _Open():
                    self._dive(item)
                case _Leaf():
                    self._try(item)
            if len(self.found.plans) > before:
                seen.add(choice.kind)
        self._sort()

    def _dive(self, item: _Open) -> None:
        """Try the best of the few cuts that look best from the beginning on."""
        found = item.cutter.below(_NEVER, _FEW)
        for row in found.cuts[:1].tolist():
            self._try(_Leaf(item, tuple(row), next(iter(item.layouts))))

    def _sort(self) -> None:
        self.found.plans.sort(key=lambda plan: (plan.cycles, plan.choice.plainness))

    def units(self, micro_batch_size: int) -> Units:
        """Return the units at a micro-batch size."""
        if micro_batch_size not in self._units:
            self._units[micro_batch_size] = units_of(self._given.request, micro_batch_size, self._again)
        return self._units[micro_batch_size]

    def step_of(self, choice: Choice) -> int | None:
        """Return the number of samples of which a choice's global batch is a multiple; None where it is refused."""
        multiple = self._layouts.multiple(choice)
        given = self._given
        units = self.units(choice.micro_batch_size)
        if multiple is None or isinstance(self._layouts.of(replace(choice, count=multiple), units), str):
            return None
        return choice.micro_batch_size * choice.replicas * given.hosts * given.serialization * multiple

    def _stop(self) -> bool:
        found = self.found
        if self._until is not None and time.monotonic() > self._until:
            found.stopped = "the time limit"
        elif found.simulated >= self._most:
            found.stopped = f"the limit of {self._most} simulations"
        return bool(found.stopped)

    def _push(self, bound: int, item: Choice | _Open | _Leaf) -> None:
        choice = _choice_of(item)
        heapq.heappush(self._heap, (bound, choice.plainness, self._number, item))
        self._number += 1

    def _at_least(self, choice: Choice) -> int:
        """Return a bound that needs no layout: all passes, evenly over all IPUs."""
        units = self.units(choice.micro_batch_size)
        work = int(units.passes[0, 0, -1] + (units.passes[1, 0, -1] if units.training else 0))
        return choice.count * self._given.serialization * work // choice.used

    def _lay_out(self, bound: int, choice: Choice) -> None:
        units = self.units(choice.micro_batch_size)
        one_by_one = self._at_least(choice) * choice.used
        if bound < one_by_one and self._layouts.one_by_one(choice):
            self._push(one_by_one, choice)
            return
        layouts: dict[str, Layout] = {}
        for order in orders_of(self._given, self._limits, choice):
            layout = self._layouts.of(replace(choice, order=order), units)
            if not isinstance(layout, str):
                if all(layout.system.ipus != other.system.ipus for other in layouts.values()):
                    layouts[order] = layout
            elif not layouts:
                self.found.refused[layout] += 1
                return
        options, layout = self._given.request.options, next(iter(layouts.values()))
        layout = replace(layout, terms=on_any([each.terms for each in layouts.values()]))
        bounds = Bounds(units, layout, 0)
        limit = layout.system.ipu.sram_bytes if self._given.limited else None
        room = room_of(units, layout, limit, options.code_bytes, bool(options.pipeline.recomputation_checkpoints))
        needs = room.least_bytes
        self.found.least_bytes = min(self.found.least_bytes or needs, needs)
        if limit is not None and needs > limit:
            self.found.too_large += 1
            return
        cutter = Cutter(units, bounds, room)
        self._push(cutter.rough, _Open(choice, layouts, units, cutter))

    def _cut(self, item: _Open) -> None:
        """Push the next portion of cuts, and the choice again for those behind it."""
        if item.together is None:  # what replicas do together is looked up once it matters
            together = self._collective_cycles(item)
            cutter = item.cutter.later_by(together)
            width = _FIRST
            if self.found.best is not None:
                width = max(width, Fraction(self.found.best - cutter.least, max(cutter.least, 1)) / _PORTIONS)
            self._push(cutter.least, replace(item, cutter=cutter, together=together, above=cutter.least, width=width))
            return
        best, least = self.found.best, item.cutter.least
        below = least + int(least * item.width) + 1
        if best is not None:
            below = min(below, best)
        cuts = item.cutter.below(below, _MOST)
        self.found.bounded += cuts.looked_at
        for row, bound in zip(cuts.cuts.tolist(), cuts.bounds.tolist(), strict=True):
            if bound >= item.above:
                self._push(bound, _Leaf(item, tuple(row)))
        if not self.found.plans and len(cuts.cuts):  # a time that is known early saves much of what comes later
            self._try(_Leaf(item, tuple(cuts.cuts[0].tolist()), next(iter(item.layouts))))
            best = self.found.best
        if cuts.left is not None:
            self.found.left = cuts.left if self.found.left is None else min(self.found.left, cuts.left)
            self.found.stopped = f"the limit of {_MOST} cuts at once"
        elif (best is None or below < best) and below <= least * _FAR:
            self._push(below, replace(item, above=below, width=item.width * _GROWS))

    def _collective_cycles(self, item: _Open) -> int:
        """Return what replicas spend together at least, under the best selection order."""
        layouts = item.layouts.values()
        key = (item.choice.mapping, item.choice.ipus, next(iter(layouts)).offload, item.choice.micro_batch_size)
        if key not in self._collectives:
            self._collectives[key] = min(collective_cycles(each, item.units.profiles) for each in layouts)
        return self._collectives[key]

    def _refine(self, leaf: _Leaf) -> None:
        """Push a whole cut under each selection order, with what its replicas really do together."""
        item, cuts = leaf.opened, np.array([leaf.cuts])
        for order, layout in item.layouts.items():
            if order not in item.alone:
                item.alone[order] = Bounds(item.units, layout, 0)
            together = collectives_of(layout, item.units.profiles, leaf.cuts)
            self._push(item.alone[order].later_by(together).least_of(cuts), replace(leaf, order=order))

    def _try(self, leaf: _Leaf) -> None:
        item = leaf.opened
        if not item.full.isdisjoint(item.on_ipus(leaf.cuts)):
            self.found.misfits += 1
            return
        if not leaf.order:
            self._refine(leaf)
            return
        choice = replace(item.choice, order=leaf.order)
        cuts = leaf.cuts[:-1]
        request = changed(self._given.request, {**choice.changes(self._given, item.units, cuts), **TIME_ALONE})
        trial = laid_out(request, self._again)
        self.found.assembled += 1
        if trial.job is None:
            self.found.refused[trial.refusal] += 1
        elif not trial.fits:
            self.found.misfits += 1
            full = {peak.ipu for peak in trial.job.memory.over}
            item.full.update(each for each in item.on_ipus(leaf.cuts) if each[0] in full)
        else:
            self.found.plans.append(Plan(choice, cuts, item.units, simulated(trial)))


def _choice_of(item: Choice | _Open | _Leaf) -> Choice:
    if isinstance(item, _Leaf):
        return item.opened.choice
    return item.choice if isinstance(item, _Open) else item
