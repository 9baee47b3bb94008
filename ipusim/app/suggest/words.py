"""Describe a suggestion in words and tables: verdict, plans, and extent of the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Job, analysis, pipelines, runs
from ipusim.app.explain.memory_candidates import PRODUCTS_IN_HALF, products_in_half
from ipusim.app.explain.memory_moves import is_long, memory_moves
from ipusim.app.explain.memory_words import options_of
from ipusim.app.render.tables import Table
from ipusim.app.render.verdict import against_one_words
from ipusim.app.study.full_pipeline import Ceiling, ceiling_of
from ipusim.app.study.result import Result
from ipusim.app.study.trial import Trial
from ipusim.app.suggest.baseline import Baseline
from ipusim.app.suggest.budget import TIME_ENDS
from ipusim.app.suggest.plan_table import (
    accumulation_count,
    legend,
    other_trials,
    plan_rows,
    plan_table,
    samples_per_second,
    shown_trials,
    update_seconds,
)
from ipusim.app.suggest.searched import NEEDS_MEMORY, Searched
from ipusim.app.suggest.size_table import size_rows, size_table
from ipusim.app.suggest.suggestion import Suggestion
from ipusim.base.units import counted, enumerated, format_seconds, format_throughput

#: Share of the ceiling for which the report states the needed count.
_CEILING_SHARE: Final = Fraction(9, 10)


@dataclass(frozen=True, eq=False)
class SuggestionResult(Result):
    """Suggestion as a result for the terminal and files.

    Attributes:
        suggestion: plan, or reason why no plan was found.
    """

    suggestion: Suggestion

    names = ("suggestion.json", "suggestion.csv")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict, the plan for each number of IPUs, the cuts, the plans, and the search's extent."""
        yield from verdict(self.suggestion)
        if self.suggestion.why_none:
            return
        if self.suggestion.by_ipus:
            yield size_table(self.suggestion)
        yield from with_less_memory(self.suggestion)
        yield from split_lines(self.suggestion)
        yield plan_table(self.suggestion)
        yield from searched_lines(self.suggestion)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each plan; no rows without a plan."""
        return [] if self.suggestion.why_none else plan_rows(self.suggestion)

    def data(self) -> dict[str, Any]:
        """Return the outcome, the plan's changes, remaining gap, plans, and the best for each number of IPUs."""
        suggestion, outcome = self.suggestion, self.suggestion.searched
        return {
            "name": suggestion.baseline.request.name,
            "outcome": suggestion.outcome.value,
            "why_none": suggestion.why_none or None,
            "proven": suggestion.searched.skipped_bound is None,
            "gap": suggestion.gap,
            "stopped": suggestion.searched.end_reason or None,
            "changes": {} if suggestion.why_none else runs.plain(suggestion.changes),
            "given_with_equal_samples": _equal_samples(suggestion),
            "plans": self.rows(),
            "by_ipus": size_rows(suggestion),
            "searched": {
                name: getattr(outcome, name)
                for name in ("choices", "too_large", "bounded", "misfits", "assembled", "simulated")
            },
        }


def _equal_samples(suggestion: Suggestion) -> dict[str, Any] | None:
    trial = None if suggestion.why_none else suggestion.given_with_equal_samples
    if trial is None:
        return None
    return {"gradient_accumulation_count": accumulation_count(trial), "weight_update_period_s": update_seconds(trial)}


def verdict(suggestion: Suggestion) -> Iterator[str]:
    """Yield the first lines: the plan, its time, gain and limits; or the reason why no plan was found."""
    if suggestion.why_none:
        yield suggestion.why_none
        return
    job, trial = suggestion.job, suggestion.trial
    room = f" with {PRODUCTS_IN_HALF}" if suggestion.added_options else ""
    if suggestion.plan is None:
        given = f"Best plan: the given plan{room}," if room else "Keep the given plan:"
        yield f"{given} {plan_words(job)}. Nothing faster {_proof(suggestion)}."
    else:
        yield f"Best plan: {plan_words(job)}{_order_words(suggestion)}{',' * bool(room)}{room}."
    period = "weight update" if job.program.shape.training else "execution"
    yield f"Time per {period}: {_time(trial)}; {_rate(trial)}."
    equals = [
        trial_of_plan
        for trial_of_plan in other_trials(suggestion)
        if trial_of_plan.period * trial.samples == trial.period * trial_of_plan.samples
    ]
    as_fast = dict.fromkeys(_schedule(equal.accepted_job) for equal in equals)
    as_fast.pop(_schedule(job), None)  # the table shows plans with equal schedules but other options
    if as_fast:
        yield f"As fast, among the plans below: {enumerated(as_fast)}."
    if trial is not suggestion.given_trial:
        yield _against_own(suggestion)
        yield from _unequal_steps(suggestion)
    yield _against_one(suggestion)
    if note := pipelines.idealised(trial.accepted_job.plan.sync for _, trial in shown_trials(suggestion)):
        yield note
    yield job.memory.verdict()
    yield from ceiling_words(suggestion.ceiling, trial, "Ceiling of the plan")
    if trial is not suggestion.given_trial and suggestion.given_trial.job is not None:
        given_trial = suggestion.given_trial
        yield from ceiling_words(ceiling_of(given_trial.accepted_job), given_trial, "Ceiling of the given plan")


def with_less_memory(suggestion: Suggestion) -> Iterator[str]:
    """Yield a faster way to fit the given plan, by options outside the search."""
    given_trial, trial = suggestion.given_trial, suggestion.trial
    if (
        suggestion.why_none
        or analysis.fits_or_unknown(given_trial.fits)
        or given_trial.job is None
        or trial.job is None
    ):
        return
    if suggestion.baseline.ipus not in (suggestion.limits.ipus or (suggestion.baseline.ipus,)):
        return
    if is_long(given_trial.job):  # every change takes a long simulation, after the limit of time
        return
    best = next(iter(memory_moves(given_trial.job, with_longer_parts=False).moves), None)
    if (
        best is not None
        and analysis.fits_or_unknown(best.fits)
        and best.period_s * trial.samples < update_seconds(trial) * given_trial.samples
    ):
        yield (
            f"The given plan with {best.words} is faster and fits: {format_seconds(best.period_s)} for a weight "
            f"update. Search again from this plan: {options_of(best.changes)}"
        )


def so_far(baseline: Baseline, outcome: Searched, seconds: float) -> str:
    """Return a search's progress: the best plan, and the bound on other plans."""
    clock = baseline.job.system.clock_hz if baseline.job else None

    def time_text(cycles: int) -> str:
        return f"{cycles:,} cycles" if clock is None else format_seconds(cycles / clock)

    best = f"{seconds:.0f} s, " + (
        "no plan yet" if outcome.best is None else f"best {time_text(outcome.best)} for the first weight update"
    )
    bound = outcome.lowest_bound
    gap = f" ({outcome.gap(bound):.1%} less)" if outcome.best else ""
    if not outcome.is_ended:
        others = "every plan takes" if outcome.best is None else "any other takes"
        return f"{best}, {others} at least {time_text(bound)}{gap}"
    gap = f"another plan could take {outcome.gap(outcome.skipped_bound):.1%} less time at most"
    proof = "proven" if outcome.skipped_bound is None else gap
    return f"{best}, {proof}; plans of other kinds are simulated for the table"


def plan_words(job: Job) -> str:
    """Return a plan in a sentence."""
    shape, system = job.program.shape, job.system
    ipus = len(set(shape.mapping))
    place = f"{ipus} IPUs" if ipus > 1 else "one IPU"
    stages = f"{shape.positions} stage{'s' * (shape.positions > 1)} on {place}"
    parts = [_schedule(job), stages]
    parts += [f"{system.replicas} replicas"] if system.replicas > 1 else []
    parts += [f"{system.hosts} hosts"] if system.hosts > 1 else []
    count = job.request.options.pipeline.gradient_accumulation_count
    parts.append(f"{_micro_batches(count)} of {job.program.micro_batch_size}")
    if shape.recompute or shape.recompute_inline:
        parts.append("activations recomputed")
    if job.program.offload.weight_update_variables and any(stage.state_bytes for stage in job.program.stages):
        in_parts = " (split over the replicas)" if job.program.offload.sharded_state else ""
        parts.append(f"optimizer state in Streaming Memory{in_parts}")
    elif job.program.offload.sharded_update:
        parts.append("optimizer state split over the replicas")
    if job.memory.footprint.moves and (activations := job.program.moved_activations) is not None:
        parts.append(f"activations moved to {activations.to.replace('_', ' ')}")
    if job.program.offload.variables_on_host:
        parts.append("weights updated by the host")
    return ", ".join(parts)


def _order_words(suggestion: Suggestion) -> str:
    """Return the plan's selection order in words; empty if the scenario states the same order."""
    job = suggestion.job
    orders = [request.options.system.selection_order for request in (suggestion.baseline.request, job.request)]
    if orders[0] == orders[1] or len(job.plan.ipus) == 1:
        return ""
    return f", IPUs selected in {job.system.selection_order} order"


def _proof(suggestion: Suggestion) -> str:
    outcome = suggestion.searched
    if not outcome.choices:
        return "was searched for, because concurrent stages are not changed"
    if suggestion.searched.skipped_bound is None:
        return "is in the search, which is proven"
    end = suggestion.searched.end_reason
    return f"was found up to {end}; another plan could take {suggestion.gap:.1%} less time at most"


def _against_own(suggestion: Suggestion) -> str:
    given_trial, trial = suggestion.given_trial, suggestion.trial
    if given_trial.job is None:
        return f"The given plan is refused: {given_trial.refusal.splitlines()[0]}"
    may_fit = analysis.fits_or_unknown(given_trial.fits)
    misfit = "" if may_fit else f" and {given_trial.fits}"
    host = "; its host updates the weights" if given_trial.job.program.offload.variables_on_host else ""
    ipus = [job.system.replicas * len(job.plan.ipus) for job in (suggestion.job, given_trial.job)]
    mine, theirs = (f" on {counted(count, 'IPU')}" if len({*ipus}) > 1 else "" for count in ipus)
    ratio = _times_as_fast(trial, given_trial)
    subject = "The plan" if trial.samples == given_trial.samples else "Per sample, the plan"
    text = f"{subject}{mine} is {ratio} as the given plan{theirs}, which takes {_time(given_trial)}{misfit}{host}."
    if may_fit and not suggestion.limits.leave(suggestion.baseline):
        text += " The options exclude the given plan from the search."
    if (equal := suggestion.given_with_equal_samples) is not None:
        equal_fits = "" if analysis.fits_or_unknown(equal.fits) else f", which then {equal.fits},"
        text += (
            f" With {_micro_batches(accumulation_count(equal))}, for as many samples, the given plan{equal_fits} takes "
            f"{_time(equal)}: the plan is {_times_as_fast(trial, equal)} as that."
        )
    return text


def _unequal_steps(suggestion: Suggestion) -> Iterator[str]:
    """Yield how sums of gradients make the plan learn in other steps than the given plan."""
    trial, given_trial = suggestion.trial, suggestion.given_trial
    program, options = suggestion.job.program, suggestion.job.request.options
    if given_trial.job is None or options.optimizer is None or program.reduction != "SUM":
        return
    count, given_count = accumulation_count(trial), accumulation_count(given_trial)
    if count != given_count:
        yield (
            f"The plan learns in other steps: a weight update adds up the gradients of {_micro_batches(count)}, under "
            f"the given plan of {given_count} (reduction_method SUM). With MEAN, the steps are equal."
        )


def _against_one(suggestion: Suggestion) -> str:
    job = suggestion.job
    disturbed = bool(job.request.options.disturbances)
    words = against_one_words(suggestion.verdict, lambda cycles: cycles / job.system.clock_hz, disturbed=disturbed)
    return f"Against one IPU: {words}."


def _times_as_fast(trial: Trial, reference: Trial) -> str:
    """Return the speed ratio of two plans for equal samples; "as fast" if neither takes time."""
    mine, theirs = trial.period * reference.samples, reference.period * trial.samples
    return f"{float(theirs / mine):.2f} times as fast" if mine else "as fast" if not theirs else "faster"


def ceiling_words(ceiling: Ceiling | str, trial: Trial, owner: str) -> Iterator[str]:
    """Yield the throughput limit of a plan for many micro-batches, with its losses."""
    if isinstance(ceiling, str):
        if ceiling:
            yield f"{owner} is not known, because its schedule refuses the counts needed for the ceiling: {ceiling}"
        return
    if not ceiling.full.slope:
        return
    count, share = accumulation_count(trial), (samples_per_second(trial) or 0.0) / ceiling.samples_per_s
    enough = ceiling.count_for(_CEILING_SHARE)
    yield (
        f"{owner}, its throughput with ever more micro-batches: {format_throughput(ceiling.samples_per_s)}. "
        f"{_micro_batches(count)} reach{'es' * (count == 1)} {share:.1%} of this ceiling, "
        f"{enough} {'is' if enough == 1 else 'are'} enough for 90 %."
    )
    parts = ", ".join(f"{name} {share:.1%}" for name, share in ceiling.parts.items())
    yield f"At this ceiling the time goes into: {parts}."


def _micro_batches(count: int) -> str:
    return f"{count} micro-batch{'es' * (count > 1)}"


def _time(trial: Trial) -> str:
    return format_seconds(update_seconds(trial))


def _rate(trial: Trial) -> str:
    return trial.throughput.words


def _schedule(job: Job) -> str:
    return f"{job.schedule.name} in {job.plan.sync.words}"


def split_lines(suggestion: Suggestion) -> Iterator[str]:
    """Yield the suggested cuts of the model, a line per stage."""
    plan = suggestion.plan
    if plan is None or not plan.units.movable or len(plan.cuts) == 1:
        return
    if suggestion.by_ipus:
        yield f"Stages of the fastest plan, on {len(suggestion.job.system.ipus)} IPUs:"
    ends = (*plan.cuts[1:], len(plan.units))
    for stage, (start, end) in enumerate(zip(plan.cuts, ends, strict=True)):
        last = f" to {plan.units.names[end - 1]}" if end - start > 1 else ""
        yield f"  stage {stage} on IPU {plan.choice.mapping[stage]}: {plan.units.names[start]}{last}"


def searched_lines(suggestion: Suggestion) -> Iterator[str]:
    """Yield lines on the table's columns, the searched plans, and the number of simulations."""
    outcome = suggestion.searched
    if not outcome.choices:
        return
    yield legend(suggestion)
    if suggestion.by_ipus:
        yield (
            "Best plan for each number of IPUs: used are the IPUs per replica, times the number of replicas; "
            "the possible gain is the share of the time that another plan could save at most. Each number had an equal "
            "share of the search. The next line describes the search that found the fastest plan."
        )
    yield outcome.words()
    if left_out := outcome.refused[NEEDS_MEMORY]:
        verb = "puts" if left_out == 1 else "put"
        yield (
            f"Left out: {counted(left_out, 'layout')} that {verb} several stages on an IPU, because the memory of "
            "stages is not known; the option placements includes them."
        )
    if suggestion.limits.schedules is not None:
        for schedule, reason in outcome.refusal_of.items():
            yield f"Without {schedule}: {reason.splitlines()[0]}"
    if (runner_up := suggestion.runner_up) is not None:
        room = "all their temporary memory" if suggestion.added_options else "half their temporary memory"
        ways, plans = counted(runner_up.choices, "combination"), counted(runner_up.simulated, "plan")
        yield f"A second search, of plans whose matrix products have {room}: {ways}, {plans} simulated."
    yield from _products_kept(suggestion)
    if suggestion.searched.skipped_bound is None:
        yield f"Proven by lower bounds: no plan of this search that fits is faster. {_kept_words(suggestion)}"
    else:
        gap, end = f"{suggestion.gap:.1%}", suggestion.searched.end_reason
        smaller_search = "search limited by `--replicas`, `--ipus` or `--schedules`"
        remedy = f"More `--seconds`, or a {smaller_search}," if end in TIME_ENDS else f"A {smaller_search}"
        yield (
            f"Not proven: {end} ended the search; another plan could take {gap} less time at most. {remedy} may find a "
            "faster plan."
        )


def _kept_words(suggestion: Suggestion) -> str:
    """Return a sentence on what all plans of a search have in common."""
    kept = ["global batch"]
    kept += ["micro-batch size"] if suggestion.limits.micro_batch_sizes is None else []
    kept += [] if suggestion.added_options else ["limit on the memory of matrix products"]
    return f"All plans of the search have the same {enumerated(kept)}."


def _products_kept(suggestion: Suggestion) -> Iterator[str]:
    """Yield how to search with less memory for matrix products, if memory ruled out plans.

    Smaller products make no given cut faster, and a search for other cuts takes too long to follow every search.
    """
    outcome = suggestion.searched
    if not (outcome.too_large or outcome.misfits) or suggestion.added_options or outcome.units is None:
        return
    if changes := products_in_half(suggestion.baseline.request.options, outcome.units.profiles):
        yield (
            "The search keeps the memory of matrix products. Half of this memory may allow a faster plan: search again "
            f"with {options_of(changes)}"
        )
