"""Find the limit of throughput over accumulation counts, and counts near the limit.

A full pipeline takes a + b G cycles for G micro-batches per weight update. Ramps and update take a cycles, and each
micro-batch takes b more. Throughput therefore approaches the limit given by b, from below unless passes of a pipeline
that is not full take less time (negative a). Both constants come from simulated points: three points at counts of a
full pipeline must lie exactly on a line. If they do not, larger counts are simulated until three points do.
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

#: Share of the ceiling from which throughput counts as near the ceiling.
NEAR_SHARE: Final = Fraction(95, 100)
#: Share of the ceiling that is often sufficient.
ENOUGH_SHARE: Final = Fraction(90, 100)
#: Maximum number of counts tried on either side of an estimate, which may miss if the pipeline is not yet full.
_MOST_TRIED_COUNTS: Final = 64
#: Words for what keeps IPUs with balanced stages from computing all the time.
_OTHER_LOSSES: Final = "Copies, syncs, host{} and order of passes"


@dataclass(frozen=True)
class SweepCeiling:
    """Limit of throughput in a sweep of counts.

    Attributes:
        options: values of the other options by path.
        samples_per_s: limit of throughput for large counts.
        above: simulated count with the highest throughput above ``samples_per_s``, and this throughput; None if no
            count exceeds the ceiling.
        enough_count, near_count: smallest counts accepted by the schedule that reach the shares ENOUGH_SHARE and
            NEAR_SHARE of the ceiling.
        near_samples_per_s: throughput at ``near_count``; None beyond the simulated counts, where ``near_count``
            extrapolates the line.
        balance: mean arithmetic of the IPUs divided by that of the busiest IPU: the share of the ideal throughput that
            the stages' balance allows.
        other_share: share of this throughput that copies, syncs, host, disturbances and order of passes allow.
        is_disturbed: whether the scenario has disturbances.
    """

    options: Mapping[str, Any]
    samples_per_s: float
    above: tuple[int, float] | None
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
        above = (
            f" A count of {self.above[0]} exceeds it, with {format_throughput(self.above[1])}." if self.above else ""
        )
        beyond = " (beyond those simulated)" if self.near_samples_per_s is None else ""
        return (
            f"{f'{options}: ' if options else ''}Ceiling, the throughput with ever more micro-batches: "
            f"{format_throughput(self.samples_per_s)}.{above} Counts of {self.enough_count} and more reach "
            f"{float(ENOUGH_SHARE):.0%} of the ceiling, counts of {self.near_count} and more reach "
            f"{float(NEAR_SHARE):.0%}{beyond}. {self._losses()}"
        )

    def _losses(self) -> str:
        """Return a sentence on the throughput of IPUs that always compute, and on what lowers it to the ceiling."""
        ideal = self.samples_per_s / self.share_of_ideal
        balanced = ideal * self.balance
        others = _OTHER_LOSSES.format(", disturbances" if self.is_disturbed else "")
        lowered = {"Unequal stages": (ideal, balanced), others: (balanced, self.samples_per_s)}
        losses = [
            f"{cause} lower it to {format_throughput(lower)}."
            for cause, (higher, lower) in lowered.items()
            if format_throughput(higher) != format_throughput(lower)
        ]
        if not losses:
            return "At the ceiling all IPUs always compute."
        return " ".join([f"If IPUs always computed, the throughput would be {format_throughput(ideal)}.", *losses])


@sharing
def ceilings(sweep: Sweep) -> tuple[SweepCeiling, ...]:
    """Return the ceilings by combination of other options; empty if counts vary together with other options.

    Combinations whose time does not grow linearly are left out.
    """
    count_axis = next((number for number, axis in enumerate(sweep.axes) if axis.path == COUNT), None)
    if count_axis is None or (sweep.is_zipped and len(sweep.axes) > 1):
        return ()
    groups: dict[str, dict[int, Outcome]] = {}
    values_of_group: dict[str, dict[str, Any]] = {}
    for point, outcome in sweep.finished_points:
        values = {axis.path: value for axis, value in zip(sweep.axes, point, strict=True) if axis.path != COUNT}
        key = "\n".join(map(text_of, values.values()))
        values_of_group[key] = values
        if outcome.has_run and type(point[count_axis]) is int:
            groups.setdefault(key, {})[point[count_axis]] = outcome
    limits = (_ceiling(sweep, values_of_group[key], outcomes) for key, outcomes in groups.items())
    return tuple(limit for limit in limits if limit is not None)


def _ceiling(sweep: Sweep, values: dict[str, Any], outcomes: dict[int, Outcome]) -> SweepCeiling | None:
    largest_count = max(outcomes)
    job = try_request(sweep.request, {**values, COUNT: largest_count}).job
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

    def least_count(share: Fraction) -> int:
        """Return the smallest count from which every simulated count has ``share``; larger counts follow the line."""
        count = limit.count_for(share)
        if count > largest_count:
            return count
        for _ in range(_MOST_TRIED_COUNTS):
            if has_share(count, share):
                break
            count += step
        for _ in range(_MOST_TRIED_COUNTS):
            if count <= step or not has_share(count - step, share):
                break
            count -= step
        # Throughput may fall between counts, as in schedules with pairs of micro-batches.
        missing = [larger for larger in outcomes if larger >= count and not has_share(larger, share)]
        return max(missing) + step if missing else count

    enough, near = least_count(ENOUGH_SHARE), least_count(NEAR_SHARE)
    rate = outcome_at(near).samples_per_s if near <= largest_count else None
    fastest = max(outcomes, key=lambda count: count / cycles_at(count))
    rate_above = outcomes[fastest].samples_per_s if fastest * slope > cycles_at(fastest) else None
    above = None if rate_above is None else (fastest, rate_above)
    balance, other_share = float(limit.mean / limit.busiest), float(limit.busiest / slope)
    is_disturbed = bool(job.request.options.disturbances)
    return SweepCeiling(values, limit.samples_per_s, above, enough, near, rate, balance, other_share, is_disturbed)
