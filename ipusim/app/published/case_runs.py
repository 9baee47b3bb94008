"""Runs of published cases: stages known by their times, on devices whose copies take time and occupy nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ipusim.api import Costs, Job, Request, Schedule, System, analysis, assemble, pipelines, pricing, runs, schedules
from ipusim.app.study.trial import time_alone
from ipusim.app.synthesize.in_turns import in_turns
from ipusim.app.synthesize.periods import letters_of, without_periods
from ipusim.app.synthesize.starts import assembled
from ipusim.app.synthesize.tasks import tasks_of

#: What rows call the schedule that is searched for their costs.
SEARCHED: Final = "searched"
#: Passes with whose end a micro-batch is no longer held.
_ENDS: Final = (pipelines.Pass.BACKWARD, pipelines.Pass.WEIGHT_GRADIENT)


@dataclass(frozen=True)
class Case:
    """What is run.

    Attributes:
        schedule: its name, or :data:`SEARCHED`.
        ipus: devices.
        micro_batches: of an execution.
        cycles: of a stage's forward and whole backward pass.
        halves: cycles of both halves of the backward pass; None where it has none.
        copy: cycles from the end of a pass until another device has what it made.
        per_ipu: stages of a device.
        options: further keys of the pipeline, with their values.
        cap: the most micro-batches that a device may hold in a searched order.
    """

    schedule: str
    ipus: int
    micro_batches: int
    cycles: tuple[int, int]
    halves: tuple[int, int] | None = None
    copy: int = 0
    per_ipu: int = 1
    options: tuple[tuple[str, int], ...] = ()
    cap: int = 0


@dataclass(frozen=True)
class Ran:
    """The run of a case.

    Attributes:
        makespan: cycles from the first pass to the end of the last.
        cost: cycles of the longest time from a device's first pass to its own last.
        work: cycles of the passes of the busiest device.
        peak: the most stages' micro-batches, or segments of these, that a device holds at once.
        copies: tensors of a micro-batch that cross devices.
    """

    makespan: int
    cost: int
    work: int
    peak: int
    copies: int

    @property
    def idle(self) -> int:
        """Cycles of the makespan in which the busiest device does not work."""
        return self.makespan - self.work

    @property
    def bubble(self) -> int:
        """Cycles of the cost in which the busiest device does not work."""
        return self.cost - self.work

    @property
    def rate(self) -> Fraction:
        """The bubble rate of Qi et al., by the cost."""
        return Fraction(self.bubble, self.cost)


@lru_cache(maxsize=1024)
def ran(case: Case) -> Ran:
    """Return the run of a case."""
    job = job_of(case)

    def priced(job: Job) -> tuple[Costs, System]:
        return _with_copies(job, case), job.system

    timeline = runs.timeline_of(job, jump=False, priced=priced)  # which of so few passes is sooner done
    execution = analysis.find_execution(timeline, 0)
    bubble = analysis.bubble_of(timeline, execution)
    copies = {(source, target) for _, _, source, target in job.costs.sends}
    return Ran(execution.makespan_cycles, bubble.rank_cost_cycles, bubble.ideal_cycles, _peak(job), len(copies))


def job_of(case: Case, **holds: int) -> Job:
    """Return the Job of a case, laid out whole, whose stages hold bytes by the keys of a scenario."""
    if case.schedule != SEARCHED:
        return assemble(_request(case, schedules.find(case.schedule), holds)).whole
    request = _request(case, schedules.find("zero_bubble_h1"), holds)
    job = assemble(request).whole
    tasks = tasks_of(replace(job, costs=_with_copies(job, case)))
    assert tasks is not None, "of whole micro-batches with one copy of each stage"
    words = in_turns(tasks, case.micro_batches, case.cap)
    assert words is not None, "of a stage a device, with backward passes in halves"
    letters = letters_of(without_periods(tasks, words, case.micro_batches))
    found = assembled(request, schedules.in_words(SEARCHED, letters))
    assert found is not None, "of words that run"
    return found.whole


def _request(case: Case, schedule: Schedule, holds: dict[str, int]) -> Request:
    mapping = schedule.mapping(case.ipus * case.per_ipu, case.per_ipu)
    stage = dict(zip(("forward", "backward"), case.cycles, strict=True)) | holds
    if case.halves is not None:
        stage |= dict(zip(("backward_input", "backward_weights"), case.halves, strict=True))
    # Something has to be sent, or there is no copy that could take time; bytes held would not be exact with it.
    sent = {} if holds else {"output_bytes": 1, "gradient_bytes": 1}
    stages: list[dict[str, Any]] = [{"name": f"s{number}", **stage, **sent} for number in range(len(mapping))]
    stages[0].pop("gradient_bytes", None)
    stages[-1].pop("output_bytes", None)
    plan = {"schedule": schedule.name, "sync": schedule.syncs[0].value, "device_mapping": list(mapping)}
    pipeline = {**plan, "gradient_accumulation_count": case.micro_batches, "stages": stages, **dict(case.options)}
    system = {"name": "free", "auto_select_ipus": 1 << (case.ipus - 1).bit_length()}
    return time_alone(Request.from_dict({"system": system, "pipeline": pipeline}, name="published"))


def _with_copies(job: Job, case: Case) -> Costs:
    """Return the costs of a Job whose copies take as long as those of the case, and no link."""
    sends = {key: pricing.Send(send.bytes, lead_cycles=case.copy) for key, send in job.costs.sends.items()}
    return replace(job.costs, sends=sends)


def _peak(job: Job) -> int:
    ipu, kind, *_ = job.plan.order.passes.T
    change = (kind == pipelines.Pass.FORWARD).astype(np.int64) - np.isin(kind, _ENDS)
    return max(int(np.cumsum(change[ipu == number]).max()) for number in np.unique(ipu))
