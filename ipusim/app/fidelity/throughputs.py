"""Simulate published throughputs: the time of a weight update, and the host's share.

The count is the number of micro-batches per weight update. A row is simulated at three small counts that fill the
pipeline, and the time is extrapolated to the published count. The extrapolation includes counts refused by schedules of
Graphcore's TensorFlow, since PopART and PyTorch accept any count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from ipusim.api import Costs, Job, Rates, System, analysis, hardware, pricing, runs
from ipusim.app.fidelity.throughput_rows import ThroughputRow
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import read_source
from ipusim.app.study.full_pipeline import NeverFullError, full_growth, update_cycles
from ipusim.app.study.trial import ALLOW_OVERSIZED, WITHOUT_ARITHMETIC
from ipusim.base.cache import shared, sharing
from ipusim.base.errors import FileError

_NANOSECONDS: Final = 10**9


@dataclass(frozen=True)
class UpdateTime:
    """Parts of a weight update's time.

    Attributes:
        fixed: seconds independent of the count: ramp-up, ramp-down, weight update, all-reduce.
        micro_batch: seconds per micro-batch.
        job: Job of the plan, at any count.
        offchip_bytes: two numbers: bytes of the weights whose optimizer state lies off chip, and bytes of optimizer
            state that stream in and out on the IPU-Machine with the most.
        rates: rates of the simulation.
    """

    fixed: float
    micro_batch: float
    job: Job
    offchip_bytes: tuple[int, int]
    rates: Rates

    @property
    def host(self) -> float:
        """Seconds of the framework on the host per weight update, session run included; 0 without a framework."""
        program, system, updates = self.job.program, self.job.system, self.job.request.options.pipeline.repeat_count
        if not system.framework:
            return 0.0
        state = self.rates.offchip_state_time_ns(system.framework, *self.offchip_bytes)
        session_ns = system.session_ns(program.updated_variables, self.rates)
        return float((session_ns / updates + state) / _NANOSECONDS)

    def seconds(self, count: int) -> float:
        """Return the seconds of a weight update after ``count`` micro-batches, the host's part included."""
        return self.fixed + count * self.micro_batch + self.host


@dataclass(frozen=True, eq=False)
class PreparedRow:
    """A row prepared at three counts for pricing with any rates.

    Attributes:
        row: the published row.
        jobs: Jobs by count.
        cycles: cycles of a weight update per job with the rates of the row's scenario, averaged over a session run.
        count: micro-batches of the first job.
        spacing: number of micro-batches that each job has more than the job before.
        fits: whether the last job fits into the memory of its IPUs.
    """

    row: ThroughputRow
    jobs: tuple[Job, ...]
    cycles: tuple[Fraction, ...]
    count: int
    spacing: int
    fits: analysis.Fits

    @property
    def rates(self) -> Rates:
        """Rates of the row's scenario."""
        return self.jobs[0].system.rates

    @cached_property
    def kind(self) -> str:
        """Kind of the row's model and run; empty if no published training is of its kind."""
        return runs.kind_of(self.jobs[0])

    @cached_property
    def _offchip_bytes(self) -> tuple[int, int]:
        program, system = self.jobs[0].program, self.jobs[0].system
        return program.offload.offchip_weight_bytes(program.stages), pricing.streamed_state_bytes(program, system)

    @property
    def variables(self) -> int:
        """Largest number of variables updated by an IPU."""
        program, variables = self.jobs[0].program, Counter[int]()
        for ipu, profile in zip(program.shape.mapping, program.stages, strict=True):
            variables[ipu] += 0 if isinstance(profile.update, int) else len(profile.update)
        return max(variables.values())

    @sharing
    def time(self, rates: Rates | None = None) -> UpdateTime:
        """Return the time of a weight update at any count, with ``rates`` or the scenario's rates."""
        job, _, last = self.jobs
        if rates in (None, self.rates):
            first_cycles, _, last_cycles = self.cycles
        else:
            first_cycles, last_cycles = cycles_without_host(job, rates), cycles_without_host(last, rates)
        slope = (last_cycles - first_cycles) / (2 * self.spacing)
        fixed, micro_batch = (
            float(cycles / job.system.clock_hz) for cycles in (first_cycles - self.count * slope, slope)
        )
        return UpdateTime(fixed, micro_batch, job, self._offchip_bytes, rates or self.rates)


@sharing
def prepare(row: ThroughputRow) -> PreparedRow:
    """Prepare a row at counts with a full pipeline.

    Raises FileError, with the row's position, for errors of the scenario and for a pipeline that is never full.
    """
    try:
        return _prepare(row)
    except (ScenarioError, NeverFullError) as error:
        if not row.position:
            raise
        lines = (line.removeprefix("--set ") for line in str(error).splitlines())
        raise FileError("\n".join(f"{row.position}: {row.model}: {line}" for line in lines)) from error


def _prepare(row: ThroughputRow) -> PreparedRow:
    overrides = (ALLOW_OVERSIZED, *row.overrides, WITHOUT_ARITHMETIC, "steps=1")
    source = apply_overrides(read_source(row.scenario), overrides)
    first = job_of(source)

    @cache
    def job_at(count: int) -> tuple[Job, Fraction]:
        job = job_of(apply_overrides(source, [f"pipeline.gradient_accumulation_count={count}"]))
        return job, cycles_without_host(job)

    full = full_growth(lambda count: job_at(count)[1], runs.full_counts(first))
    jobs, cycles = zip(*(job_at(full.count + turn * full.spacing) for turn in range(3)), strict=True)
    return PreparedRow(row, jobs, cycles, full.count, full.spacing, fits=jobs[-1].memory.fits)


def cycles_without_host(job: Job, rates: Rates | None = None) -> Fraction:
    """Return the cycles of a weight update without the framework's work on the host, with ``rates`` or the Job's rates.

    :class:`UpdateTime` adds the host's time separately, so other rates of the host need no simulation.
    """
    system = job.system if rates is None else shared().first_equal(replace(job.system, rates=rates))

    def price(part: Job) -> tuple[Costs, System]:
        costs = part.costs if rates is None else pricing.price_plan(part.plan, part.program, system)
        return replace(costs, host=replace(costs.host, call=0, state=0)), system

    return update_cycles(job, price)


@dataclass(frozen=True, eq=False)
class SimulatedRow:
    """A published throughput and the simulation.

    Attributes:
        training: the published row, prepared.
        time: simulated time of a weight update with the rates in use.
        unseen_items_per_s: simulated items a second with rates fitted without the row's source; None if no row of the
            source is fitted.
    """

    training: PreparedRow
    time: UpdateTime
    unseen_items_per_s: float | None = None

    @property
    def row(self) -> ThroughputRow:
        """Published row."""
        return self.training.row

    @property
    def seconds(self) -> float:
        """Simulated seconds of a weight update."""
        return self.time.seconds(self.row.count)

    @property
    def items_per_s(self) -> float:
        """Simulated throughput, in items a second."""
        return self._items / self.seconds

    @property
    def error(self) -> float:
        """(simulated - published) / published throughput; 0 within a published range."""
        return self.row.relative_error(self.items_per_s)

    @property
    def unseen_error(self) -> float | None:
        """Error with rates fitted without the row's source; None if no row of the source is fitted."""
        return None if self.unseen_items_per_s is None else self.row.relative_error(self.unseen_items_per_s)

    @property
    def reported_error(self) -> float:
        """Error to report: ``unseen_error`` if present, else ``error``."""
        return self.error if self.unseen_error is None else self.unseen_error

    @property
    def seconds_published(self) -> float:
        """Published seconds of a weight update; for a range, of its geometric mean."""
        return self._items / self.row.items_per_s

    def with_rates(self, rates: Rates) -> SimulatedRow:
        """Return the row simulated with other host rates."""
        return replace(self, time=replace(self.time, rates=rates))

    @property
    def _items(self) -> float:
        return self.row.micro_batch * self.row.count * self.time.job.system.learners * self.row.items


@sharing
def prepare_rows(rows: Sequence[ThroughputRow]) -> list[PreparedRow]:
    """Prepare the rows, sharing equal simulations.

    Raises FileError, with a row's position, for errors of its scenario and for a pipeline that is never full.
    """
    by_key: dict[tuple[Path, tuple[str, ...]], PreparedRow] = {}
    for row in rows:
        if row.simulation_key not in by_key:
            by_key[row.simulation_key] = prepare(row)
    return [replace(by_key[row.simulation_key], row=row) for row in rows]


def update_times(rows: Sequence[PreparedRow], rates: Rates | None = None) -> list[UpdateTime]:
    """Return the rows' times of a weight update, with ``rates`` or the scenarios' rates."""
    times: dict[tuple[Path, tuple[str, ...]], UpdateTime] = {}
    for prepared in rows:
        if prepared.row.simulation_key not in times:
            times[prepared.row.simulation_key] = prepared.time(rates)
    return [times[prepared.row.simulation_key] for prepared in rows]


def simulate_rows(rows: Sequence[PreparedRow], rates: Rates | None = None) -> list[SimulatedRow]:
    """Return the rows with simulated throughputs, with ``rates`` or the scenarios' rates."""
    return [SimulatedRow(row, time) for row, time in zip(rows, update_times(rows, rates), strict=True)]


def sensitivities(training: PreparedRow, known_rates: Collection[str] = ()) -> dict[str, float]:
    """Return the relative change of a row's throughput for a 1 % increase of each rate that changes it.

    Keys are attributes of Rates. Rates in ``known_rates``, and rates at their upper bound, are left out.
    """
    row = training.row

    def seconds(rates: Rates) -> float:
        return training.time(rates).seconds(row.count)

    base_s, changes = seconds(training.rates), {}
    for rate in hardware.RATES:
        value = getattr(training.rates, rate.attribute) * Fraction(101, 100)
        if rate.attribute not in known_rates and value <= rate.most and rate.unit != "links":
            new_s = seconds(training.rates.with_values(**{rate.attribute: value}))
            if new_s != base_s:
                changes[rate.attribute] = base_s / new_s - 1
    return changes
