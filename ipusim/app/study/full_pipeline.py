"""Compute the time of a weight update, and of a full pipeline at any count.

The time of a full pipeline grows linearly with the gradient accumulation count, by a constant per period of one or a
few micro-batches. Three small counts, a period apart, with equal differences show the growth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from ipusim.api import Job, analysis, machine, runs
from ipusim.app.study.trial import try_request
from ipusim.base.cache import sharing
from ipusim.base.errors import CountError, IpusimError
from ipusim.base.units import counted

#: Option with the count of micro-batches.
COUNT: Final = "pipeline.gradient_accumulation_count"
#: First count to try, as a multiple of the pipeline's period.
_FIRST_MULTIPLE: Final = 2
#: Maximum number of doublings of the first count.
_MOST_DOUBLINGS: Final = 6
#: Number of counts with equal differences that show linear growth.
_COUNTS_IN_PROOF: Final = 3


class NeverFullError(IpusimError):
    """Pipeline whose time does not grow linearly with the micro-batches."""


@dataclass(frozen=True)
class Full:
    """Time of a full pipeline as a linear function of its micro-batches.

    Attributes:
        count: least number of micro-batches of a full pipeline.
        spacing: period of the full pipeline, in micro-batches.
        cycles: cycles at ``count`` micro-batches.
        slope: cycles per further micro-batch.
    """

    count: int
    spacing: int
    cycles: Fraction
    slope: Fraction

    @property
    def fixed_cycles(self) -> Fraction:
        """Cycles independent of the count: fill and drain, weight update, all-reduce."""
        return self.cycles - self.count * self.slope

    def least_count(self, share: Fraction, multiple: int) -> int:
        """Return the smallest multiple of ``multiple`` that reaches ``share`` of the limiting throughput."""
        if not self.slope:
            return multiple
        least = self.fixed_cycles * share / ((1 - share) * self.slope)
        return max(math.ceil(least / multiple) * multiple, multiple)


def full_growth(
    cycles_at: Callable[[int], Fraction | int], full_counts: runs.FullCounts, known_counts: Sequence[int] = ()
) -> Full:
    """Return the linear growth of a full pipeline's time.

    Three counts with equal slopes show linear growth. Smaller distances than ``full_counts.apart`` would mislead:
    v_half may repeat after 7 micro-batches, yet 3 neighbouring counts have equal slopes by chance.

    Args:
        cycles_at: function from a count to cycles; counts with a CountError are skipped.
        full_counts: counts of a full pipeline. Smaller counts may grow evenly too, such as zero bubble's time without
            weight-gradient passes.
        known_counts: ascending counts with known cycles; the last three are tried first.

    Raises CountError if every count is refused, NeverFullError without equal slopes.
    """
    refusal: CountError | None = None
    has_count = False
    least, apart = full_counts
    last_counts = [count for count in known_counts[-3:] if count >= least and not (known_counts[-1] - count) % apart]
    triples = [last_counts] if len(last_counts) == _COUNTS_IN_PROOF else []
    for doubling in range(_MOST_DOUBLINGS):
        first = max(_FIRST_MULTIPLE, -(-least // apart)) * apart * 2**doubling
        triples.append([first + turn * apart for turn in range(_COUNTS_IN_PROOF)])
    for triple in triples:
        try:
            cycles = [Fraction(cycles_at(count)) for count in triple]
        except CountError as error:
            refusal = error
            continue
        has_count = True
        slope, later_slope = ((cycles[n + 1] - cycles[n]) / (triple[n + 1] - triple[n]) for n in (0, 1))
        if slope == later_slope:
            return Full(triple[0], triple[1] - triple[0], cycles[0], slope)
    if refusal is not None and not has_count:
        raise refusal
    raise NeverFullError(
        f"expected a time that grows by an equal step per {counted(apart, 'micro-batch', 'es')}, "
        f"got unequal steps up to a gradient_accumulation_count of {triples[-1][-1]}"
    )


def update_cycles(job: Job, priced: runs.PriceFunction = lambda part: (part.costs, part.system)) -> Fraction:
    """Return the mean cycles of a weight update, with the host's part.

    A shorter run stands for session runs whose timing repeats. The first weight updates may take longer, until the
    feeds' buffers are full; results may arrive after the last update.

    Args:
        job: the program, with any number of steps.
        priced: function from the Job, or a similar Job with another count, to costs and System.
    """
    updates = job.program.repeat_count
    return Fraction(analysis.throughput_of(runs.timeline_of(job, updates, price=priced)).run_cycles, updates)


@dataclass(frozen=True)
class Ceiling:
    """Throughput limit of a plan for many micro-batches, with the parts of a micro-batch's time.

    Attributes:
        full: time per weight update at any count of micro-batches, including the host between session runs.
        busiest, mean: cycles of a micro-batch's passes on the busiest IPU, and on average over the IPUs.
        samples: samples of a micro-batch, over all replicas of all hosts.
        multiple: common factor of all counts that the schedule accepts.
        clock_hz: frequency of the tile clock.
        cycles_at: function from a count to the cycles of a weight update; raises CountError for a refused count.
    """

    full: Full
    busiest: int
    mean: Fraction
    samples: int
    multiple: int
    clock_hz: int
    cycles_at: Callable[[int], Fraction] = field(repr=False)

    @property
    def samples_per_s(self) -> float:
        """Limit of throughput for large counts."""
        return float(self.samples * self.clock_hz / self.full.slope)

    def count_for(self, share: Fraction) -> int:
        """Return a count reaching ``share`` of the ceiling: the smallest with a full pipeline, or a smaller one.

        The linear growth says nothing of pipelines that are not full: these are simulated.
        """
        count = self.full.least_count(share, self.multiple)
        while count < self.full.count and not self._reaches(count, share):
            count += self.multiple
        return count

    def _reaches(self, count: int, share: Fraction) -> bool:
        with suppress(CountError):
            return count * self.full.slope >= share * self.cycles_at(count)
        return False

    @property
    def parts(self) -> dict[str, float]:
        """Parts of a micro-batch's time: even work, imbalance, and copies, syncs and host."""
        slope = self.full.slope or Fraction(1)
        return {
            "passes": float(self.mean / slope),
            "imbalance of stages": float((self.busiest - self.mean) / slope),
            "copies, sync and host": float((slope - self.busiest) / slope),
        }


@sharing
def ceiling_of(
    job: Job, cycles_at: Callable[[int], Fraction] | None = None, counts: Sequence[int] = ()
) -> Ceiling | str:
    """Return the ceiling of a plan, extrapolated from a few micro-batch counts.

    Counts refused by the schedule are left out.

    Args:
        job: Job of the plan, with any count.
        cycles_at: function from a count to the cycles of a weight update; raises CountError for a refused count. By
            default, counts are tried.
        counts: ascending counts with known cycles.

    Returns:
        Ceiling; if unknown, the schedule's refusal, or an empty text for a pipeline that is never full, or whose moved
        activations may fill the links only at large counts, and for disturbances that begin, end or vary.
    """
    shape = job.program.shape
    if job.program.offload.moved is not None or not machine.are_constant(job.system):
        return ""

    def trial_cycles(count: int) -> Fraction:
        trial = try_request(job.request, {COUNT: count})
        if trial.job is None:
            raise CountError(trial.refusal)
        return update_cycles(trial.job)

    cycles_at = cycles_at or trial_cycles
    try:
        full = full_growth(cycles_at, runs.full_counts(job), counts)
    except NeverFullError:
        return ""
    except CountError as error:
        return str(error)
    pass_cycles = dict.fromkeys(job.plan.ipus, 0)
    for ipu, kind, stage in zip(job.plan.ipu.tolist(), job.plan.kind.tolist(), job.plan.stage.tolist(), strict=True):
        pass_cycles[ipu] += job.costs.passes[kind, stage]
    count = job.plan.shape.count // shape.serialization  # a plan of a long run holds only some micro-batches
    samples = job.program.micro_batch_size * job.system.learners * shape.serialization
    busiest, mean = max(pass_cycles.values()) // count, Fraction(sum(pass_cycles.values()), len(pass_cycles) * count)
    return Ceiling(full, busiest, mean, samples, job.schedule.count_step(shape), job.system.clock_hz, cycles_at)
