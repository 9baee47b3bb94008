"""Suggest a plan: search, compare with the given plan, and report proof or remaining gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

from ipusim.api import Job, Request, RequestError, analysis, machine, runs
from ipusim.app.explain.memory_candidates import products_in_half
from ipusim.app.study.full_pipeline import COUNT, Ceiling, ceiling_of
from ipusim.app.study.trial import Trial, change_request, try_request
from ipusim.app.suggest.baseline import Baseline, baseline_of
from ipusim.app.suggest.budget import Budget
from ipusim.app.suggest.choices import sizes_of
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.refusals import refuse_limits, why_none
from ipusim.app.suggest.search import Search
from ipusim.app.suggest.searched import Plan, Searched
from ipusim.base.cache import sharing
from ipusim.base.errors import IpusimError, OptionError, OutOfMemoryError

#: Default number of runners-up that are simulated and shown.
RUNNERS_UP: Final = 4
#: Default number of simulations of a search.
SIMULATIONS: Final = 200
#: Share of time for a search with products in half their memory, if only such products make the given plan fit: other
#: plans hardly fit without smaller products.
_HALVED_SHARE: Final = 0.6
#: Default number of seconds of a whole suggestion.
SECONDS: Final = 60.0


class Outcome(Enum):
    """Outcome of a search."""

    PLAN = "plan"
    NONE_FITS = "none fits"
    NONE_FOUND = "none found"


class NothingFitsError(OutOfMemoryError):
    """Raised by a proof: no plan of a model fits in the machine's memory."""


class NothingFoundError(IpusimError):
    """Raised by a search that ended before finding a fitting plan; one may exist."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Suggested plan with reasons, or an explanation why no plan was found.

    Attributes:
        baseline: given plan of the scenario.
        searched: progress and result of the search.
        limits: limits of the search.
        added_options: options changed before the search, by dotted name: without them, the given plan or all plans
            exceed memory.
        moved_baseline: trial of the given plan with the changed options; None if no options changed, if the limits
            exclude the given plan, or if the given plan still exceeds memory.
        runner_up: second search, with options changed or unchanged; None after a single search.
        by_ipus: under limits with several numbers of IPUs, the suggestion for each number, or the message that refuses
            the number; otherwise empty. The suggestion as a whole is the fastest of these.
    """

    baseline: Baseline
    searched: Searched
    limits: Limits
    added_options: Mapping[str, Any] = field(default_factory=dict)
    moved_baseline: Trial | None = None
    runner_up: Searched | None = None
    by_ipus: Mapping[int, Suggestion | str] = field(default_factory=dict)

    @property
    def given_trial(self) -> Trial:
        """Trial of the given plan; has cycles even if the plan exceeds memory."""
        return self.baseline.trial

    @property
    def outcome(self) -> Outcome:
        """Outcome: a plan, proof that no plan fits, or neither."""
        if self.searched.best is not None or self.baseline.concurrent:
            return Outcome.PLAN
        return Outcome.NONE_FITS if self.searched.skipped_bound is None else Outcome.NONE_FOUND

    @property
    def why_none(self) -> str:
        """Reason why no plan was found; empty if a plan was found."""
        return (
            ""
            if self.outcome is Outcome.PLAN
            else why_none(self.baseline, self.searched, is_halved=self.runner_up is not None)
        )

    def raise_if_none(self) -> None:
        """Raise NothingFitsError if no plan fits, and NothingFoundError if no plan was found."""
        if self.outcome is not Outcome.PLAN:
            raise (NothingFitsError if self.outcome is Outcome.NONE_FITS else NothingFoundError)(self.why_none)

    @property
    def plan_by_ipus(self) -> dict[int, Suggestion]:
        """Suggestions of ``by_ipus`` with a plan."""
        suggestions = {ipus: found for ipus, found in self.by_ipus.items() if isinstance(found, Suggestion)}
        return {ipus: found for ipus, found in suggestions.items() if found.outcome is Outcome.PLAN}

    @property
    def plan(self) -> Plan | None:
        """Suggested plan; None if no plan is faster than the given plan."""
        plans = self.searched.plans
        if not plans or (self.searched.given_cycles is not None and plans[0].cycles >= self.searched.given_cycles):
            return None
        unchanged = (
            not self.added_options
            and analysis.fits_or_unknown(self.given_trial.fits)
            and same_plan(plans[0].trial.job, self.given_trial.job)
        )
        return None if unchanged else plans[0]

    @property
    def trial(self) -> Trial:
        """Trial of the suggested plan, or of the given plan if no plan is faster."""
        return self.plan.trial if self.plan is not None else self.moved_baseline or self.given_trial

    @property
    def changes(self) -> dict[str, Any]:
        """Options of the suggested plan by dotted name; empty if the given plan is best."""
        plan = self.plan
        return {
            **self.added_options,
            **({} if plan is None else plan.choice.changes(self.baseline, plan.units, plan.cuts)),
        }

    @property
    def job(self) -> Job:
        """Assembled job of the suggested plan.

        Raises:
            NothingFitsError: if no plan fits.
            NothingFoundError: if no plan was found.
        """
        self.raise_if_none()
        return self.trial.accepted_job

    @property
    def request(self) -> Request:
        """Request of the suggested plan, arithmetic included.

        Raises NothingFitsError if no plan fits, and NothingFoundError if no plan was found.
        """
        self.raise_if_none()
        return change_request(self.baseline.request, self.changes)

    @cached_property
    def verdict(self) -> analysis.Verdict:
        """Verdict of ``ipusim run`` on the suggested plan.

        Raises NothingFitsError if no plan fits, and NothingFoundError if no plan was found.
        """
        job, timeline = self.job, self.trial.timeline
        return analysis.verdict_of(timeline, job.costs, job.plan.shape, runs.run_on_one_ipu(job, timeline))

    @cached_property
    def ceiling(self) -> Ceiling | str:
        """Ceiling of the suggested plan; a refusal of counts, or an empty text, if unknown."""
        return ceiling_of(self.job)

    @cached_property
    def given_with_equal_samples(self) -> Trial | None:
        """Trial of the given plan with as many samples in a weight update as the suggested plan.

        None if both plans have equal samples, and if no legal count gives the suggested plan's samples.
        """
        given_trial, trial = self.given_trial, self.trial
        if given_trial.job is None or given_trial.samples == trial.samples:
            return None
        own_count = given_trial.job.request.options.pipeline.gradient_accumulation_count
        count = Fraction(own_count * trial.samples, given_trial.samples)
        if count.denominator > 1:
            return None
        result = try_request(given_trial.job.request, {COUNT: int(count)})
        return None if result.job is None else result

    @property
    def gap(self) -> float:
        """Largest share of the time that a skipped plan could save; 0 if the plan is proven best."""
        return self.searched.gap(self.searched.skipped_bound)


def same_plan(first: Job | None, second: Job | None) -> bool:
    """Return whether both jobs exist and have equal plans and costs."""
    return first is not None and second is not None and first.plan == second.plan and first.costs == second.costs


@sharing
def suggest(
    request: Request,
    limits: Limits | None = None,
    *,
    simulations: int = SIMULATIONS,
    runners_up: int = RUNNERS_UP,
    budget: Budget | None = None,
    progress: Callable[[Baseline, Searched], None] = lambda _baseline, _outcome: None,
) -> Suggestion:
    """Search for the best legal plan of ``request`` within ``limits``.

    Results depend on the computer's speed only under a time limit. Concurrent stages stay unchanged, without a search.
    Limits with several numbers of IPUs start a search for each number, with equal shares of the time.

    Args:
        request: request with the given plan.
        limits: limits of the search; unlimited if None.
        simulations: maximum number of simulations of a search.
        runners_up: number of simulated runners-up.
        budget: time and work of the search; None searches until a proof.
        progress: called with the given plan and the state of the search.

    Returns:
        Suggestion: a plan, proof that no plan fits, or neither.

    Raises:
        OptionError: for limits that exclude all plans, for any limits with concurrent stages, and for stages that are
            Python functions.
        RequestError: for a request that is wrong under any plan.
    """
    budget, limits = budget or Budget(), limits or Limits()
    baseline = baseline_of(request)
    if baseline.concurrent:
        if names := [*limits.given]:
            text = "expected no limits of a search for concurrent stages, which are not changed, got {}"
            raise OptionError(names[0], f"{text}{' and {}' * len(names[1:])}", *names)
        return Suggestion(baseline, Searched(given_cycles=baseline.trial.cycles), limits)
    search = partial(_suggest, baseline, simulations=simulations, runners_up=runners_up, progress=progress)
    sizes = sorted({*sizes_of(baseline, limits)}) if limits.ipus else ()
    return _suggest_by_ipus(sizes, limits, budget, search) if len(sizes) > 1 else search(limits, budget)


def _suggest_by_ipus(
    sizes: Sequence[int], limits: Limits, budget: Budget, search: Callable[[Limits, Budget], Suggestion]
) -> Suggestion:
    """Search for each number of IPUs and return the fastest suggestion; raises the first error if all are refused."""
    by_ipus: dict[int, Suggestion | str] = {}
    errors: list[IpusimError] = []
    for index, size in enumerate(sizes):
        try:
            by_ipus[size] = search(replace(limits, ipus=(size,)), budget.part(1 / (len(sizes) - index)))
        except (OptionError, RequestError) as error:
            errors.append(error)
            by_ipus[size] = str(error)
    suggestions = [suggestion for suggestion in by_ipus.values() if isinstance(suggestion, Suggestion)]
    if not suggestions:
        raise errors[0]
    with_plan = [suggestion for suggestion in suggestions if suggestion.outcome is Outcome.PLAN]
    # Without any plan, a search that ended at a limit is shown, as it leaves open whether a plan fits.
    best = min(
        with_plan or suggestions,
        key=lambda suggestion: (
            suggestion.trial.period / suggestion.trial.samples if with_plan else suggestion.outcome is Outcome.NONE_FITS
        ),
    )
    searched = copy(best.searched)
    for suggestion in suggestions:
        bound = suggestion.searched.skipped_bound
        if suggestion is not best and bound is not None and (searched.best is None or bound < searched.best):
            searched.leave_with(suggestion.searched)
    return replace(best, searched=searched, limits=limits, by_ipus=by_ipus)


def _suggest(
    baseline: Baseline,
    limits: Limits,
    budget: Budget,
    *,
    simulations: int,
    runners_up: int,
    progress: Callable[[Baseline, Searched], None],
) -> Suggestion:
    """Search in the format of :func:`suggest`, for one number of IPUs or without limits of it."""
    # Bounds are products over thousands of cuts and a few IPUs: BLAS threads would wait more than work.
    with machine.one_blas_thread():
        first, second = _starts(baseline, limits, budget, simulations)
        best, runner_up = _search_from(first, second, baseline, limits, progress)
        searched, other_searched = best.search.searched, None if runner_up is None else runner_up.search.searched
        if searched.best is None:
            return Suggestion(baseline, searched, limits, runner_up=other_searched)
        budget.begin_afterwards()
        best.search.runners_up(runners_up)
    is_moved = best.added_options and analysis.fits_or_unknown(best.baseline.trial.fits) and limits.leave(baseline)
    moved_baseline = best.baseline.trial if is_moved else None
    return Suggestion(baseline, searched, limits, best.added_options, moved_baseline, runner_up=other_searched)


@dataclass(frozen=True, eq=False)
class _Start:
    """Plan to search from.

    Attributes:
        baseline: given plan with the changed options.
        added_options: changed options by dotted name.
        search: search from this plan.
    """

    baseline: Baseline
    added_options: Mapping[str, Any]
    search: Search


def _search_from(
    first: _Start,
    second: _Start | None,
    baseline: Baseline,
    limits: Limits,
    progress: Callable[[Baseline, Searched], None],
) -> tuple[_Start, _Start | None]:
    """Search from one or two plans; return the better search, and the other one if there were two."""

    def tell(start: _Start, outcome: Searched) -> None:
        if outcome.best is not None and second is not None and second.added_options:
            outcome.pending_bound = None  # no second search follows
        progress(start.baseline, outcome)

    outcome = first.search.searched
    outcome.pending_bound = None if second is None else second.search.searched.bound
    first.search.run(partial(tell, first))
    if outcome.best is None:
        refuse_limits(baseline, limits, first.search)
    if second is None or (outcome.best is not None and second.added_options):
        return first, None
    second_outcome = second.search.searched
    second_outcome.given_cycles, second_outcome.pending_bound = outcome.best, outcome.skipped_bound
    second.search.run(partial(tell, second))
    is_better = outcome.best is None or (second_outcome.best is not None and second_outcome.best < outcome.best)
    best, runner_up = (second, first) if is_better else (first, second)
    best.search.searched.leave_with(runner_up.search.searched)
    return best, runner_up


def _starts(baseline: Baseline, limits: Limits, budget: Budget, simulations: int) -> tuple[_Start, _Start | None]:
    """Return one or two plans to search from: the given plan, with and without products in half their memory.

    The first search has these products if the given plan needs them to fit. If no plan is known to fit, the second
    search has them, and runs only if the first search finds no plan.
    """

    def start_from(plan: Baseline, changes: Mapping[str, Any], search_budget: Budget) -> _Start:
        is_allowed = analysis.fits_or_unknown(plan.trial.fits) and limits.leave(baseline)
        cycles = plan.trial.cycles if is_allowed else None
        return _Start(plan, changes, Search(plan, limits, most=simulations, budget=search_budget, given_cycles=cycles))

    first_start = start_from(baseline, {}, budget)
    outcome = first_start.search.searched
    if outcome.best is not None or not baseline.has_limits or outcome.units is None:
        return first_start, None
    changes = products_in_half(baseline.request.options, outcome.units.profiles)
    if not changes:
        return first_start, None
    halved = baseline_of(change_request(baseline.request, changes))
    if analysis.fits_or_unknown(halved.trial.fits) and not analysis.fits_or_unknown(baseline.trial.fits):
        return start_from(halved, changes, budget.part(_HALVED_SHARE)), first_start
    first_start.search.first_budget = budget.part(0.5)
    return first_start, start_from(halved, changes, budget.part(1))
