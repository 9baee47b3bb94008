"""Find the limit of throughput over accumulation counts, and counts near the limit.

A full pipeline takes a + b G cycles for G micro-batches per weight update: a for ramps and update, b per micro-batch,
in lock-step a time-step. Throughput therefore approaches the limit given by b from below. Both constants come from
simulated points. Three points must lie exactly on a line, at counts of a full pipeline. Otherwise larger counts are
simulated until three points do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from ipusim.app.render.tables import text_of
from ipusim.app.study.full_pipeline import COUNT, ceiling_of
from ipusim.app.study.trial import try_request
from ipusim.app.sweep.outcome import Outcome, outcome_of
from ipusim.app.sweep.sweep import Sweep
from ipusim.base.cache import sharing
from ipusim.base.errors import CountError
from ipusim.base.units import format_throughput

#: Share of the ceiling that counts as near it.
NEAR_SHARE: Final = Fraction(95, 100)
#: Share of the ceiling that is often sufficient.
ENOUGH_SHARE: Final = Fraction(90, 100)
#: Maximum number of counts tried besides an estimated count; estimates may miss if the pipeline is not yet full.
_MOST_TRIED: Final = 64
#: What keeps IPUs with balanced stages from computing all the time.
_OTHER_LOSSES: Final = "Copies, syncs, host{} and order of passes"


@dataclass(frozen=True)
class SweepCeiling:
    """Limit of throughput in a sweep of counts.

    Attributes:
        options: values of the other options by path.
        samples_per_s: upper bound of the throughput at any count.
        enough_count, near_count: smallest counts accepted by the schedule that reach the shares ENOUGH_SHARE and
            NEAR_SHARE of the ceiling.
        near_samples_per_s: throughput at ``near_count``; None beyond the simulated counts, where ``near_count``
            extrapolates the line.
        balance: mean arithmetic of the IPUs over that of the busiest IPU: the share allowed by the stages' balance.
        other_share: share of the balanced rate left by copies, syncs, host, disturbances and order of passes.
        is_disturbed: whether the scenario has disturbances.
    """

    options: Mapping[str, Any]
    samples_per_s: float
    enough_count: int
    near_count: int
    near_samples_per_s: float | None
    balance: float
    other_share: float
    is_disturbed: bool

    @property
    def share_of_ideal(self) -> float:
        """Ceiling as a share of the ideal, with every IPU computing all the time."""
        return self.balance * self.other_share

    def words(self, options: str = "") -> str:
        """Return the ceiling as a sentence; ``options`` names the values of the other options."""
        beyond = " (beyond those simulated)" if self.near_samples_per_s is None else ""
        return (
            f"{f'{options}: ' if options else ''}Ceiling, the throughput with ever more micro-batches: "
            f"{format_throughput(self.samples_per_s)}. Counts from {self.enough_count} on reach "
            f"{float(ENOUGH_SHARE):.0%} of the ceiling, counts from {self.near_count} on "
            f"{float(NEAR_SHARE):.0%}{beyond}. {self._losses()}"
        )

    def _losses(self) -> str:
        """Return a sentence on the throughput of IPUs that always compute, and on what lowers it to the ceiling."""
        ideal = self.samples_per_s / self.share_of_ideal
        balanced = ideal * self.balance
        others = _OTHER_LOSSES.format(", disturbances" if self.is_disturbed else "")
        lowered = {"Unequal stages": (ideal, balanced), others: (balanced, self.samples_per_s)}
        losses = [
            f"{cause} lower it to {format_throughput(to)}."
            for cause, (before, to) in lowered.items()
            if format_throughput(before) != format_throughput(to)
        ]
        if not losses:
            return "At the ceiling all IPUs always compute."
        return " ".join([f"If IPUs always computed, it would be {format_throughput(ideal)}.", *losses])


@sharing
def ceilings(sweep: Sweep) -> tuple[SweepCeiling, ...]:
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


def _ceiling(sweep: Sweep, values: dict[str, Any], outcomes: dict[int, Outcome]) -> SweepCeiling | None:
    most = max(outcomes)
    job = try_request(sweep.request, {**values, COUNT: most}).job
    if job is None:
        return None
    step, executions = job.schedule.count_step(job.program.shape), job.executions

    @cache
    def outcome_at(count: int) -> Outcome:
        return outcomes.get(count) or outcome_of(sweep.request, {**values, COUNT: count})

    def cycles_at(count: int) -> Fraction:
        if not outcome_at(count).has_run:
            raise CountError(outcome_at(count).message)
        return Fraction(outcome_at(count).run_cycles, executions)

    limit = ceiling_of(job, cycles_at, sorted(outcomes))
    if isinstance(limit, str) or limit.full.slope <= 0 or limit.busiest <= 0:
        return None
    slope = limit.full.slope

    def has_share(count: int, share: Fraction) -> bool:
        return outcome_at(count).has_run and count * slope >= share * cycles_at(count)

    def least(share: Fraction) -> int:
        """Return the smallest count from which every simulated count has ``share``; larger counts follow the line."""
        count = limit.count_for(share)
        if count > most:
            return count
        for _ in range(_MOST_TRIED):
            if has_share(count, share):
                break
            count += step
        for _ in range(_MOST_TRIED):
            if count <= step or not has_share(count - step, share):
                break
            count -= step
        # Throughput may fall between counts, as in schedules with pairs of micro-batches.
        later = [larger for larger in outcomes if larger >= count and not has_share(larger, share)]
        return max(later) + step if later else count

    enough, near = least(ENOUGH_SHARE), least(NEAR_SHARE)
    rate = outcome_at(near).samples_per_s if near <= most else None
    balance, other_share = float(limit.mean / limit.busiest), float(limit.busiest / slope)
    is_disturbed = bool(job.request.options.disturbances)
    return SweepCeiling(values, limit.samples_per_s, enough, near, rate, balance, other_share, is_disturbed)
