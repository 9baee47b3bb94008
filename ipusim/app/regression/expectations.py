"""Compare a scenario's expectations with figures of its run, or with figures known before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ipusim.api import Job, KeyPath, Problem, Request, RequestError, analysis, machine, runs
from ipusim.base.near_names import did_you_mean

#: Minimum relative difference from a bound that is printed as a multiple instead of a percentage.
_LEAST_MULTIPLE: Final = 10.0


@dataclass(frozen=True)
class Judgement:
    """Expectation with the run's figure.

    Attributes:
        expectation: expected bounds of a figure.
        value: value of the figure.
    """

    expectation: runs.Expectation
    value: Any

    @property
    def is_met(self) -> bool:
        """Whether the value meets the expectation."""
        return self.expectation.holds(self.value)

    def __str__(self) -> str:
        """Return the judgement in one line: ``missed  makespan: 541.3 us, expected <= 540 us, 0.25% more``."""
        bounds, figure = self.expectation, self.expectation.figure
        actual = figure.text(self.value)
        if self.is_met:
            return f"met     {bounds.name}: {actual} (expected {bounds.text})"
        return f"missed  {bounds.name}: {actual}, expected {bounds.text}{self._by_how_much()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as plain data."""
        value = None if isinstance(self.value, float) and not math.isfinite(self.value) else self.value
        return {"figure": self.expectation.name, "expected": self.expectation.text, "value": value, "met": self.is_met}

    def _by_how_much(self) -> str:
        """Return a value's distance to the missed bound in words; empty without a finite ratio."""
        expectation = self.expectation
        if expectation.equal is not None or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            return ""
        end = expectation.most if self.value >= expectation.most else expectation.least
        if not end or self.value == end:
            return ""
        excess = abs(self.value / end - 1)
        more_or_less = "more" if self.value > end else "less"
        if excess >= _LEAST_MULTIPLE:
            return f", {self.value / end:.3g} times as much"
        than = (
            f" than {figure_text}" if (figure_text := expectation.figure.text(end)) not in str(expectation.text) else ""
        )
        return f", {excess:.2%} {more_or_less}{than}"


def expectations(options: runs.Options) -> Iterator[tuple[KeyPath, runs.Expectation]]:
    """Yield every expectation of a request with the path of its value."""
    for name, value in (options.expect or {}).items():
        if isinstance(value, Mapping):
            yield from ((("expect", name, item), bound) for item, bound in value.items())
        else:
            yield ("expect", name), value


def without_outdated_expectations(request: Request, overrides: Sequence[str]) -> Request:
    """Drop the scenario's expectations if ``--set`` changes other options only: they are about the unchanged run."""
    if not overrides or any(override.startswith("expect") for override in overrides):
        return request
    return request.replace({}, without=["expect"])


def check_expectations(job: Job) -> None:
    """Refuse expectations on figures missing from a run of ``job``. Raises RequestError with every problem."""
    problems = []
    for path, expectation in expectations(job.request.options):
        if reason := _reason_for_lack(job, expectation):
            problems.append(Problem(path, f"expected a figure of this run, got {expectation.name}: {reason}"))
    if problems:
        raise RequestError(problems)


def _reason_for_lack(job: Job, expectation: runs.Expectation) -> str:
    """Return why a run lacks the figure; empty if the run has the figure, or may have it."""
    path, stages = expectation.figure.path, [profile.name for profile in job.program.stages]
    is_ipu_number = expectation.figure.name == "peak" and expectation.item.isdecimal()
    reasons = {
        "numerics are off, so the run has no losses and no accuracy": (
            path.startswith("learning.") and job.workload is None
        ),
        "no samples are held out: add hold_out to data": (
            path.startswith("learning.evaluations") and job.held_out is None
        ),
        "the memory of its stages is not known": (
            path.startswith("memory.") and job.memory.fits is analysis.Fits.UNKNOWN
        ),
        f"there are no time-steps in {job.plan.sync.words}": path == "time_steps" and not job.plan.sync.has_time_steps,
        f"the IPUs with a stage are {', '.join(map(str, job.plan.ipus))}": (
            is_ipu_number and int(expectation.item) not in job.plan.ipus
        ),
        f"no stage is named {expectation.equal!r}{did_you_mean(expectation.equal, stages)}": (
            bool(expectation.figure.names) and expectation.equal not in stages
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def judge(options: runs.Options, summary: Mapping[str, Any]) -> tuple[Judgement, ...]:
    """Return every expectation with its value from the data of ``summary.json``.

    Raises RequestError for missing figures.
    """
    judgements, problems = [], []
    for path, expectation in expectations(options):
        try:
            judgements.append(Judgement(expectation, expectation.figure.value_in(summary, expectation.item)))
        except LookupError:
            problems.append(
                Problem(path, f"expected a figure of this run, got {expectation.name}, which the run lacks")
            )
    if problems:
        raise RequestError(problems)
    return tuple(judgements)


def judged_before(job: Job) -> tuple[tuple[Judgement, ...], tuple[runs.Expectation, ...]]:
    """Return judged expectations that need no run, and the remaining expectations."""
    figures = _known_before(job)
    judgements, open_expectations = [], []
    for _, expectation in expectations(job.request.options):
        try:
            judgements.append(Judgement(expectation, expectation.figure.value_in(figures, expectation.item)))
        except LookupError:
            open_expectations.append(expectation)
    return tuple(judgements), tuple(open_expectations)


def _known_before(job: Job) -> dict[str, Any]:
    """Return the part of ``summary.json`` that needs no run."""
    info = machine.timeline_info_of(job.plan, job.program, job.system, job.costs.links, job.executions)
    info = replace(info, count=job.program.shape.micro_batches)
    # Fields of a Timeline's info have equal names in the summary of its run.
    names = {field.name for field in fields(analysis.RunTimes)} & {field.name for field in fields(info)}
    figures: dict[str, Any] = {name: analysis.as_plain(getattr(info, name)) for name in names - {"time_steps"}}
    if not info.has_time_steps:
        figures["time_steps"] = None
    elif job.plan.order.emitted is not None or info.count == job.plan.shape.micro_batches:
        # Passes repeat with the schedule's period; time-steps repeat only if the Order has time-steps (``emitted``).
        figures["time_steps"] = job.of_whole(lambda job: job.plan.emitted)
    figures["steps"], figures["repeat_count"] = job.steps, job.program.repeat_count
    slowest = analysis.slowest_stages(job.costs, job.plan.shape)
    figures["verdict"] = {"slowest_stages": list(slowest)}
    if job.memory.fits is not analysis.Fits.UNKNOWN:
        figures["memory"] = job.memory.summary
    return figures
