"""Limit of throughput over accumulation counts, and counts near the limit.

A full pipeline takes a + b G cycles for G micro-batches per weight update: a for ramps and update, b per micro-batch,
in lock-step a time-step. Throughput therefore approaches the limit given by b from below. Both constants come from
simulated points. Three points must lie exactly on a line, at counts of a full pipeline. Otherwise larger counts are
simulated until three points do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.render.tables import text_of
from ipusim.app.study.full_pipeline import Full
from ipusim.app.study.trial import try_request
from ipusim.app.sweep.outcome import Outcome, outcome_of
from ipusim.app.sweep.sweep import Sweep
from ipusim.base.cache import sharing
from ipusim.base.units import format_throughput

#: Option with a ceiling.
COUNT: Final = "pipeline.gradient_accumulation_count"
#: Share of the ceiling called near, and share that is often sufficient.
NEAR: Final = Fraction(95, 100)
ENOUGH: Final = Fraction(90, 100)
#: Candidate periods, as multiples of the full pipeline's count step.
_PERIODS: Final = 1, 2, 3, 4
#: Most counts tried beside the estimate, which a pipeline that is not yet full may miss.
_MOST_TRIED: Final = 64


@dataclass(frozen=True)
class Ceiling:
    """Limit of throughput in a sweep of counts.

    Attributes:
        options: values of the other options by path.
        samples_per_s: upper bound of the throughput at any count.
        enough_count, near_count: least counts with shares ENOUGH and NEAR of the limit that the schedule can lay out.
        near_samples_per_s: throughput at ``near_count``; None beyond the simulated counts, where ``near_count``
            extrapolates the line.
        balance: mean arithmetic of the IPUs over that of the busiest IPU: the share allowed by the stages' balance.
        other_share: share of the balanced rate left by copies, syncs, host and order of passes.
    """

    options: Mapping[str, Any]
    samples_per_s: float
    enough_count: int
    near_count: int
    near_samples_per_s: float | None
    balance: float
    other_share: float

    @property
    def of_ideal(self) -> float:
        """Ceiling as a share of the ideal, with every IPU computing all the time."""
        return self.balance * self.other_share

    def words(self, options: str = "") -> str:
        """Return the ceiling as a sentence; ``options`` names the values of the other options."""
        beyond = " (beyond those simulated)" if self.near_samples_per_s is None else ""
        return (
            f"{f'{options}: ' if options else ''}Ceiling, the throughput with ever more micro-batches: "
            f"{format_throughput(self.samples_per_s)}. Counts from {self.enough_count} on reach {float(ENOUGH):.0%} of "
            f"the ceiling, counts from {self.near_count} on {float(NEAR):.0%}{beyond}. The ceiling is "
            f"{self.of_ideal:.1%} of the ideal, IPUs that always compute: {self.balance:.1%} by the balance of the "
            f"stages x {self.other_share:.1%} by copies, syncs, host and order of passes."
        )


@sharing
def ceilings(sweep: Sweep) -> tuple[Ceiling, ...]:
    """Return the ceilings by combination of the other options; empty unless counts are crossed.

    Combinations without linear growth are left out.
    """
    axis_of_count = next((number for number, axis in enumerate(sweep.axes) if axis.path == COUNT), None)
    if axis_of_count is None or (sweep.is_zipped and len(sweep.axes) > 1):
        return ()
    groups: dict[str, dict[int, Outcome]] = {}
    groups_values: dict[str, dict[str, Any]] = {}
    for point, outcome in sweep.finished_points:
        values = {axis.path: value for axis, value in zip(sweep.axes, point, strict=True) if axis.path != COUNT}
        key = "\n".join(map(text_of, values.values()))
        groups_values[key] = values
        if outcome.has_run and type(point[axis_of_count]) is int:
            groups.setdefault(key, {})[point[axis_of_count]] = outcome
    limits = (_ceiling(sweep, groups_values[key], outcomes) for key, outcomes in groups.items())
    return tuple(limit for limit in limits if limit is not None)


def _ceiling(sweep: Sweep, values: dict[str, Any], outcomes: dict[int, Outcome]) -> Ceiling | None:
    most = max(outcomes)
    job = try_request(sweep.request, {**values, COUNT: most}).job
    if job is None:
        return None
    step = job.schedule.count_step(job.program.shape)

    @cache
    def outcome_at(count: int) -> Outcome:
        return outcomes.get(count) or outcome_of(sweep.request, {**values, COUNT: count})

    line = _line(sorted(outcomes), runs.full_counts(job), outcome_at)
    if line is None:
        return None
    first, last = line
    low, high = outcome_at(first), outcome_at(last)
    slope = (_period(high) - _period(low)) / (last - first)
    per_count = Fraction(high.samples, last)
    busiest = Fraction(high.busiest_cycles - low.busiest_cycles, last - first)
    mean = Fraction(high.compute_cycles - low.compute_cycles, (last - first) * high.ipus)
    if slope <= 0 or busiest <= 0:
        return None
    limit = per_count * high.clock_hz / slope
    full = Full(last, step, _period(high), slope)
    enough, count = (_least(share, limit, full, step, outcomes, outcome_at) for share in (ENOUGH, NEAR))
    rate = outcome_at(count).samples_per_s if count <= most else None
    return Ceiling(values, float(limit), enough, count, rate, float(mean / busiest), float(busiest / slope))


def _period(outcome: Outcome) -> Fraction:
    """Return the mean cycles between weight updates."""
    return Fraction(outcome.run_cycles, outcome.executions)


def _line(counts: list[int], full: runs.FullCounts, outcome_at: Callable[[int], Outcome]) -> tuple[int, int] | None:
    """Return two counts on the line of a full pipeline; None without a line."""
    most = max(counts[-1], full.least)
    last = [count for count in counts[-3:] if count >= full.least]
    candidates = [last] if len(last) == 3 and all((most - count) % full.apart == 0 for count in last) else []
    candidates += [[most + turn * period * full.apart for turn in range(3)] for period in _PERIODS]
    for three in candidates:
        if not all(outcome_at(count).has_run for count in three):
            continue
        cycles = [_period(outcome_at(count)) for count in three]
        first, second = ((cycles[n + 1] - cycles[n]) / (three[n + 1] - three[n]) for n in (0, 1))
        if first == second:
            return three[0], three[2]
    return None


def _least(
    share: Fraction, limit: Fraction, full: Full, step: int, counts: Iterable[int], outcome_at: Callable[[int], Outcome]
) -> int:
    """Return the least count from which every count of ``counts`` has this share of ``limit``.

    Larger counts follow the line of the ``full`` pipeline.
    """

    def is_near(count: int) -> bool:
        return outcome_at(count).has_run and Fraction(
            outcome_at(count).samples * outcome_at(count).clock_hz
        ) >= share * limit * _period(outcome_at(count))

    count = full.least_count(share, step)
    if count > max(counts):
        return count
    for _ in range(_MOST_TRIED):
        if is_near(count):
            break
        count += step
    for _ in range(_MOST_TRIED):
        if count <= step or not is_near(count - step):
            break
        count -= step
    # Throughput may fall between counts, as in schedules with pairs of micro-batches.
    later = [larger for larger in counts if larger >= count and not is_near(larger)]
    return max(later) + step if later else count
