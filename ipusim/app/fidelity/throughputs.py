"""Simulation of published throughputs: the time of a weight update, and the host's part of it.

A row is simulated at three small counts at which the pipeline is full, and its time is extrapolated to the published
count. That holds for counts that a schedule of Graphcore's TensorFlow would refuse as well: PopART and PyTorch take
any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final

from ipusim.api import Job, Rates, analysis, hardware, pricing
from ipusim.app.fidelity.throughput_rows import ThroughputRow
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import read_source
from ipusim.app.study.full_pipeline import NeverFullError, once_full, update_cycles
from ipusim.app.study.trial import WITH_MISFITS, WITHOUT_ARITHMETIC
from ipusim.base.cache import shared, sharing
from ipusim.base.errors import FileError

_NANOSECONDS: Final = 10**9


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
        program = job.program
        return UpdateTime(
            fixed=float((least - self.count * slope) / job.system.clock_hz),
            micro_batch=float(slope / job.system.clock_hz),
            updates=job.request.options.pipeline.repeat_count,
            learners=job.system.learners,
            offchip_bytes=program.offload.offchip_weight_bytes(program.stages),
            streamed_bytes=program.offload.streamed_state_bytes(program.stages),
            values=program.updated_variables if job.system.updates_optimizer else 0,
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
    overrides = (WITH_MISFITS, *row.overrides, "system.host.framework=null", WITHOUT_ARITHMETIC, "steps=1")
    source = apply_overrides(read_source(row.scenario), overrides)
    first = job_of(source)
    multiple = first.schedule.count_step(first.program.shape)

    @cache
    def at(count: int) -> tuple[Job, Fraction]:
        job = job_of(apply_overrides(source, [f"pipeline.gradient_accumulation_count={count}"]))
        return job, update_cycles(job)

    full = once_full(lambda count: at(count)[1], multiple)
    jobs, cycles = zip(*(at(full.count + turn * full.spacing) for turn in range(3)), strict=True)
    return Prepared(row, jobs, cycles, full.count, full.spacing, fits=jobs[-1].memory.fits)


def _cycles(job: Job, rates: Rates) -> Fraction:
    """Return the cycles of a weight update, by these rates."""
    system = shared().first(replace(job.system, rates=rates))
    return update_cycles(job, lambda of: (pricing.price_plan(of.plan, of.program, system), system))


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
