"""Best-first branch and bound over choices and cuts.

The priority of a choice is its lower bound. A choice is laid out for a tighter bound, and a good cut is tried. Then
portions of cuts follow, lowest bounds first. A cut is assembled and simulated once no other bound is lower. Before the
cuts of any choice, each family of choices gets a first try, and once a plan fits, each choice too. Cuts take longest,
and a better plan rules out most cuts. The search ends when no bound is lower than the
best simulated time, which proves the plan best. A search that ends at a limit reports the lowest remaining bound, which
limits the possible gain of any other plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Final

from ipusim.api import analysis
from ipusim.app.explain.trial import puts_together
from ipusim.app.study.trial import try_request
from ipusim.app.suggest.baseline import Baseline
from ipusim.app.suggest.bounds import Bounds
from ipusim.app.suggest.budget import Budget, SearchEndedError
from ipusim.app.suggest.choices import Choice, choices, orders_of, possible
from ipusim.app.suggest.cuts import Cutter
from ipusim.app.suggest.layout import Layout, Layouts
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.memory import memory_bound
from ipusim.app.suggest.search_items import FIRST, CompleteCut, Entry, OpenChoice, OpenItems, choice_of, is_open
from ipusim.app.suggest.searched import NEEDS_MEMORY, Plan, Searched
from ipusim.app.suggest.tables import any_cut
from ipusim.app.suggest.terms import on_any
from ipusim.app.suggest.together import least_together
from ipusim.app.suggest.units import Units, units_of

#: Growth of width from one portion of a choice's cuts to the next.
_PORTION_GROWTH: Final = Fraction(3, 2)
#: Maximum number of partial cuts held at once; with more, the worst are dropped.
_MOST_PARTIAL_CUTS: Final = 400_000
#: Number of passes of a plan that takes negligible time to simulate.
_QUICK_PASSES: Final = 10_000
#: Maximum width of a portion, in multiples of a choice's least time; wider portions hold all remaining cuts.
_WIDEST_PORTION: Final = 64
#: Number of cuts; choices with more cuts first get prices and a good cut.
_COSTLY_CUTS: Final = 20_000
#: Maximum number of attempts at a good cut within memory.
_GOOD_CUTS: Final = 3
#: Ratio of a choice's least time and the best known time, below which a good cut is tried before the cuts are listed.
_PROMISING: Final = Fraction(9, 10)
#: Number of steps that raise prices before the first cuts of a choice.
_MORE_STEPS: Final = 1000
#: Divisor of the gap between a choice's least time and the best known time, for the width of the first portion.
_PORTIONS: Final = 2
#: Maximum number of choices to examine for each runner-up.
_MOST_RUNNER_UP_CHOICES: Final = 100
#: Maximum number of partial cuts held at once for a runner-up.
_MOST_RUNNER_UP_CUTS: Final = 300
#: More cycles than any plan takes.
_UNREACHABLE: Final = 1 << 61


class Search:
    """Search for the fastest plan."""

    def __init__(
        self,
        baseline: Baseline,
        limits: Limits,
        *,
        most: int,
        budget: Budget,
        given_cycles: int | None = None,
    ) -> None:
        """Prepare a search and its choices.

        Args:
            baseline: given plan.
            limits: limits of the search.
            most: maximum number of simulations.
            budget: time and work of the search.
            given_cycles: cycles of the best known plan; None if no plan is known.
        """
        self._baseline, self._limits = baseline, limits
        self._most, self._budget = most, budget
        #: Time and work until the first plan that fits; None allows the whole budget.
        self.first_budget: Budget | None = None
        #: Function that returns the units at a micro-batch size.
        self.units: Callable[[int], Units] = cache(partial(units_of, baseline.request))
        self._layouts = Layouts(baseline)
        self._open = OpenItems()
        self._parent_bound = 0
        self._progress: Callable[[Searched], None] = lambda _: None
        self.searched = searched = Searched(given_cycles)
        first = searched.units = self.units(limits.sizes_of(baseline)[0])
        given_families = set()
        given_syncs = {""} if baseline.job is None else {"", baseline.job.plan.sync.value}
        given_schedule = baseline.request.options.pipeline.schedule
        for choice in choices(baseline, limits, first):
            searched.choices += 1
            if not possible(choice, first):
                searched.refused["units that share weights are not on one IPU"] += 1
                continue
            self._push(self._work_bound(choice), choice)
            if choice.mapping == baseline.mapping and choice.schedule == given_schedule and choice.sync in given_syncs:
                given_families.add(choice.family)
        # The family of the given plan comes first. Its plans are often good, and a good plan rules out many.
        self._families = self._open.families(given_families, given_syncs)
        self._update_bound()

    def run(self, progress: Callable[[Searched], None] = lambda _: None) -> Searched:
        """Run the search and return its results.

        ``progress`` is called repeatedly with the results so far.
        """
        self._progress = progress
        try:
            for family in self._families:
                self._try_first(family)
            while heap := self._open.next_heap(self.searched.best):
                self._step(heap)
        except SearchEndedError as error:
            self.searched.leave(self.searched.bound, str(error))
        self._end()
        return self.searched

    def _try_first(self, heap: list[Entry]) -> None:
        """Look at the choices of a family until a choice that may fit had its closer look."""
        while is_open(heap, self.searched.best):
            is_closer, too_large = isinstance(heap[0][-1], OpenChoice), self.searched.too_large
            self._step(heap)
            if is_closer and self.searched.too_large == too_large:
                return

    def _update_bound(self) -> None:
        """Update the lowest bound of all items; the last bound stays if no item is left."""
        self.searched.bound = min((heap[0][0] for heap in self._open.heaps), default=self.searched.bound)

    def _step(self, heap: list[Entry]) -> None:
        """Look at the first item of a heap; raises SearchEndedError at a limit."""
        self._spend()
        self._parent_bound, *_, item = heapq.heappop(heap)
        self._look(item, self._parent_bound)
        self._update_bound()

    def _look(self, item: Choice | OpenChoice | CompleteCut, bound: int) -> None:
        match item:
            case Choice():
                self._lay_out(bound, item)
            case OpenChoice():
                self._push_cuts(item)
            case CompleteCut():
                self._try(item)

    def _end(self) -> None:
        """Record the bound of unsimulated plans, and sort the plans."""
        searched, self._parent_bound = self.searched, 0
        searched.is_ended = True
        if searched.skipped_bound is not None and searched.best is not None and searched.skipped_bound >= searched.best:
            searched.skipped_bound = None
        if searched.skipped_bound is None:
            searched.open_choices, searched.end_reason = 0, ""
        else:
            searched.open_choices += len({choice_of(item) for item in self._open.items_below(searched.best)})
        self._sort()

    def runners_up(self, count: int) -> None:
        """Simulate a good plan of each of the next ``count`` kinds by bound, without proof.

        Kinds with many more passes than the best plan are skipped, as simulation would take long.
        """
        most = _QUICK_PASSES + 2 * max((plan.choice.passes for plan in self.searched.plans), default=0)
        kinds = {plan.choice.kind for plan in self.searched.plans}
        examined, self._most = 0, _UNREACHABLE
        while (heaps := self._open.heaps) and len(kinds) <= count and examined < _MOST_RUNNER_UP_CHOICES * count:
            *_, item = heapq.heappop(min(heaps, key=lambda heap: heap[0][:3]))
            choice = choice_of(item)
            if choice.kind in kinds or choice.passes > most:
                continue
            examined += 1
            count_before = len(self.searched.plans)
            try:
                self._spend()
                if isinstance(item, OpenChoice):
                    for row in (
                        item.cutter.cuts_below(_UNREACHABLE, _MOST_RUNNER_UP_CUTS, self._spend).cuts[:1].tolist()
                    ):
                        self._try(CompleteCut(item, tuple(row), next(iter(item.layouts))))
                else:
                    self._look(item, self._work_bound(choice))
            except SearchEndedError:
                break
            if len(self.searched.plans) > count_before:
                kinds.add(choice.kind)
        self._sort()

    def _sort(self) -> None:
        """Sort the plans by time. Plans of equal time have the order of plainness and memory."""

        def rank(plan: Plan) -> tuple[object, ...]:
            memory = plan.trial.accepted_job.memory
            return plan.cycles, plan.choice.plainness, 0 if memory.sram_bytes is None else memory.fullest.bytes

        self.searched.plans.sort(key=rank)

    def step_of(self, choice: Choice) -> int | None:
        """Return the number of samples that must divide a choice's global batch; None if refused."""
        multiple = self._layouts.multiple(choice)
        baseline = self._baseline
        units = self.units(choice.micro_batch_size)
        if multiple is None or isinstance(self._layouts.layout(replace(choice, count=multiple), units), str):
            return None
        return choice.micro_batch_size * choice.replicas * baseline.hosts * baseline.serialization * multiple

    def _spend(self, work: int = 0) -> None:
        """Spend ``work`` of the budget; raises SearchEndedError at a limit."""
        if self.searched.simulated >= self._most:
            raise SearchEndedError(f"the limit of {self._most} simulations")
        self.searched.bounded += work
        self._progress(self.searched)
        self._budget.spend(work)
        if self.first_budget is not None and self.searched.best is None:
            self.first_budget.spend(work)

    def _push(self, bound: int, item: Choice | OpenChoice | CompleteCut) -> None:
        """Push an item, with at least the bound of the item now looked at."""
        self._open.push(max(bound, self._parent_bound), item)

    def _work_bound(self, choice: Choice) -> int:
        """Return a bound that needs no layout: cycles of all passes, divided by the number of IPUs."""
        units = self.units(choice.micro_batch_size)
        work = int(units.pass_cycles[0, 0, -1] + (units.pass_cycles[1, 0, -1] if units.training else 0))
        return choice.count * self._baseline.serialization * work // choice.ipus_of_stages

    def _lay_out(self, bound: int, choice: Choice) -> None:
        """Push a choice with its layouts and a tighter bound, or count a refusal."""
        units = self.units(choice.micro_batch_size)
        one_by_one = self._work_bound(choice) * choice.ipus_of_stages
        if bound < one_by_one and self._layouts.one_by_one(choice):
            self._push(one_by_one, choice)
            return
        layouts: dict[str, Layout] = {}
        for order in orders_of(self._baseline, self._limits, choice):
            layout = self._layouts.layout(replace(choice, order=order), units)
            if not isinstance(layout, str):
                if all(layout.system.ipus != other_layout.system.ipus for other_layout in layouts.values()):
                    layouts[order] = layout
            elif not layouts:
                self.searched.refused[layout] += 1
                self.searched.reasons[choice.schedule][layout] += 1
                return
        options, layout = self._baseline.request.options, next(iter(layouts.values()))
        if self._is_a_guess(layout):
            self.searched.refused[NEEDS_MEMORY] += 1
            self.searched.reasons[choice.schedule][NEEDS_MEMORY] += 1
            return
        self.searched.laid_out.add(choice.schedule)
        layout = replace(layout, terms=on_any([candidate.terms for candidate in layouts.values()]))
        limit = layout.system.ipu.sram_bytes if self._baseline.has_limits else None
        memory = memory_bound(units, layout, limit, options.code_bytes)
        possible, searched = memory.possible_stages(), self.searched
        searched.least_bytes = min(searched.least_bytes or memory.least_bytes, memory.least_bytes)
        for name, least in zip(units.names, memory.of_units().tolist(), strict=True):
            searched.least_of_units[name] = min(searched.least_of_units.get(name, least), least)
        if (limit is not None and memory.least_bytes > limit) or not any_cut(possible):
            searched.too_large += 1
            return
        cutter = Cutter(units, Bounds(units, layout, possible), memory)
        self._push(cutter.bounds.least, OpenChoice(choice, layouts, cutter, possible))

    def _is_a_guess(self, layout: Layout) -> bool:
        """Return whether a layout puts stages of unknown memory on one IPU, and the user requested no placement."""
        job = self._baseline.job
        if job is None or job.memory.is_known or self._limits.placements is not None:
            return False
        return puts_together(job.program.shape, layout.plan.shape)

    def _push_cuts(self, item: OpenChoice) -> None:
        """Push the next portion of cuts, and the choice again for the remaining cuts."""
        if item.common_cycles is None:
            self._look_closer(item)
            return
        if not item.is_raised:
            self._push_raised(item)
            return
        best, least = self.searched.best, item.cutter.least
        # If no plan fits so far, even the slowest cuts must be checked before concluding that no plan fits.
        limit = least + int(least * item.width) + 1 if item.width < _WIDEST_PORTION else _UNREACHABLE
        if best is not None:
            limit = min(limit, best)
        cuts = item.cutter.cuts_below(limit, _MOST_PARTIAL_CUTS, self._spend)
        for row, bound in zip(cuts.cuts.tolist(), cuts.bounds.tolist(), strict=True):
            if bound >= item.least_bound:
                self._push(bound, CompleteCut(item, tuple(row)))
        if not self.searched.plans and len(cuts.cuts):  # an early simulated time saves later work
            self._try(CompleteCut(item, tuple(cuts.cuts[0].tolist()), next(iter(item.layouts))))
            best = self.searched.best
        if cuts.skipped_bound is not None:
            self.searched.leave(cuts.skipped_bound, f"the limit of {_MOST_PARTIAL_CUTS} cuts at once")
        elif (best is None or limit < best) and limit < _UNREACHABLE:
            self._push(limit, replace(item, least_bound=limit, width=item.width * _PORTION_GROWTH))

    def _push_raised(self, item: OpenChoice) -> None:
        """Push a choice again with prices raised further, before its first portion of cuts."""
        cutter = item.cutter
        if cutter.bounds.has_prices:
            bounds = cutter.bounds.with_prices(self.searched.best, self._spend, cutter.memory.ceiling, _MORE_STEPS)
            cutter = replace(cutter, bounds=bounds)
        width, least = FIRST, cutter.least
        if (best := self.searched.best) is not None:
            width = max(width, Fraction(best - least, max(least, 1)) / _PORTIONS)
        self._push(least, replace(item, cutter=cutter, is_raised=True, least_bound=least, width=width))

    def _look_closer(self, item: OpenChoice) -> None:
        """Push a choice again with a tighter bound, unless no cut fits in memory; try a good cut."""
        cutter, searched, has_many_cuts = item.cutter, self.searched, item.cutter.count > _COSTLY_CUTS
        limit = cutter.memory.sram_bytes
        if has_many_cuts and limit is not None and cutter.memory.fullest_bytes(item.possible, self._spend) > limit:
            searched.too_large += 1
            return
        common_cycles = min(least_together(layout, cutter.units) for layout in item.layouts.values())
        bounds = cutter.bounds.later_by(common_cycles)
        if has_many_cuts:
            bounds = bounds.with_prices(searched.best, self._spend, cutter.memory.ceiling)
        cutter = replace(cutter, bounds=bounds)
        least = cutter.least
        closer_item = replace(item, cutter=cutter, common_cycles=common_cycles)
        self._push(least, closer_item)
        # An early good plan saves later work: of many cuts in any case, of few cuts if it may be much better.
        if searched.best is None or least < searched.best * (1 if has_many_cuts else _PROMISING):
            self._try_good(closer_item)

    def _try_good(self, item: OpenChoice) -> None:
        """Try a good cut under its best selection order; try another if the cut exceeds memory."""
        spare = 0
        for _ in range(_GOOD_CUTS):
            cuts = item.cutter.good(spare, self._spend)
            if cuts is None:
                return
            bounds = {order: item.bound_under(order, cuts) for order in item.layouts}
            spare += (excess := self._try(CompleteCut(item, cuts, min(bounds, key=lambda order: bounds[order]))))
            if not excess:
                return

    def _try(self, leaf: CompleteCut) -> int:
        """Assemble and simulate a cut; a cut without selection order is pushed again for each order.

        Returns:
            Excess bytes of the fullest IPU.
        """
        item, searched = leaf.open_choice, self.searched
        if not leaf.order:
            for order in item.layouts:
                self._push(item.bound_under(order, leaf.cuts), replace(leaf, order=order))
            return 0
        if (leaf.order, leaf.cuts) in item.trials:
            return 0
        item.trials.add((leaf.order, leaf.cuts))
        choice = replace(item.choice, order=leaf.order)
        cuts = leaf.cuts[:-1]
        changes = choice.changes(self._baseline, item.cutter.units, cuts)
        trial = try_request(self._baseline.request, changes)
        searched.assembled += 1
        if trial.job is None:
            searched.refused[trial.refusal] += 1
        elif not analysis.fits_or_unknown(trial.fits):
            searched.misfits += 1
            full = trial.job.memory.excess_peaks
            return max((peak.bytes - (trial.job.memory.sram_bytes or 0) for peak in full), default=0)
        else:
            searched.plans.append(Plan(choice, cuts, item.cutter.units, trial))
        return 0
