"""Simulation of published throughputs: the time of a weight update, and the host's part of it.

Once a pipeline is full, its time grows linearly with the gradient accumulation count: by a time-step for each further
micro-batch, point-to-point by a constant for every few. So a row is simulated at three small counts, whose equal
differences show that the pipeline is full, and its time is extrapolated to the published count. That holds for counts
that a schedule of Graphcore's TensorFlow would refuse as well: PopART and PyTorch take any. Of the weight updates of a
session run the first two are simulated: the host fills its buffers only before the first, and each further one takes
as long as the second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final

from ipusim.api import Job, Rates, analysis, hardware, pricing, runs
from ipusim.app.fidelity.throughput_rows import ThroughputRow
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import read_source
from ipusim.base.cache import shared, sharing
from ipusim.base.errors import CountError, FileError, IpusimError

#: The first count, in multiples of the schedule's own, and how often it is doubled at most.
_FIRST: Final = 2
_MOST_DOUBLINGS: Final = 6
#: Periods of a full pipeline that are tried, in multiples of the schedule's own.
_PERIODS: Final = 1, 2, 3, 4
_NANOSECONDS: Final = 10**9


class NeverFullError(IpusimError):
    """A pipeline whose time does not grow by the same for each further micro-batch."""


@dataclass(frozen=True)
class UpdateTime:
    """The parts of a weight update's time.

    Attributes:
        fixed: seconds that do not depend on the count: ramp-up, ramp-down, weight update, all-reduce.
        micro_batch: seconds of each micro-batch.
        updates: weight updates of a session run.
        learners: replicas of the model, of all hosts.
        offchip_bytes: bytes of the weights whose optimizer state lies off chip.
        streamed_bytes: bytes of that state, in and out of one replica.
        values: values of the optimizer that the program sends anew after each session run.
        rates: the rates that priced all of it.
    """

    fixed: float
    micro_batch: float
    updates: int
    learners: int
    offchip_bytes: int
    streamed_bytes: int
    values: int
    rates: Rates

    def host(self, framework: str) -> float:
        """Return the seconds of a framework's host per weight update, session run included; 0 without a framework."""
        if not framework:
            return 0.0
        state = self.rates.offchip_state_time_ns(framework, self.offchip_bytes, self.streamed_bytes)
        return float((self.rates.session_ns(self.values) / self.updates + state) / _NANOSECONDS)

    def seconds(self, count: int, host: float) -> float:
        """Return the seconds of a weight update after ``count`` micro-batches, plus ``host`` seconds of the host."""
        return self.fixed + count * self.micro_batch + host


@dataclass(frozen=True, eq=False)
class Prepared:
    """A row laid out at three counts, ready to be priced by any rates.

    Attributes:
        row: the published row.
        jobs: a Job for each count, ``multiple`` micro-batches apart.
        cycles: of a weight update of each job by the rates of the row's scenario, the mean over a session run.
        count: micro-batches of the first job.
        fits: the answer to whether the last job fits the memory of its IPUs.
    """

    row: ThroughputRow
    jobs: tuple[Job, ...]
    cycles: tuple[Fraction, ...]
    count: int
    multiple: int
    fits: analysis.Fits

    @property
    def rates(self) -> Rates:
        """The rates of the row's scenario."""
        return self.jobs[0].system.rates

    @property
    def variables(self) -> int:
        """The variables that the IPU with most of them updates."""
        program, variables = self.jobs[0].program, Counter[int]()
        for ipu, profile in zip(program.shape.mapping, program.stages, strict=True):
            variables[ipu] += 0 if isinstance(profile.update, int) else len(profile.update)
        return max(variables.values())

    @sharing
    def time(self, rates: Rates | None = None) -> UpdateTime:
        """Return the time of a weight update at any count, by ``rates`` or the scenario's."""
        job, _, last = self.jobs
        if rates in (None, self.rates):
            least, _, most = self.cycles
        else:
            least, most = _cycles(job, rates), _cycles(last, rates)
        slope = (most - least) / (2 * self.multiple)
        return UpdateTime(
            fixed=float((least - self.count * slope) / job.system.clock_hz),
            micro_batch=float(slope / job.system.clock_hz),
            updates=job.request.options.pipeline.repeat_count,
            learners=job.system.learners,
            offchip_bytes=job.program.offchip_weight_bytes,
            streamed_bytes=job.program.streamed_state_bytes,
            values=job.program.updated_variables if job.system.updates_optimizer else 0,
            rates=rates or self.rates,
        )


@sharing
def prepare(row: ThroughputRow) -> Prepared:
    """Lay out a row at counts at which its pipeline is full.

    Raises FileError, with the row's position, for errors of the scenario and for a pipeline that is never full.
    """
    try:
        return _prepared(row)
    except (ScenarioError, NeverFullError) as error:
        if not row.position:
            raise
        lines = (line.removeprefix("--set ") for line in str(error).splitlines())
        raise FileError("\n".join(f"{row.position}: {row.model}: {line}" for line in lines)) from error


def _prepared(row: ThroughputRow) -> Prepared:
    # The host's time after a weight update is added later, so that rows of all frameworks share a simulation.
    overrides = ("memory=report", *row.overrides, "system.host.framework=null", "numerics=off", "steps=1")
    source = apply_overrides(read_source(row.scenario), overrides)
    first = job_of(source)
    multiple = first.schedule.count_step(first.program.shape)

    @cache
    def at(count: int) -> tuple[Job, Fraction]:
        job = job_of(apply_overrides(source, [f"pipeline.gradient_accumulation_count={count}"]))
        return job, update_cycles(job)

    full = once_full(lambda count: at(count)[1], multiple)
    jobs, cycles = zip(*(at(full.count + turn * full.apart) for turn in range(3)), strict=True)
    return Prepared(row, jobs, cycles, full.count, full.apart, fits=jobs[-1].memory.fits)


@dataclass(frozen=True)
class Full:
    """The time of a full pipeline as a linear function of its micro-batches.

    Attributes:
        count: micro-batches from which on the pipeline is full.
        apart: the period of the full pipeline, in micro-batches.
        cycles: cycles at ``count`` micro-batches.
        slope: cycles of each further micro-batch.
    """

    count: int
    apart: int
    cycles: Fraction | int
    slope: Fraction

    @property
    def fixed(self) -> Fraction:
        """Cycles that do not depend on the count: ramps, weight update, all-reduce."""
        return self.cycles - self.count * self.slope

    def share(self, count: int) -> Fraction:
        """Return the throughput at ``count`` as a share of its limit for large counts."""
        return count * self.slope / (count * self.slope + self.fixed)

    def least_count(self, share: Fraction, multiple: int) -> int:
        """Return the least multiple of ``multiple`` whose throughput is ``share`` of its limit for large counts."""
        if not self.slope:
            return multiple
        least = self.fixed * share / ((1 - share) * self.slope)
        return max(math.ceil(least / multiple) * multiple, multiple)


def once_full(cycles_at: Callable[[int], Fraction | int], multiple: int, least: int = 1) -> Full:
    """Return the linear growth of a time once the pipeline is full, by three small counts with equal differences.

    ``cycles_at`` returns the cycles at a count, a multiple of ``multiple`` that is at least ``least``: below that the
    pipeline is not full, though its time may grow evenly, as zero bubble's does without passes for weights. Counts at
    which it raises CountError are skipped. Raises CountError where all are, NeverFullError without equal differences.
    """
    refused: CountError | None = None
    taken = False
    for doubling in range(_MOST_DOUBLINGS):
        count = max(_FIRST, -(-least // multiple)) * multiple * 2**doubling
        for period in _PERIODS:
            apart = period * multiple
            try:
                cycles = [cycles_at(count + turn * apart) for turn in range(3)]
            except CountError as error:
                refused = error
                continue
            taken = True
            if cycles[1] - cycles[0] == cycles[2] - cycles[1]:
                return Full(count, apart, cycles[0], Fraction(cycles[2] - cycles[0]) / (2 * apart))
    if refused is not None and not taken:
        raise refused
    raise NeverFullError(
        "expected a time that grows by as much for each further micro-batch, or for each few of them, got one that "
        f"does not up to a gradient_accumulation_count of {count + 2 * apart}"
    )


def _cycles(job: Job, rates: Rates) -> Fraction:
    """Return the cycles of a weight update, by these rates."""
    system = shared().first(replace(job.system, rates=rates))
    return session_cycles(job, lambda of: (pricing.price_plan(of.plan, of.program, system), system))[1]


def update_cycles(job: Job) -> Fraction:
    """Return the cycles of a weight update, the mean over a session run."""
    return session_cycles(job)[1]


def session_cycles(job: Job, priced: runs.Priced = lambda of: (of.costs, of.system)) -> tuple[int, Fraction]:
    """Return the cycles of a session run's first execution with its weight update, and the mean of all of them.

    All weight updates but the first take equally long. Only time is simulated, at the costs and on the System that
    ``priced`` returns for a Job.
    """
    updates = job.program.repeat_count
    timeline = runs.timeline_of(job, min(updates, 2), priced=priced)
    first, *further = analysis.executions_of(timeline)
    run = first.execution_cycles + sum((updates - 1) * (execution.end - first.end) for execution in further)
    return first.execution_cycles, Fraction(run, updates)


@dataclass(frozen=True)
class SimulatedRow:
    """A published throughput and its simulation.

    Attributes:
        row: the published row.
        time: the simulated time of a weight update by the rates in use.
        unseen: simulated items a second with the row's source left out of the fit; None for rows not fitted to.
        fits: the answer to whether the program fits the memory of its IPUs.
    """

    row: ThroughputRow
    time: UpdateTime
    unseen: float | None = None
    fits: analysis.Fits = analysis.Fits.YES

    @property
    def seconds(self) -> float:
        """The simulated time of a weight update."""
        return self.time.seconds(self.row.count, self.time.host(self.row.framework))

    @property
    def items_per_s(self) -> float:
        """The simulated throughput, in items a second."""
        return self._items / self.seconds

    @property
    def error(self) -> float:
        """(simulated - published) / published throughput; 0 within a published range."""
        return self.row.off(self.items_per_s)

    @property
    def unseen_error(self) -> float | None:
        """The error with the row's source left out of the fit; None for rows that are not fitted to."""
        return None if self.unseen is None else self.row.off(self.unseen)

    @property
    def judged(self) -> float:
        """The error that counts: ``unseen_error`` where there is one, else ``error``."""
        return self.error if self.unseen_error is None else self.unseen_error

    @property
    def seconds_published(self) -> float:
        """The published time of a weight update; in the middle of a range."""
        return self._items / self.row.items_per_s

    def with_rates(self, rates: Rates) -> SimulatedRow:
        """Return the row simulated with other rates of the host."""
        return replace(self, time=replace(self.time, rates=rates))

    @property
    def _items(self) -> float:
        return self.row.micro_batch * self.row.count * self.time.learners * self.row.items


@sharing
def prepare_rows(rows: Sequence[ThroughputRow]) -> list[Prepared]:
    """Lay out all rows, those that simulate alike once; raises what :func:`prepare` does."""
    known: dict[tuple[Path, tuple[str, ...]], Prepared] = {}
    for row in rows:
        if row.runs not in known:
            known[row.runs] = prepare(row)
    return [replace(known[row.runs], row=row) for row in rows]


def update_times(rows: Sequence[Prepared], rates: Rates | None = None) -> list[UpdateTime]:
    """Return the time of each row's weight update by ``rates`` or the scenarios'; rows that simulate alike share it."""
    times: dict[tuple[Path, tuple[str, ...]], UpdateTime] = {}
    for row in rows:
        if row.row.runs not in times:
            times[row.row.runs] = row.time(rates)
    return [times[row.row.runs] for row in rows]


def simulate_rows(rows: Sequence[Prepared], rates: Rates | None = None) -> list[SimulatedRow]:
    """Return each row with its simulated throughput, by ``rates`` or the scenarios'."""
    times = update_times(rows, rates)
    return [SimulatedRow(row.row, time, fits=row.fits) for row, time in zip(rows, times, strict=True)]


def sensitivities(prepared: Prepared, known: Collection[str] = ()) -> dict[str, float]:
    """Return the relative change of a row's throughput when a rate grows by 1 %, for each rate that changes it.

    Keys are attributes of Rates. Rates in ``known``, and rates at their upper bound, are left out.
    """
    row = prepared.row

    def seconds(rates: Rates) -> float:
        time = prepared.time(rates)
        return time.seconds(row.count, time.host(row.framework))

    before, changes = seconds(prepared.rates), {}
    for rate in hardware.RATES:
        value = getattr(prepared.rates, rate.attribute) * Fraction(101, 100)
        if rate.attribute not in known and value <= rate.most and rate.unit != "links":
            after = seconds(prepared.rates.with_values(**{rate.attribute: value}))
            if after != before:
                changes[rate.attribute] = before / after - 1
    return changes
