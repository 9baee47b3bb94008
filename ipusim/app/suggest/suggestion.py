"""A suggestion: the best plan that was found, what it was found among, and what it is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Any, Final

from ipusim.api import Job, Request, analysis, machine, runs
from ipusim.app.explain.memory_moves import products_in_half
from ipusim.app.study.full_pipeline import Full, NeverFullError, once_full, update_cycles
from ipusim.app.study.trial import Trial, change_request, try_request
from ipusim.app.suggest.baseline import Baseline, baseline_of
from ipusim.app.suggest.budget import Budget
from ipusim.app.suggest.choices import Limits
from ipusim.app.suggest.refusals import refuse_limits, why_none
from ipusim.app.suggest.search import Search
from ipusim.app.suggest.searched import Plan, Searched
from ipusim.base.cache import sharing
from ipusim.base.errors import CountError, IpusimError, OptionError, OutOfMemoryError

#: Plans beside the best that are simulated and shown.
RUNNERS_UP: Final = 4
#: Simulations of a search, unless asked otherwise.
SIMULATIONS: Final = 200
#: Seconds of a whole suggestion, unless asked otherwise.
SECONDS: Final = 60.0


class Outcome(Enum):
    """The outcome of a search."""

    PLAN = "plan"
    NONE_FITS = "none fits"
    NONE_FOUND = "none found"


class NothingFitsError(OutOfMemoryError):
    """A model of which no plan fits the machine's memory, which is proven."""


class NothingFoundError(IpusimError):
    """A search that was ended before it found a plan that fits; there may be one."""


@dataclass(frozen=True)
class Ceiling:
    """How fast a plan would be with ever more micro-batches, and what keeps it from being perfect.

    Attributes:
        full: its time per weight update at any count, host between session runs included.
        busiest, mean: cycles of passes of a micro-batch on the busiest IPU, and on all of them evenly.
        samples: of a micro-batch, on all replicas of all hosts.
        multiple: the counts that its schedule takes.
    """

    full: Full
    busiest: int
    mean: Fraction
    samples: int
    multiple: int

    def share(self, count: int) -> float:
        """Return the part of the ceiling that a count reaches."""
        return float(self.full.share(count))

    def count_for(self, share: Fraction) -> int:
        """Return the least count that reaches ``share`` of the ceiling."""
        return self.full.least_count(share, self.multiple)

    @property
    def parts(self) -> dict[str, float]:
        """The parts of a micro-batch's time: even work, imbalance, and copies with their syncs and the host."""
        slope = self.full.slope or Fraction(1)
        return {
            "work, evenly on all IPUs": float(self.mean / slope),
            "imbalance of the stages": float((self.busiest - self.mean) / slope),
            "copies, syncs and the host": float((slope - self.busiest) / slope),
        }


@dataclass(frozen=True, eq=False)
class Suggestion:
    """The suggested plan with its reasons, or why there is none.

    Attributes:
        baseline: the scenario's own plan.
        given_trial: what came of it; its cycles are there also where it does not fit.
        searched: how the search went.
        limits: what the search was limited to.
        added_options: options that the search began with, by dotted names, as the given plan fits with them alone.
        moved_baseline: the given plan with these; None without them, and where the limits leave it out.
        runner_up: another search, for plans without these options, or with them.
    """

    baseline: Baseline
    given_trial: Trial
    searched: Searched
    limits: Limits
    added_options: Mapping[str, Any] = field(default_factory=dict)
    moved_baseline: Trial | None = None
    runner_up: Searched | None = None

    @property
    def outcome(self) -> Outcome:
        """Whether there is a plan, or proof that none fits, or neither."""
        if self.searched.best is not None or self.baseline.concurrent:
            return Outcome.PLAN
        return Outcome.NONE_FITS if self.left is None else Outcome.NONE_FOUND

    @property
    def why_none(self) -> str:
        """Why there is no plan; empty where there is one."""
        return "" if self.outcome is Outcome.PLAN else why_none(self.baseline, self.searched)

    def raise_if_none(self) -> None:
        """Raise NothingFitsError where no plan fits, and NothingFoundError where none was found."""
        if self.outcome is not Outcome.PLAN:
            raise (NothingFitsError if self.outcome is Outcome.NONE_FITS else NothingFoundError)(self.why_none)

    @property
    def plan(self) -> Plan | None:
        """The suggested plan; None where nothing is faster than the given one."""
        plans = self.searched.plans
        if not plans or (self.searched.given_cycles is not None and plans[0].cycles >= self.searched.given_cycles):
            return None
        unchanged = (
            not self.added_options
            and analysis.usable(self.given_trial.fits)
            and same_plan(plans[0].trial.job, self.given_trial.job)
        )
        return None if unchanged else plans[0]

    @property
    def trial(self) -> Trial:
        """The trial of the suggested plan, or of the given one where that is best."""
        return self.plan.trial if self.plan is not None else self.moved_baseline or self.given_trial

    @property
    def changes(self) -> dict[str, Any]:
        """The options of the suggested plan, by their dotted names; none where the given plan is best."""
        plan = self.plan
        return {
            **self.added_options,
            **({} if plan is None else plan.choice.changes(self.baseline, plan.units, plan.cuts)),
        }

    @property
    def job(self) -> Job:
        """The suggested plan laid out.

        Raises NothingFitsError where none fits, and NothingFoundError where none was found.
        """
        self.raise_if_none()
        return self.trial.accepted_job

    @property
    def request(self) -> Request:
        """The request of the suggested plan, arithmetic and all; raises as ``job`` does where there is none."""
        self.raise_if_none()
        return change_request(self.baseline.request, self.changes)

    @cached_property
    def verdict(self) -> analysis.Verdict:
        """The verdict on a run of the suggested plan, as ``ipusim run`` gives it; raises as ``job`` does."""
        job, timeline = self.job, self.trial.timeline
        return analysis.verdict_of(timeline, job.costs, job.plan.shape, runs.run_on_one_ipu(job, timeline))

    @cached_property
    def ceiling(self) -> Ceiling | str:
        """The ceiling of the suggested plan, and why it is unknown where its schedule refuses counts, else empty."""
        return ceiling_of(self.job)

    @cached_property
    def own_ceiling(self) -> Ceiling | str:
        """The ceiling of the given plan."""
        return "" if self.given_trial.job is None else ceiling_of(self.given_trial.job)

    @property
    def left(self) -> int | None:
        """The lowest bound of what was not looked at; None where that is everything."""
        searches = (self.searched, *([] if self.runner_up is None else [self.runner_up]))
        return min((item.left for item in searches if item.left is not None), default=None)

    @property
    def stopped(self) -> str:
        """The limit that ended the search early; empty where all was searched."""
        return self.searched.stopped or ("" if self.runner_up is None else self.runner_up.stopped)

    @property
    def gap(self) -> float:
        """By which share any plan that was not looked at could be faster; 0 where this one is proven the best."""
        return self.searched.gap(self.left)


def same_plan(first: Job | None, second: Job | None) -> bool:
    """Tell whether both are laid out, as the same plan at the same costs."""
    return first is not None and second is not None and first.plan == second.plan and first.costs == second.costs


@sharing
def ceiling_of(job: Job) -> Ceiling | str:
    """Return the ceiling of a plan, from the same plan at a few small counts; or why it has none.

    Counts that its schedule refuses are left out.
    """
    request, shape = job.request, job.program.shape

    def cycles_at(count: int) -> Fraction:
        trial = try_request(request, {"pipeline.gradient_accumulation_count": count})
        if trial.job is None:
            raise CountError(trial.refusal)
        return update_cycles(trial.job)

    try:
        counts = runs.full_counts(job)
        full = once_full(cycles_at, counts.apart, counts.least)
    except NeverFullError:
        return ""
    except CountError as error:
        return str(error)
    busy = dict.fromkeys(job.plan.ipus, 0)
    for ipu, kind, stage in zip(job.plan.ipu.tolist(), job.plan.kind.tolist(), job.plan.stage.tolist(), strict=True):
        busy[ipu] += job.costs.passes[kind, stage]
    count = job.plan.shape.count // shape.serialization  # of a long run only some micro-batches are laid out
    samples = job.program.micro_batch_size * job.system.learners * shape.serialization
    busiest, mean = max(busy.values()) // count, Fraction(sum(busy.values()), len(busy) * count)
    return Ceiling(full, busiest, mean, samples, job.schedule.count_step(shape))


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
    """Return the best legal plan for what ``request`` asks for, within ``limits``; or that none fits or was found.

    The search takes at most so many ``simulations``, and lasts as long as its ``budget``; without one until it is
    proven. What it says under a limit of time depends on the machine; in which order it looks, and what it prefers of
    plans that are alike, does not, nor does what it says of a search that ends by itself. So many ``runners_up`` are
    simulated behind the best.
    Stages that run at the same time stay as they are, and nothing else is searched.
    Raises OptionError for limits that leave no plan, for any where there is no search,
    and for stages that are Python functions, and RequestError for what is wrong with the request whatever its plan.
    """
    budget, limits = budget or Budget(), limits or Limits()
    baseline = baseline_of(request)
    given_trial = Trial(baseline.job, baseline.refusal)
    if baseline.concurrent:
        if names := limits.names:
            text = "expected no limits of a search where stages run at the same time, which stay as they are, got {}"
            raise OptionError(names[0], f"{text}{' and {}' * len(names[1:])}", *names)
        return Suggestion(baseline, given_trial, Searched(given_cycles=given_trial.cycles), limits)
    searches = [
        _SearchStart(
            {}, baseline, given_trial if analysis.usable(given_trial.fits) and limits.leave(baseline) else None, budget
        )
    ]
    if (with_room := _with_products_in_half(baseline, given_trial, limits, budget)) is not None:
        searches.insert(0, with_room)
    # Bounds are products of thousands of cuts and a few IPUs: threads would wait more than work.
    with machine.one_blas_thread():
        past: list[Search] = []
        for start in searches:
            fastest = min((item.searched.best for item in past if item.searched.best is not None), default=None)
            past.append(start.run(limits, simulations, progress, fastest))
        best = min(past, key=lambda item: inf if item.searched.best is None else item.searched.best)
        runner_up = next((item.searched for item in past if item is not best), None)
        if best.searched.best is None:
            refuse_limits(baseline, limits, past[-1])
            first = past[0].searched if runner_up else None
            return Suggestion(baseline, given_trial, past[-1].searched, limits, runner_up=first)
        budget.begin_afterwards()
        best.runners_up(runners_up)
    start = searches[past.index(best)]
    return Suggestion(
        baseline,
        given_trial,
        best.searched,
        limits,
        start.added_options,
        start.trial if start.added_options else None,
        runner_up,
    )


@dataclass(frozen=True, eq=False)
class _SearchStart:
    """A search to be made.

    Attributes:
        added_options: options that differ from the given ones.
        baseline: the given plan with them.
        trial: what came of it; None where it does not fit, or the limits leave it out.
        budget: what the search may take.
    """

    added_options: Mapping[str, Any]
    baseline: Baseline
    trial: Trial | None
    budget: Budget

    def run(
        self, limits: Limits, most: int, progress: Callable[[Baseline, Searched], None], fastest: int | None
    ) -> Search:
        """Search for what takes less than the given plan, and than the ``fastest`` of an earlier search; return it."""
        given_cycles = None if self.trial is None else self.trial.cycles
        least_cycles = min((cycles for cycles in (given_cycles, fastest) if cycles is not None), default=None)
        search = Search(self.baseline, limits, most=most, budget=self.budget, known=least_cycles)
        search.run(lambda outcome: progress(self.baseline, outcome))
        return search


def _with_products_in_half(
    baseline: Baseline, given_trial: Trial, limits: Limits, budget: Budget
) -> _SearchStart | None:
    """Return a search from the given plan, which does not fit, as it fits where products take half as much memory.

    None where that is no way out.
    """
    if analysis.usable(given_trial.fits) or baseline.job is None or not baseline.has_limits:
        return None
    changes = products_in_half(baseline.job)
    trial = try_request(baseline.request, changes) if changes else given_trial
    if not analysis.usable(trial.fits):
        return None
    start_trial = trial if limits.leave(baseline) else None
    return _SearchStart(changes, baseline_of(change_request(baseline.request, changes)), start_trial, budget.part(0.5))
