"""Try changes of a scenario: assemble the changed scenario, and simulate its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Costs, Job, RequestError, System, Timeline, analysis, pipelines, runs, timelines
from ipusim.api import machine as machines
from ipusim.app.study.trial import Trial, try_request
from ipusim.base.cache import Cache
from ipusim.base.units import counted

#: Maximum number of spans of a run without repetition, for unrequested changes. A run of gpipe with
#: BERT-Base and 72,000 spans takes 38 s to simulate, as the number of tensors in transit grows.
_MOST_SPANS: Final = 20_000

#: Refusal of long trials.
TOO_LONG: Final = "not tried, because the trial takes long"
#: Refusal of trials that put more stages on an IPU if memory of stages is unknown.
NEEDS_MEMORY: Final = "not tried: stages would share an IPU, and the memory of stages is not known"


@dataclass(frozen=True)
class Change:
    """A change of a run.

    Attributes:
        kind: kind of change, such as ``a larger count``.
        words: description of the change.
        values: options by dotted name.
        price: function that returns changed costs and system; None for a change of ``values`` only.
        is_hardware: whether the change concerns hardware, not software.
        shortened_part: part of the time that becomes shorter, if known from the change.
    """

    kind: str
    words: str
    values: Mapping[str, Any] = field(default_factory=dict)
    price: Callable[[Job], tuple[Costs, System]] | None = None
    is_hardware: bool = False
    shortened_part: timelines.TimePart | None = None


@dataclass(frozen=True)
class WhatIf:
    """Outcome of a changed run.

    Attributes:
        change: the tried change.
        before, after: simulated seconds per sample without and with the change; ``after`` is None without a run.
        refusal: reason why the change is impossible or was not tried; empty for a simulated change.
        fits: whether the changed program fits its memory; None without a run.
        excess_bytes: excess bytes of the fullest IPU; 0 if the program fits.
        cause: part of the time that shrinks most, with its share in the present run; None if not examined.
        in_other_mode: whether the change switches the sync mode, lock-step or point-to-point.
        alternative_words: for a change without effect, a sentence about a change with more effect; else empty.
    """

    change: Change
    before: Fraction
    after: Fraction | None
    refusal: str = ""
    fits: analysis.Fits | None = None
    excess_bytes: int = 0
    cause: tuple[str, float] | None = None
    in_other_mode: bool = False
    alternative_words: str = ""

    @property
    def gain(self) -> float:
        """Saved fraction of the time per sample; negative for a longer time, 0 for a run of zero time."""
        if self.after is None or not self.before:
            return 0.0
        return float(1 - self.after / self.before)


class ChangeTrials:
    """Trials of changes to a Job's request, with shared pricing."""

    def __init__(self, job: Job, timeline: Timeline) -> None:
        """Begin with a Job and its run."""
        self.job, self.cache = job, Cache()
        self.per_sample_s, self._has_repeats = per_sample(timeline), bool(timeline.repeats)
        #: Key and repeating part of the last long run; the key is its costs and its options without the count.
        self._recurrence: tuple[object, runs.Recurrence | None] = None, None

    def outcome_of(self, change: Change, *, is_requested: bool = False) -> tuple[WhatIf, Trial | None]:
        """Try a change; returns the outcome and its Trial, which is None if no run was possible.

        Long runs without repetition are tried only if ``is_requested``.
        """
        trial = Trial(self.job, price=change.price) if change.price else self.try_values(change.values)
        if trial.job is None:
            return WhatIf(change, self.per_sample_s, None, trial.refusal), None
        shape = self.job.program.shape
        if not is_requested and not self.job.memory.is_known and puts_together(shape, trial.job.program.shape):
            return WhatIf(change, self.per_sample_s, None, NEEDS_MEMORY), None
        if not is_requested and not change.is_hardware and trial.job.system.replicas != self.job.system.replicas:
            trial, change = self._with_as_many_samples(trial, change)
        job = trial.accepted_job
        if not is_requested and job.schedule.period is None:
            spans = machines.most_spans(job.plan, job.system, job.costs, job.executions)
            if spans > _MOST_SPANS:
                return WhatIf(change, self.per_sample_s, None, TOO_LONG), None
        try:
            trial, seconds = self._with_time(trial)
        except RequestError as error:
            return WhatIf(change, self.per_sample_s, None, str(error)), None
        large = max(map(job.memory.excess_bytes, job.memory.peaks), default=0)
        in_other_mode = job.plan.sync is not self.job.plan.sync
        return WhatIf(change, self.per_sample_s, seconds, "", trial.fits, large, in_other_mode=in_other_mode), trial

    def _with_time(self, trial: Trial) -> tuple[Trial, Fraction]:
        """Return a Trial with its seconds per sample, computed without event simulation if this is faster.

        If timing recurs in the present run, timing often recurs in the changed run too: a few micro-batches of a long
        run are then simulated. Raises RequestError if the run is too long.
        """
        job = trial.accepted_job
        price = trial.price or (lambda whole: (whole.costs, whole.system))
        factor = sample_seconds_per_cycle(trial.samples * job.executions, job.system.clock_hz)
        is_lock_step, has_fifos, cycles = job.plan.sync.has_time_steps, any(job.plan.fifo_depths), None
        has_only_passes = runs.has_only_passes(job)
        may_repeat_steps = is_lock_step and job.in_part and self._has_repeats
        # In part: a run of fewer micro-batches may stand for the whole run.
        if has_only_passes and job.in_part and not trial.price and (is_lock_step or has_fifos):
            cycles = self._cycles_from_part(job)
            if cycles is not None and self._has_repeats:
                # The Timeline of few micro-batches also gives the parts of the time.
                return trial, cycles * factor
        # With repeated steps, simulating a few micro-batches is faster.
        if cycles is None and (has_only_passes or not may_repeat_steps):
            cycles = runs.run_without_events(job, job.executions, price)
        if cycles is None and not is_lock_step and has_fifos and not self._has_repeats:  # few short runs have repeats
            is_long = job.program.shape.passes > runs.MOST_PASSES_OF_ONE_RUN
            timeline = runs.timeline_of(job, job.executions, jump=is_long, price=price)
            cycles = analysis.throughput_of(timeline).run_cycles
        if cycles is None:
            return trial, per_sample(trial.timeline)
        return replace(trial, run_cycles=cycles), cycles * factor

    def _cycles_from_part(self, job: Job) -> int | None:
        """Return the cycles of a run in which timing recurs; None for a short run without a known recurrence.

        Runs that differ only in the number of micro-batches share a recurring part. Raises RequestError for a run
        without recurrence that is too large.
        """
        key = job.request.options.with_pipeline(gradient_accumulation_count=1), job.costs
        is_recurrent = job.plan.sync.has_time_steps or self._has_repeats
        is_long = not is_recurrent and job.program.shape.passes > runs.MOST_PASSES_OF_ONE_RUN
        if is_recurrent or (is_long and self._recurrence[0] != key):
            counts = (
                [job.plan.shape.micro_batches] if is_recurrent else runs.short_counts(job.schedule, job.program.shape)
            )
            self._recurrence = key, runs.recurrence_of(job, counts)
        if self._recurrence[0] == key and self._recurrence[1] is not None:
            return runs.long_run_without_events(job, self._recurrence[1])
        if is_long:
            _ = job.whole  # raises RequestError for a run that is too large
        return None

    def _with_as_many_samples(self, trial: Trial, change: Change) -> tuple[Trial, Change]:
        """Adjust the count of a Trial with more or fewer replicas, to keep the samples per weight update if possible.

        A larger batch saves time by itself, as more samples share weight updates and host work. The returned Change
        names replicas and count, or replicas and batch.
        """
        replicas = trial.accepted_job.system.replicas
        count = self.job.request.options.pipeline.gradient_accumulation_count
        new_count, remainder = divmod(count * self.job.system.replicas, replicas)
        words = f"{change.words}, {counted(replicas, 'replica')}"
        if not remainder and new_count != count:
            values = {**change.values, "pipeline.gradient_accumulation_count": new_count}
            if (adjusted := self.try_values(values)).job is not None:
                return adjusted, replace(change, words=f"{words}, count {new_count}", values=values)
        batch = Fraction(replicas, self.job.system.replicas)
        return trial, replace(change, words=f"{words}, {float(batch):g} times the batch")

    def try_values(self, values: Mapping[str, Any]) -> Trial:
        """Return the Trial of the request with other values, with shared pricing."""
        with self.cache.activate():
            return try_request(self.job.request, values)


def puts_together(old_shape: pipelines.PlanShape, new_shape: pipelines.PlanShape) -> bool:
    """Tell whether stages newly share an IPU in the second shape."""
    groups = _stages_by_ipu(old_shape)
    return not all(any(new_group <= group for group in groups) for new_group in _stages_by_ipu(new_shape))


def _stages_by_ipu(shape: pipelines.PlanShape) -> list[set[int]]:
    """Return the stages of every IPU that holds any."""
    by_ipu: dict[int, set[int]] = {}
    for stage in range(shape.stages):
        for ipu in shape.ipus_of(stage):
            by_ipu.setdefault(ipu, set()).add(stage)
    return [*by_ipu.values()]


def per_sample(timeline: Timeline) -> Fraction:
    """Return the seconds per sample of a run."""
    throughput = analysis.throughput_of(timeline)
    return throughput.run_cycles * sample_seconds_per_cycle(throughput.samples, timeline.info.clock_hz)


def sample_seconds_per_cycle(samples: int, clock_hz: int) -> Fraction:
    """Return the seconds per sample that correspond to one cycle of a run of ``samples``."""
    return Fraction(1, max(samples, 1) * clock_hz)
