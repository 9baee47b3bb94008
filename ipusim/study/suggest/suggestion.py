"""A suggestion: the best plan that was found, what it was found among, and what it is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from ipusim.errors import OptionError, OutOfMemoryError
from ipusim.reuse import Reuse
from ipusim.runs.job import Job
from ipusim.runs.problems import Problem, RequestError
from ipusim.runs.request.request import Request
from ipusim.study.suggest.budget import Budget
from ipusim.study.suggest.choices import Choice, Limits, choices
from ipusim.study.suggest.given import TIME_ALONE, Given, changed, given_of
from ipusim.study.suggest.search import Search
from ipusim.study.suggest.searched import Plan, Searched
from ipusim.study.suggest.trial import Trial, host_part, laid_out, simulated, tried
from ipusim.study.throughputs import Full, NeverFullError, once_full, update_cycles
from ipusim.units import format_bytes

#: Plans beside the best that are simulated and shown.
RUNNERS_UP: Final = 4
#: Simulations of a search, unless asked otherwise.
SIMULATIONS: Final = 200
#: Passes up to which one IPU alone is simulated whole.
_WHOLE: Final = 40_000


class NothingFitsError(OutOfMemoryError):
    """A model of which no plan fits the machine's memory."""


@dataclass(frozen=True)
class Ceiling:
    """How fast a plan would be with ever more micro-batches, and what keeps it from being perfect.

    Attributes:
        full: its time at any count, but for the host between session runs.
        host: cycles of that for each weight update.
        busiest, mean: cycles of passes of a micro-batch on the busiest IPU, and on all of them evenly.
        samples: of a micro-batch, on all replicas of all hosts.
        multiple: the counts that its schedule takes.
    """

    full: Full
    host: Fraction
    busiest: int
    mean: Fraction
    samples: int
    multiple: int

    @property
    def _with_host(self) -> Full:
        return replace(self.full, cycles=self.full.cycles + self.host)

    def share(self, count: int) -> float:
        """Return which part of the ceiling a count reaches."""
        return float(self._with_host.share(count))

    def count_for(self, share: Fraction) -> int:
        """Return the least count that reaches ``share`` of the ceiling."""
        return self._with_host.least_count(share, self.multiple)

    @property
    def parts(self) -> dict[str, float]:
        """What a micro-batch's time is made of: even work, imbalance, and copies with their syncs and the host."""
        slope = self.full.slope or Fraction(1)
        return {
            "work, evenly on all IPUs": float(self.mean / slope),
            "imbalance of the stages": float((self.busiest - self.mean) / slope),
            "copies, syncs and the host": float((slope - self.busiest) / slope),
        }


@dataclass(frozen=True, eq=False)
class Suggestion:
    """What is suggested, and why.

    Attributes:
        given: the scenario's own plan.
        own: what came of it; its cycles are there also where it does not fit.
        searched: how the search went.
        one_ipu: the whole model on a single IPU of one host, with the same global batch.
        limits: what the search was limited to.
    """

    given: Given
    own: Trial
    searched: Searched
    one_ipu: Trial
    limits: Limits

    @property
    def plan(self) -> Plan | None:
        """The suggested plan; None where nothing is faster than the given one."""
        plans = self.searched.plans
        if not plans or (self.searched.known is not None and plans[0].cycles >= self.searched.known):
            return None
        return plans[0]

    @property
    def trial(self) -> Trial:
        """What came of the suggested plan, or of the given one where that is best."""
        return self.own if self.plan is None else self.plan.trial

    @property
    def changes(self) -> dict[str, Any]:
        """The options of the suggested plan, by their dotted names; none where the given plan is best."""
        plan = self.plan
        return {} if plan is None else plan.choice.changes(self.given, plan.units, plan.cuts)

    @property
    def job(self) -> Job:
        """The suggested plan laid out."""
        assert self.trial.job is not None
        return self.trial.job

    @property
    def request(self) -> Request:
        """The request of the suggested plan, arithmetic and all."""
        return changed(self.given.request, self.changes)

    @cached_property
    def ceiling(self) -> Ceiling | None:
        """That of the suggested plan; None where its time never grows evenly."""
        return ceiling_of(self.job)

    @cached_property
    def own_ceiling(self) -> Ceiling | None:
        """That of the given plan."""
        return None if self.own.job is None else ceiling_of(self.own.job)

    @property
    def gap(self) -> float:
        """By which share any plan that was not looked at could be faster; 0 where this one is proven the best."""
        left, best = self.searched.left, self.searched.best
        return 0.0 if left is None or best is None else max(1 - left / best, 0.0)


def ceiling_of(job: Job) -> Ceiling | None:
    """Return the ceiling of a plan, from the same plan at a few small counts."""
    request, shape, again = job.request, job.program.shape, Reuse()
    multiple = job.schedule.multiple(shape)

    def cycles_at(count: int) -> Fraction:
        found = laid_out(changed(request, {**TIME_ALONE, "pipeline.gradient_accumulation_count": count}), again)
        assert found.job is not None
        return update_cycles(found.job)

    try:
        full = once_full(cycles_at, multiple)
    except NeverFullError:
        return None
    per_update = shape.serialization
    busy = dict.fromkeys(job.plan.ipus, 0)
    for kind, stage in zip(job.plan.kind.tolist(), job.plan.stage.tolist(), strict=True):
        busy[shape.mapping[stage]] += job.costs.passes[kind, stage]
    count = request.options.pipeline.gradient_accumulation_count
    samples = job.program.micro_batch_size * job.system.learners * per_update
    return Ceiling(
        full,
        host_part(job),
        max(busy.values()) // count,
        Fraction(sum(busy.values()), len(busy) * count),
        samples,
        multiple,
    )


def suggest(
    request: Request,
    limits: Limits | None = None,
    *,
    simulations: int = SIMULATIONS,
    runners_up: int = RUNNERS_UP,
    seconds: float | None = None,
    told: Callable[[Searched], None] = lambda _: None,
) -> Suggestion:
    """Return the best legal plan for what ``request`` asks for, within ``limits``.

    The search takes at most so many ``simulations``, and ``seconds``; so many ``runners_up`` are simulated behind it.
    Stages that run at the same time stay as they are, and nothing else is searched.
    Raises OptionError for limits that leave no plan, for any where there is no search,
    and for stages that are Python functions, RequestError for what is wrong with the request whatever its plan, and
    NothingFitsError where no plan fits.
    """
    budget = Budget(seconds)
    limits, again = limits or Limits(), Reuse()
    given = given_of(request, again)
    own = Trial(None, given.refusal)
    if given.job is not None:
        own = simulated(tried(given.job))
    if given.concurrent:
        if asked := limits.names:
            said = "expected no limits of a search where stages run at the same time, which stay as they are, got {}"
            raise OptionError(asked[0], f"{said}{' and {}' * len(asked[1:])}", *asked)
        alone = Trial(None, "stages that run at the same time have IPUs of their own")
        return Suggestion(given, own, Searched(known=own.cycles), alone, limits)
    known = own.cycles if own.fits and limits == Limits() else None
    search = Search(given, limits, again, most=simulations, budget=budget, known=known)
    found = search.run(told)
    if found.best is None:
        _refuse(given, limits, found, search)
    search.runners_up(runners_up)
    return Suggestion(given, own, found, _one_ipu(given, limits, search, again), limits)


def _one_ipu(given: Given, limits: Limits, search: Search, again: Reuse) -> Trial:
    """Return the model on one IPU of one host, with the same global batch; carried on from small counts if large."""
    size = given.micro_batch_size
    count = (limits.global_batch or given.global_batch) // (size * given.serialization)
    alone = Choice(1, (0,), "straight", 1, "single", "", size, max(count, 1), "", False, False, None)
    request = changed(
        given.request,
        {
            **alone.changes(given, search.units(size), (0,)),
            **TIME_ALONE,
            "system.host.count": None,
            "system.select_ipus": None,
            "system.auto_select_ipus": 1,
            "pipeline.offload_weight_update_variables": None,
            "pipeline.offload_gradient_accumulation_buffers": None,
        },
    )
    found = laid_out(request, again)
    if found.job is None or len(found.job.plan.table) <= _WHOLE:
        return found if found.job is None else simulated(found)
    ceiling = ceiling_of(found.job)
    if ceiling is None:
        return found
    mean = ceiling.full.fixed + count * ceiling.full.slope
    return replace(found, cycles=int(mean), mean=Fraction(mean))


def _refuse(given: Given, limits: Limits, found: Searched, search: Search) -> None:
    """Say why there is no plan at all."""
    batch = limits.global_batch or given.global_batch
    if not found.choices or (found.refused.total() == found.choices and not found.too_large):
        if found.choices and not any("multiple" in reason for reason in found.refused):
            raise RequestError(_reasons(found))
        raise OptionError(
            "global_batch",
            f"expected a number of samples that some plan divides, got {batch}{_near(given, limits, search, batch)}",
        )
    needed = found.least_bytes or 0
    system = given.request.options.system.name
    held = given.job.system.ipu.sram_bytes if given.job else 0
    if found.misfits + found.too_large:
        raise NothingFitsError(
            f"No plan fits {system}: the fullest IPU of any holds at least {format_bytes(needed)}, and each IPU has "
            f"{format_bytes(held)}. {found.choices} ways to lay the model out were looked at, {found.too_large} of "
            f"which fit under no cut. Take more IPUs (--ipus), or smaller micro-batches (--micro-batch-sizes)."
        )
    raise OptionError("seconds", "expected time to find a plan, got too little: none was simulated yet")


def _reasons(found: Searched) -> list[Problem]:
    (reason, _), *_ = found.refused.most_common(1)
    return [Problem((), f"every plan is refused, most of them so: {reason.splitlines()[0]}")]


def _near(given: Given, limits: Limits, search: Search, batch: int) -> str:
    """Return the nearest global batches that some choice takes, below and above."""
    units = search.units((limits.micro_batch_sizes or (given.micro_batch_size,))[0])
    steps = {each for choice in choices(given, limits, units, whatever=True) if (each := search.step_of(choice))}
    below = max((batch // step * step for step in steps), default=0)
    above = min((-(-(batch + 1) // step) * step for step in steps), default=0)
    near = [str(each) for each in (below, above) if each]
    return f"; the nearest are {' and '.join(near)}" if near else ""
