"""Time of a weight update, and of a full pipeline at any count.

The time of a full pipeline grows linearly with the gradient accumulation count: in lock-step by a time-step per
micro-batch, in point-to-point by a constant per period of a few micro-batches. Three small counts with equal
differences prove the growth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import Job, analysis, runs
from ipusim.base.errors import CountError, IpusimError

#: First count as multiple of the schedule's step, and most doublings of this count.
_FIRST: Final = 2
_MOST_DOUBLINGS: Final = 6
#: Candidate periods of a full pipeline, as multiples of the schedule's step.
_PERIODS: Final = 1, 2, 3, 4


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
    cycles: Fraction | int
    slope: Fraction

    @property
    def fixed_cycles(self) -> Fraction:
        """Cycles independent of the count: ramps, weight update, all-reduce."""
        return self.cycles - self.count * self.slope

    def share(self, count: int) -> Fraction:
        """Return the throughput at ``count`` as a share of its limit for large counts."""
        return count * self.slope / (count * self.slope + self.fixed_cycles)

    def least_count(self, share: Fraction, multiple: int) -> int:
        """Return the least multiple of ``multiple`` with ``share`` of the limiting throughput."""
        if not self.slope:
            return multiple
        least = self.fixed_cycles * share / ((1 - share) * self.slope)
        return max(math.ceil(least / multiple) * multiple, multiple)


def once_full(cycles_at: Callable[[int], Fraction | int], multiple: int, least: int = 1) -> Full:
    """Return the linear growth of a full pipeline's time.

    Three counts with equal differences prove linear growth.

    Args:
        cycles_at: function from a count to cycles; counts with a CountError are skipped.
        multiple: divisor of every count.
        least: least count of a full pipeline. Below it, time may grow evenly too, as zero bubble's time without passes
            for weights.

    Raises CountError if every count is refused, NeverFullError without equal differences.
    """
    refusal: CountError | None = None
    has_count = False
    for doubling in range(_MOST_DOUBLINGS):
        count = max(_FIRST, -(-least // multiple)) * multiple * 2**doubling
        for period in _PERIODS:
            spacing = period * multiple
            try:
                cycles = [cycles_at(count + turn * spacing) for turn in range(3)]
            except CountError as error:
                refusal = error
                continue
            has_count = True
            if cycles[1] - cycles[0] == cycles[2] - cycles[1]:
                return Full(count, spacing, cycles[0], Fraction(cycles[2] - cycles[0]) / (2 * spacing))
    if refusal is not None and not has_count:
        raise refusal
    raise NeverFullError(
        "expected a time that grows by an equal step for each further micro-batch, or for each few micro-batches, "
        f"got unequal steps up to a gradient_accumulation_count of {count + 2 * spacing}"
    )


def update_cycles(job: Job, priced: runs.Priced = lambda part: (part.costs, part.system)) -> Fraction:
    """Return the mean cycles of a weight update, with the host's part.

    Repetitive session runs are simulated in part. The first weight updates may take longer, until the feeds' buffers
    are full; results may arrive after the last update.

    Args:
        job: the program, with any number of steps.
        priced: function to the costs and the System of the Job, or of a similar Job with other counts.
    """
    updates = job.program.repeat_count
    return Fraction(analysis.throughput_of(runs.timeline_of(job, updates, price=priced)).run_cycles, updates)
