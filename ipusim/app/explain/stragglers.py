"""Compute the cost of stragglers: time lost to slow IPUs, stages, kinds of pass and copies, as S, S_t, S_w, M_W, M_S.

Definitions follow Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025),
equations 1, 2, 4 and 5. A worker is an IPU of a replica, in all replicas together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median_low
from typing import Any, Final

from ipusim.api import Costs, Job, SpanKind, System, Timeline, analysis, hardware, pricing, runs
from ipusim.app.render.tables import Table

#: Fraction of slowest workers in M_W.
_SLOWEST_SHARE: Final = 0.03
#: Minimum number of variants to compute together; below this number, separate simulations are faster.
_LEAST_JOINT_RUNS: Final = 3
#: Minimum slowdown of straggling runs.
LEAST_SLOWDOWN: Final = 1.1
#: Printed definitions of terms.
DEFINITIONS: Final = (
    (
        "T_ideal",
        "time of the run with each pass at the mean of its kind over the IPUs, each send at the median of its "
        "direction, and no disturbances",
    ),
    ("S", "T / T_ideal: the slowdown of the run; the run straggles from 1.1, and 1 - 1/S of the IPUs' time is waste"),
    ("S_t", "T / T_ideal with operations of type t as simulated, and all others ideal"),
    ("S_w", "T / T_ideal with IPU w as simulated, with disturbances, and all others ideal"),
    ("M_W", "(T - T with the slowest 3 % of the IPUs, at least one, ideal) / (T - T_ideal)"),
    (
        "M_S",
        "(T - T with the last stage ideal) / (T - T_ideal); below 0 if the last stage is faster than the ideal",
    ),
)


@dataclass(frozen=True)
class Stragglers:
    """Cost of stragglers in a run.

    Attributes:
        cycles: length of the run, T.
        ideal_cycles: length of the ideal run, T_ideal.
        by_type: S_t of every type of operation.
        by_ipu: S_w of every IPU of a replica.
        slowest: slowest IPUs, in M_W.
        share_of_slowest, share_of_last: M_W and M_S; None for runs no longer than the ideal run.
        replicas: number of replicas; IPUs of equal number in different replicas form a worker.
    """

    cycles: int
    ideal_cycles: int
    by_type: dict[str, float]
    by_ipu: dict[int, float]
    slowest: tuple[int, ...]
    share_of_slowest: float | None
    share_of_last: float | None
    replicas: int = 1

    @property
    def slowdown(self) -> float:
        """Slowdown S."""
        return analysis.slowdown(self.cycles, self.ideal_cycles)

    def words(self) -> Iterator[str]:
        """Yield the slowdown, its meaning, and the straggler."""
        straggles = (
            "straggles" if self.slowdown >= LEAST_SLOWDOWN else f"does not straggle: S is below {LEAST_SLOWDOWN}"
        )
        waste = 1 - 1 / self.slowdown if self.slowdown > 1 else 0.0
        yield f"S is {self.slowdown:.3f}: the run {straggles}; {waste:.1%} of the IPUs' time is waste."
        if self.share_of_slowest is None or self.share_of_last is None:
            takes = "less than" if self.slowdown < 1 else "as long as"
            yield f"M_W and M_S are not defined, because the run takes {takes} the ideal run."
            return
        ipus = f"IPU {', '.join(map(str, self.slowest))}{' of each replica' * (self.replicas > 1)}"
        yield (
            f"Of the time lost, {self.share_of_slowest:.1%} would be saved if the slowest IPUs ({ipus}) were not slow "
            f"(M_W), {self.share_of_last:.1%} if the last stage were not (M_S)."
        )

    def tables(self) -> Iterator[Table]:
        """Yield tables of S_t, S_w and definitions."""
        types = tuple((name, f"{slowdown:.3f}") for name, slowdown in self.by_type.items())
        yield Table("Slowdown by type of operation", ("type t", "S_t"), types)
        ipus = tuple((str(ipu), f"{slowdown:.3f}") for ipu, slowdown in self.by_ipu.items())
        yield Table("Slowdown by IPU, in all replicas", ("IPU w", "S_w"), ipus)
        yield Table("Words of stragglers", ("word", "meaning"), DEFINITIONS)

    def to_dict(self) -> dict[str, Any]:
        """Return the values as plain data for JSON."""
        return {
            "run_cycles": self.cycles,
            "ideal_cycles": self.ideal_cycles,
            "slowdown": self.slowdown,
            "slowdown_by_type": {name.replace(" ", "_"): slowdown for name, slowdown in self.by_type.items()},
            "slowdown_by_ipu": {str(ipu): slowdown for ipu, slowdown in self.by_ipu.items()},
            "slowest_ipus": list(self.slowest),
            "share_of_slowest_ipus": self.share_of_slowest,
            "share_of_last_stage": self.share_of_last,
            "definitions": dict(DEFINITIONS),
        }


def stragglers(job: Job, timeline: Timeline) -> Stragglers:
    """Compute the cost of stragglers by simulation of variants of a run."""
    shape, passes, disturbances = job.plan.shape, list(job.costs.passes), [*_disturbances_by_ipu(job)]
    kinds = sorted(set(job.plan.kind.tolist()))
    variant_of_type = {_name_of_kind(kind): _Variant([key for key in passes if key[0] == kind]) for kind in kinds}
    if any(send.cycles or send.lead_cycles for send in job.costs.sends.values()):
        variant_of_type["copies"] = _Variant(copies=True)
    if disturbances:
        variant_of_type["disturbances"] = _Variant(disturbed=disturbances)
    passes_on = {ipu: [key for key in passes if ipu in shape.ipus_of(key[1])] for ipu in job.plan.ipus}
    variant_of_ipu = {
        ipu: _Variant(
            keys, disturbed=[disturbance for disturbance in disturbances if _ipu_in_replica(disturbance, job) == ipu]
        )
        for ipu, keys in passes_on.items()
    }
    ideal, *cycles_of_variants = _cycles(job, [_Variant(), *variant_of_type.values(), *variant_of_ipu.values()])
    by_type = dict(zip(variant_of_type, cycles_of_variants[: len(variant_of_type)], strict=True))
    by_ipu = dict(zip(variant_of_ipu, cycles_of_variants[len(variant_of_type) :], strict=True))
    cycles = analysis.throughput_of(timeline).run_cycles
    slowest = sorted(sorted(by_ipu, key=lambda ipu: -by_ipu[ipu])[: ceil(_SLOWEST_SHARE * len(by_ipu))])
    kept_passes = [key for key in passes if not {*slowest}.intersection(shape.ipus_of(key[1]))]
    disturbed = [disturbance for disturbance in disturbances if _ipu_in_replica(disturbance, job) not in slowest]
    without_slowest = _Variant(kept_passes, copies=True, disturbed=disturbed)
    kept_passes = [key for key in passes if key[1] != shape.stages - 1]
    ipus_of_last_stage_only = [
        ipu for ipu in passes_on if all(stage == shape.stages - 1 for _, stage in passes_on[ipu])
    ]
    disturbed = [
        disturbance for disturbance in disturbances if _ipu_in_replica(disturbance, job) not in ipus_of_last_stage_only
    ]
    partial_cycles = _cycles(job, [without_slowest, _Variant(kept_passes, copies=True, disturbed=disturbed)])
    lost_cycles = cycles - ideal
    share_of_slowest, share_of_last = (
        (cycles - variant_cycles) / lost_cycles if lost_cycles > 0 else None for variant_cycles in partial_cycles
    )
    types = {name: analysis.slowdown(slower, ideal) for name, slower in by_type.items()}
    ipus = {ipu: analysis.slowdown(slower, ideal) for ipu, slower in by_ipu.items()}
    return Stragglers(cycles, ideal, types, ipus, tuple(slowest), share_of_slowest, share_of_last, job.system.replicas)


def _name_of_kind(kind: int) -> str:
    look = next(span.row.look for span in SpanKind if span.row.of_pass == kind)
    return "pass" if look is None else look.name


def _disturbances_by_ipu(job: Job) -> Iterator[hardware.Disturbance]:
    """Yield the disturbances of a run; jitter of all IPUs is split, as every IPU draws separately."""
    for disturbance in job.system.disturbances:
        if isinstance(disturbance, hardware.Jitter) and disturbance.ipu is None:
            yield from (replace(disturbance, ipu=ipu) for ipu in range(job.system.count))
        else:
            yield disturbance


def _ipu_in_replica(disturbance: hardware.Disturbance, job: Job) -> int | None:
    """Return the disturbed IPU's number within its replica; None unless an IPU is disturbed."""
    ipu: int | None = getattr(disturbance, "ipu", None)
    return None if ipu is None else ipu % job.system.shards


@dataclass(frozen=True)
class _Variant:
    """Variant of a run: listed passes, sends and disturbances are real, further passes and sends ideal.

    Attributes:
        passes: real passes by kind and stage.
        copies: whether all sends are real.
        disturbed: real disturbances.
    """

    passes: Collection[tuple[int, int]] = ()
    copies: bool = False
    disturbed: Sequence[hardware.Disturbance] = ()

    def price(self, job: Job) -> tuple[Costs, System]:
        """Return costs and device of a Job with these real values."""
        costs, system = runs.undisturbed(job)
        system = system.disturbed(self.disturbed)
        # If the same cables are dead, copies take the run's detours.
        costs = job.costs if system.topology == job.system.topology else costs
        ideal = runs.balanced(job, costs.passes)
        passes = {key: cycles if key in self.passes else ideal[key] for key, cycles in costs.passes.items()}
        return replace(costs, passes=passes, sends=costs.sends if self.copies else _median(costs)), system


def _cycles(job: Job, variants: Sequence[_Variant]) -> list[int]:
    """Return the run's cycles per variant.

    Three or more variants with real values of passes only are computed together, without event simulation.
    Other variants are simulated.
    """
    passes_only = [variant for variant in variants if not (variant.copies or variant.disturbed)]
    cycles_of = dict[int, int | None]()
    if len(passes_only) >= _LEAST_JOINT_RUNS:
        passes = [variant.price(job)[0].passes for variant in passes_only]
        results = runs.runs_with_passes(job, job.executions, passes_only[0].price, passes)
        cycles_of = dict(zip(map(id, passes_only), results, strict=True))

    def cycles(variant: _Variant) -> int:
        result = cycles_of.get(id(variant))
        if result is not None:
            return result
        return analysis.throughput_of(runs.timeline_of(job, job.executions, price=variant.price)).run_cycles

    return [cycles(variant) for variant in variants]


def _median(costs: Costs) -> dict[tuple[int, int, int, int], pricing.Send]:
    """Return a run's sends with the median duration of their direction, forward or backward."""
    sends = {}
    for forward in (True, False):  # key[2] is the source stage, key[3] the target stage
        same_direction = {key: send for key, send in costs.sends.items() if (key[3] > key[2]) is forward}
        for key, send in same_direction.items():
            lead = median_low(copy.lead_cycles for copy in same_direction.values())
            cycles = median_low(copy.cycles for copy in same_direction.values())
            sends[key] = send._replace(lead_cycles=lead, cycles=cycles)
    return {key: sends[key] for key in costs.sends}
