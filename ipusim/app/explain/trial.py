"""Trials of changes of a scenario: assembled, and simulated for time alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Costs, Job, RequestError, System, Timeline, analysis, pipelines, timelines
from ipusim.api import machine as machines
from ipusim.app.study.trial import Trial, tried
from ipusim.base.cache import Cache

#: Spans of a run that does not repeat itself, above which a change is not tried unless it is asked for: gpipe of
#: BERT-Base takes 38 s for 72,000, as more and more tensors are on their way at once.
_MOST_SPANS: Final = 20_000

#: Why such a change was not tried.
TOO_LONG: Final = "not tried, as it takes long"
#: Why a change is no advice that needs more memory on an IPU, of stages that do not say what they hold.
TOGETHER: Final = "not tried, as it puts stages together on an IPU, and what they hold is not known"


@dataclass(frozen=True)
class Change:
    """Something that would be otherwise.

    Attributes:
        kind: what it is one of, as in ``a larger count``.
        words: the change itself.
        values: of options, by their dotted names.
        priced: what costs and system then are; None where ``values`` say it all.
        machine: whether the hardware is another, and not what runs on it.
        shortens: the part of the time that becomes shorter, where the change says which.
    """

    kind: str
    words: str
    values: Mapping[str, Any] = field(default_factory=dict)
    priced: Callable[[Job], tuple[Costs, System]] | None = None
    machine: bool = False
    shortens: timelines.TimePart | None = None


@dataclass(frozen=True)
class WhatIf:
    """The outcome of a run with one change.

    Attributes:
        change: that was tried.
        before, after: seconds per sample without and with it, both simulated; ``after`` is None where nothing ran.
        refusal: why it cannot be, or why it was not tried; empty where it ran.
        fits: the answer to whether the program then fits its memory; None where nothing ran.
        too_large: by how many bytes the fullest IPU is, where it does not fit.
        cause: the part of the time that becomes shorter most, with its share of the run's time now; None where that
            was not looked at.
        in_other_mode: whether the run with the change is in the other sync mode.
        instead: what does matter where the change gives nothing, a sentence; empty where that is not known.
    """

    change: Change
    before: Fraction
    after: Fraction | None
    refusal: str = ""
    fits: analysis.Fits | None = None
    too_large: int = 0
    cause: tuple[str, float] | None = None
    in_other_mode: bool = False
    instead: str = ""

    @property
    def gain(self) -> float:
        """The part of the time per sample that it saves; negative where that is longer, 0 of what takes no time."""
        if self.after is None or not self.before:
            return 0.0
        return float(1 - self.after / self.before)


class ChangeTrials:
    """Tries changes of what a Job was asked for; what they share is priced once."""

    def __init__(self, job: Job, timeline: Timeline) -> None:
        """Begin with a Job and its run."""
        self.job, self.cache = job, Cache()
        self.before = per_sample(timeline)

    def of(self, change: Change, *, requested: bool = False) -> tuple[WhatIf, Trial | None]:
        """Return the outcome of the run with a change, with its Trial; None where nothing ran.

        Long runs that do not repeat themselves are tried where they are ``requested`` for alone.
        """
        trial = Trial(self.job, priced=change.priced) if change.priced else self.tried(change.values)
        if trial.job is None:
            return WhatIf(change, self.before, None, trial.refusal), None
        shape = self.job.program.shape
        if not requested and not self.job.memory.known and puts_together(shape, trial.job.program.shape):
            return WhatIf(change, self.before, None, TOGETHER), None
        if not requested and not change.machine and trial.job.system.replicas != self.job.system.replicas:
            trial, change = self._with_as_many_samples(trial, change)
        job = trial.accepted_job
        spans = machines.most_spans(job.plan, job.system, job.costs, job.executions)
        if not requested and job.schedule.period is None and spans > _MOST_SPANS:
            return WhatIf(change, self.before, None, TOO_LONG), None
        try:
            after = per_sample(trial.timeline)
        except RequestError as error:
            return WhatIf(change, self.before, None, str(error)), None
        large = max(map(job.memory.excess_bytes, job.memory.peaks), default=0)
        in_other_mode = job.plan.sync is not self.job.plan.sync
        return WhatIf(change, self.before, after, "", trial.fits, large, in_other_mode=in_other_mode), trial

    def _with_as_many_samples(self, trial: Trial, change: Change) -> tuple[Trial, Change]:
        """Return a Trial of other replicas with as many samples in a weight update where it can be, and say so.

        A larger batch saves time by itself: there is an update, and what hosts do, for more samples.
        """
        replicas, count = (
            trial.accepted_job.system.replicas,
            self.job.request.options.pipeline.gradient_accumulation_count,
        )
        fewer, left = divmod(count * self.job.system.replicas, replicas)
        words = f"{change.words}, {replicas} replicas"
        if not left and fewer != count:
            values = {**change.values, "pipeline.gradient_accumulation_count": fewer}
            if (as_many := self.tried(values)).job is not None:
                return as_many, replace(change, words=f"{words}, count {fewer}", values=values)
        batch = Fraction(replicas, self.job.system.replicas)
        return trial, replace(change, words=f"{words}, {float(batch):g} times the batch")

    def tried(self, values: Mapping[str, Any]) -> Trial:
        """Return the Trial of the request with other values; what Trials share is priced once."""
        with self.cache.entered():
            return tried(self.job.request, values)


def puts_together(before: pipelines.PlanShape, after: pipelines.PlanShape) -> bool:
    """Tell whether stages share an IPU in the second shape that have none in common in the first."""
    shared = _stages_by_ipu(before)
    return not all(any(here <= there for there in shared) for here in _stages_by_ipu(after))


def _stages_by_ipu(shape: pipelines.PlanShape) -> list[set[int]]:
    """Return the stages of each IPU that has any."""
    by_ipu: dict[int, set[int]] = {}
    for stage in range(shape.stages):
        for ipu in shape.ipus_of(stage):
            by_ipu.setdefault(ipu, set()).add(stage)
    return [*by_ipu.values()]


def per_sample(timeline: Timeline) -> Fraction:
    """Return the seconds of a run for each sample."""
    throughput = analysis.throughput_of(timeline)
    return Fraction(throughput.run_cycles, max(throughput.samples, 1) * timeline.info.clock_hz)
