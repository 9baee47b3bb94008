"""Published throughputs, simulated: how long a weight update takes, and what the host's part of it must be.

A pipeline with G micro-batches before its weight update takes as long as one with fewer, and a time-step more for each
further one, once it is full; point-to-point it may take a few until all IPUs do the same again. So a row with any count
is simulated at three small ones, of which the second and third show that it is full; its time at the published count
is theirs carried on. That holds for counts that a schedule of Graphcore's TensorFlow would refuse as well: PopART and
PyTorch take any. Of the weight updates of a session run the first two are simulated: the host fills its buffers before
the first alone, and each further one takes as long as the second.
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

#: Counts are multiples of what the schedule asks for: the first, and how often it is doubled at most.
_FIRST: Final = 2
_MOST_DOUBLINGS: Final = 6
#: How many of these counts it may take until the pipeline does the same again.
_PERIODS: Final = 1, 2, 3, 4
_NANOSECONDS: Final = 10**9


class NeverFullError(IpusimError):
    """A pipeline whose time does not grow by the same for each further micro-batch."""


@dataclass(frozen=True)
class UpdateTime:
    """What one weight update takes, in seconds.

    Attributes:
        fixed: all but the micro-batches and the host: ramps, weight update, all-reduce.
        micro_batch: each micro-batch.
        updates: weight updates of a session run.
        learners: replicas of the model, of all hosts.
        offchip_bytes: of weights whose optimizer state lies off chip.
        streamed_bytes: of that state, in and out of one replica.
        values: of the optimizer, that the program sends anew behind each session run.
        rates: by which all of it was priced.
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
        """Return the seconds of a framework's host at a weight update, its part of a session run too; 0 for none."""
        if not framework:
            return 0.0
        state = self.rates.offchip_state_time_ns(framework, self.offchip_bytes, self.streamed_bytes)
        return float((self.rates.session_ns(self.values) / self.updates + state) / _NANOSECONDS)

    def seconds(self, count: int, host: float) -> float:
        """Return the time of a weight update after ``count`` micro-batches, with so much of the host."""
        return self.fixed + count * self.micro_batch + host


@dataclass(frozen=True, eq=False)
class Prepared:
    """A row laid out at three counts, ready to be priced by any rates.

    Attributes:
        row: what was published.
        jobs: at each count, ``multiple`` micro-batches apart.
        cycles: what a weight update of each takes by the rates of the row's scenario, the mean over a session run.
        count: the first one's micro-batches.
        fits: whether each IPU's memory holds its part of the last job.
    """

    row: ThroughputRow
    jobs: tuple[Job, ...]
    cycles: tuple[Fraction, ...]
    count: int
    multiple: int
    fits: bool

    @property
    def rates(self) -> Rates:
        """The rates of the row's scenario."""
        return self.jobs[0].system.rates

    @property
    def variables(self) -> int:
        """The variables that the IPU with most of them updates."""
        program, held = self.jobs[0].program, Counter[int]()
        for ipu, profile in zip(program.shape.mapping, program.stages, strict=True):
            held[ipu] += 0 if isinstance(profile.update, int) else len(profile.update)
        return max(held.values())

    @sharing
    def time(self, rates: Rates | None = None) -> UpdateTime:
        """Return what a weight update takes at any count, by these rates or the scenario's."""
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

    Raises FileError, with the row's place, for what the scenario refuses and for a pipeline that is never full.
    """
    try:
        return _prepared(row)
    except (ScenarioError, NeverFullError) as error:
        if not row.place:
            raise
        lines = (line.removeprefix("--set ") for line in str(error).splitlines())
        raise FileError("\n".join(f"{row.place}: {row.model}: {line}" for line in lines)) from error


def _prepared(row: ThroughputRow) -> Prepared:
    # What the host does behind a weight update is no part of it, so that rows of other frameworks run alike.
    overrides = ("memory=report", *row.overrides, "system.host.framework=null", "numerics=off", "steps=1")
    source = apply_overrides(read_source(row.scenario), overrides)
    first = job_of(source)
    multiple = first.schedule.multiple(first.program.shape)

    @cache
    def at(count: int) -> tuple[Job, Fraction]:
        job = job_of(apply_overrides(source, [f"pipeline.gradient_accumulation_count={count}"]))
        return job, update_cycles(job)

    found = once_full(lambda count: at(count)[1], multiple)
    jobs, cycles = zip(*(at(found.count + turn * found.apart) for turn in range(3)), strict=True)
    return Prepared(row, jobs, cycles, found.count, found.apart, fits=not jobs[-1].memory.too_large)


@dataclass(frozen=True)
class Full:
    """How long a pipeline takes once it is full.

    Attributes:
        count: micro-batches at which it is.
        apart: it does the same again every so many.
        cycles: at ``count`` micro-batches.
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
        """Return which part of the throughput that no count passes a count reaches."""
        return count * self.slope / (count * self.slope + self.fixed)

    def least_count(self, share: Fraction, multiple: int) -> int:
        """Return the least count, a multiple of ``multiple``, that reaches ``share`` of that throughput."""
        if not self.slope:
            return multiple
        wanted = self.fixed * share / ((1 - share) * self.slope)
        return max(math.ceil(wanted / multiple) * multiple, multiple)


def once_full(cycles_at: Callable[[int], Fraction | int], multiple: int, least: int = 1) -> Full:
    """Return how a time goes on from three small counts, at which it grows by the same; raises NeverFullError.

    ``cycles_at`` gives the cycles at a count, a multiple of ``multiple`` and ``least`` at least: with fewer a pipeline
    is not full, and its time may grow evenly too, as zero bubble's does without passes for weights. Counts at which it
    raises CountError are left out; raises that where none is left.
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
    return _session_cycles(job, lambda each: (pricing.price_plan(each.plan, each.program, system), system))[1]


def update_cycles(job: Job) -> Fraction:
    """Return the cycles of a weight update, the mean over a session run."""
    return session_cycles(job)[1]


def session_cycles(job: Job) -> tuple[int, Fraction]:
    """Return the cycles of a session run's first execution with its weight update, and the mean of all of them.

    All but the first are alike. It is time alone, and nothing else is worked out.
    """
    return _session_cycles(job, lambda each: (each.costs, each.system))


def _session_cycles(job: Job, priced: runs.Priced) -> tuple[int, Fraction]:
    """Return the same by what ``priced`` says of the Job, and of those of fewer micro-batches that stand in for it."""
    updates = job.program.repeat_count
    timeline = runs.timeline_of(job, min(updates, 2), priced=priced)
    first, *further = analysis.executions_of(timeline)
    run = first.execution_cycles + sum((updates - 1) * (each.end - first.end) for each in further)
    return first.execution_cycles, Fraction(run, updates)


@dataclass(frozen=True)
class SimulatedRow:
    """A published throughput, and what is simulated of it.

    Attributes:
        row: what was published.
        time: what a weight update takes, with the rates in use.
        unseen: items a second with its source left out of every fit; None where no fit is made of it.
        fits: whether each IPU's memory holds its part.
    """

    row: ThroughputRow
    time: UpdateTime
    unseen: float | None = None
    fits: bool = True

    @property
    def seconds(self) -> float:
        """The simulated time of a weight update."""
        return self.time.seconds(self.row.count, self.time.host(self.row.framework))

    @property
    def items_per_s(self) -> float:
        """What is simulated, in the unit of what was published."""
        return self._items / self.seconds

    @property
    def error(self) -> float:
        """How much too fast the simulation is, as a share of what was published; 0 within a range."""
        return self.row.off(self.items_per_s)

    @property
    def unseen_error(self) -> float | None:
        """The same with the rates that are fitted to throughputs by those of other sources alone."""
        return None if self.unseen is None else self.row.off(self.unseen)

    @property
    def judged(self) -> float:
        """The error with the row's source left out of every fit, of which most rows are no part."""
        return self.error if self.unseen_error is None else self.unseen_error

    @property
    def seconds_published(self) -> float:
        """The published time of a weight update; in the middle of a range."""
        return self._items / self.row.items_per_s

    @property
    def host_left(self) -> float:
        """Seconds that are left for the host at a weight update, if all else takes as long as simulated."""
        return self.seconds_published - self.time.seconds(self.row.count, 0.0)

    def with_rates(self, rates: Rates) -> SimulatedRow:
        """Return it with other rates of the host."""
        return replace(self, time=replace(self.time, rates=rates))

    @property
    def _items(self) -> float:
        return self.row.micro_batch * self.row.count * self.time.learners * self.row.items


@sharing
def prepare_rows(rows: Sequence[ThroughputRow]) -> list[Prepared]:
    """Lay out all rows, each that runs like another once; raises what :func:`prepare` does."""
    known: dict[tuple[Path, tuple[str, ...]], Prepared] = {}
    for row in rows:
        if row.runs not in known:
            known[row.runs] = prepare(row)
    return [replace(known[row.runs], row=row) for row in rows]


def update_times(rows: Sequence[Prepared], rates: Rates | None = None) -> list[UpdateTime]:
    """Return what a weight update of each row takes, by its scenario's rates or others; of rows that run alike once."""
    found: dict[tuple[Path, tuple[str, ...]], UpdateTime] = {}
    for row in rows:
        if row.row.runs not in found:
            found[row.row.runs] = row.time(rates)
    return [found[row.row.runs] for row in rows]


def simulate_rows(rows: Sequence[Prepared], rates: Rates | None = None) -> list[SimulatedRow]:
    """Return what is simulated of each row, by its scenario's rates or others."""
    times = update_times(rows, rates)
    return [SimulatedRow(row.row, time, fits=row.fits) for row, time in zip(rows, times, strict=True)]


def sensitivities(
    prepared: Prepared, share: Fraction = Fraction(1, 100), known: Collection[str] = ()
) -> dict[str, float]:
    """Return, for each rate that a row feels, by which share its throughput grows when the rate grows by ``share``.

    Keys are attributes of Rates; those that are ``known`` and a rate that can grow no further are left out.
    """
    row = prepared.row

    def seconds(rates: Rates) -> float:
        time = prepared.time(rates)
        return time.seconds(row.count, time.host(row.framework))

    before, found = seconds(prepared.rates), {}
    for rate in hardware.RATES:
        value = getattr(prepared.rates, rate.attribute) * (1 + share)
        if rate.attribute not in known and value <= rate.most and rate.unit != "links":
            after = seconds(prepared.rates.with_values(**{rate.attribute: value}))
            if after != before:
                found[rate.attribute] = before / after - 1
    return found
