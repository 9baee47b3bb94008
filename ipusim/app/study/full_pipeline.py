"""The time of a weight update, and of a full pipeline at any gradient accumulation count.

Once a pipeline is full, its time grows linearly with the gradient accumulation count: by a time-step for each further
micro-batch, point-to-point by a constant for every few. Three small counts with equal differences show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import Job, analysis, runs
from ipusim.base.errors import CountError, IpusimError

#: The first count, in multiples of the schedule's own, and how often it is doubled at most.
_FIRST: Final = 2
_MOST_DOUBLINGS: Final = 6
#: Periods of a full pipeline that are tried, in multiples of the schedule's own.
_PERIODS: Final = 1, 2, 3, 4


class NeverFullError(IpusimError):
    """A pipeline whose time does not grow by the same for each further micro-batch."""


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


def update_cycles(job: Job, priced: runs.Priced = lambda of: (of.costs, of.system)) -> Fraction:
    """Return the mean cycles of a weight update over a session run, with the host's part.

    A session run that repeats itself is simulated in part. The first weight updates may take longer, until the buffers
    of the feeds are full; results may leave behind the last one alone.

    Args:
        job: the program, of any steps.
        priced: returns the costs and the System of the Job, or of one like it with other counts.
    """
    updates = job.program.repeat_count
    return Fraction(analysis.throughput_of(runs.timeline_of(job, updates, priced=priced)).run_cycles, updates)
