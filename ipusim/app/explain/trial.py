"""Trials of changes of a scenario: assembled, and simulated for time alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Costs, Job, RequestError, System, Timeline, analysis, assemble, pipelines, runs, timelines
from ipusim.api import machine as machines
from ipusim.app.study.trial import time_alone
from ipusim.base.cache import Cache
from ipusim.base.errors import IpusimError

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

    def of(self, change: Change, *, requested: bool = False) -> tuple[WhatIf, Job | None, Timeline | None]:
        """Return the outcome of the run with a change, with its Job and Timeline; None where nothing ran.

        Long runs that do not repeat themselves are tried where they are ``requested`` for alone.
        """
        try:
            job = self.job if change.priced else self.assembled(change.values)
        except IpusimError as error:
            return WhatIf(change, self.before, None, str(error)), None, None
        if not requested and not self.job.memory.known and puts_together(self.job.program.shape, job.program.shape):
            return WhatIf(change, self.before, None, TOGETHER), None, None
        if not requested and not change.machine and job.system.replicas != self.job.system.replicas:
            job, change = self._with_as_many_samples(job, change)
        spans = machines.most_spans(job.plan, job.system, job.costs, job.executions)
        if not requested and job.schedule.period is None and spans > _MOST_SPANS:
            return WhatIf(change, self.before, None, TOO_LONG), None, None
        try:
            if change.priced is None:
                timeline = runs.timeline_of(job, job.executions)
            else:
                timeline = runs.timeline_of(job, job.executions, priced=change.priced)
        except RequestError as error:
            return WhatIf(change, self.before, None, str(error)), None, None
        large = max(map(job.memory.excess_bytes, job.memory.peaks), default=0)
        in_other_mode = job.plan.sync is not self.job.plan.sync
        after, fits = per_sample(timeline), job.memory.fits
        return WhatIf(change, self.before, after, "", fits, large, in_other_mode=in_other_mode), job, timeline

    def _with_as_many_samples(self, job: Job, change: Change) -> tuple[Job, Change]:
        """Return a Job of other replicas than now with as many samples in a weight update where it can be, and say so.

        A larger batch saves time by itself: there is an update, and what hosts do, for more samples.
        """
        replicas, count = job.system.replicas, self.job.request.options.pipeline.gradient_accumulation_count
        fewer, left = divmod(count * self.job.system.replicas, replicas)
        words = f"{change.words}, {replicas} replicas"
        if not left and fewer != count:
            with suppress(IpusimError):
                values = {**change.values, "pipeline.gradient_accumulation_count": fewer}
                return self.assembled(values), replace(change, words=f"{words}, count {fewer}", values=values)
        batch = Fraction(replicas, self.job.system.replicas)
        return job, replace(change, words=f"{words}, {float(batch):g} times the batch")

    def assembled(self, values: Mapping[str, Any]) -> Job:
        """Return the Job of the request with other values, for time alone, also of what does not fit."""
        with self.cache.entered():
            return assemble(time_alone(self.job.request, values, misfits=True))


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
