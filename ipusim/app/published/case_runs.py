"""Simulate published cases: stages with given times, on devices whose copies take time but no resources."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ipusim.api import Costs, Job, Request, Schedule, System, analysis, assemble, pipelines, pricing, runs, schedules
from ipusim.app.study.trial import time_alone
from ipusim.app.synthesize.in_turns import words_in_turns
from ipusim.app.synthesize.periods import letters_of, without_periods
from ipusim.app.synthesize.starts import assemble_with
from ipusim.app.synthesize.tasks import tasks_of

#: Name in place of a schedule: an order is searched for the case's costs.
SEARCHED: Final = "searched"
#: Passes after which a device no longer holds their micro-batch.
_RELEASING_PASSES: Final = (pipelines.Pass.BACKWARD, pipelines.Pass.WEIGHT_GRADIENT)


@dataclass(frozen=True)
class Case:
    """Input of a run.

    Attributes:
        schedule: name of the schedule, or :data:`SEARCHED`.
        ipus: number of devices.
        micro_batches: number per execution.
        cycles: cycles of a stage's forward and whole backward pass.
        halves: cycles of the backward pass's two halves, input gradient and weight gradient; None without halves.
        copy: cycles from the end of a pass until its output arrives on another device.
        per_ipu: stages per device.
        options: further keys of the pipeline, with their values.
        cap: maximum number of micro-batches that a device may hold in a searched order.
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
class CaseRun:
    """Result of a case's run.

    Attributes:
        makespan: cycles from the first pass's begin to the last pass's end.
        cost: longest time from a device's first pass to its last, in cycles.
        work: cycles of passes on the busiest device.
        peak: maximum number of micro-batches held by a device, summed over stages; in segments of cut micro-batches.
        copies: number of tensors per micro-batch that cross devices.
    """

    makespan: int
    cost: int
    work: int
    peak: int
    copies: int

    @property
    def idle(self) -> int:
        """Idle cycles of the busiest device within the makespan."""
        return self.makespan - self.work

    @property
    def bubble(self) -> int:
        """Idle cycles of the busiest device within the cost."""
        return self.cost - self.work

    @property
    def rate(self) -> Fraction:
        """Bubble rate of Qi et al., based on the cost."""
        return Fraction(self.bubble, self.cost)


@lru_cache(maxsize=1024)
def run_case(case: Case) -> CaseRun:
    """Run a case."""
    job = job_of(case)

    def priced(job: Job) -> tuple[Costs, System]:
        return _with_copies(job, case), job.system

    timeline = runs.timeline_of(job, jump=False, price=priced)  # faster for so few passes
    execution = analysis.find_execution(timeline, 0)
    bubble = analysis.bubble_of(timeline, execution)
    copies = {(source, target) for _, _, source, target in job.costs.sends}
    return CaseRun(execution.makespan_cycles, bubble.rank_cost_cycles, bubble.ideal_cycles, _peak(job), len(copies))


def job_of(case: Case, **holds: int) -> Job:
    """Return a case's Job of the whole run; ``holds`` are the bytes of every stage by scenario key."""
    if case.schedule != SEARCHED:
        return assemble(_request(case, schedules.find(case.schedule), holds)).whole
    request = _request(case, schedules.find("zero_bubble_h1"), holds)
    job = assemble(request).whole
    tasks = tasks_of(replace(job, costs=_with_copies(job, case)))
    assert tasks is not None, "expected whole micro-batches and one copy of each stage"
    words = words_in_turns(tasks, case.micro_batches, case.cap)
    assert words is not None, "expected one stage per device, and backward passes in halves"
    letters = letters_of(without_periods(tasks, words, case.micro_batches))
    jobs = assemble_with(request, schedules.in_words(SEARCHED, letters))
    assert jobs is not None, "expected an order that runs"
    return jobs.whole


def _request(case: Case, schedule: Schedule, holds: dict[str, int]) -> Request:
    mapping = schedule.mapping(case.ipus * case.per_ipu, case.per_ipu)
    stage = dict(zip(("forward", "backward"), case.cycles, strict=True)) | holds
    if case.halves is not None:
        stage |= dict(zip(("backward_input", "backward_weights"), case.halves, strict=True))
    # Without bytes to send, a copy would take no time. If held bytes are asked for, sent bytes would add to the result.
    sizes = {} if holds else {"output_bytes": 1, "gradient_bytes": 1}
    stages: list[dict[str, Any]] = [{"name": f"s{number}", **stage, **sizes} for number in range(len(mapping))]
    stages[0].pop("gradient_bytes", None)
    stages[-1].pop("output_bytes", None)
    plan = {"schedule": schedule.name, "sync": schedule.syncs[0].value, "device_mapping": list(mapping)}
    pipeline = {**plan, "gradient_accumulation_count": case.micro_batches, "stages": stages, **dict(case.options)}
    system = {"name": "free", "auto_select_ipus": 1 << (case.ipus - 1).bit_length()}
    return time_alone(Request.from_dict({"system": system, "pipeline": pipeline}, name="published"))


def _with_copies(job: Job, case: Case) -> Costs:
    """Return a Job's costs with the case's copies, without links."""
    sends = {key: pricing.Send(send.bytes, lead_cycles=case.copy) for key, send in job.costs.sends.items()}
    return replace(job.costs, sends=sends)


def _peak(job: Job) -> int:
    """Return the maximum number of micro-batches held by a device."""
    ipu, kind, *_ = job.plan.order.passes.T
    change = (kind == pipelines.Pass.FORWARD).astype(np.int64) - np.isin(kind, _RELEASING_PASSES)
    return max(int(np.cumsum(change[ipu == number]).max()) for number in np.unique(ipu))
